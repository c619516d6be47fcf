"""docs/howto/http.md: what it says to type works, in this order, and answers what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from conformance.http_node import http_node
from logboom.protocols.http.settings import HttpSettings
from packages import need

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "http.md"
WILD = {"timestamp", "id", "topic_id", "next", "bookmark", "updated", "_ts"}
"""Fields whose content is another one each time."""
TIMED_OUT = 28


class Block(NamedTuple):
    line: int
    language: str
    text: str


def blocks() -> Iterator[Block]:
    page = PAGE.read_text()
    for found in re.finditer(r"^```(\w+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        yield Block(page.count("\n", 0, found.start()) + 1, found[1], found[2])


def run(block: Block, address: str, directory: Path) -> str:
    text = block.text.replace("localhost:1775", address)
    command = ["sh", "-c", text] if block.language == "sh" else [sys.executable, "-c", text]
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "HOME": str(directory)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode in ((0, TIMED_OUT) if "--max-time" in text else (0,)), (block, done.stderr)
    return done.stdout


def documents(text: str) -> list[Any]:
    """JSON, one after another."""
    found, decoder, text = [], json.JSONDecoder(), text.strip()
    while text:
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:].lstrip()
    return found


def alike(shown: Any, answered: Any, name: str = "") -> bool:
    """Whether an answer is what the page shows: `…` is anything, as a key of an object further keys."""
    if shown == "…":
        return True
    if isinstance(shown, dict) and isinstance(answered, dict):
        keys = shown.keys() - {"…"}
        more = "…" in shown and keys <= answered.keys()
        return (more or keys == answered.keys()) and all(alike(shown[key], answered[key], key) for key in keys)
    if isinstance(shown, list) and isinstance(answered, list):
        return len(shown) == len(answered) and all(map(alike, shown, answered))
    return type(shown) is type(answered) if name in WILD else bool(shown == answered)


def lines_alike(shown: str, answered: str) -> bool:
    """Whether the lines shown come in this order, other lines between them or not."""
    lines = iter(answered.splitlines())
    patterns = [".*".join(map(re.escape, line.split("…"))) for line in shown.splitlines()]
    return all(any(re.fullmatch(pattern, line) for line in lines) for pattern in patterns)


def test_every_block_runs_and_answers_what_the_page_shows(tmp_path: Path) -> None:
    need("curl", "curl")
    (tmp_path / ".curlrc").write_text("silent\nshow-error\n")
    answered, python = "", ""
    with http_node(tmp_path / "data", HttpSettings(cors_origins=("https://example.org",))) as node:
        for block in blocks():
            if block.language == "sh":
                answered = run(block, node.address, tmp_path)
                assert "internal-error" not in answered, (block, answered)
            elif block.language == "python":
                python += block.text
                run(block._replace(text=python), node.address, tmp_path)
            elif block.language == "json":
                assert alike(documents(block.text), documents(answered)), (block, answered)
            else:
                assert lines_alike(block.text, answered), (block, answered)
    assert node.failures == []


def test_the_page_calls_every_operation() -> None:
    from logboom.protocols.http.operations import ALL

    page = PAGE.read_text()
    for operation in ALL:
        pattern = re.sub(r"\\{\w+(:\w+)?\\}", r"[^\\s/?'`]+", re.escape(operation.path))
        assert re.search(rf"(localhost:1775|`){pattern}(?![\w/])", page), (operation.method, operation.path)
