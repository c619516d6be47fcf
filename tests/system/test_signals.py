"""SIGTERM ends every command, and cleanly, also where SIGINT was ignored when it was started: as in `command &`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from logboom import Reader, Writer
from logboom.batch import build
from logboom.storage import DataDirectory
from support.nodes.process import NodeProcess
from support.waiting import wait_until

PATIENCE_S = 120.0
LAUNCH = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"


class Deaf:
    """A command that was started with SIGINT ignored. What it says can be asked for while it runs."""

    def __init__(self, *arguments: str, launch: str = LAUNCH) -> None:
        self.said = bytearray()
        self.process = subprocess.Popen(
            [sys.executable, "-c", launch, sys.executable, "-m", "logboom", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._listeners = [
            threading.Thread(target=self._listen, args=(stream,), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for listener in self._listeners:
            listener.start()

    def _listen(self, stream: IO[bytes]) -> None:
        while some := os.read(stream.fileno(), 65536):
            self.said += some

    def wait_until(self, holds: Callable[[], object]) -> None:
        def check() -> None:
            assert self.process.poll() is None, self.said

        wait_until(holds, lambda: f"more than {self.said!r}", limit_s=PATIENCE_S, check=check)

    def wait_for(self, words: bytes) -> None:
        self.wait_until(lambda: words in self.said)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        for listener in self._listeners:
            listener.join()
        return code

    def __enter__(self) -> Deaf:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with DataDirectory.open(str(tmp_path / "data")) as directory:
        directory.create_topic("t")
        (log,) = directory.open_topic("t")
        log.append([build([os.urandom(100_000)]) for _ in range(30)], 1)
        log.commit(log.sync())
    return tmp_path / "data"


def test_a_reader_that_follows(node: NodeProcess) -> None:
    with Writer("followed", node.address) as writer:
        writer.write(b"first")
    with Deaf("read", "followed", "--follow", "--server", node.address) as reader:
        reader.wait_for(b"first")
        os.kill(reader.process.pid, signal.SIGINT)  # stays ignored
        with Writer("followed", node.address) as writer:
            writer.write(b"second")
        reader.wait_for(b"second")
        assert reader.end() == 143
    assert reader.said.endswith(b"logboom: interrupted\n")
    assert b"Traceback" not in reader.said


def test_a_writer_keeps_what_it_was_given(node: NodeProcess) -> None:
    subprocess.run([sys.executable, "-m", "logboom", "topic", "create", "given", "--server", node.address], check=True)
    with Deaf("write", "given", "--server", node.address) as writer:
        assert writer.process.stdin is not None
        writer.process.stdin.write(b"first\n")
        writer.process.stdin.flush()
        with Reader("given", node.address) as reader:
            assert next(reader.records(follow=True)).value == b"first"
        assert writer.end() == 143
    assert b"wrote 1 record" in writer.said
    assert b"Traceback" not in writer.said


def test_a_bench_deletes_the_topic_that_it_has_made(node: NodeProcess) -> None:
    def topics() -> str:
        command = [sys.executable, "-m", "logboom", "topic", "list", "--server", node.address]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert "bench" not in topics()
    with Deaf("bench", "produce", "--seconds", "600", "--server", node.address) as bench:
        bench.wait_until(lambda: "bench" in topics())
        assert bench.end() == 143
    assert b"Traceback" not in bench.said
    assert "bench" not in topics()


def test_a_dump_says_how_to_go_on(data: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    arguments = ("dump", str(data), "--force", "--compress", "none", "--output", str(fifo))
    with Deaf(*arguments) as dump, open(fifo, "rb", buffering=0) as pipe:
        pipe.read(100)
        assert dump.end() == 143
    assert b"with --resume in place of --force continues" in dump.said


def test_a_load_says_how_to_go_on(data: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "logboom", "dump", str(data), "--compress", "none"]
    dumped = subprocess.run(command, check=True, capture_output=True).stdout
    with Deaf("load", str(tmp_path / "copy")) as load:
        assert load.process.stdin is not None
        load.process.stdin.write(dumped[:1500])
        load.process.stdin.flush()
        load.wait_until((tmp_path / "copy" / "node.json").exists)
        assert load.end() == 143
    assert b"run the same command again to continue" in load.said


def test_a_node(tmp_path: Path) -> None:
    ports = [text for name in ("listen", "logd", "http") for text in (f"--{name}", "127.0.0.1:0")]
    ready = tmp_path / "ready"
    with Deaf("serve", "--data", str(tmp_path / "data"), *ports, "--ready-file", str(ready)) as served:
        served.wait_until(ready.exists)
        assert served.end() == 0
    assert b"everything is on disk" in served.said


def test_a_runner_of_the_pipeline(tmp_path: Path, node: NodeProcess) -> None:
    pytest.importorskip("pyspark")
    config = tmp_path / "pipeline.toml"
    job = '[jobs.state]\nkind = "checkpoint"\ntopic = "none"\nby = "key"\nevery = "1h"\n'
    config.write_text(f'server = "127.0.0.1:1"\ndirectory = "{tmp_path}/results"\n{job}')
    with Deaf("pipeline", "serve", "--config", str(config)) as serving:
        serving.wait_for(b"the node is away")
        assert serving.end() == 0
    assert serving.said.rstrip().endswith(b"ended")
    assert b"Traceback" not in serving.said
