"""A command whose output nobody takes any more ends as other tools do: quietly where the reader has gone, with an error
where nothing can be written."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logboom import Writer
from support.nodes.process import NodeProcess

PIPE_CLOSED = 141
FULL = "logboom: standard output: No space left on device\n"


@contextmanager
def gone() -> Iterator[int]:
    """A pipe that nobody reads."""
    taken, given = os.pipe()
    os.close(taken)
    try:
        yield given
    finally:
        os.close(given)


def logboom(*arguments: str, to: int | None = None, errors: int | None = None, node: str = "") -> tuple[int, str]:
    """The exit code, and what was said on standard error unless that goes elsewhere."""
    done = subprocess.run(
        [sys.executable, "-m", "logboom", *arguments],
        stdout=to,
        stderr=subprocess.PIPE if errors is None else errors,
        env={**os.environ, "LOGBOOM_SERVERS": node},
    )
    return done.returncode, (done.stderr or b"").decode()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node"), "--logd", "127.0.0.1:0", "--http", "127.0.0.1:0") as process:
        with Writer("events", process.address) as writer:
            writer.write(b"hello")
        yield process


@pytest.mark.parametrize("form", ["values", "arrow", "parquet"])
def test_a_read_whose_reader_is_gone_ends_as_if_by_sigpipe(node: NodeProcess, form: str) -> None:
    with gone() as pipe:
        assert logboom("read", "events", "--format", form, to=pipe, node=node.address) == (PIPE_CLOSED, "")


@pytest.mark.parametrize("command", ["config example", "--help"])
def test_output_that_nobody_reads_is_no_error_of_usage(command: str) -> None:
    with gone() as pipe:
        assert logboom(*command.split(), to=pipe) == (PIPE_CLOSED, "")


@pytest.mark.parametrize("command", ["config example", "read events", "read events --format parquet"])
def test_output_that_cannot_be_written_is_an_error_that_says_so(node: NodeProcess, command: str) -> None:
    with open("/dev/full", "wb") as full:
        assert logboom(*command.split(), to=full.fileno(), node=node.address) == (2, FULL)


def test_a_dump_says_where_there_is_no_space(node: NodeProcess) -> None:
    with open("/dev/full", "wb") as full:
        assert logboom("dump", str(node.directory), to=full.fileno()) == (2, FULL)
    with gone() as pipe:
        assert logboom("dump", str(node.directory), to=pipe) == (PIPE_CLOSED, "")


def test_an_error_that_nobody_hears_keeps_its_exit_code(tmp_path: Path) -> None:
    with gone() as pipe:
        assert logboom("check", str(tmp_path), errors=pipe)[0] == 2
    with open("/dev/full", "wb") as full:
        assert logboom("check", str(tmp_path), errors=full.fileno())[0] == 2


def test_a_node_does_not_mind_that_nobody_reads_what_it_says(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "logboom", "serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    command += ["--logd", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ready-file", str(tmp_path / "ready")]
    with gone() as pipe, subprocess.Popen(command, stdout=pipe, stderr=subprocess.PIPE, text=True) as node:
        while not (tmp_path / "ready").exists():
            assert node.poll() is None
            time.sleep(0.01)
        node.terminate()
        said = node.communicate()[1]
    assert node.returncode == 0, said
    assert "Broken pipe" not in said
