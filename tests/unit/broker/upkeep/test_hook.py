"""Hooks as real processes: every way to end, whatever they print, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from logboom.broker.upkeep import hook
from logboom.broker.upkeep.hook import (
    LINE_CHARACTERS_MAX,
    LINES_MAX,
    TAIL_BYTES,
    HookOutcome,
    Output,
    environment_of,
    run_hook,
)
from logboom.storage.upkeep.hooks import HookEntry

ENOUGH_S = 300.0
PRINT = f"{sys.executable} -c"


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    """No descriptor stays open, no child is left unreaped. What other tests have left may go meanwhile."""
    before = descriptors(), children()
    yield
    assert descriptors() <= before[0]
    assert children() <= before[1]


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def children() -> set[str]:
    """Of all threads, dead ones that were not reaped included."""
    found: set[str] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(FileNotFoundError):  # a thread that has ended meanwhile
            found |= set(path.read_text().split())
    return found


def run(command: str, timeout_s: float = ENOUGH_S, term_grace_s: float = ENOUGH_S) -> tuple[HookOutcome, list[str]]:
    lines: list[str] = []
    outcome = run_hook(command, {}, timeout_s, lines.append, term_grace_s=term_grace_s)
    return outcome, lines


def run_until_it_prints(command: str, term_grace_s: float = ENOUGH_S) -> tuple[HookOutcome, list[str]]:
    """Stop the hook at its first line, when it is sure to have come so far."""
    lines: list[str] = []
    stop = threading.Event()

    def log_line(line: str) -> None:
        lines.append(line)
        stop.set()

    return run_hook(command, {}, ENOUGH_S, log_line, stop, term_grace_s), lines


def is_alive(pid: int) -> bool:
    """Whether it runs; one that is dead and that its new parent has not reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(pid: int) -> None:
    """A SIGKILL was sent already; without one this would not end before the test's own limit."""
    while is_alive(pid):
        os.sched_yield()


def test_a_hook_that_exits_with_zero_has_succeeded() -> None:
    outcome, lines = run("echo one; echo two >&2; printf three")
    assert (outcome.code, outcome.error, outcome.output_tail) == (0, None, "one\ntwo\nthree")
    assert lines == ["one", "two", "three"]
    assert outcome.seconds >= 0


def test_a_silent_hook_logs_nothing() -> None:
    outcome, lines = run(":")
    assert (outcome.code, outcome.error, outcome.output_tail, lines) == (0, None, "", [])


def test_a_hook_that_fails_says_its_code_and_its_last_line() -> None:
    outcome, _ = run("echo trying; echo no such bucket; echo; exit 3")
    assert (outcome.code, outcome.error) == (3, "exit code 3: no such bucket")
    assert run("exit 4")[0].error == "exit code 4"


def test_a_command_that_is_not_there_is_told_by_the_shell() -> None:
    outcome, _ = run("/nowhere/at/all")
    assert outcome.code == 127
    assert outcome.error is not None
    assert "not found" in outcome.error


def test_a_hook_that_is_killed_says_the_signal() -> None:
    outcome, _ = run("echo before; kill -KILL $$")
    assert (outcome.code, outcome.error) == (None, "killed by signal 9 (SIGKILL): before")
    number = signal.SIGRTMIN + 3
    assert run(f"kill -{number} $$")[0].error == f"killed by signal {number}"


def test_a_hook_that_hangs_is_ended_at_its_time_limit() -> None:
    outcome, lines = run("sleep 600", timeout_s=0.3)
    assert (outcome.code, outcome.error, lines) == (None, "took longer than 0.3 s", [])


def test_a_hook_that_exits_with_zero_when_it_is_ended_has_failed_all_the_same() -> None:
    outcome, lines = run_until_it_prints("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    assert (outcome.code, outcome.error) == (0, "stopped")
    assert (lines[0], lines[-1]) == ("ready", "bye")  # a shell may say that its sleep was ended


def test_a_hook_that_ignores_the_request_to_end_is_killed() -> None:
    outcome, lines = run_until_it_prints("trap '' TERM; echo $$; while :; do sleep 600; done", term_grace_s=0.1)
    assert (outcome.code, outcome.error) == (None, "stopped")
    assert not is_alive(int(lines[0]))
    outcome, _ = run("trap '' TERM; while :; do sleep 600; done", timeout_s=0.3, term_grace_s=0.1)
    assert (outcome.code, outcome.error) == (None, "took longer than 0.3 s")


def test_a_hook_that_closed_its_output_still_has_its_time_limit() -> None:
    outcome, _ = run("exec >&- 2>&-; sleep 600", timeout_s=0.3)
    assert outcome.error == "took longer than 0.3 s"


def test_a_child_of_an_ended_hook_has_the_time_to_end_properly() -> None:
    """The shell dies of the SIGTERM at once; what it had started may still finish and say so."""
    child = "trap 'sleep 0.4; echo tidied; exit' TERM; echo ready; while :; do sleep 0.05; done"
    outcome, lines = run_until_it_prints(f'sh -c "{child}" & wait; sleep 600')
    assert (outcome.code, outcome.error) == (None, "stopped")
    assert lines[-1] == "tidied"


@pytest.mark.parametrize("redirect", ["", ">/dev/null 2>&1"])
def test_what_a_hook_leaves_running_is_killed_with_its_group(redirect: str) -> None:
    outcome, lines = run(f"sleep 600 {redirect} & echo $!; exit 0")
    assert (outcome.code, outcome.error) == (0, None)
    wait_until_gone(int(lines[0]))


def test_a_child_that_prints_for_ever_does_not_keep_its_hook(tmp_path: Path) -> None:
    outcome, lines = run(f"yes & echo $! >{tmp_path}/pid; exit 5")
    assert outcome.code == 5
    assert len(lines) <= LINES_MAX + 1
    wait_until_gone(int((tmp_path / "pid").read_text()))


def test_all_that_the_shell_printed_itself_is_read_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "LINGER_S", 0.0)
    for _ in range(20):
        outcome, lines = run("sleep 600 & echo last words; exit 1")
        assert (outcome.error, lines) == ("exit code 1: last words", ["last words"])


def test_orphans_are_reaped_where_the_server_is_the_first_process_of_a_container() -> None:
    program = """
import ctypes, os
from logboom.broker.upkeep.hook import run_hook
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
outcome = run_hook("sh -c 'sleep 600 & sleep 600' & sleep 600 & exit 0", {}, 60, print)
assert outcome.code == 0, outcome
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("none left")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "none left\n", "")


def test_megabytes_of_lines_are_counted_and_not_logged() -> None:
    line = "0123456789" * 5
    outcome, lines = run(f"yes {line} | head -n 1000000")
    assert outcome.code == 0
    assert lines[:LINES_MAX] == [line] * LINES_MAX
    assert lines[LINES_MAX:] == [
        f"… {1_000_000 - LINES_MAX:,} more lines, {(1_000_000 - LINES_MAX) * 51:,} bytes not logged"
    ]
    assert len(outcome.output_tail) == TAIL_BYTES


def test_megabytes_without_a_newline_are_one_line_that_is_cut() -> None:
    outcome, lines = run("head -c 5000000 /dev/zero | tr '\\0' x")
    assert outcome.code == 0
    assert lines == ["x" * LINE_CHARACTERS_MAX, "… 0 more lines, 4,999,000 bytes not logged"]
    assert outcome.output_tail == "x" * TAIL_BYTES


def test_binary_output_is_logged_as_harmless_text() -> None:
    outcome, lines = run(f"{PRINT} 'import os; os.write(1, bytes(range(256)) * 400)'; exit 1")
    assert outcome.code == 1
    assert outcome.error is not None
    assert outcome.error.startswith("exit code 1: ")
    assert 0 < len(lines) <= LINES_MAX + 1
    for line in lines:
        assert len(line) <= LINE_CHARACTERS_MAX
        assert not [character for character in line if ord(character) < 32 and character != "\t"]
        line.encode()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_lines_do_not_depend_on_how_the_output_is_cut(size: int) -> None:
    text = "".join(f"{number} é€😀\r\n" for number in range(LINES_MAX + 50)) + "y" * 1500
    whole, pieces = collect([text.encode()]), collect([text.encode()[at : at + size] for at in range(0, 10_000, size)])
    assert pieces == whole
    assert whole[0][:2] == ["0 é€😀", "1 é€😀"]
    assert whole[0][LINES_MAX].startswith("… 51 more lines, ")
    assert whole[1] == "y" * LINE_CHARACTERS_MAX


def test_a_long_line_counts_what_was_cut_from_it() -> None:
    lines, last = collect([b"a" * 1000 + b"b" * 7 + b"\n", "é".encode() * 1001])
    assert lines == ["a" * 1000, "é" * 1000, "… 0 more lines, 9 bytes not logged"]
    assert last == "é" * 1000


def collect(pieces: list[bytes]) -> tuple[list[str], str]:
    lines: list[str] = []
    output = Output(lines.append)
    for piece in pieces:
        output.feed(piece)
    output.close()
    return lines, output.last_line()


def test_a_hook_that_cannot_be_started_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def error_of(command: str, environment: dict[str, str]) -> str:
        outcome = run_hook(command, environment, ENOUGH_S, print)
        assert (outcome.code, outcome.output_tail) == (None, "")
        assert outcome.error is not None
        assert outcome.error.startswith("cannot be started: ")
        return outcome.error

    assert "Argument list too long" in error_of(":" * 10_000_000, {})
    assert "null byte" in error_of("echo \0", {})
    assert "null byte" in error_of(":", {"LOGBOOM_TOPIC": "\0"})
    monkeypatch.setattr(hook, "SHELL", "/nowhere/sh")
    assert "/nowhere/sh" in error_of(":", {})


def test_a_hook_whose_exit_code_somebody_else_took_has_failed() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        outcome, _ = run("exit 0")
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert outcome.code is None
    assert outcome.error is not None
    assert "not known" in outcome.error


def test_a_log_that_raises_leaves_no_hook_behind() -> None:
    seen: list[str] = []

    def log_line(line: str) -> None:
        seen.append(line)
        raise RuntimeError(line)

    with pytest.raises(RuntimeError):
        run_hook("echo $$; sleep 600", {}, ENOUGH_S, log_line)
    assert not is_alive(int(seen[0]))


def test_the_environment_of_the_server_and_of_the_segment_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_THE_SERVER", "yes")
    entry = HookEntry("topics/eve.nts~" + "a" * 32 + "/7", 100, 11, 200, 21, "age", 5, attempts=2)
    environment = environment_of(entry, "eve.nts", "a" * 32, '/data/it\'s a "segment".log', 4096)
    outcome_lines: list[str] = []
    run_hook("env; pwd; cat", environment, ENOUGH_S, outcome_lines.append)
    assert [line for line in sorted(outcome_lines) if line.startswith("LOGBOOM_")] == [
        "LOGBOOM_ATTEMPT=3",
        "LOGBOOM_BYTES=4096",
        "LOGBOOM_EVENT=delete",
        "LOGBOOM_FIRST_INDEX=11",
        "LOGBOOM_FIRST_SEQNO=100",
        "LOGBOOM_LAST_INDEX=20",
        "LOGBOOM_LAST_SEQNO=199",
        "LOGBOOM_PARTITION=7",
        "LOGBOOM_REASON=age",
        'LOGBOOM_SEGMENT=/data/it\'s a "segment".log',
        "LOGBOOM_TOPIC=eve.nts",
        "LOGBOOM_TOPIC_ID=" + "a" * 32,
    ]
    assert "FROM_THE_SERVER=yes" in outcome_lines
    assert outcome_lines[-1] == "/"


def test_the_path_of_a_segment_is_absolute() -> None:
    entry = HookEntry("topics/a~1/0", 0, 1, 0, 2, "trim", 5)
    environment = environment_of(entry, "a", "1", "data/x.log", 1)
    assert environment["LOGBOOM_SEGMENT"] == f"{os.getcwd()}/data/x.log"
    assert environment["LOGBOOM_LAST_SEQNO"] == "-1"


def test_hooks_on_threads_run_at_once(tmp_path: Path) -> None:
    """Each waits for what the other makes: one after the other they would never end."""
    first, second = tmp_path / "first", tmp_path / "second"
    wait = "while [ ! -e {} ]; do sleep 0.01; done"
    commands = [f"touch {first}; {wait.format(second)}; echo 1", f"touch {second}; {wait.format(first)}; echo 2"]
    with ThreadPoolExecutor(2) as threads:
        done = list(threads.map(run, commands))
    assert [(outcome.code, lines) for outcome, lines in done] == [(0, ["1"]), (0, ["2"])]


def test_a_stop_ends_the_hook_that_runs() -> None:
    outcome, _ = run_until_it_prints("echo ready; sleep 600")
    assert (outcome.code, outcome.error, outcome.output_tail) == (None, "stopped", "ready\n")


def test_after_a_stop_nothing_is_started(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    outcome = run_hook(f"touch {tmp_path}/made", {}, ENOUGH_S, print, stop)
    assert outcome == HookOutcome(None, 0.0, "stopped", "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "command",
    [
        "trap 'echo no' TERM; echo ready; while :; do sleep 0.01; done",
        "(trap 'echo no' TERM; echo ready; while :; do sleep 0.01; done) & wait",
    ],
)
def test_a_hook_that_is_stopped_in_a_hurry_does_not_get_its_time_to_end(command: str) -> None:
    lines: list[str] = []
    stop = threading.Event()

    def log_line(line: str) -> None:
        lines.append(line)
        stop.set()

    outcome = run_hook(command, {}, ENOUGH_S, log_line, stop, 10**6, lambda: "no" in lines)
    assert (outcome.error, lines[0]) == ("stopped", "ready")
    assert "no" in lines


def test_a_hurry_alone_ends_no_hook() -> None:
    assert run_hook("echo done", {}, ENOUGH_S, print, is_hurried=lambda: True).code == 0
