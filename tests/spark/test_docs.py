"""The pages about Spark are true: every block runs, in its order, and prints what stands below it."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom.spark.read import options
from spark.classes import java_options
from support.howto_page import HOWTO, Block, blocks, lines_alike
from support.nodes.process import NodeProcess

ROOT = HOWTO.parents[1]
REFERENCE = ROOT / "docs" / "reference" / "spark.md"
ADDRESS = "localhost:1773"
PATIENCE_S = 300.0
COMMAND_S = 300.0
PAGES = "spark.md", "spark-write.md", "spark-from-kafka.md", "checkpoints.md", "archive.md"
QUIET = "-Dspark.ui.enabled=false -Dspark.ui.showConsoleProgress=false"
"""A directory of settings would be one more on the path of classes, and those that are kept fit no other path."""
ANSWER = "\x1e"
READER = f"""
import contextlib, io, json, sys
names = {{"__name__": "__main__"}}
for line in sys.stdin:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(json.loads(line), names)
    print({ANSWER!r} + json.dumps(printed.getvalue()), flush=True)
"""
"""Runs one block after another, as somebody would who types them into one Python."""


class Desk:
    """A directory with a node's data, a shell and a Python that goes on from block to block."""

    def __init__(self, directory: Path, node: NodeProcess, remote: str) -> None:
        """Commands that want a Spark have the one at `remote`: what they do with one of their own others test."""
        self._directory = directory
        self._node = node
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "LOGBOOM_SERVERS": node.address,
            "JAVA_TOOL_OPTIONS": f"{java_options()} {QUIET}",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TZ": "UTC",
        }
        self._remote = {"SPARK_REMOTE": remote}
        self._python = subprocess.Popen(
            [sys.executable, "-c", READER],
            cwd=directory,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        try:
            self._python.communicate(timeout=PATIENCE_S)
        finally:
            self._python.kill()

    def type(self, block: Block) -> str:
        text = block.text.replace(ADDRESS, self._node.address)
        if block.language == "sh":
            return self._shell(text)
        assert self._python.stdin is not None
        assert self._python.stdout is not None
        self._python.stdin.write(json.dumps(text) + "\n")
        self._python.stdin.flush()
        for line in self._python.stdout:
            if line.startswith(ANSWER):
                printed: str = json.loads(line[len(ANSWER) :])
                return printed
        raise AssertionError(f"the block in line {block.line} failed, see standard error:\n{text}")

    def _shell(self, text: str) -> str:
        done = subprocess.run(
            ["sh", "-ec", text],
            cwd=self._directory,
            env=self._environment | ({} if "spark-sql" in text else self._remote),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_S,
        )
        assert done.returncode == 0, (text, done.stderr)
        return done.stdout

    def follow(self, page: str) -> None:
        """What a shell is asked is asked again for a while where the answer is not yet what is shown.

        Settings are for the reader.
        """
        typed, printed = Block(0, "", ""), ""
        for block in blocks(page):
            if block.language in ("sh", "python"):
                typed, printed = block, self.type(block)
                continue
            if block.language == "toml":
                continue
            give_up = time.monotonic() + PATIENCE_S
            while not lines_alike(block.text, printed):
                assert typed.language == "sh", (block, printed)
                assert time.monotonic() < give_up, (block, printed)
                printed = self.type(typed)


@pytest.fixture(scope="module")
def desk(remote: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    directory = tmp_path_factory.mktemp("desk")
    with NodeProcess(directory, "--logd", "127.0.0.1:0", "--http", "127.0.0.1:0") as node:
        desk = Desk(directory, node, remote)
        try:
            yield desk
        finally:
            desk.close()


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_runs_and_prints_what_the_page_shows(page: str, desk: Desk) -> None:
    desk.follow((HOWTO / page).read_text())


def test_what_the_readme_shows_of_spark_runs(desk: Desk) -> None:
    desk.type(Block(0, "sh", "logboom write readings 21.5 --key thermo-7 --channel site/7/temp"))
    (example,) = re.findall(r"^```python spark\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert "site/7/temp" in desk.type(Block(0, "python", example))


def test_the_reference_is_what_the_options_are() -> None:
    made = runpy.run_path(str(REFERENCE.with_suffix(".py")))
    assert made["page"]() == REFERENCE.read_text(), "run python docs/reference/spark.py"


def test_every_option_is_named_where_jobs_come_from_kafka() -> None:
    page = (HOWTO / "spark-from-kafka.md").read_text()
    named = set(re.findall(r"`([\w.]+)`", page))
    kafkas = {name for name in options.NAMES if "ffset" in name or name.startswith(("subscribe", "kafka", "assign"))}
    assert kafkas
    assert kafkas <= named
