"""Processes whose imports are done: forked from one that has imported all of Logboom, for nodes, what loads them, and
commands of which a test runs many.

To import what a node needs takes most of a second, and the tests start hundreds of nodes. What runs in the end is the
same: `python -m logboom …` or a script, in a process of its own, with its own standard streams, environment, signals
and exit, which can be killed. Nothing was done in the process that it comes from but imports. What a start from nothing
does is seen by the tests of `logboom serve` and of the command line, which run the real command.

    python -m support.nodes.warm FD        forks at every request that comes through the socket FD
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import IO, Any, Final

TESTS: Final = Path(__file__).parents[2]
NUMBER: Final = struct.Struct("<i")
STREAMS: Final = 3
END_S: Final = 300.0
COLD: Final = ("logboom.spark", "logboom.cli.commands.sql")
"""What no node uses and takes long to import."""

Stream = IO[Any] | int | None
"""As for `subprocess.Popen`: a file, or PIPE, DEVNULL, STDOUT."""


class WarmProcess:
    """What `subprocess.Popen` is for other processes, as far as tests need it.

    `command` is what follows `python`: `-m`, a module and its arguments, or a script and its.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: Stream = None,
        stdout: Stream = None,
        stderr: Stream = None,
        text: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.stdin: IO[Any] | None = None
        self.stdout: IO[Any] | None = None
        self.stderr: IO[Any] | None = None
        self.returncode: int | None = None
        request = {"command": [*command], "directory": os.getcwd(), "environment": dict(env or os.environ)}
        mode = "" if text else "b"
        with ExitStack() as theirs:
            fds: list[int] = []
            for number, stream in enumerate((DEVNULL if stdin is None else stdin, stdout, stderr)):
                if stream == PIPE:
                    ends = os.pipe()
                    fd, ours = ends if number == 0 else reversed(ends)
                    self._set_pipe(number, os.fdopen(ours, f"{'r' if number else 'w'}{mode}"))
                    theirs.callback(os.close, fd)
                elif stream == STDOUT:
                    fd = fds[1]
                elif stream == DEVNULL:
                    fd = os.open(os.devnull, os.O_RDWR)
                    theirs.callback(os.close, fd)
                else:
                    fd = number if stream is None else stream if isinstance(stream, int) else stream.fileno()
                fds.append(fd)
            self._status, told = socket.socketpair()
            theirs.callback(told.close)
            _ask(request, [*fds, told.fileno()])
        self.pid = self._hear()

    def _set_pipe(self, number: int, pipe: IO[Any]) -> None:
        setattr(self, ("stdin", "stdout", "stderr")[number], pipe)

    def _hear(self, flags: int = 0) -> int:
        told = self._status.recv(NUMBER.size, flags)
        if len(told) < NUMBER.size:
            raise ChildProcessError("the process that forks others has ended")
        number: int = NUMBER.unpack(told)[0]
        return number

    def poll(self) -> int | None:
        if self.returncode is None:
            with suppress(BlockingIOError):
                self._end(self._hear(socket.MSG_DONTWAIT))
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.poll() is None:
            self._status.settimeout(timeout)
            try:
                self._end(self._hear())
            except TimeoutError:
                raise subprocess.TimeoutExpired("a warm Python", timeout or 0.0) from None
        assert self.returncode is not None
        return self.returncode

    def _end(self, code: int) -> None:
        self.returncode = code
        self._status.close()

    def communicate(self, said: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        """Says this, ends its input, hears it out and waits for its end."""
        with ThreadPoolExecutor(2) as threads:
            heard = [None if pipe is None or pipe.closed else threads.submit(pipe.read) for pipe in self._pipes]
            if self.stdin is not None:
                with suppress(BrokenPipeError):
                    if said:
                        self.stdin.write(said)
                    self.stdin.close()
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        out, err = (None if answer is None else answer.result() for answer in heard)
        for pipe in self._pipes:
            if pipe is not None:
                pipe.close()
        return out, err

    @property
    def _pipes(self) -> tuple[IO[Any] | None, IO[Any] | None]:
        return self.stdout, self.stderr

    def send_signal(self, sent: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sent)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def run_warm(
    arguments: Sequence[str | Path], *, said: bytes | str | None = None, stdin: Stream = None, text: bool = False
) -> subprocess.CompletedProcess[Any]:
    """`logboom` with these arguments, to its end; it hears what is `said`, or `stdin`."""
    command = ["-m", "logboom", *map(str, arguments)]
    process = WarmProcess(command, stdin=PIPE if said is not None else stdin, stdout=PIPE, stderr=PIPE, text=text)
    out, err = process.communicate(said, END_S)
    return subprocess.CompletedProcess(command, process.returncode or 0, out, err)


def _ask(request: dict[str, Any], fds: Sequence[int]) -> None:
    text = json.dumps(request).encode()
    forks, lock = _forks()
    with lock:
        socket.send_fds(forks, [NUMBER.pack(len(text))], fds)
        forks.sendall(text)


@cache
def _forks() -> tuple[socket.socket, threading.Lock]:
    """The way to the one of this process, which ends with it."""
    ours, theirs = socket.socketpair()
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    theirs.set_inheritable(True)
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "support.nodes.warm", str(theirs.fileno())],
        {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},  # others would be missing in children
        file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
    )
    theirs.close()
    return ours, threading.Lock()


def import_all() -> None:
    import checker
    import logboom

    for package in (logboom, checker):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith(COLD) and not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def fork_for_ever(requests: socket.socket) -> list[str]:
    """In each child, the command that it is for; in the parent no return, but an end when nobody can ask any more."""
    selector = selectors.DefaultSelector()
    selector.register(requests, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.data is not None:
                selector.unregister(key.fileobj)
                os.close(key.fd)
                tell_end(*key.data)
                continue
            request, fds = receive(requests)
            pid = os.fork()
            if pid == 0:
                selector.close()
                requests.detach()
                take_place(request, fds)
                command: list[str] = request["command"]
                return command
            *streams, told = fds
            for fd in streams:
                os.close(fd)
            os.write(told, NUMBER.pack(pid))
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, told))


def receive(requests: socket.socket) -> tuple[dict[str, Any], list[int]]:
    size, fds, _, _ = socket.recv_fds(requests, NUMBER.size, STREAMS + 1)
    if not size:
        os._exit(0)
    request: dict[str, Any] = json.loads(requests.recv(NUMBER.unpack(size)[0], socket.MSG_WAITALL))
    return request, fds


def tell_end(pid: int, told: int) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(BrokenPipeError):  # nobody wants to know any more
        os.write(told, NUMBER.pack(code))
    os.close(told)


def take_place(request: dict[str, Any], fds: Sequence[int]) -> None:
    """As after `exec`: nothing is left of the process that it was but modules."""
    for number, fd in enumerate(fds[:STREAMS]):
        os.dup2(fd, number)
    os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for number, name in enumerate(("stdin", "stdout", "stderr")):  # those there are remember what their files were
        old, mode = getattr(sys, name), "r" if number == 0 else "w"
        buffering = 1 if number == 2 or os.isatty(number) or os.environ.get("PYTHONUNBUFFERED") else -1
        new = os.fdopen(number, mode, buffering, encoding=old.encoding, errors=old.errors, closefd=False)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def run(command: Sequence[str]) -> None:
    if command[0] == "-m":
        sys.argv = [*command[1:]]
        sys.path[0] = os.getcwd()
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [*command]
        sys.path[0] = os.path.dirname(command[0])
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever runs the tests
    import_all()
    gc.collect()
    gc.freeze()
    run(fork_for_ever(socket.socket(fileno=int(sys.argv[1]))))
