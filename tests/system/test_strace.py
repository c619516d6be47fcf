"""The real path to the disk, with system calls that fail: strace injects the errors into a process that writes."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from logboom.storage import DataDirectory
from support import packages
from support.faults import WRITES
from system import fault_writer


class Outcome(NamedTuple):
    """What the writer said."""

    status: int
    appends: list[list[str]]
    """The answers of every round, all logs together."""
    syncs: list[str]
    durable: list[int]
    """What each log had committed when it last said so."""


@cache
def why_not() -> str | None:
    missing = packages.why_not("strace", "strace")
    if missing is not None:
        return missing
    probe = [
        "strace",
        "-f",
        "--seccomp-bpf",
        "-o",
        "/dev/null",
        "-e",
        "trace=syncfs",
        "-e",
        "inject=syncfs:error=EIO",
        "true",
    ]
    tried = subprocess.run(probe, capture_output=True, text=True, check=False)
    return f"strace does not work here: {tried.stderr.strip()}" if tried.returncode else None


@pytest.fixture(autouse=True)
def _strace() -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)


def run(path: Path, *faults: str, only: Path | None = None, logs: int = 1) -> Outcome:
    """Write under these faults, such as `fdatasync:error=EIO:when=3`; `only` limits them to calls on one file.

    Each fault has happened when this returns.
    """
    trace = path.with_name(f"{path.name}.trace")
    calls = ",".join(fault.partition(":")[0] for fault in faults)
    command = ["strace", "-f", "--seccomp-bpf", "-o", str(trace), "-e", f"trace={calls}"]
    command += ["-P", str(only)] if only else []
    for fault in faults:
        command += ["-e", f"inject={fault}"]
    command += [sys.executable, fault_writer.__file__, str(path), str(logs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert trace.read_text().count("(INJECTED)") >= len(faults), done.stderr
    outcome = Outcome(done.returncode, [], [], [0] * logs)
    for line in done.stdout.splitlines():
        match json.loads(line):
            case ["append", answers]:
                outcome.appends.append([answer for log in answers for answer in log])
            case ["sync", "ok", durable]:
                outcome.syncs.append("ok")
                outcome.durable[:] = durable
            case ["sync", error]:
                outcome.syncs.append(error)
    return outcome


def check(path: Path, durable: list[int]) -> None:
    """A fresh opening finds everything promised, in order and right, and takes writes again."""
    with DataDirectory.open(str(path)) as data:
        logs = data.open_logs(map(fault_writer.name, range(len(durable))), fault_writer.CONFIG)
        for log, promised in zip(logs, durable, strict=True):
            assert log.refusal is None
            assert log.next >= promised
            log.commit(log.last_index)
            values = [value for batch in log.batches() for value in batch.values()]
            assert values == [fault_writer.value(seqno) for seqno in range(log.next)]
            assert fault_writer.append(log, 100) == ["ok", "ok"]
        data.sync()


def segment(path: Path, seqno: int = 0, index: int = 1) -> Path:
    return path / fault_writer.name(0) / f"{seqno:020}-{index:020}-{0:010}.log"


def stopped_for_good(outcome: Outcome) -> bool:
    """Whether, from the first failed sync on, every append is refused and nothing more is promised."""
    failed = outcome.syncs.index("SyncFailed")
    return all(set(answers) == {"LogReadOnly"} for answers in outcome.appends[failed + 1 :])


@pytest.mark.parametrize("call", [1, 3, 4, 5, 6, 7, 11])
def test_nothing_promised_is_lost_whichever_fdatasync_fails(tmp_path: Path, call: int) -> None:
    outcome = run(tmp_path, f"fdatasync:error=EIO:when={call}")
    assert "SyncFailed" not in outcome.syncs or stopped_for_good(outcome)
    check(tmp_path, outcome.durable)


@pytest.mark.parametrize("call", [1, 3, 5, 6, 7])
def test_nothing_promised_is_lost_whichever_fsync_of_a_directory_fails(tmp_path: Path, call: int) -> None:
    outcome = run(tmp_path, f"fsync:error=EIO:when={call}")
    check(tmp_path, outcome.durable)


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("call", [1, 3, 5, 6, 8, 10])
def test_nothing_promised_is_lost_whichever_write_fails(tmp_path: Path, call: int, error: str) -> None:
    outcome = run(tmp_path, f"{WRITES}:error={error}:when={call}")
    check(tmp_path, outcome.durable)


@pytest.mark.parametrize("call", [1, 2])
def test_a_failed_sync_of_a_segment_stops_the_log_and_reopening_recovers_it(tmp_path: Path, call: int) -> None:
    outcome = run(tmp_path, f"fdatasync:error=EIO:when={call}", only=segment(tmp_path))
    assert outcome.syncs[:call] == ["ok"] * (call - 1) + ["SyncFailed"]
    assert stopped_for_good(outcome)
    assert outcome.durable == [(call - 1) * 2 * fault_writer.BATCH_RECORDS]
    check(tmp_path, outcome.durable)


@pytest.mark.parametrize("call", [3, 4])
def test_a_directory_that_cannot_be_synced_while_a_segment_is_rolled_stops_the_log(tmp_path: Path, call: int) -> None:
    outcome = run(tmp_path, f"fsync:error=EIO:when={call}", only=segment(tmp_path).parent)
    refused = outcome.appends.index(["LogReadOnly"] * 2)
    assert all(answers == ["LogReadOnly"] * 2 for answers in outcome.appends[refused:])
    check(tmp_path, outcome.durable)


@pytest.mark.parametrize(("fault", "answer"), [("error=EIO", "WriteFailed"), ("error=ENOSPC", "LowSpace")])
def test_a_failed_write_is_refused_and_the_log_goes_on(tmp_path: Path, fault: str, answer: str) -> None:
    outcome = run(tmp_path, f"{WRITES}:{fault}:when=2", only=segment(tmp_path))
    assert outcome.appends == [["ok"] * 2, [answer] * 2, *[["ok"] * 2] * (fault_writer.ROUNDS - 2)]
    assert set(outcome.syncs) == {"ok"}
    assert outcome.durable == [(fault_writer.ROUNDS - 1) * 2 * fault_writer.BATCH_RECORDS]
    check(tmp_path, outcome.durable)


def test_a_short_write_is_cut_back_and_refused(tmp_path: Path) -> None:
    outcome = run(tmp_path, f"{WRITES}:retval=100:when=2", only=segment(tmp_path))
    assert outcome.appends[1] == ["WriteFailed"] * 2
    assert outcome.appends[2:] == [["ok"] * 2] * (fault_writer.ROUNDS - 2)
    check(tmp_path, outcome.durable)


def test_a_failed_write_that_cannot_be_cut_back_stops_the_log(tmp_path: Path) -> None:
    faults = f"{WRITES}:error=EIO:when=2", "ftruncate:error=EIO:when=1"
    outcome = run(tmp_path, *faults, only=segment(tmp_path))
    assert outcome.appends[:3] == [["ok"] * 2, ["SyncFailed"] * 2, ["LogReadOnly"] * 2]
    assert all(answers == ["LogReadOnly"] * 2 for answers in outcome.appends[2:])
    check(tmp_path, outcome.durable)


def test_a_state_file_that_cannot_be_written_stops_the_log_and_loses_nothing(tmp_path: Path) -> None:
    outcome = run(tmp_path, f"{WRITES}:error=EIO:when=3", only=tmp_path / "state")
    assert ["LogReadOnly"] * 2 in outcome.appends
    check(tmp_path, outcome.durable)


def test_a_failed_sync_of_the_whole_volume_stops_every_log(disk_path: Path) -> None:
    outcome = run(disk_path, "syncfs:error=EIO:when=2", logs=10)
    assert outcome.syncs[:2] == ["ok", "SyncFailed"]
    assert stopped_for_good(outcome)
    assert outcome.durable == [2 * fault_writer.BATCH_RECORDS] * 10
    check(disk_path, outcome.durable)
