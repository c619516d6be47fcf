"""docs/howto/watch.md: what it says to type works, what it shows looks so, and every metric it names exists."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.howto_page import HOWTO, Block, alike, blocks, documents, run
from support.nodes.process import NodeProcess, free_port
from support.packages import need

PAGE = (HOWTO / "watch.md").read_text()
BLOCKS = list(blocks(PAGE))


class Typing:
    """Types blocks where a node runs that has the topic the page speaks of."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._http = f"127.0.0.1:{free_port()}"
        self.node = NodeProcess(directory, "--logd", "127.0.0.1:0", "--http", self._http)
        (directory / ".curlrc").write_text("silent\nshow-error\nfail\n")
        bin_directory = Path(sys.executable).parent
        self._environment = {
            "PATH": f"{bin_directory}{os.pathsep}{os.environ['PATH']}",
            "LOGBOOM_SERVERS": self.node.address,
            "COLUMNS": "80",
        }

    def type(self, text: str) -> str:
        return run(Block(0, "sh", text), self._http, self._directory, **self._environment)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Typing]:
    need("curl", "curl")
    shell = Typing(tmp_path_factory.mktemp("watch"))
    with shell.node:
        shell.type("logboom topic create orders && logboom write orders first second")
        yield shell


def test_every_command_works_and_answers_the_json_below_it(shell: Typing) -> None:
    answered = ""
    for block in BLOCKS:
        if block.language == "sh":
            answered = shell.type(block.text)
            assert answered.strip()
        elif block.language == "json":
            assert alike(documents(block.text), documents(answered)), (block, answered)


def labels_of(page: str) -> list[str]:
    """What stands at the beginning of each line, above the topics, and the titles of the columns."""
    lines = page.splitlines()
    titles = next(number for number, line in enumerate(lines) if line.split()[:1] == ["NAME"])
    return [*(line.split()[0] for line in lines[2:titles]), *lines[titles].split()]


def test_the_page_of_top_has_the_lines_and_columns_that_are_shown(shell: Typing) -> None:
    shown = next(block.text for block in BLOCKS if block.language == "text")
    assert labels_of(shell.type("logboom top")) == labels_of(shown)
    assert max(map(len, shown.splitlines())) <= 80


def test_what_is_said_of_scripts_is_true(shell: Typing) -> None:
    paragraph = next(part for part in PAGE.split("\n\n") if part.startswith("In scripts"))
    once, as_json, *keys = re.findall(r"`([^`]+)`", paragraph)
    assert "orders" in shell.type(once)
    assert list(json.loads(shell.type(as_json))) == keys


def test_every_metric_of_an_alert_or_a_query_is_in_the_table() -> None:
    table = set(re.findall(r"^\| `(logboom_\w+)`", PAGE, re.MULTILINE))
    used = {name for block in BLOCKS for name in re.findall(r"\blogboom_\w+", block.text)}
    assert used
    assert {name.removesuffix("_bucket") for name in used} <= table
