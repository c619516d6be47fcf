"""A real node, `python -m logboom serve`, on one directory and one port, however often it is killed and started."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from support.nodes.warm import WarmProcess
from support.waiting import wait_until

READY_S = 300.0
PORTS = range(20_000, 32_000)
"""Those from 32768 on the system gives to whoever wants any."""
TURN = Path(f"/tmp/logboom-test-ports-{os.getuid()}")
"""How many ports were given on this machine, to all the processes of all the runs of the tests."""


def free_port() -> int:
    """One that nobody gets by chance until it is used, nor while its node is down: all the others are given before it
    is given again."""
    while True:
        port = PORTS[_next_turn() % len(PORTS)]
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


def _next_turn() -> int:
    with open(TURN, "ab", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(b".")
        return os.fstat(file.fileno()).st_size


class NodeProcess:
    def __init__(self, root: Path, *options: str) -> None:
        self.directory = root / "data"
        self.log = root / "node.log"
        """What it said on standard error, all incarnations."""
        self.address = f"127.0.0.1:{free_port()}"
        self._ready = root / "ready.json"
        self._options = options
        self._process: subprocess.Popen[bytes] | WarmProcess | None = None
        self._pid = 0

    def __enter__(self) -> NodeProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()

    @contextmanager
    def ended(self) -> Iterator[None]:
        """For a node that was started by hand."""
        try:
            yield
        finally:
            self.__exit__()

    def start(self, under: Sequence[str] = (), before: Callable[[], None] | None = None) -> None:
        """Returns when it listens. `under` is a command to run it with, `before` runs in the child before it."""
        self._ready.unlink(missing_ok=True)
        command = ["-m", "logboom", "serve", "--data", str(self.directory)]
        command += ["--listen", self.address, "--ready-file", str(self._ready), *self._options]
        for protocol in {"--logd", "--http"}.difference(self._options):  # their default ports are for one test alone
            command += [protocol, "127.0.0.1:0"]
        with open(self.log, "ab") as log:
            if under or before:
                cold = [*under, sys.executable, *command]
                self._process = subprocess.Popen(cold, stdout=log, stderr=log, preexec_fn=before)
            else:
                self._process = WarmProcess(command, stdout=log, stderr=log)
        try:
            wait_until(self._ready.exists, self._said, limit_s=READY_S, check=self._check_alive)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        self._pid = json.loads(self._ready.read_text())["pid"]

    def _check_alive(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, f"the node did not start:\n{self._said()}"

    def _said(self) -> str:
        return self.log.read_text()[-4000:]

    def kill(self) -> None:
        """SIGKILL to the node itself, not to what it runs under."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """As an operator would; returns the exit code."""
        return self._end(signal.SIGTERM)

    @contextmanager
    def held(self) -> Iterator[None]:
        """As long as this lasts it does nothing, and what reaches it waits. It may be killed meanwhile."""
        os.kill(self._pid, signal.SIGSTOP)
        try:
            yield
        finally:
            if self._process is not None:
                os.kill(self._pid, signal.SIGCONT)

    def _end(self, sent: signal.Signals) -> int:
        assert self._process is not None
        if self._process.poll() is None:
            os.kill(self._pid, sent)
        status = self._process.wait(READY_S)
        self._process = None
        return status
