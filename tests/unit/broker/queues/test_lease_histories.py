"""Random histories of a queue on simulated time, each against a plain model of it."""

from __future__ import annotations

import random

import pytest

from logboom.broker.queues.lease_entry import decode_block, encode_block
from logboom.broker.queues.lease_table import BLOCK, LeasedRange, LeaseTable
from support.brokers.lease_model import LeaseModel

MEMBERS = ("ann", "bob", "cy", "di")
STEPS = 120
AHEAD_MS = 1_700_000_000_000


class History:
    """One queue of one log, and its members, in a world of chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.window = self.chance.choice((1, 7, 50, 3000))
        self.tries_max = self.chance.choice((1, 2, 5))
        self.table = LeaseTable(0, self.window, self.tries_max)
        self.model = LeaseModel(self.window, self.tries_max)
        self.now_ms = self.first = self.end = 0
        self.acknowledged: set[int] = set()
        self.kept: dict[int, bytes] = {}
        self.head = 0
        self.largest = min(2 * self.window, self.chance.choice((3, 40, 1500)))

    def run(self) -> None:
        acts = (
            *(self.write, self.take, self.take, self.acknowledge, self.acknowledge, self.release, self.reject),
            *(self.extend, self.settle_what_is_not_his, self.wait, self.die, self.put_away, self.drop, self.restart),
            *(self.take_back, self.keep),
        )
        for _ in range(STEPS):
            self.chance.choice(acts)()
            self.agree()

    def write(self) -> None:
        if self.end < 40 * self.window:
            self.end += self.chance.randint(1, self.largest)

    def take(self) -> None:
        member, count = self.chance.choice(MEMBERS), self.chance.randint(1, self.largest)
        until_ms = self.now_ms + self.chance.randint(1, 1000)
        self.skip()
        taken = self.table.take(member, count, self.end, until_ms)
        found = [(seqno, each.tries) for each in taken for seqno in range(each.seqno, each.until)]
        assert found == self.model.take(member, count, self.end, until_ms)
        assert not self.acknowledged & {seqno for seqno, _ in found}
        assert all(tries <= self.tries_max for _, tries in found)
        self.taken = member, taken

    def take_back(self) -> None:
        member = self.chance.choice(MEMBERS)
        self.skip()
        taken = self.table.take(member, self.chance.randint(1, self.largest), self.end, self.now_ms + 1)
        before = {seqno: record.tries for seqno, record in self.model.records.items()}
        self.table.take_back(member, taken)
        count = sum(each.until - each.seqno for each in taken)
        for seqno, _ in self.model.take(member, count, self.end, 0):
            self.model.records[seqno].state = "free"
            self.model.records[seqno].tries = before.get(seqno, 0)

    def some_of(self, member: str) -> list[tuple[int, int]]:
        """Ranges of what a member holds."""
        held = self.model.holds(member)
        if not held:
            return []
        some = sorted(self.chance.sample(held, self.chance.randint(1, len(held))))
        ranges: list[tuple[int, int]] = []
        for seqno in some:
            if ranges and ranges[-1][1] == seqno and self.chance.random() < 0.9:
                ranges[-1] = ranges[-1][0], seqno + 1
            else:
                ranges.append((seqno, seqno + 1))
        return ranges

    def acknowledge(self) -> None:
        member = self.chance.choice(MEMBERS)
        for seqno, until in self.some_of(member):
            assert self.table.acknowledge(member, seqno, until) == []
            for each in range(seqno, until):
                self.model.records[each].state = "done"
                self.acknowledged.add(each)

    def release(self) -> None:
        member = self.chance.choice(MEMBERS)
        rest_until_ms = self.chance.choice((None, self.now_ms + self.chance.randint(1, 500)))
        for seqno, until in self.some_of(member):
            assert self.table.release(member, seqno, until, rest_until_ms) == []
            for each in range(seqno, until):
                self.model.give_back(each, rest_until_ms)

    def reject(self) -> None:
        member = self.chance.choice(MEMBERS)
        for seqno, until in self.some_of(member)[:3]:
            assert self.table.reject(member, seqno, until) == []
            for each in range(seqno, until):
                self.model.records[each].state = "rejected"

    def extend(self) -> None:
        member, until_ms = self.chance.choice(MEMBERS), self.now_ms + self.chance.randint(1, 2000)
        for seqno, until in self.some_of(member):
            assert self.table.extend(member, seqno, until, until_ms) == []
            for each in range(seqno, until):
                self.model.records[each].until_ms = until_ms

    def settle_what_is_not_his(self) -> None:
        """A range that is held by many, or nobody: only what is his is settled, the rest is refused by its seqnos."""
        member, top = self.chance.choice(MEMBERS), self.table.top
        seqno = self.chance.randint(max(0, self.model.base - 2), top)
        until = min(seqno + self.chance.randint(1, self.largest), top + 3)
        held = set(self.model.holds(member))
        refused = self.table.release(member, seqno, until, None)
        assert [each for first, end in refused for each in range(first, end)] == [
            each for each in range(seqno, until) if each not in held
        ]
        for each in range(seqno, until):
            if each in held:
                self.model.give_back(each)

    def wait(self) -> None:
        self.now_ms += self.chance.choice((1, 100, 3000))
        self.table.expire(self.now_ms)
        self.model.expire(self.now_ms)
        due_ms = self.table.next_due_ms()
        assert due_ms is None or due_ms > self.now_ms

    def die(self) -> None:
        if self.chance.random() < 0.3:
            member = self.chance.choice(MEMBERS)
            held = self.model.holds(member)
            assert self.table.free_member(member) == len(held)
            for seqno in held:
                self.model.give_back(seqno)
            self.table.forget_members(set(MEMBERS) - {member})

    def keep(self) -> None:
        """A member that has come again says what it knows of."""
        member = self.chance.choice(MEMBERS)
        held = self.model.holds(member)
        known = self.some_of(member)
        kept = {seqno for first, end in known for seqno in range(first, end)}
        assert self.table.keep_only(member, known) == len(held) - len(kept)
        for seqno in held:
            if seqno not in kept:
                self.model.records[seqno].state = "free"
                self.model.records[seqno].tries -= 1

    def put_away(self) -> None:
        for seqno, until, is_rejected, _ in self.table.vain(self.chance.randint(1, 10)):
            for each in range(seqno, until):
                assert self.model.records[each].state == ("rejected" if is_rejected else "failed")
                assert each not in self.acknowledged
                self.model.records[each].state = "done"
                self.model.buried.add(each)
            self.table.put_away(seqno, until)

    def drop(self) -> None:
        """Retention."""
        if self.chance.random() < 0.3:
            self.first = self.chance.randint(self.first, self.end)
            self.skip()

    def skip(self) -> None:
        self.table.skip_below(self.first)
        self.model.drop_below(self.first)

    def write_down(self) -> None:
        """What has changed, as it is kept."""
        changed, self.table.dirty = self.table.dirty, set()
        self.head = self.table.base
        for number in changed | set(self.kept):
            runs = self.table.block(number)
            if runs is None:
                self.kept.pop(number, None)
            elif number in changed:
                self.kept[number] = encode_block(runs, AHEAD_MS)

    def restart(self) -> None:
        self.write_down()
        assert len(self.kept) <= self.window // BLOCK + 2
        blocks = {number: decode_block(value, AHEAD_MS, self.now_ms + 3000) for number, value in self.kept.items()}
        head = self.head // BLOCK * BLOCK if self.head // BLOCK in blocks else self.head
        self.table = LeaseTable.restored(head, self.window, self.tries_max, blocks, self.end)

    def agree(self) -> None:
        table, model = self.table, self.model
        assert table.base == model.base
        assert table.top - table.base <= self.window
        states = [record.state for record in model.records.values()]
        assert table.held == states.count("leased")
        assert table.resting == states.count("resting")
        for member in MEMBERS:
            assert table.in_flight.get(member, 0) == len(model.holds(member))

    def finish(self) -> None:
        """When everybody works and nobody dies, all comes to an end: nothing is lost."""
        while self.model.base < self.end:
            self.now_ms += 5000
            self.table.expire(self.now_ms)
            self.model.expire(self.now_ms)
            self.take()
            self.put_away()
            for member in MEMBERS:
                for seqno in self.model.holds(member):
                    assert self.table.acknowledge(member, seqno, seqno + 1) == []
                    self.model.records[seqno].state = "done"
                    self.acknowledged.add(seqno)
            self.agree()
        everything = self.acknowledged | self.model.buried | self.model.lost
        assert everything == set(range(self.end)), "each record is done, put away, or was dropped by retention"
        assert not self.acknowledged & self.model.buried


@pytest.mark.parametrize("seeds", [range(200), pytest.param(range(200, 6000), marks=pytest.mark.soak)], ids=str)
def test_a_queue_does_what_a_plain_model_of_it_does_whatever_happens(seeds: range) -> None:
    for seed in seeds:
        history = History(seed)
        try:
            history.run()
            history.finish()
        except AssertionError as error:
            raise AssertionError(f"history {seed}: {error}") from error


def test_a_member_that_says_again_that_it_is_done_does_no_harm() -> None:
    table = LeaseTable(0, 100, 5)
    assert table.take("ann", 10, 10, 1000) == [LeasedRange(0, 10, 1)]
    assert table.acknowledge("ann", 3, 6) == []
    assert table.acknowledge("ann", 3, 6) == []
    assert table.acknowledge("bob", 3, 6) == [(3, 6)]
    assert table.acknowledge("ann", 0, 10) == []
    assert table.base == 10
