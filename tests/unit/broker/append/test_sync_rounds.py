"""The rounds, step by step, with logs that only remember what they were asked."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from logboom.batch import build
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.append.promise import AwaitedPromise, Entry
from logboom.broker.append.turn import LogTurn
from logboom.storage.appender import PendingSync
from logboom.storage.files.disk import File
from unit.broker.append.stepped import SteppedNode


class RememberingLog:
    """Implements turn.RoundLog."""

    def __init__(self, node: SteppedNode, name: str, story: list[str]) -> None:
        self.name = name
        self.account = node.rounds.open_account(self)
        self.busy = False
        self.queue: list[Entry] = []
        self.unsynced = False
        self.on_write: Callable[[], None] = lambda: None
        self.stopped: list[str] = []
        self._node = node
        self._story = story
        self._file = node.disk.create(f"{node.path}/{name}")
        node.rounds.writers[cast(LogWriter, self)] = None

    @property
    def is_fresh(self) -> bool:
        return bool(self.queue) and not self.account.unsynced_bytes

    def append(self) -> None:
        self.queue.append(Entry(AwaitedPromise(self._node.loop.as_loop, 1, 1), 0, [build([b"x"])], "durable"))
        self._node.rounds.want(self)

    def take_turn(self) -> LogTurn | None:
        entries, self.queue = self.queue, []
        if entries:
            self.busy = True
            self.account.note_seized()
            return LogTurn(self, entries)
        return LogTurn(self, [], self._pending) if self.unsynced else None

    @property
    def _pending(self) -> PendingSync:
        return PendingSync(cast(File, self._file), 1, 0)

    def write(self, turn: LogTurn) -> None:
        self.on_write()
        turn.pending = self._pending
        self._story.append(f"write {self.name}")

    def written(self, turn: LogTurn) -> None:
        self.busy = False
        self.account.note_unsynced(1)
        self.account.note_freed()
        self._story.append(f"written {self.name}")
        self._node.rounds.freed()

    def synced(self, turn: LogTurn) -> None:
        self.account.note_unsynced(-self.account.unsynced_bytes)
        self.unsynced = False
        self._story.append(f"synced {self.name}")

    def go_on(self) -> None:
        self._story.append(f"go on {self.name}")

    def tell(self) -> None:
        self._story.append(f"tell {self.name}")

    def stop(self, error: OSError) -> None:
        self.stopped.append(str(error))


class RememberingNode(SteppedNode):
    def __init__(self, path: Path, dirty_max: int = 100) -> None:
        super().__init__(path, dirty_max=dirty_max)
        self.story: list[str] = []

    def log(self, name: str) -> RememberingLog:
        return RememberingLog(self, name, self.story)

    def told(self) -> list[str]:
        story, self.story[:] = list(self.story), []
        return story


def test_a_round_writes_what_is_queued_for_all_logs_and_syncs_them_with_one_call(tmp_path: Path) -> None:
    node = RememberingNode(tmp_path)
    a, b, c = map(node.log, "abc")
    c.unsynced = True
    for log in (a, b):
        log.append()
    node.rounds.want(c)
    node.loop.step()
    assert (node.told(), a.busy, c.busy, node.rounds.is_quiet) == ([], True, False, False)
    node.syncs.run()
    assert node.told() == ["write a", "write b"]
    assert node.disk.rounds == [3]
    node.loop.step()
    assert node.told() == ["written a", "written b", "synced a", "synced b", "synced c"]
    assert node.rounds.is_quiet
    assert (node.rounds.counts.syncs, node.rounds.counts.synced_logs) == (1, 3)


def test_what_comes_while_a_round_runs_is_in_the_next_one(tmp_path: Path) -> None:
    node = RememberingNode(tmp_path)
    a, b = map(node.log, "ab")
    a.append()
    node.loop.step()
    b.append()
    node.loop.step()
    assert len(node.syncs) == 1
    node.sync()
    assert node.told() == ["write a", "written a", "synced a"]
    assert len(node.syncs) == 1  # it has begun at once
    node.sync()
    assert node.told() == ["write b", "written b", "synced b"]


def test_a_log_that_a_thread_has_comes_back_when_it_is_free(tmp_path: Path) -> None:
    node = RememberingNode(tmp_path)
    log = node.log("a")
    log.busy = True
    log.account.note_seized()
    log.append()
    node.settle()
    assert node.told() == []
    log.busy = False
    log.account.note_freed()
    node.rounds.freed()
    node.settle()
    assert node.told() == ["write a", "written a", "synced a"]


def test_a_log_that_has_nothing_to_do_makes_no_round(tmp_path: Path) -> None:
    node = RememberingNode(tmp_path)
    node.rounds.want(node.log("a"))
    node.settle()
    assert (node.told(), node.disk.rounds) == ([], [])
    assert node.rounds.is_quiet


def test_logs_that_need_a_file_wait_until_others_have_given_theirs_back(tmp_path: Path) -> None:
    node = RememberingNode(tmp_path, dirty_max=2)
    logs = [node.log(f"{number}") for number in range(5)]
    for log in logs:
        log.append()
    node.settle()
    assert node.disk.rounds == [2, 2, 1]
    assert [line for line in node.told() if line.startswith("synced")] == [f"synced {number}" for number in range(5)]


def test_a_pause_begins_when_no_thread_has_a_log_and_holds_rounds_until_it_ends(tmp_path: Path) -> None:
    node = RememberingNode(tmp_path)
    a, b = map(node.log, "ab")
    a.append()
    node.loop.step()
    pause = node.rounds.pause()
    entering = pause.__aenter__().__await__()
    quiet = next(entering)
    assert quiet is not None
    node.sync()
    assert node.told() == ["write a", "written a", "synced a"]
    with pytest.raises(StopIteration):
        entering.__next__()
    b.append()
    node.rounds.hold_up(b)
    node.settle()
    assert (node.told(), node.rounds.paused) == ([], 1)
    with pytest.raises(StopIteration):
        pause.__aexit__(None, None, None).__await__().__next__()
    node.settle()
    assert node.told() == ["go on b", "write b", "written b", "synced b"]


def test_a_failed_sync_stops_every_log_once_and_there_are_no_more_rounds(tmp_path: Path) -> None:
    node = RememberingNode(tmp_path)
    a, b = map(node.log, "ab")
    a.append()
    node.disk.failing = True
    node.settle()
    assert node.told() == ["write a", "written a"]
    assert node.rounds.failure is not None
    assert len(a.stopped) == len(b.stopped) == 1
    node.disk.failing = False
    b.append()
    node.settle()
    assert node.told() == []
    node.rounds.fail(node.rounds.failure, None)
    assert len(a.stopped) == 1


def test_work_that_goes_wrong_on_a_thread_stops_the_nodes_writes(tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError(errno.EIO, "no such luck")

    node = RememberingNode(tmp_path)
    log = node.log("a")
    log.on_write = fail
    log.append()
    node.settle()
    assert node.rounds.failure is not None
    assert ["no such luck" in reason for reason in log.stopped] == [True]


def test_a_pause_in_which_a_sync_failed_stops_the_nodes_writes(tmp_path: Path) -> None:
    node = RememberingNode(tmp_path)
    log = node.log("a")
    pause = node.rounds.pause()
    with pytest.raises(StopIteration):
        pause.__aenter__().__await__().__next__()
    node.files.failure = "a roll met a bad disk"
    with pytest.raises(StopIteration):
        pause.__aexit__(None, None, None).__await__().__next__()
    assert log.stopped == ["a roll met a bad disk"]


def test_readers_elsewhere_are_told_once_in_a_turn_of_the_loop(tmp_path: Path) -> None:
    node = RememberingNode(tmp_path)
    a, b = map(node.log, "ab")
    for log in (a, b, a):
        node.rounds.tell_later(log)
    node.loop.step()
    assert node.told() == ["tell a", "tell b"]


def test_the_sums_of_the_node_are_those_of_its_logs(tmp_path: Path) -> None:
    node = RememberingNode(tmp_path)
    a, b = (node.log(name).account for name in "ab")
    for account, size in ((a, 10), (b, 5), (a, -4)):
        account.note_queued(size)
        account.note_unsynced(size)
    assert node.rounds.queued_bytes == a.queued_bytes + b.queued_bytes == 11
    assert node.rounds.unsynced_bytes == a.unsynced_bytes + b.unsynced_bytes == 11
    assert len(node.rounds.dirty) == 2
    a.note_unsynced(-6)
    assert len(node.rounds.dirty) == 1
