"""The spill file: torn anywhere, used by one, and drained in order by whoever comes next."""

from __future__ import annotations

import copy
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from logboom.batch import build
from logboom.client.write.spill import START, Label, Spill
from logboom.errors import BatchTooLarge, ConfigError, OutcomeUnknown, Overloaded
from logboom.protocols.binary.messages import WireLimits
from support.nodes.scripted import Line, ScriptedNode

LABEL = Label("events", "ab" * 16, 0)


def batch(value: bytes) -> bytes:
    return bytes(build([value]).data)


def found(path: Path) -> list[bytes | None]:
    spill = Spill(path)
    try:
        return [value for spilled in spill.found for value in spilled.batch.values()]
    finally:
        spill.close()


def test_what_was_spilled_is_found_again_in_order(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "spill")
    places = spill.append([(LABEL, batch(b"1")), (LABEL, batch(b"2"))])
    places += spill.append([(LABEL, batch(b"3"))])
    assert [spill.read(place) for place in places] == [batch(b"1"), batch(b"2"), batch(b"3")]
    spill.close()
    assert found(tmp_path / "spill") == [b"1", b"2", b"3"]


def test_a_file_torn_at_any_byte_holds_what_was_whole(tmp_path: Path) -> None:
    path = tmp_path / "spill"
    spill = Spill(path)
    ends = [START]
    for value in (b"1", b"22", b"333"):
        spill.append([(LABEL, batch(value))])
        ends.append(path.stat().st_size)
    spill.close()
    data = path.read_bytes()
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        whole = sum(cut >= end for end in ends[1:])
        assert found(path) == [b"1", b"22", b"333"][:whole], cut
        assert path.stat().st_size == (ends[whole] if whole else START)


def test_a_flipped_byte_ends_the_file_there(tmp_path: Path) -> None:
    path = tmp_path / "spill"
    spill = Spill(path)
    spill.append([(LABEL, batch(b"1"))])
    end = path.stat().st_size
    spill.append([(LABEL, batch(b"2"))])
    spill.close()
    data = path.read_bytes()
    for position in range(end, len(data), 3):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        assert found(path) == [b"1"], position


def test_what_is_settled_is_not_found_again_and_the_last_empties_the_file(tmp_path: Path) -> None:
    path = tmp_path / "spill"
    spill = Spill(path)
    places = spill.append([(LABEL, batch(b"%d" % number)) for number in range(4)])
    spill.settle(places[1])
    spill.settle(places[0])
    spill.close()
    spill = Spill(path)
    assert [value for spilled in spill.found for value in spilled.batch.values()] == [b"2", b"3"]
    for spilled in spill.found:
        spill.settle(spilled.place)
    assert path.stat().st_size == START
    spill.append([(LABEL, batch(b"new"))])
    spill.close()
    assert found(path) == [b"new"]


def test_only_what_was_sent_is_in_doubt(tmp_path: Path) -> None:
    path = tmp_path / "spill"
    spill = Spill(path)
    places = spill.append([(LABEL, batch(b"%d" % number)) for number in range(3)])
    spill.sending(places[0])
    spill.close()
    spill = Spill(path)
    assert [spilled.label.doubt for spilled in spill.found] == [True, False, False]
    spill.close()


def test_a_lost_header_puts_everything_in_doubt_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "spill"
    spill = Spill(path)
    spill.append([(LABEL, batch(b"1"))])
    spill.close()
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    spill = Spill(path)
    assert [spilled.label.doubt for spilled in spill.found] == [True]
    spill.close()


def test_one_writer_at_a_time_and_no_other_kind_of_file(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "spill")
    with pytest.raises(ConfigError, match="another writer"):
        Spill(tmp_path / "spill")
    spill.close()
    (tmp_path / "letter").write_text("Dear reader, this is no spill file at all.")
    with pytest.raises(ConfigError, match="no spill file"):
        Spill(tmp_path / "letter")
    with pytest.raises(ConfigError, match="cannot be opened"):
        Spill(tmp_path / "nowhere" / "spill")


class Story:
    """A writer that spills, and the node that is away at first."""

    def __init__(self, path: Path, node: ScriptedNode, **options: Any) -> None:
        self.spill = Spill(path, options.pop("spill_bytes", 2**30))
        given = {"batch_bytes": 1, "buffer_bytes": 1024, **options}
        self.line = Line(node, self.spill, **given)

    def away(self) -> Story:
        self.line.lose()
        return self

    def write(self, start: int, end: int, key: bytes | None = None) -> Story:
        for number in range(start, end):
            self.line.write(b"%d" % number, key)
            self.line.tick()
        return self

    def close(self) -> None:
        """As a process ends: at once."""
        self.spill.close()


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def test_what_the_buffer_cannot_hold_goes_to_disk_and_from_there_to_the_log_first(tmp_path: Path) -> None:
    node = ScriptedNode()
    story = Story(tmp_path / "spill", node)
    story.line.connect()
    story.write(0, 3).line.run()
    story.away().write(3, 40)
    assert len(story.spill) > 20
    assert story.line.core.ledger.buffered < 1024
    story.line.connect()
    story.write(40, 45).line.run()
    assert node.logs[0] == numbers(0, 45)
    assert (tmp_path / "spill").stat().st_size == START
    assert len({header.producer_id for _, header in node.batches}) == 1


@pytest.mark.parametrize("heard", [0, 1, 5, 16])
def test_a_process_that_ends_while_it_drains_leaves_the_rest_to_the_next(heard: int, tmp_path: Path) -> None:
    node = ScriptedNode()
    first = Story(tmp_path / "spill", node)
    first.away().write(0, 60)
    first.line.core.spill(first.line.now)
    first.line.connect_only()
    assert first.line.send() == 16
    for _ in range(heard):
        first.line.hear()
    first.line.send()
    first.close()
    second = Story(tmp_path / "spill", node)
    second.line.connect()
    second.write(60, 70).line.run(flush=True)
    assert node.logs[0] == numbers(0, 70)
    assert not second.line.losses
    assert (tmp_path / "spill").stat().st_size == START


def test_what_a_log_forgot_the_producer_of_is_written_if_it_was_never_sent(tmp_path: Path) -> None:
    node = ScriptedNode()
    first = Story(tmp_path / "spill", node)
    first.line.connect()
    first.write(0, 3).line.run()
    first.away().write(3, 10)
    first.line.core.spill(first.line.now)
    first.close()
    node.producers[0] = type(node.producers[0])()
    second = Story(tmp_path / "spill", node)
    second.line.connect()
    second.line.run()
    assert node.logs[0] == numbers(0, 10)
    assert not second.line.losses
    assert (tmp_path / "spill").stat().st_size == START


def test_after_new_numbers_a_crash_does_not_bring_back_the_old_ones(tmp_path: Path) -> None:
    node = ScriptedNode()
    first = Story(tmp_path / "spill", node)
    first.line.connect()
    first.write(0, 1).line.run()
    first.away().write(1, 6)
    first.line.core.spill(first.line.now)
    first.line.connect_only()
    node.producers[0] = type(node.producers[0])()
    assert first.line.send() == 5
    for _ in range(5):
        first.line.hear()
    assert first.line.send() == 5
    first.line.hear()
    first.close()
    second = Story(tmp_path / "spill", node)
    second.line.connect()
    second.line.run()
    assert node.logs[0] == numbers(0, 6)


def test_a_full_spill_file_leaves_it_to_the_buffer(tmp_path: Path) -> None:
    story = Story(tmp_path / "spill", ScriptedNode(), spill_bytes=4096)
    story.away().write(0, 100)
    assert story.line.core.is_barred
    assert (tmp_path / "spill").stat().st_size <= 4096
    story.line.connect()
    story.line.run()
    assert story.line.node.logs[0] == numbers(0, 100)
    assert not story.line.core.is_barred


def test_a_flush_is_done_when_everything_is_on_disk(tmp_path: Path) -> None:
    story = Story(tmp_path / "spill", ScriptedNode(), buffer_bytes=10_000)
    story.away().write(0, 3)
    waiting = story.line.core.flush(story.line.now)
    story.line.tick()
    assert all(parcel.is_safe for parcel in waiting)
    assert len(story.line.core) == 0


def test_time_does_not_kill_what_can_be_spilled(tmp_path: Path) -> None:
    story = Story(tmp_path / "spill", ScriptedNode(), buffer_bytes=10_000, delivery_timeout_s=10.0)
    story.away().write(0, 3)
    story.line.now += 11
    story.line.tick()
    assert not story.line.losses
    assert len(story.spill) == 3


def test_who_waits_for_what_is_only_spilled_is_told_so_at_the_end(tmp_path: Path) -> None:
    story = Story(tmp_path / "spill", ScriptedNode())
    story.away().line.write(b"1", waits=True)
    story.line.core.spill(story.line.now)
    story.line.core.abandon(Overloaded("x", 2, 1))
    story.line.tick()
    assert isinstance(story.line.told[0], OutcomeUnknown)
    assert not story.line.losses
    assert len(story.spill) == 1


@pytest.mark.parametrize("partitions", [1, 3])
def test_what_was_written_before_the_partitions_were_known_finds_its_log(partitions: int, tmp_path: Path) -> None:
    node = ScriptedNode(partitions=partitions)
    story = Story(tmp_path / "spill", node, buffer_bytes=4096)
    story.away()
    for number in range(60):
        story.line.write(b"%d" % number, b"k%d" % (number % 5), waits=True)
        story.line.tick()
    assert len(story.spill) > 10
    story.line.connect()
    story.line.run(flush=True)
    everything = [int(value or b"") for log in node.logs.values() for value in log]
    assert sorted(everything) == list(range(60))
    for log in node.logs.values():
        for rest in range(5):
            mine = [int(value or b"") for value in log if int(value or b"") % 5 == rest]
            assert mine == sorted(mine)
    assert len(story.line.told) == 60
    places = {(told.partition, told.seqno) for told in story.line.told}
    assert places == {(number, seqno) for number, log in node.logs.items() for seqno in range(len(log))}


def test_a_file_of_another_topic_is_refused(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "spill")
    spill.append([(Label("others", None, 0), batch(b"1"))])
    spill.close()
    with pytest.raises(ConfigError, match="others"):
        Story(tmp_path / "spill", ScriptedNode())


def test_after_a_flush_without_a_node_records_gather_again(tmp_path: Path) -> None:
    story = Story(tmp_path / "spill", ScriptedNode(), buffer_bytes=10_000, batch_bytes=1000)
    story.away().write(0, 3)
    story.line.core.flush(story.line.now)
    story.line.tick()
    assert len(story.spill) == 1
    story.write(3, 20)
    assert len(story.spill) == 1, "a sync for each record would be slow"
    story.line.connect()
    story.line.run(flush=True)
    assert story.line.node.logs[0] == numbers(0, 20)


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_disk_too_full_to_rewrite_the_file_loses_nothing_and_doubles_nothing(
    partitions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Spill, batches: Any) -> list[Any]:
        next(iter(batches))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    node = ScriptedNode(partitions)
    first = Story(tmp_path / "spill", node)
    if partitions == 1:
        first.line.connect()
        first.write(0, 1).line.run()
        before = copy.deepcopy(node.producers[0])
        first.write(9, 10).line.run()
        first.away()
        node.producers[0], node.logs[0] = before, [b"0"]
    else:
        first.away().write(0, 1)
    first.write(1, 5).line.write(b"5", waits=True)
    first.line.core.spill(first.line.now)
    with monkeypatch.context() as patch:
        patch.setattr(Spill, "replace", full)
        first.line.connect()
        first.line.run(flush=True)
    assert "cannot be rewritten" in str(first.line.core.contact.fatal)
    assert [type(told) for told in first.line.told] == [OutcomeUnknown]
    first.close()
    second = Story(tmp_path / "spill", node)
    second.line.connect()
    second.line.run(flush=True)
    written = [value or b"" for log in node.logs.values() for value in log]
    assert sorted(written) == numbers(0, 6)


def test_a_record_the_node_finds_too_large_fails_alone(tmp_path: Path) -> None:
    node = ScriptedNode(partitions=3)
    node.limits = WireLimits(2**26, 4096, 2**25, 16, 600_000, 100)
    story = Story(tmp_path / "spill", node)
    story.away().write(0, 3)
    story.line.write(bytes(5000), waits=True)
    story.write(3, 6)
    story.line.core.spill(story.line.now)
    story.line.connect()
    story.line.run(flush=True)
    assert sorted(value or b"" for log in node.logs.values() for value in log) == numbers(0, 6)
    assert [type(told) for told in story.line.told] == [BatchTooLarge]
    assert story.line.core.is_idle
