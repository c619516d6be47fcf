"""The hook queue: order, back-off, what is done, and the file it lives in."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest
from crc32c import crc32c

from logboom.storage.upkeep.hooks import ERROR_BYTES_MAX, HookEntry, HookQueue, decode, encode
from support.disks.simulated import Call, SimulatedDisk

PATH = "/data/internal/hooks"
A, B = "topics/a~" + "a" * 32, "topics/b~" + "b" * 32
NOW = 1_700_000_000_000_000
SECOND = 1_000_000


def make(log: str, number: int, records: int = 10) -> HookEntry:
    """The segment with this number in a log where each has ten records and five batches."""
    first = number * 10
    return HookEntry(log, first, 1 + number * 5, first + records, 6 + number * 5, "bytes", NOW)


def opened(disk: SimulatedDisk) -> HookQueue:
    return HookQueue.open(disk, PATH)


def fail(queue: HookQueue, entry: HookEntry, now: int = NOW) -> HookEntry | None:
    return queue.failed(entry, now, "exit code 1", 1_000, 600_000)


def test_a_queue_without_a_file_is_empty_and_makes_none() -> None:
    disk = SimulatedDisk()
    queue = opened(disk)
    assert (queue.entries, queue.failing, queue.damaged) == ([], [], None)
    assert (queue.due(NOW), queue.next_due(NOW), queue.done_until(f"{A}/0")) == ([], None, None)
    queue.dropped(f"{A}/0", 10)
    queue.forget(A)
    queue.withdraw([make(f"{A}/0", 0)])
    queue.succeeded(make(f"{A}/0", 0))
    assert fail(queue, make(f"{A}/0", 0)) is None
    queue.push([])
    assert disk.calls == 0


def test_everything_is_there_after_a_restart() -> None:
    disk = SimulatedDisk()
    queue = opened(disk)
    queue.push(make(f"{A}/{partition}", number) for partition in (10, 9) for number in (1, 0))
    fail(queue, make(f"{A}/9", 0))
    queue.succeeded(make(f"{A}/10", 0))
    again = opened(disk)
    assert again.entries == queue.entries
    assert [(entry.partition, entry.first_seqno) for entry in again.entries] == [(9, 0), (9, 10), (10, 0), (10, 10)]
    assert again.failing == queue.failing == [queue.entries[0]]


def test_many_are_queued_with_one_write() -> None:
    disk = SimulatedDisk()
    opened(disk).push(make(f"{A}/{partition}", number) for partition in range(20) for number in range(20))
    assert disk.calls == 5  # create, write, sync, rename, sync_directory


def test_queueing_again_changes_nothing() -> None:
    disk = SimulatedDisk()
    queue = opened(disk)
    queue.push([make(f"{A}/0", 0), make(f"{A}/0", 0), make(f"{A}/0", 1)])
    queue.succeeded(make(f"{A}/0", 0))
    fail(queue, make(f"{A}/0", 1))
    before, calls = queue.entries, disk.calls
    queue.push([msgspec.structs.replace(make(f"{A}/0", number), queued_at=NOW + 1, reason="age") for number in (0, 1)])
    queue.succeeded(make(f"{A}/0", 0))
    assert (queue.entries, disk.calls) == (before, calls)


def test_another_segment_that_begins_at_the_same_place_is_not_taken_for_done() -> None:
    queue = opened(SimulatedDisk())
    queue.push([make(f"{A}/0", 0)])
    queue.succeeded(make(f"{A}/0", 0))
    queue.push([make(f"{A}/0", 0, records=7)])
    assert queue.entries == [make(f"{A}/0", 0, records=7)]
    queue.succeeded(make(f"{A}/0", 0))
    assert not queue.entries[0].done


def test_each_topic_runs_one_hook_at_a_time_in_order() -> None:
    queue = opened(SimulatedDisk())
    queue.push(make(f"{topic}/{partition}", number) for topic in (B, A) for partition in (10, 2) for number in (1, 0))
    assert queue.due(NOW) == [make(f"{A}/2", 0), make(f"{B}/2", 0)]
    assert queue.due(NOW, {A}) == [make(f"{B}/2", 0)]
    assert queue.due(NOW, {A, B}) == []
    assert (queue.next_due(NOW), queue.next_due(NOW, {A, B})) == (NOW, None)
    for log, number in ((f"{A}/2", 0), (f"{A}/2", 1), (f"{A}/10", 0), (f"{A}/10", 1)):
        assert queue.due(NOW, {B}) == [make(log, number)]
        queue.succeeded(make(log, number))
    assert queue.due(NOW, {B}) == []


def test_a_failing_head_blocks_its_own_log_and_lets_other_partitions_run() -> None:
    queue = opened(SimulatedDisk())
    queue.push(make(f"{A}/{partition}", number) for partition in (0, 1) for number in (0, 1))
    fail(queue, make(f"{A}/0", 0))
    assert queue.due(NOW) == [make(f"{A}/1", 0)]
    fail(queue, make(f"{A}/1", 0), NOW + 5)
    assert queue.due(NOW + 5) == []
    assert queue.next_due(NOW + 5) == NOW + SECOND
    (again,) = queue.due(NOW + SECOND)
    assert (again.log, again.first_seqno, again.attempts) == (f"{A}/0", 0, 1)


def test_a_blocked_log_lets_other_partitions_and_topics_run() -> None:
    queue = opened(SimulatedDisk())
    queue.push(make(f"{topic}/{partition}", 0) for topic in (A, B) for partition in (0, 1))
    assert queue.due(NOW, (), {f"{A}/0"}) == [make(f"{A}/1", 0), make(f"{B}/0", 0)]
    assert queue.due(NOW, {B}, {f"{A}/0", f"{A}/1"}) == []
    assert queue.next_due(NOW, {B}, {f"{A}/0", f"{A}/1"}) is None
    fail(queue, make(f"{A}/1", 0))
    assert queue.next_due(NOW, {B}, {f"{A}/0"}) == NOW + SECOND


def test_what_is_withdrawn_goes_with_one_write_and_what_is_done_stays() -> None:
    disk = SimulatedDisk()
    queue = opened(disk)
    queue.push(make(f"{topic}/{partition}", number) for topic in (A, B) for partition in (0, 1) for number in (0, 1))
    queue.succeeded(make(f"{A}/0", 0))
    fail(queue, make(f"{B}/1", 0))
    calls = disk.calls
    queue.withdraw(make(f"{topic}/{partition}", 0) for topic in (A, B) for partition in (0, 1))
    assert disk.calls == calls + 5  # create, write, sync, rename, sync_directory
    left = [(f"{A}/0", 0), (f"{A}/0", 10), (f"{A}/1", 10), (f"{B}/0", 10), (f"{B}/1", 10)]
    assert [(entry.log, entry.first_seqno) for entry in queue.entries] == left
    assert opened(disk).entries == queue.entries
    calls = disk.calls
    queue.withdraw([make(f"{A}/0", 0), make(f"{A}/1", 1, records=7), make(f"{A}/7", 0)])
    assert (disk.calls, len(queue.entries)) == (calls, 5)


def test_the_wait_doubles_up_to_its_limit() -> None:
    queue = opened(SimulatedDisk())
    entry = make(f"{A}/0", 0)
    queue.push([entry])
    waits = []
    for attempt in range(1, 100):
        later = queue.failed(entry, NOW + attempt, f"attempt {attempt}", 1_000, 600_000)
        assert later is not None
        assert (later.attempts, later.failing_since, later.last_error) == (attempt, NOW + 1, f"attempt {attempt}")
        waits.append((later.next_at - NOW - attempt) // SECOND)
    assert waits[:11] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600]
    assert set(waits[11:]) == {600}


def test_a_clock_that_is_set_back_does_not_hold_a_hook() -> None:
    queue = opened(SimulatedDisk())
    queue.push([make(f"{A}/0", 0)])
    fail(queue, make(f"{A}/0", 0))
    assert queue.due(NOW) == []
    assert len(queue.due(NOW - 1)) == 1
    assert queue.next_due(NOW - 1) == NOW - 1


def test_success_ends_the_failing_and_a_late_failure_changes_nothing() -> None:
    queue = opened(SimulatedDisk())
    queue.push([make(f"{A}/0", 0)])
    fail(queue, make(f"{A}/0", 0))
    queue.succeeded(make(f"{A}/0", 0))
    assert queue.failing == []
    assert fail(queue, make(f"{A}/0", 0)) is None
    (entry,) = queue.entries
    assert (entry.done, entry.attempts, entry.last_error) == (True, 1, None)


@pytest.mark.parametrize("error", ["x" * 10_000, "é" * 10_000, "a" + "😀" * 10_000, "\udcff" * 5_000])
def test_a_long_error_is_cut(error: str) -> None:
    disk = SimulatedDisk()
    queue = opened(disk)
    queue.push([make(f"{A}/0", 0)])
    queue.failed(make(f"{A}/0", 0), NOW, error, 1, 1)
    kept = opened(disk).entries[0].last_error
    assert kept is not None
    assert ERROR_BYTES_MAX - 4 < len(kept.encode()) <= ERROR_BYTES_MAX


def test_dropped_segments_and_deleted_topics_are_forgotten() -> None:
    disk = SimulatedDisk()
    queue = opened(disk)
    queue.push(make(f"{topic}/{partition}", number) for topic in (A, B) for partition in (0, 1) for number in range(3))
    queue.dropped(f"{A}/0", 19)
    assert [entry.first_seqno for entry in queue.entries if entry.log == f"{A}/0"] == [10, 20]
    queue.dropped(f"{A}/0", 30)
    assert {entry.log for entry in opened(disk).entries} == {f"{A}/1", f"{B}/0", f"{B}/1"}
    queue.forget(B)
    assert {entry.log for entry in opened(disk).entries} == {f"{A}/1"}
    queue.forget("topics/a")
    assert len(queue.entries) == 3


def test_what_is_done_counts_only_without_a_gap() -> None:
    queue = opened(SimulatedDisk())
    log = f"{A}/0"
    queue.push(make(log, number) for number in (1, 2, 3, 5))
    until = [queue.done_until(log)]
    for number in (2, 1, 5, 3):
        queue.succeeded(make(log, number))
        until.append(queue.done_until(log))
    assert until == [None, None, 30, 30, 40]
    queue.push([make(log, 4)])
    queue.succeeded(make(log, 4))
    assert queue.done_until(log) == 60
    assert queue.done_until(f"{A}/1") is None


def test_a_segment_without_records_is_not_dropped_with_the_one_before_it() -> None:
    """Both end at one seqno, and a drop goes by seqnos."""
    full, bare = make(f"{A}/0", 0), HookEntry(f"{A}/0", 10, 6, 10, 7, "age", NOW)
    later = HookEntry(f"{A}/0", 10, 7, 20, 12, "age", NOW)
    queue = opened(SimulatedDisk())
    queue.push([full, bare, later])
    queue.succeeded(full)
    assert queue.done_until(full.log) == 9
    queue.succeeded(bare)
    assert queue.done_until(full.log) == 10
    queue = opened(SimulatedDisk())
    queue.push([full, later])
    queue.succeeded(full)
    assert queue.done_until(full.log) == 9


@pytest.mark.parametrize("name", ["create", "write", "sync", "rename", "sync_directory"])
def test_a_write_that_fails_leaves_nothing_done_and_keeps_the_back_off(name: str) -> None:
    disk = SimulatedDisk()
    queue = opened(disk)
    queue.push([make(f"{A}/0", 0)])

    def fault(call: Call) -> None:
        if call.name == name:
            raise OSError(28, "No space left on device")

    disk.fault = fault
    changes: list[Callable[[], None]] = [
        lambda: queue.push([make(f"{A}/0", 1)]),
        lambda: queue.succeeded(make(f"{A}/0", 0)),
        lambda: queue.dropped(f"{A}/0", 10),
        lambda: queue.forget(A),
        lambda: queue.withdraw([make(f"{A}/0", 0)]),
    ]
    for change in changes:
        with pytest.raises(OSError, match="No space"):
            change()
        assert queue.entries == [make(f"{A}/0", 0)]
    with pytest.raises(OSError, match="No space"):
        fail(queue, make(f"{A}/0", 0))
    assert queue.due(NOW) == []
    disk.fault = None
    queue.succeeded(make(f"{A}/0", 0))
    assert opened(disk).done_until(f"{A}/0") == 10


def test_any_flipped_byte_or_cut_leaves_an_empty_queue_that_says_so_and_works() -> None:
    disk = SimulatedDisk()
    opened(disk).push([make(f"{A}/0", 0), make(f"{A}/0", 1)])
    sound = bytes(disk.names[PATH].cached)
    broken = [sound[:at] + bytes([sound[at] ^ 1 << at % 8]) + sound[at + 1 :] for at in range(len(sound))]
    broken += [sound[:at] for at in range(len(sound))] + [sound + b"\0"]
    for content in broken:
        disk.names[PATH].cached[:] = content
        queue = opened(disk)
        assert queue.entries == []
        assert queue.damaged is not None
        assert PATH in queue.damaged
    queue.push([make(f"{A}/0", 0)])
    assert (opened(disk).entries, opened(disk).damaged) == ([make(f"{A}/0", 0)], None)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode([]),
        msgspec.msgpack.encode({"entries": [{"log": "topics/a/0"}]}),
        msgspec.msgpack.encode({"entries": [msgspec.structs.asdict(make("topics/a/x", 0))]}),
        msgspec.msgpack.encode({"entries": [msgspec.structs.asdict(make("../a/0", 0))]}),
        msgspec.msgpack.encode({"entries": [msgspec.structs.asdict(make(f"{A}/00", 0))]}),
    ],
)
def test_a_sound_checksum_around_nonsense_is_damage_too(body: bytes) -> None:
    disk = SimulatedDisk()
    opened(disk).push([make(f"{A}/0", 0)])
    front = b"LGHQ" + b"".join(number.to_bytes(4, "little") for number in (1, len(body), crc32c(body)))
    disk.names[PATH].cached[:] = front + body
    queue = opened(disk)
    assert queue.entries == []
    assert queue.damaged is not None


def test_a_file_that_cannot_be_read_is_damage() -> None:
    disk = SimulatedDisk()
    opened(disk).push([make(f"{A}/0", 0)])

    def fault(call: Call) -> None:
        if call.name == "read":
            raise OSError(5, "Input/output error")

    disk.fault = fault
    queue = opened(disk)
    assert queue.entries == []
    assert queue.damaged is not None
    assert "Input/output error" in queue.damaged


def test_fields_that_a_later_release_adds_are_passed_over() -> None:
    entry = msgspec.structs.asdict(make(f"{A}/0", 0))
    body = msgspec.msgpack.encode({"entries": [{**entry, "colour": "red"}], "mood": 1})
    front = encode([])[:8] + len(body).to_bytes(4, "little") + crc32c(body).to_bytes(4, "little")
    assert decode(front + body) == [make(f"{A}/0", 0)]


class Model:
    """The queue as plain facts about segments: (log, number) -> attempts, next_at, done."""

    def __init__(self) -> None:
        self.facts: dict[tuple[str, int], tuple[int, int, bool]] = {}

    def logs(self, topic: str) -> list[str]:
        logs = {log for log, _ in self.facts if log.startswith(topic + "/")}
        return sorted(logs, key=lambda log: int(log.split("/")[-1]))

    def head(self, log: str) -> int | None:
        return min((number for (name, number), fact in self.facts.items() if name == log and not fact[2]), default=None)

    def due(self, now: int, running: set[str]) -> list[tuple[str, int]]:
        found = []
        for topic in (A, B):
            heads = [(log, head) for log in self.logs(topic) if (head := self.head(log)) is not None]
            ready = [place for place in heads if self.facts[place][1] <= now]
            found += ready[:1] if topic not in running else []
        return found

    def done_until(self, log: str) -> int | None:
        number = first = min((number for name, number in self.facts if name == log), default=0)
        while self.facts.get((log, number), (0, 0, False))[2]:
            number += 1
        return number * 10 if number > first else None


@pytest.mark.parametrize("seed", range(60))
def test_the_queue_does_what_a_simple_model_does(seed: int) -> None:
    choose = random.Random(seed)
    disk, model, now = SimulatedDisk(), Model(), NOW
    queue = opened(disk)
    logs = [f"{topic}/{partition}" for topic in (A, B) for partition in (0, 2, 10)]
    for _ in range(150):
        now += choose.randrange(2 * SECOND)
        log, number = choose.choice(logs), choose.randrange(8)
        act = choose.randrange(12)
        if act < 3:
            pushed = [(choose.choice(logs), choose.randrange(8)) for _ in range(choose.randrange(5))]
            queue.push(make(*place) for place in pushed)
            for place in pushed:
                model.facts.setdefault(place, (0, 0, False))
        elif act < 6:
            queue.succeeded(make(log, number))
            if (log, number) in model.facts:
                model.facts[log, number] = (*model.facts[log, number][:2], True)
        elif act < 9:
            queue.failed(make(log, number), now, "no", 1_000, 8_000)
            attempts, _, done = model.facts.get((log, number), (0, 0, True))
            if not done:
                model.facts[log, number] = attempts + 1, now + min(2**attempts, 8) * SECOND, False
        elif act == 9:
            queue.dropped(log, number * 10)
            model.facts = {at: fact for at, fact in model.facts.items() if at[0] != log or at[1] >= number}
        elif act == 10 and choose.random() < 0.2:
            queue.forget(B)
            model.facts = {at: fact for at, fact in model.facts.items() if not at[0].startswith(B)}
        else:
            queue = opened(disk)
        running = set(choose.sample([A, B], choose.randrange(3)))
        assert [(entry.log, entry.first_seqno // 10) for entry in queue.due(now, running)] == model.due(now, running)
        assert [queue.done_until(log) for log in logs] == [model.done_until(log) for log in logs]
        assert {(entry.log, entry.first_seqno // 10): entry.done for entry in queue.entries} == {
            place: done for place, (_, _, done) in model.facts.items()
        }
        wake = queue.next_due(now, running)
        assert (wake == now) == bool(model.due(now, running))
        if wake is not None and wake > now:
            assert model.due(wake, running)
            assert not model.due(wake - 1, running)
