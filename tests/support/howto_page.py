"""The blocks of a page of docs/howto: what is to be typed, and whether an answer is what stands below it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
WILD = {"timestamp", "id", "topic_id", "next", "bookmark", "updated", "_ts"}
"""Fields whose content is another one each time."""
TIMED_OUT = 28


class Block(NamedTuple):
    line: int
    language: str
    text: str


def blocks(page: str) -> Iterator[Block]:
    for found in re.finditer(r"^```(\w+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        yield Block(page.count("\n", 0, found.start()) + 1, found[1], found[2])


def run(block: Block, address: str, directory: Path, **environment: str) -> str:
    text = block.text.replace("localhost:1775", address)
    command = ["sh", "-c", text] if block.language == "sh" else [sys.executable, "-c", text]
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "HOME": str(directory), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
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
