"""`logboom serve` as a real process: how it starts, what it says, how it ends."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from logboom import Writer, connect
from logboom.batch import build
from logboom.broker.api import Appended, NodeStats, Part, ReadRequest, Settings, Start
from logboom.client import FileReader
from logboom.errors import LogboomError
from logboom.storage import DataDirectory
from logboom.storage.data.topic import FlushSettings, SegmentSettings

WAIT_S = 300.0
DEFAULTS = tuple(("127.0.0.1", port) for port in (1773, 1774, 1775))


class Process:
    """A node in `root`, without any of this machine's own settings."""

    def __init__(self, root: Path, *flags: str, before: Callable[[], None] | None = None) -> None:
        self.root = root
        root.mkdir(exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LOGBOOM_")}
        environment |= {"HOME": str(root), "XDG_DATA_HOME": str(root / "share")}
        self._err = open(root / "err", "a+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "logboom", "serve", *flags],
            cwd=root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=self._err,
            text=True,
            preexec_fn=before,
        )

    @property
    def said(self) -> str:
        return (self.root / "err").read_text()

    def ready(self) -> dict[str, Any]:
        """What `--json` says, once it listens."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.said
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self, *signals: int) -> int:
        for number in signals:
            self.process.send_signal(number)
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._err.close()


@contextmanager
def started(root: Path, *flags: str, before: Callable[[], None] | None = None) -> Iterator[Process]:
    process = Process(root, *flags, before=before)
    try:
        yield process
    finally:
        process.close()


def refused(root: Path, *flags: str) -> str:
    """What a node says that cannot start."""
    with started(root, *flags) as node:
        assert node.end() == 2, node.said
        return node.said


PORTS = ("--listen", "127.0.0.1:0", "--logd", "127.0.0.1:0", "--http", "127.0.0.1:0")
LOCAL = ("--data", "data", *PORTS, "--json")


async def stats_of(address: str) -> NodeStats:
    async with connect(address) as broker:
        return await broker.stats()


def is_taken(address: tuple[str, int]) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen()
        except OSError:
            return True
    return False


@pytest.fixture
def default_ports() -> Iterator[None]:
    """One at a time of all test runs on this machine has the default ports."""
    with open(Path(tempfile.gettempdir(), f"logboom-default-ports-{os.getuid()}"), "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if any(map(is_taken, DEFAULTS)):
            pytest.skip("another program has one of the ports 1773, 1774 and 1775")
        yield


@pytest.mark.usefixtures("default_ports")
def test_without_any_configuration_it_just_works_and_a_second_one_says_why_it_cannot(tmp_path: Path) -> None:
    with started(tmp_path / "one") as node:
        assert node.process.stdout is not None
        screen = []
        for line in node.process.stdout:
            screen.append(line)
            if "Ctrl-C" in line:
                break
        text = "".join(screen)
        assert len(screen) <= 24
        assert f"{tmp_path}/one/share/logboom" in text
        assert "127.0.0.1:1773" in text
        assert "logboom write events hello world" in text
        assert asyncio.run(stats_of("127.0.0.1:1773")).topics == 0
        said = refused(tmp_path / "two")
        assert "127.0.0.1:1773 is taken by another process" in said
        assert "--listen 127.0.0.1:0" in said
        assert node.end(signal.SIGINT) == 0
        assert "everything is on disk" in node.said


def test_the_ready_file_and_the_ready_line_say_where_it_is_and_the_file_goes_with_it(tmp_path: Path) -> None:
    unix = tmp_path / "data" / "node.sock"
    with started(tmp_path, *LOCAL, "--unix", str(unix), "--ready-file", "ready") as node:
        ready = node.ready()
        assert json.loads((tmp_path / "ready").read_text()) == ready
        assert (ready["pid"], ready["unix"]) == (node.process.pid, str(unix))
        assert ready["directory"] == str(tmp_path / "data")
        for address in (*ready["binary"], f"unix:{unix}"):
            stats = asyncio.run(stats_of(address))
            assert (stats.node_id, stats.cluster_id) == (ready["node_id"], ready["cluster_id"])
            assert stats.connections == {"binary": 1, "logd": 0, "http": 0}
        for command in (["check"], ["doctor"], ["doctor", "--quick"]):
            done = subprocess.run(
                [sys.executable, "-m", "logboom", *command, "--json", str(tmp_path / "data")],
                capture_output=True,
                check=False,
            )
            findings = json.loads(done.stdout)["findings"]
            assert [found for found in findings if found["kind"] == "foreign file"] == []
        assert node.end(signal.SIGTERM) == 0
        assert not unix.exists()
        assert not (tmp_path / "ready").exists()


def test_what_was_promised_under_load_is_there_after_sigterm(tmp_path: Path) -> None:
    written: list[int] = []
    with started(tmp_path, *LOCAL) as node:
        address = node.ready()["binary"][0]
        done = threading.Event()

        def load() -> None:
            writer = Writer("events", address, acks="durable", delivery_timeout_s=5.0)
            number = 0
            while not done.is_set():
                future = writer.send(b"%d" % number)
                number += 1
                try:
                    written.append(future.result().seqno)
                except LogboomError:
                    break
            with suppress(LogboomError):
                writer.close()

        thread = threading.Thread(target=load)
        thread.start()
        deadline = time.monotonic() + WAIT_S
        while len(written) < 50 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert node.end(signal.SIGTERM) == 0, node.said
        done.set()
        thread.join()
    assert len(written) >= 50
    with FileReader(str(tmp_path / "data"), "events") as reader:
        values = [record.value for record in reader.records()]
    assert len(values) > max(written)
    assert [values[seqno] for seqno in written] == [b"%d" % number for number in range(len(written))]
    with DataDirectory.open(str(tmp_path / "data")) as data:
        assert data.was_clean


def test_a_client_that_never_reads_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with started(tmp_path, *LOCAL, "--set", "shutdown_deadline_ms=60s") as node:
        host, _, port = node.ready()["binary"][0].rpartition(":")
        with socket.create_connection((host, int(port))), socket.create_connection((host, int(port))) as silent:
            silent.sendall(b"\xff\x00")
            assert node.end(signal.SIGTERM) == 0, node.said


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once_and_the_next_start_recovers(tmp_path: Path, first: signal.Signals) -> None:
    with started(tmp_path, *LOCAL) as node:
        node.ready()
        os.kill(node.process.pid, signal.SIGSTOP)
        second = signal.SIGINT if first == signal.SIGTERM else signal.SIGTERM
        # Which of two pending signals is handed over first is the system's to decide.
        code = node.end(first, second, signal.SIGCONT)
        assert code in (128 + signal.SIGTERM, 128 + signal.SIGINT), node.said
        assert f"a second signal, {signal.Signals(code - 128).name}: ended at once" in node.said
    with started(tmp_path, *LOCAL) as node:
        node.ready()
        assert "the last shut-down was not clean" in node.said
        assert node.end(signal.SIGTERM) == 0


def test_a_hang_up_ends_nothing(tmp_path: Path) -> None:
    with started(tmp_path, *LOCAL) as node:
        address = node.ready()["binary"][0]
        node.process.send_signal(signal.SIGHUP)
        assert asyncio.run(stats_of(address)).topics == 0
        assert "SIGHUP" in node.said
        assert node.end(signal.SIGTERM) == 0


def test_a_port_that_was_asked_for_and_is_taken_stops_the_start_and_leaves_the_data_alone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = "{}:{}".format(*other.getsockname())
        assert f"{address} is taken" in refused(tmp_path, "--data", "data", "--listen", address)
    assert not (tmp_path / "data").exists()


def test_a_wrong_configuration_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "logboom.toml").write_text("[limits]\nbatch_bites = 5\n")
    said = refused(tmp_path)
    assert f"limits.batch_bites: there is no such key ({tmp_path}/logboom.toml)" in said
    assert "limits.batch_bytes" in said
    (tmp_path / "logboom.toml").unlink()
    assert "1 to 256" in refused(tmp_path, "--set", "threads=1000")


def test_a_directory_of_another_cluster_or_a_newer_format_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path / "data"), cluster_id="harbour"):
        pass
    said = refused(tmp_path, *LOCAL, "--set", "cluster_id=mill")
    assert "belongs to cluster harbour, this is cluster mill: name another directory" in said
    (tmp_path / "data" / "node.json").write_text('{"node_id": "n", "cluster_id": "harbour", "format": 99}')
    assert "format 99, this release writes 1: use the release that wrote it" in refused(tmp_path, *LOCAL)


def test_a_directory_in_use_is_waited_for_a_moment_and_then_refused_with_its_holder(tmp_path: Path) -> None:
    held = DataDirectory.open(str(tmp_path / "data"))
    try:
        assert f"is in use by process {os.getpid()}" in refused(tmp_path, *LOCAL)
        with started(tmp_path, *LOCAL) as node:
            time.sleep(0.3)
            held.close()
            node.ready()
            assert node.end(signal.SIGTERM) == 0
    finally:
        held.close()


def test_an_unclean_end_is_told_at_the_next_start_with_what_was_cut(tmp_path: Path) -> None:
    with started(tmp_path, *LOCAL) as node:
        with Writer("events", node.ready()["binary"][0]) as writer:
            writer.write_many([b"x"] * 100)
        node.end(signal.SIGKILL)
    (segment,) = (tmp_path / "data" / "topics").glob("events~*/0/*.log")
    with open(segment, "ab") as file:
        file.write(b"LGBM torn")
    with started(tmp_path, *LOCAL) as node:
        ready = node.ready()
        assert "the last shut-down was not clean" in node.said
        assert "9 bytes of a torn tail were cut off" in node.said
        assert asyncio.run(stats_of(ready["binary"][0])).topics == 1
        assert node.end(signal.SIGTERM) == 0


def test_with_few_descriptors_connections_are_refused_in_words_and_welcome_again_when_others_leave(
    tmp_path: Path,
) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))

    with started(tmp_path, *LOCAL, before=few) as node:
        address = node.ready()["binary"][0]
        host, _, port = address.rpartition(":")
        crowd = [socket.create_connection((host, int(port))) for _ in range(200)]
        with pytest.raises(LogboomError, match=r"limits\.connections = 40"):
            asyncio.run(stats_of(address))
        with pytest.raises(LogboomError, match=r"limits\.connections = 40"):
            asyncio.run(stats_of(address))
        for one in crowd:
            one.close()
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                stats = asyncio.run(stats_of(address))
                break
            except LogboomError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert stats.rejections["limits.connections"] >= 160
        with Writer("events", address) as writer:
            writer.write(b"x")
        assert node.end(signal.SIGTERM) == 0, node.said


def test_with_few_descriptors_many_topics_and_a_crowd_of_connections_nothing_is_refused(tmp_path: Path) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))

    async def write_all(address: str, crowd: list[socket.socket]) -> None:
        host, _, port = address.rpartition(":")
        async with connect(address) as broker:
            crowd += [socket.create_connection((host, int(port))) for _ in range(200)]
            settings = Settings(segment=SegmentSettings(bytes=4096), flush=FlushSettings("interval", 60_000))
            for number in range(0, 60, 2):
                await broker.create_topic(f"t{number}", 1, settings)
            for turn in range(3):
                value = b"%d" % turn * 3000
                parts = [Part(f"t{number}", [build([value])]) for number in range(60)]
                answers = await broker.append(parts, "leader" if turn % 2 else "durable")
                assert [answer for answer in answers if not isinstance(answer, Appended)] == []
            for number in range(60):
                chunk = await broker.read(ReadRequest(f"t{number}", Start(seqno=0), 0, wait_ms=0))
                assert chunk.next_seqno >= 1

    with started(tmp_path, *LOCAL, before=few) as node:
        ready, crowd = node.ready(), list[socket.socket]()
        try:
            asyncio.run(write_all(ready["binary"][0], crowd))
            assert "no more writes" not in node.said
            assert "Too many open files" not in node.said
        finally:
            for one in crowd:
                one.close()
        assert node.end(signal.SIGTERM) == 0, node.said
    with DataDirectory.open(ready["directory"]) as data:
        assert {data.open_partition(f"t{number}", 0).next for number in range(60)} == {3}
