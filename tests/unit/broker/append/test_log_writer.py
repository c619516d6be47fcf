"""The owner of a log, step by step: who is answered when, and what readers see meanwhile."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from logboom.batch import Batch, Producer, build
from logboom.batch.header import STAGED_IDS, Buffer
from logboom.broker.append.commitment import Due, StandaloneCommitment
from logboom.broker.append.log_writer import LAZY_SYNC_MS, LogWriter
from logboom.broker.append.promise import Adoption, AwaitedPromise
from logboom.broker.limits import Limits
from logboom.errors import LogReadOnly, Overloaded, SyncFailed, TopicDeleted
from logboom.storage.append import Answer, Appended
from logboom.storage.data.topic import Acks
from logboom.storage.files.disk import OsFile
from logboom.storage.log import Log
from logboom.storage.staged.piece import PieceName, StagePiece
from unit.broker.append.stepped import SteppedNode

UNSYNCED_ACKS: list[Acks] = ["none", "leader"]


def indexes(answers: Future[list[Answer]]) -> list[int]:
    assert answers.done()
    found = []
    for answer in answers.result():
        assert isinstance(answer, Appended), answer
        found.append(answer.index)
    return found


def failures(answers: Future[list[Answer]]) -> list[type[object]]:
    assert answers.done()
    return [type(answer) for answer in answers.result()]


def numbered(seq: int) -> Batch:
    return build([b"%d" % seq], producer=Producer(7, 0, seq))


@pytest.mark.parametrize("acks", UNSYNCED_ACKS)
def test_a_small_append_to_an_idle_log_is_written_inline_and_answered_before_any_sync(
    tmp_path: Path, acks: Acks
) -> None:
    node = SteppedNode(tmp_path)
    writer = node.writer()
    answer = node.send(writer, b"a", acks=acks)
    assert indexes(answer) == [2]
    assert not node.threads
    assert writer.log.committed_index == 1
    node.sync()
    assert writer.log.committed_index == 2


def test_a_durable_append_is_written_when_its_round_begins_and_answered_when_it_has_ended(tmp_path: Path) -> None:
    node = SteppedNode(tmp_path)
    writer = node.writer()
    answer = node.send(writer, b"a")
    assert writer.log.last_index == 1
    node.loop.step()
    assert writer.log.last_index == 2
    assert (len(node.syncs), answer.done(), writer.log.committed_index) == (1, False, 1)
    node.syncs.run()
    assert not answer.done()
    node.loop.step()
    assert indexes(answer) == [2]
    assert writer.log.committed_index == 2
    assert node.rounds.unsynced_bytes == writer.unsynced_bytes == len(node.rounds.dirty) == 0


def test_durable_appends_that_come_together_are_one_write_and_one_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = SteppedNode(tmp_path)
    writer = node.writer()
    writes: list[int] = []
    write = OsFile.write

    def counted(file: OsFile, buffers: Sequence[Buffer], position: int) -> int:
        writes.append(position)
        return write(file, buffers, position)

    monkeypatch.setattr(OsFile, "write", counted)
    node.disk.rounds.clear()
    answers = [node.send(writer, value) for value in (b"a", b"b", b"c")]
    node.sync()
    assert [indexes(answer) for answer in answers] == [[2], [3], [4]]
    assert (len(writes), node.disk.rounds) == (1, [1])
    assert not node.syncs


def test_what_waits_for_no_sync_takes_along_what_was_sent_before_it(tmp_path: Path) -> None:
    node = SteppedNode(tmp_path)
    writer = node.writer()
    durable, leader = node.send(writer, b"a"), node.send(writer, b"b", acks="leader")
    assert (durable.done(), indexes(leader), writer.log.last_index) == (False, [3], 3)
    assert not node.threads
    node.sync()
    assert indexes(durable) == [2]


def test_the_first_append_makes_a_file_and_is_written_by_the_round(tmp_path: Path) -> None:
    node = SteppedNode(tmp_path)
    writer = node.writer(begun=False)
    answer = node.send(writer, b"a")
    assert (writer.log.last_index, writer.queued_bytes > 0) == (0, True)
    node.loop.step()
    assert (writer.busy, writer.queued_bytes) == (True, 0)
    node.syncs.run()
    node.loop.step()
    assert not writer.busy
    assert indexes(answer) == [1]


def test_what_comes_during_a_sync_is_written_on_a_thread_and_synced_by_the_next_round(tmp_path: Path) -> None:
    node = SteppedNode(tmp_path)
    writer = node.writer()
    first = node.send(writer, b"a")
    node.loop.step()
    durable = node.send(writer, b"b")
    node.loop.step()
    assert (len(node.threads), writer.busy) == (0, False)  # nobody waits for less than the next round
    leader = node.send(writer, b"c", acks="leader")
    assert (len(node.threads), writer.busy) == (1, True)
    node.write()
    assert indexes(leader) == [4]
    assert not first.done()
    assert not durable.done()
    node.sync()
    assert indexes(first) == [2]
    assert (durable.done(), writer.log.committed_index) == (False, 2)
    node.sync()
    assert indexes(durable) == [3]
    assert writer.log.committed_index == 4
    assert node.disk.rounds[-2:] == [1, 1]


def test_a_sync_that_ends_while_a_thread_has_the_log_counts_when_it_is_free(tmp_path: Path) -> None:
    node = SteppedNode(tmp_path)
    writer = node.writer()
    first = node.send(writer, b"a")
    node.loop.step()
    node.send(writer, b"b", acks="leader")
    node.syncs.run()
    node.loop.step()
    assert (writer.busy, first.done()) == (True, False)
    node.write()
    assert indexes(first) == [2]
    assert writer.log.committed_index == 2


def test_a_segment_that_grew_too_large_during_a_sync_is_rolled_on_a_thread(tmp_path: Path) -> None:
    node = SteppedNode(tmp_path)
    writer = node.writer(segment_bytes=4096)
    first = node.send(writer, b"a")
    node.loop.step()
    node.send(writer, bytes(8000), acks="leader")
    node.write()
    node.sync()
    assert (writer.busy, first.done(), len(writer.log.segments)) == (True, False, 1)
    node.write()
    assert indexes(first) == [2]
    assert (len(writer.log.segments), writer.log.committed_index) == (2, 3)


def test_appends_wait_for_the_end_of_a_pause(tmp_path: Path) -> None:
    node = SteppedNode(tmp_path)
    writer = node.writer()
    pause = node.rounds.pause()
    with pytest.raises(StopIteration):
        pause.__aenter__().__await__().__next__()
    durable, leader = node.send(writer, b"a"), node.send(writer, b"b", acks="leader")
    node.settle()
    assert (writer.log.last_index, writer.busy, leader.done()) == (1, False, False)
    with pytest.raises(StopIteration):
        pause.__aexit__(None, None, None).__await__().__next__()
    node.settle()
    assert (indexes(durable), indexes(leader)) == ([2], [3])


def test_after_a_failed_sync_what_was_written_is_unknown_and_what_was_not_is_refused(tmp_path: Path) -> None:
    node = SteppedNode(tmp_path)
    writer, other = node.writer(), node.writer("other")
    written = node.send(writer, b"a")
    node.loop.step()
    queued = node.send(writer, b"b")
    node.disk.failing = True
    node.sync()
    assert failures(written) == [SyncFailed]
    assert failures(queued) == [LogReadOnly]
    assert failures(node.send(other, b"c", acks="leader")) == [LogReadOnly]
    assert writer.durable(Due(2, 0)).exception() is not None
    assert writer.log.committed_index == 1
    assert node.rounds.unsynced_bytes == node.rounds.queued_bytes == 0


def test_what_was_synced_before_a_failed_sync_is_still_confirmed(tmp_path: Path) -> None:
    node = SteppedNode(tmp_path)
    writer = node.writer()
    node.send(writer, numbered(0))
    node.settle()
    node.disk.failing = True
    both = node.send(writer, numbered(0), numbered(1))
    node.settle()
    assert failures(both) == [Appended, SyncFailed]


def crowded(path: Path) -> tuple[SteppedNode, LogWriter, Future[list[Answer]]]:
    """An append that waits because too much is unsynced."""
    node = SteppedNode(path, Limits(unsynced_bytes_per_log=1000, append_wait_ms=100))
    writer = node.writer("log", "interval")
    node.send(writer, bytes(1200))  # an idle log takes one of any size
    node.loop.step()
    waiting = node.send(writer, bytes(600), acks="leader")
    node.loop.step()
    assert (len(node.threads), writer.log.last_index, waiting.done()) == (0, 2, False)
    return node, writer, waiting


def test_an_append_that_finds_no_room_waits_and_gives_up(tmp_path: Path) -> None:
    node, writer, waiting = crowded(tmp_path)
    assert failures(node.send(writer, bytes(600))) == [Overloaded]  # it may not even wait
    node.loop.pass_time(0.2)
    assert failures(waiting) == [Overloaded]
    assert (writer.queued_bytes, node.rounds.queued_bytes) == (0, 0)
    node.settle()
    assert writer.log.last_index == 2


def test_who_waits_for_room_gets_it_from_the_next_sync(tmp_path: Path) -> None:
    node, writer, waiting = crowded(tmp_path)
    node.settle()
    node.loop.pass_time(0.2)
    assert indexes(waiting) == [3]
    assert (writer.queued_bytes, node.rounds.queued_bytes) == (0, 0)


@pytest.mark.parametrize(("policy", "wait_s"), [("each", 0.0), ("interval", 0.5), ("os", LAZY_SYNC_MS / 1000)])
def test_flush_says_when_what_nobody_waits_for_is_synced(
    tmp_path: Path, policy: Literal["each", "interval", "os"], wait_s: float
) -> None:
    node = SteppedNode(tmp_path)
    writer = node.writer("log", policy)
    node.disk.rounds.clear()
    node.send(writer, b"a", acks="leader")
    node.loop.step()
    assert writer.log.committed_index == (2 if policy == "os" else 1)
    if wait_s:
        node.loop.pass_time(wait_s - 0.01)
        node.settle()
        assert node.disk.rounds == []
        node.loop.pass_time(0.02)
    node.settle()
    assert node.disk.rounds == [1]
    assert (writer.log.committed_index, writer.durable_index) == (2, 2)


def test_where_flush_is_os_readers_are_woken_by_the_write_and_copies_by_the_sync(tmp_path: Path) -> None:
    node = SteppedNode(tmp_path)
    writer = node.writer("log", "os")
    shown = writer.news()
    durable = node.send(writer, b"a")
    node.loop.step()
    assert (shown.done(), durable.done(), writer.log.committed_index, writer.durable_index) == (True, False, 2, 1)
    news = writer.news()
    node.settle()
    assert (news.done(), indexes(durable), writer.durable_index) == (True, [2], 2)


def test_a_repeat_of_a_batch_that_is_not_durable_waits_with_it(tmp_path: Path) -> None:
    node = SteppedNode(tmp_path)
    writer = node.writer("log", "interval")
    original = node.send(writer, numbered(0), acks="leader")
    repeat = node.send(writer, numbered(0))
    assert indexes(original) == [2]
    assert indexes(node.send(writer, numbered(0), acks="leader")) == [2]
    assert not repeat.done()
    node.settle()
    assert indexes(repeat) == [2]
    assert writer.log.last_index == 2


def test_a_piece_of_a_stage_becomes_a_segment_on_a_thread(tmp_path: Path) -> None:
    node = SteppedNode(tmp_path)
    writer = node.writer()
    producer = STAGED_IDS + 1
    directory = str(tmp_path / "staging")
    node.disk.make_directory(directory)
    piece = StagePiece.create(node.disk, node.files.space, directory, PieceName("0" * 32, 0, 0), producer)
    piece.put([build([b"a"], producer=Producer(producer, 0, 0)).data])
    promise = AwaitedPromise(node.loop.as_loop, 0, 1)
    writer.submit(Adoption(promise, piece, None))
    assert not promise.future.done()
    node.settle()
    assert indexes(promise.future) == [2]
    assert [segment.first_index for segment in writer.log.segments] == [1, 2, 3]
    assert writer.log.committed_index == 2


def test_a_log_that_is_gone_says_why(tmp_path: Path) -> None:
    node = SteppedNode(tmp_path)
    writer = node.writer()
    written, news = node.send(writer, b"a"), writer.news()
    writer.leave(TopicDeleted("log", "id"))
    assert failures(written) == [TopicDeleted]
    assert failures(node.send(writer, b"b")) == [TopicDeleted]
    assert news.done()


class MajorityCommitment(StandaloneCommitment):
    """Of a node that is not alone: others say what is durable, by round and term."""

    def __init__(self, durable: Due) -> None:
        self.said = durable

    def durable_index(self, log: Log) -> int:
        return self.said.round

    def due(self, log: Log, index: int, acks: Acks = "durable") -> Due | None:
        return None if acks != "durable" or index <= self.said.round else Due(index, log.term)

    def is_kept(self, log: Log, due: Due) -> bool:
        return due.round <= self.said.round and due.term == self.said.term


def held(node: SteppedNode) -> tuple[LogWriter, Future[list[Answer]]]:
    """An append that is synced here and not by the others."""
    writer = node.writer()
    answer = node.send(writer, b"a")
    node.settle()
    assert (writer.log.synced_index, writer.log.committed_index, answer.done()) == (2, 1, False)
    return writer, answer


def test_where_others_decide_a_sync_alone_neither_answers_nor_shows(tmp_path: Path) -> None:
    majority = MajorityCommitment(Due(1, 0))
    writer, answer = held(SteppedNode(tmp_path, commitment=majority))
    majority.said = Due(2, 0)
    writer.advance()
    assert indexes(answer) == [2]
    assert writer.log.committed_index == 2


def test_another_leaders_batch_with_the_same_index_does_not_answer(tmp_path: Path) -> None:
    majority = MajorityCommitment(Due(1, 0))
    writer, answer = held(SteppedNode(tmp_path, commitment=majority))
    waiter = writer.durable(writer.end)
    majority.said = Due(2, 1)
    writer.advance()
    assert (answer.done(), waiter.done()) == (False, False)
