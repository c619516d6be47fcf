"""The processes of the demo: nodes, and children that say how far they have come."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from story.plan import LOGS, Wrong

DEMO = Path(__file__).parents[1] / "demo.py"
LOGBOOM = [sys.executable, "-m", "logboom"]


class Child:
    def __init__(self, role: str, where: str, notes: str, name: str, number: int, log: str | None = None) -> None:
        arguments = [sys.executable, str(DEMO), "--role", role, where, notes, name, str(number)]
        self.name, self.notes, self.reached, self._log = name, notes, 0, log
        """How far it has come, it says."""
        with contextlib.nullcontext() if log is None else open(log, "wb") as errors:
            self._process = subprocess.Popen(
                arguments, stdout=subprocess.PIPE, stderr=errors, text=True, process_group=0
            )
        self._spoke = threading.Event()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip().isdecimal():  # Java may have something to say too
                self.reached = int(line)
                self._spoke.set()

    def check(self) -> None:
        if self._process.poll():
            said = "" if self._log is None else f", see {self._log}:\n…{Path(self._log).read_text()[-2000:]}"
            raise Wrong(f"{self.name} ended with status {self._process.returncode}{said}")

    def wait_for_word(self) -> None:
        while not self._spoke.wait(0.1):
            self.check()

    def wait_until(self, reached: int) -> None:
        while self.reached < reached:
            self.check()
            time.sleep(0.01)

    def wait(self) -> None:
        self._process.wait()
        self.check()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # Spark's Java too
        self._process.wait()
        self._listener.join()


def free_addresses(count: int) -> list[str]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]
    finally:
        for probe in probes:
            probe.close()


class Node:
    """`logboom serve` in its own process, on one directory and always the same ports."""

    def __init__(self, root: str, *options: str) -> None:
        self.address, self.logd, self.http = free_addresses(3)
        self.directory, self._ready, self._log = f"{root}/data", Path(root, "ready"), f"{root}/node.log"
        self._options = options

    def start(self) -> float:
        """Seconds until it listened."""
        began = time.perf_counter()
        self._ready.unlink(missing_ok=True)
        where = ["--data", self.directory, "--listen", self.address, "--logd", self.logd, "--http", self.http]
        command = [*LOGBOOM, "serve", *where, "--ready-file", str(self._ready), *self._options]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, process_group=0)
        while not self._ready.exists():
            if self._process.poll() is not None:
                raise Wrong(f"the node did not start:\n{self.said}")
            time.sleep(0.005)
        return time.perf_counter() - began

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def said(self) -> str:
        return Path(self._log).read_text()

    def end(self, sent: signal.Signals) -> None:
        self._process.send_signal(sent)
        self._process.wait()

    def command(self, *arguments: str, directory: str | None = None) -> str:
        """What a command of ours prints, asked of this node."""
        environment = self.environment | {"COLUMNS": "100"}
        done = subprocess.run([*LOGBOOM, *arguments], capture_output=True, text=True, env=environment, cwd=directory)
        if done.returncode:
            raise Wrong(f"logboom {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
        return done.stdout.rstrip()

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"LOGBOOM_SERVERS": self.address}

    def ask(self, path: str) -> Any:
        """What HTTP answers, from JSON."""
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=30) as answer:
            return json.load(answer)

    def spans(self, topic: str) -> list[tuple[int, int]]:
        """Of each partition: the first record that its files have, and how many were ever committed."""
        partitions = self.ask(f"/topics/{topic}")["partitions"]
        return [(log["first_stored"] or log["first"], log["committed"]) for log in partitions]

    def ends(self) -> list[int]:
        """Of each log that is written to: how many records it has; none where there is no such topic yet."""
        try:
            return [end for topic in dict(LOGS) for _, end in self.spans(topic)]
        except urllib.error.HTTPError:
            return []
