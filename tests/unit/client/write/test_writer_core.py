"""A writer's core, as stories: what goes to the node, what comes of trouble, and who is told."""

from __future__ import annotations

import random

import pytest

from logboom.batch import Batch, Header, build
from logboom.batch.header import ISSUED_IDS, Producer
from logboom.client.write.gathered import Written
from logboom.errors import (
    BatchTooLarge,
    ConnectionLost,
    InvalidColumn,
    LogboomError,
    LowSpace,
    OutcomeUnknown,
    Overloaded,
    PartitionNotFound,
    ReadOnlyReplica,
    RepeatForgotten,
    TopicDeleted,
    TopicRecreated,
    WritesRefused,
)
from logboom.storage.producers import ProducerBatch as StoredAt
from support.nodes.scripted import Line, ScriptedNode


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def test_records_of_one_linger_go_as_one_batch() -> None:
    line = Line(ScriptedNode(), linger_ms=5).connect()
    for value in numbers(10):
        line.write(value)
    assert not line.send()
    line.pass_time(0.005)
    assert line.node.logs[0] == numbers(10)
    assert len(line.node.batches) == 1
    assert line.core.is_idle


def test_a_full_batch_goes_at_once() -> None:
    line = Line(ScriptedNode(), batch_bytes=100, linger_ms=1000).connect()
    for value in numbers(10):
        line.write(value * 20)
    line.run()
    assert len(line.node.batches) == 2
    assert line.node.logs[0] == [value * 20 for value in numbers(8)]


def test_who_waits_learns_the_seqno() -> None:
    line = Line(ScriptedNode()).connect()
    line.write(b"before")
    line.write(b"mine", waits=True)
    line.run(flush=True)
    assert line.told == [Written("events", 0, 1, 7)]


def test_who_waits_does_not_linger_unless_something_is_under_way() -> None:
    line = Line(ScriptedNode(), linger_ms=1000).connect()
    line.write(b"1", waits=True)
    line.core.hasten()
    assert line.send() == 1
    line.write(b"2", waits=True)
    line.write(b"3", waits=True)
    line.core.hasten()
    assert line.send() == 1
    line.hear()
    assert line.send() == 1
    line.hear()
    assert [header.record_count for _, header in line.node.batches] == [1, 2]
    assert [written.seqno for written in line.told] == [0, 1, 2]


def test_no_more_batches_are_under_way_than_the_node_remembers() -> None:
    line = Line(ScriptedNode(window=3), batch_bytes=1).connect()
    for value in numbers(10):
        line.write(value)
    assert line.send() == 3
    line.hear()
    line.send()
    assert len(line.node.batches) == 4
    line.run()
    assert line.node.logs[0] == numbers(10)


@pytest.mark.parametrize("heard", range(6))
def test_after_a_lost_connection_everything_unanswered_is_sent_again_and_nothing_is_there_twice(heard: int) -> None:
    line = Line(ScriptedNode(), batch_bytes=1).connect()
    for value in numbers(5):
        line.write(value, waits=True)
    assert line.send() == 5
    for _ in range(heard):
        if heard <= 5:
            line.hear()
    line.lose()
    line.connect()
    assert line.node.logs[0] == numbers(5)
    assert [written.seqno for written in line.told] == list(range(5))
    seqs = [header.producer_seq for _, header in line.node.batches]
    assert seqs == [*range(5), *range(heard, 5)]


def test_a_batch_that_never_arrived_is_sent_again_with_its_number() -> None:
    line = Line(ScriptedNode(), batch_bytes=1).connect()
    line.write(b"0")
    line.core.turn(line.now)
    line.core.outgoing = []
    line.lose()
    line.write(b"1")
    line.connect()
    assert line.node.logs[0] == [b"0", b"1"]
    assert len({header.producer_id for _, header in line.node.batches}) == 1


def test_answers_may_come_in_any_order_across_logs() -> None:
    line = Line(ScriptedNode(partitions=4), batch_bytes=1).connect()
    for value in numbers(20):
        line.write(value, key=value, waits=True)
    waiting = line.send()
    order = list(range(waiting))
    random.Random(5).shuffle(order)
    while waiting:
        line.hear(random.Random(waiting).randrange(waiting))
        waiting = line.send()
    assert sorted(value or b"" for log in line.node.logs.values() for value in log) == sorted(numbers(20))
    assert len(line.told) == 20


def test_the_same_key_goes_to_the_same_log_in_order() -> None:
    line = Line(ScriptedNode(partitions=5)).connect()
    for value in numbers(50):
        line.write(value, key=b"k%d" % (int(value) % 3))
    line.run(flush=True)
    for log in line.node.logs.values():
        for rest in range(3):
            mine = [int(value or b"") for value in log if int(value or b"") % 3 == rest]
            assert mine in ([], list(range(rest, 50, 3)))


def test_records_without_a_key_stay_together_for_a_batch() -> None:
    line = Line(ScriptedNode(partitions=50), batch_bytes=1000).connect()
    for value in numbers(1000):
        line.write(value)
    line.run(flush=True)
    counts = [header.record_count for _, header in line.node.batches]
    assert sum(counts) == 1000
    assert all(count > 50 for count in counts[:-1])
    assert len({partition for partition, _ in line.node.batches}) > 1


@pytest.mark.parametrize("error", [Overloaded("x", 2, 1), LowSpace(1, 2)])
def test_a_refusal_that_passes_is_waited_for_and_keeps_the_order(error: LogboomError) -> None:
    line = Line(ScriptedNode(), batch_bytes=1).connect()
    trouble = [error, error]
    line.node.refuse = lambda partition, header: trouble.pop() if trouble and header.producer_seq == 1 else None
    for value in numbers(5):
        line.write(value)
    line.run()
    assert line.node.logs[0] == numbers(1)
    for _ in range(4):
        line.pass_time(1)
    assert line.node.logs[0] == numbers(5)
    assert len({header.producer_id for _, header in line.node.batches}) == 1
    assert not line.losses


def test_the_pause_after_refusals_grows() -> None:
    line = Line(ScriptedNode(), batch_bytes=1).connect()
    line.node.refuse = lambda partition, header: Overloaded("x", 2, 1)
    line.write(b"0")
    for _ in range(400):
        line.pass_time(0.01)
    assert 4 < len(line.node.batches) < 12


def test_a_batch_that_is_refused_for_good_fails_and_what_follows_is_numbered_anew() -> None:
    line = Line(ScriptedNode(), batch_bytes=1).connect()
    line.node.refuse = lambda partition, header: WritesRefused("x", "y") if refused(header) else None

    def refused(header: Header) -> bool:
        return header.producer_seq == 2 and header.producer_id == line.node.batches[0][1].producer_id

    for value in numbers(6):
        line.write(value, waits=True)
    line.run()
    assert line.node.logs[0] == [b"0", b"1", b"3", b"4", b"5"]
    errors = [told for told in line.told if isinstance(told, LogboomError)]
    assert [type(error) for error in errors] == [WritesRefused]
    assert len({header.producer_id for _, header in line.node.batches}) == 2


def test_the_first_batch_of_all_refused_leaves_the_second_to_a_new_producer() -> None:
    line = Line(ScriptedNode(), batch_bytes=1).connect()
    refusals: list[LogboomError] = [BatchTooLarge(2, 1)]
    line.node.refuse = lambda partition, header: refusals.pop() if refusals else None
    line.write(b"0")
    line.write(b"1")
    line.run()
    assert line.node.logs[0] == [b"1"]
    assert [(type(error), count) for error, count in line.losses] == [(BatchTooLarge, 1)]


def test_a_producer_the_log_has_forgotten_begins_anew_where_nothing_is_in_doubt() -> None:
    line = Line(ScriptedNode(), batch_bytes=1).connect()
    line.write(b"0")
    line.run()
    line.node.producers[0] = type(line.node.producers[0])()
    line.write(b"1")
    line.write(b"2")
    line.run()
    assert line.node.logs[0] == numbers(3)
    assert not line.losses


def test_a_producer_the_log_has_forgotten_is_not_trusted_with_what_may_be_there() -> None:
    line = Line(ScriptedNode(), batch_bytes=1).connect()
    line.write(b"0")
    line.run()
    line.write(b"1", waits=True)
    line.send()
    line.lose()
    line.node.producers[0] = type(line.node.producers[0])()
    line.write(b"2", waits=True)
    line.connect()
    assert line.node.logs[0] == numbers(3)
    assert isinstance(line.told[0], OutcomeUnknown)
    assert line.told[1] == Written("events", 0, 2, 7)


def test_a_lost_tail_is_followed_by_what_comes_next() -> None:
    line = Line(ScriptedNode(), batch_bytes=1).connect()
    for value in numbers(2):
        line.write(value)
        line.run()
    del line.node.logs[0][1:]
    stream = line.node.producers[0].streams()
    (number,) = stream
    line.node.producers[0] = type(line.node.producers[0])({number: type(stream[number])(0, stream[number].batches[:1])})
    line.write(b"2")
    line.run()
    assert line.node.logs[0] == [b"0", b"2"]


def test_without_numbers_a_lost_connection_leaves_the_outcome_unknown() -> None:
    line = Line(ScriptedNode(), batch_bytes=1, idempotent=False).connect()
    line.write(b"0", waits=True)
    line.write(b"1")
    line.send()
    line.lose()
    line.write(b"2", waits=True)
    line.connect()
    assert line.node.logs[0] == numbers(3)
    assert isinstance(line.told[0], OutcomeUnknown)
    assert [(type(error), count) for error, count in line.losses] == [(OutcomeUnknown, 1)]
    assert isinstance(line.told[1], Written)
    assert {header.producer_id for _, header in line.node.batches} == {0}


def test_without_acks_a_record_is_done_when_it_is_sent() -> None:
    line = Line(ScriptedNode(), acks="none").connect()
    line.write(b"0", waits=True)
    line.run(flush=True)
    assert line.told == [Written("events", 0, -1, -1)]
    assert line.node.logs[0] == [b"0"]
    assert line.core.is_idle


def test_what_is_not_written_in_time_fails_as_not_written_or_as_unknown() -> None:
    line = Line(ScriptedNode(), batch_bytes=1, delivery_timeout_s=10.0).connect()
    line.write(b"0", waits=True)
    line.send()
    line.lose()
    line.write(b"1", waits=True)
    line.now += 5
    line.write(b"2")
    line.now += 6
    line.tick()
    assert [type(told) for told in line.told] == [OutcomeUnknown, ConnectionLost]
    line.connect()
    assert line.node.logs[0] == [b"0", b"2"]


def test_a_topic_of_the_same_name_is_not_written_to() -> None:
    line = Line(ScriptedNode(), batch_bytes=1).connect()
    line.write(b"0")
    line.run()
    line.lose()
    line.node.topic_id = "cd" * 16
    line.write(b"1", waits=True)
    line.connect()
    assert line.node.logs[0] == [b"0"]
    assert isinstance(line.told[0], TopicRecreated)
    assert isinstance(line.core.take_trouble(), TopicRecreated)
    assert line.core.is_barred


def test_a_topic_recreated_under_a_living_connection_is_noticed() -> None:
    line = Line(ScriptedNode(), batch_bytes=1).connect()
    line.node.topic_id = "cd" * 16
    line.write(b"1", waits=True)
    line.run()
    assert isinstance(line.told[0], TopicRecreated)
    assert not line.node.logs[0]


def test_a_topic_is_made_the_first_time_only() -> None:
    line = Line(ScriptedNode(exists=False), batch_bytes=1).connect()
    line.write(b"0")
    line.run()
    assert line.node.logs[0] == [b"0"]
    line.lose()
    line.node.exists = False
    line.connect()
    assert isinstance(line.core.contact.fatal, TopicDeleted)


def test_a_partition_that_is_not_there_is_named() -> None:
    line = Line(ScriptedNode(partitions=2), partition=2).connect()
    assert isinstance(line.core.contact.fatal, PartitionNotFound)


def test_a_silent_node_is_asked_then_given_up() -> None:
    line = Line(ScriptedNode(), batch_bytes=1).connect()
    line.write(b"0")
    line.core.turn(line.now)
    line.core.outgoing = []
    line.now += 11
    line.core.turn(line.now)
    assert line.core.outgoing
    line.now += 31
    with pytest.raises(ConnectionLost, match="not been heard"):
        line.core.turn(line.now)


def test_a_node_that_reads_nothing_any_more_is_given_up_also_where_no_answers_come() -> None:
    line = Line(ScriptedNode(), acks="none", batch_bytes=1).connect()
    line.write(b"0")
    for _ in range(200 + 10):
        line.core.turn(line.now)
        line.now += 1
    line.now += 31
    with pytest.raises(ConnectionLost, match="not been heard"):
        line.core.turn(line.now)


def test_an_idle_connection_is_kept_alive() -> None:
    line = Line(ScriptedNode()).connect()
    look = line.core.next_look(line.now)
    assert look == line.now + 200
    line.now = look
    line.run()
    assert line.node.kinds[-1] == 3
    assert line.core.next_look(line.now) == line.now + 200


def test_a_record_that_cannot_be_one_is_refused_alone() -> None:
    line = Line(ScriptedNode()).connect()
    line.write(b"before")
    for wrong in ({"value": 3}, {"value": b"", "key": 3}, {"value": b"", "tags": "one"}, {"value": b"", "tags": [1]},
                  {"value": b"", "headers": [1]}, {"value": b"", "channel": b"x"}, {"value": b"", "timestamp": "now"},
                  {"value": "\ud800"}, {"value": b"", "timestamp": 2**63}):  # fmt: skip
        with pytest.raises(InvalidColumn):
            line.write(**wrong)
    with pytest.raises(BatchTooLarge):
        line.write(bytes(2**20))
    line.write(b"after", tags=["t"], headers={"h": b"1"}, channel="a/b", timestamp=5)
    line.run(flush=True)
    assert line.node.logs[0] == [b"before", b"after"]


def test_a_repeat_the_log_has_forgotten_counts_as_written() -> None:
    line = Line(ScriptedNode(), batch_bytes=1).connect()
    line.write(b"0")
    line.send()
    line.lose()
    line.node.refuse = lambda partition, header: RepeatForgotten(header.producer_id, 0, 5)
    line.connect()
    assert not line.losses
    assert line.core.ledger.written == 1


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_nothing_is_lost_nothing_is_there_twice_and_order_holds(seed: int) -> None:
    dice = random.Random(seed)
    node = ScriptedNode(partitions=dice.choice([1, 3]), window=dice.choice([1, 2, 16]))
    node.refuse = lambda partition, header: Overloaded("x", 2, 1) if dice.random() < 0.1 else None
    line = Line(node, batch_bytes=dice.choice([1, 50, 500]), delivery_timeout_s=1e6).connect()
    written = 0
    for _ in range(300):
        what = dice.random()
        if what < 0.5:
            line.write(b"%d" % written, key=b"k%d" % (written % 4), waits=True)
            written += 1
        elif what < 0.75 and line.is_up:
            waiting = line.send()
            for _ in range(dice.randint(0, waiting)):
                line.hear()
        elif what < 0.85:
            line.now += dice.random()
            line.tick() if not line.is_up else line.send()
        elif what < 0.93:
            if line.is_up:
                line.core.turn(line.now)
                if dice.random() < 0.5:
                    line.core.outgoing = line.core.outgoing[: dice.randint(0, len(line.core.outgoing))]
                    line.send()
                line.lose()
        elif not line.is_up:
            line.connect()
    node.refuse = lambda partition, header: None
    if line.is_up:
        line.lose()
    line.now += 10
    line.connect()
    line.run(flush=True)
    everything = [value or b"" for log in node.logs.values() for value in log]
    assert sorted(everything, key=int) == numbers(written)
    for log in node.logs.values():
        for rest in range(4):
            mine = [int(value or b"") for value in log if int(value or b"") % 4 == rest]
            assert mine == sorted(mine)
    assert len(line.told) == written
    assert [told for told in line.told if not isinstance(told, Written)] == []


def test_what_expires_while_the_node_refuses_it_says_why() -> None:
    line = Line(ScriptedNode(), batch_bytes=1, delivery_timeout_s=10.0).connect()
    line.node.refuse = lambda partition, header: LowSpace(1, 2)
    line.write(b"0", waits=True)
    for _ in range(12):
        line.pass_time(1)
    (error,) = line.told
    assert isinstance(error, ConnectionLost)
    assert str(LowSpace(1, 2)) in str(error)


def replica_of(source: str, exists: bool = True) -> ScriptedNode:
    node = ScriptedNode(exists=exists)
    node.replica_of = source
    return node


def test_a_replica_is_left_for_the_next_server_with_everything_in_its_order() -> None:
    source, replica = ScriptedNode(), replica_of("one:1774")
    line = Line(source, batch_bytes=1, servers=2).connect()
    line.write(b"0")
    line.run()
    line.lose()
    line.node = replica
    for value in numbers(3, 1):
        line.write(value, waits=True)
    for turn in range(5):
        served = line.core.contact.server
        line.connect()
        assert (line.is_up, replica.batches) == (False, [])
        assert line.core.contact.server != served, turn
        assert isinstance(line.core.contact.error, ReadOnlyReplica)
    line.node = source
    line.connect()
    assert source.logs[0] == numbers(4)
    assert [written.seqno for written in line.told] == [1, 2, 3]


def test_a_topic_that_a_replica_does_not_have_yet_is_not_taken_for_deleted() -> None:
    line = Line(ScriptedNode(), servers=2).connect()
    line.lose()
    line.node = replica_of("one:1774", exists=False)
    line.connect()
    assert line.core.contact.fatal is None
    line.node.replica_of = None
    line.connect()
    assert isinstance(line.core.contact.fatal, TopicDeleted), "promoted without it"


def test_a_writer_that_knows_only_replicas_is_told_at_once_where_to_write() -> None:
    line = Line(replica_of("one:1774"), servers=2).connect()
    assert line.core.contact.fatal is None
    line.connect()
    assert isinstance(line.core.contact.fatal, ReadOnlyReplica)
    assert "one:1774" in str(line.core.contact.fatal)


def test_a_writer_whose_servers_are_all_replicas_now_gives_up_after_its_timeout_and_says_why() -> None:
    line = Line(ScriptedNode(), delivery_timeout_s=10).connect()
    line.lose()
    line.node = replica_of("one:1774")
    line.write(b"0", waits=True)
    line.connect()
    assert not line.told
    line.pass_time(11)
    (error,) = line.told
    assert isinstance(error, ConnectionLost)
    assert "replica of one:1774" in str(error)


def test_a_promoted_copy_without_the_last_acknowledged_batches_takes_the_rest_once_and_in_order() -> None:
    """Those are lost with the source. What follows begins under another id, whether the source had it or not."""
    source, copy = ScriptedNode(), ScriptedNode()
    line = Line(source, batch_bytes=1, servers=2).connect()
    for value in numbers(6):
        line.write(value, waits=True)
    assert line.send() == 6
    for _ in range(4):
        line.hear()
    line.lose()
    line.node = copy
    for _, header in source.batches[:2]:
        copy.append(0, build_numbered(header))
    line.write(b"6", waits=True)
    line.connect()
    assert copy.logs[0] == [b"0", b"1", b"4", b"5", b"6"]
    assert [written.seqno for written in line.told] == [0, 1, 2, 3, 2, 3, 4]


def build_numbered(header: Header) -> Batch:
    producer = Producer(header.producer_id, header.producer_epoch, header.producer_seq)
    return build([b"%d" % header.producer_seq], producer=producer)


def issuing() -> ScriptedNode:
    node = ScriptedNode()
    node.next_id = ISSUED_IDS + 100
    return node


def test_batches_go_under_the_id_that_the_node_gives_also_those_cut_before_there_was_one() -> None:
    line = Line(issuing(), batch_bytes=1)
    for value in numbers(3):
        line.write(value)
    line.core.turn(line.now)
    line.connect()
    line.write(b"3")
    line.run(flush=True)
    assert line.node.logs[0] == numbers(4)
    assert {header.producer_id for _, header in line.node.batches} == {ISSUED_IDS + 100}
    assert [header.producer_seq for _, header in line.node.batches] == [0, 1, 2, 3]


def test_a_writer_keeps_its_id_when_another_connection_is_given_another() -> None:
    line = Line(issuing()).connect()
    line.write(b"0")
    line.run(flush=True)
    line.lose()
    line.connect()
    line.write(b"1")
    line.run(flush=True)
    assert {header.producer_id for _, header in line.node.batches} == {ISSUED_IDS + 100}
    assert line.node.logs[0] == numbers(2)


def forget_all(node: ScriptedNode) -> None:
    """Others write until the log has forgotten whoever was there."""
    producers = node.producers[0]
    producers.limit = 1
    for _ in range(2):
        producers.record(node.issue(), 0, StoredAt(0, 1, 0, 1, 7))


def test_a_writer_that_was_forgotten_takes_the_id_it_is_given_and_goes_on() -> None:
    line = Line(issuing()).connect()
    line.write(b"0")
    line.run(flush=True)
    forget_all(line.node)
    line.write(b"1", waits=True)
    line.run(flush=True)
    assert line.node.logs[0] == numbers(2)
    assert [type(told) for told in line.told] == [Written]
    assert line.node.batches[-1][1].producer_id > line.node.batches[0][1].producer_id


def test_a_writer_that_was_forgotten_before_it_had_its_answer_is_told_that_nobody_knows() -> None:
    line = Line(issuing()).connect()
    line.write(b"0", waits=True)
    line.core.flush(line.now)
    line.send()
    line.lose()
    forget_all(line.node)
    line.connect()
    line.run(flush=True)
    assert line.node.logs[0] == numbers(1), "not a second time"
    assert [type(told) for told in line.told] == [OutcomeUnknown]
    line.write(b"1", waits=True)
    line.run(flush=True)
    assert line.node.logs[0] == numbers(2)
