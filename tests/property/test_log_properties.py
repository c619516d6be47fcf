"""A log against a list of records, under everything that can happen to it in any order."""

from __future__ import annotations

import os
import random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logboom.batch import Producer
from logboom.batch.codec import ZSTD
from logboom.errors import LogboomError
from logboom.storage import Appended
from logboom.storage.data.topic import RetentionSettings
from logboom.storage.upkeep.recompression import recompress
from logboom.storage.upkeep.retention import expired
from logboom.storage.view import LogView
from support.disks.simulated import SimulatedDisk
from support.simulation.model import Model, make_batch, open_log, open_view


class LogMachine(RuleBasedStateMachine):
    """Appends, repeats, syncs, commits, rolls, trims, drops, swaps, truncations, kills and power losses.

    Beside the log lives a view, as another process would have it: it survives the writer, though not the power.
    """

    @initialize()
    def begin(self) -> None:
        self.disk = SimulatedDisk()
        self.log = open_log(self.disk)
        self.model = Model()
        self.now = 1_000_000
        self.term = 1
        self.made = 0
        self.view = open_view(self.disk)

    @rule(
        counts=st.lists(st.integers(1, 30), min_size=1, max_size=6),
        timestamp=st.one_of(st.none(), st.integers(0, 10_000_000)),
        producer_id=st.integers(0, 2),
    )
    def append(self, counts: list[int], timestamp: int | None, producer_id: int) -> None:
        self.now += 1000
        batches = []
        seq = self.expected_sequence(producer_id)
        for count in counts:
            self.made += 1
            producer = Producer(producer_id, 0, seq) if producer_id else Producer()
            batches.append(make_batch(self.made, count, timestamp, producer, size=self.made * 37 % 300))
            seq += count
        answers = self.log.append(batches, self.now, self.term)
        for answer, batch in zip(answers, batches, strict=True):
            assert isinstance(answer, Appended), answer
            assert not answer.repeat
            self.model.appended(answer, batch, self.term)

    def expected_sequence(self, producer_id: int) -> int:
        entries = [entry for entry in self.model.entries if entry.producer.id == producer_id]
        return entries[-1].producer.seq + len(entries[-1].records) if entries else 0

    @precondition(lambda self: any(entry.producer.id for entry in self.model.entries))
    @rule(back=st.integers(0, 20))
    def repeat(self, back: int) -> None:
        """What a producer sent before is answered as the first time, or refused if forgotten; never appended."""
        entries = [entry for entry in self.model.entries if entry.producer.id]
        entry = entries[max(0, len(entries) - 1 - back)]
        batch = make_batch(0, len(entry.records), None, entry.producer)
        (answer,) = self.log.append([batch], self.now, self.term)
        newer = [e for e in entries if e.producer.id == entry.producer.id and e.index > entry.index]
        if len(newer) < 16:
            assert isinstance(answer, Appended), answer
            assert answer.repeat
            assert (answer.base_seqno, answer.index) == (entry.base_seqno, entry.index)
        else:
            assert isinstance(answer, LogboomError)

    @rule()
    def sync(self) -> None:
        assert self.log.sync() == self.model.last_index
        self.model.synced_index = self.model.last_index

    @rule(share=st.floats(0, 1))
    def commit(self, share: float) -> None:
        """A single node commits what is synced; a leader may commit any part of it."""
        low, high = self.model.committed_index, self.model.synced_index
        index = low + round((high - low) * share)
        self.log.commit(index)
        self.model.committed_index = max(low, index)

    @rule()
    def roll(self) -> None:
        self.log.roll()
        self.model.synced_index = self.model.last_index

    @rule(share=st.floats(0, 1))
    def trim(self, share: float) -> None:
        seqno = self.log.first + round((self.log.committed - self.log.first) * share)
        if self.log.committed < self.log.first:
            return
        self.model.trimmed(self.log.trim(seqno, self.now, self.term), seqno, self.term)

    @rule(share=st.floats(0, 1))
    def drop(self, share: float) -> None:
        first = self.log.first
        if self.log.committed < first:
            return
        seqno = first + round((self.log.committed - first) * share)
        self.log.drop(seqno)
        assert self.log.first <= max(seqno, first)

    @rule(which=st.integers(0, 9), fate=st.sampled_from(["end", "cancel", "kill before", "drop before"]))
    def swap(self, which: int, fate: str) -> None:
        """A cold segment is stored anew; what else happens in the meantime must not matter."""
        cold = self.log.cold_segments()
        if not cold:
            return
        pending = self.log.begin_swap(cold[which % len(cold)])
        done = recompress(self.disk, *pending, ZSTD, 1, 0.0, lambda size: None)
        if done is None or fate == "cancel":
            self.log.cancel_swap(pending)
        elif fate == "kill before":
            self.kill()
        else:
            if fate == "drop before":
                self.log.drop(self.log.committed)
            self.log.end_swap(pending, done.summary, done.index)

    @rule(share=st.floats(0, 1), held=st.floats(0, 1))
    def retain(self, share: float, held: float) -> None:
        """Nothing that is held goes, and at least so many records stay."""
        first, committed = self.log.first, self.log.committed
        if committed < first:
            return
        keep, hold = round((committed - first) * share), first + round((committed - first) * held)
        self.log.hold("test", hold)
        segments = expired(self.log, RetentionSettings(records=keep), self.now)
        if segments:
            self.log.drop(segments[-1].next_seqno)
        self.log.release("test")
        assert self.log.first <= max(first, min(hold, committed - keep))

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        low = max(self.model.committed_index, self.log.first_index - 1)
        index = low + round((self.model.last_index - low) * share)
        self.log.truncate(index)
        self.model.cut_to(index)
        self.term += 1

    @rule()
    def kill(self) -> None:
        """The process dies: nothing written is lost."""
        self.disk.kill()
        self.reopen(self.model.last_index)

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        """The machine dies: what was synced is there, and what is there is a prefix."""
        self.disk = self.disk.power_loss(random.Random(seed))
        self.reopen(self.model.synced_index)
        self.view = open_view(self.disk)

    @rule(seed=st.integers(0, 2**32))
    def kill_and_lose_power(self, seed: int) -> None:
        """What a restart recovered from the cache must survive the power loss that follows."""
        self.disk.kill()
        kept = open_log(self.disk).last_index
        assert kept == self.model.last_index
        self.disk = self.disk.power_loss(random.Random(seed))
        self.reopen(kept)
        self.view = open_view(self.disk)

    def reopen(self, at_least: int) -> None:
        self.log = open_log(self.disk)
        assert self.log.recovered.damage is None
        assert self.log.last_index >= at_least
        self.model.cut_to(self.log.last_index)
        self.model.synced_index = self.log.last_index
        self.term += 1
        again = open_log(self.disk)
        assert (again.first, again.next, again.last_index) == (self.log.first, self.log.next, self.log.last_index)
        self.log.commit(self.model.committed_index)

    @invariant()
    def matches_the_list(self) -> None:
        self.model.check(self.log)

    @rule()
    def look(self) -> None:
        """The reader beside the writer wakes up."""
        self.view.refresh()
        self.check_view(self.view)
        self.check_view(open_view(self.disk))

    def check_view(self, view: LogView) -> None:
        """It shows what is committed, as far as its last look, and nothing else."""
        assert view.damage is None
        records = self.model.committed_records()
        assert view.committed == (records[-1][0] + 1 if records else 0)
        visible = [record for record in records if record[0] >= view.first]
        got = [
            (record.seqno, record.value, record.timestamp)
            for batch in (view.batches() if view.first < view.committed else [])
            for record in batch.records()
            if record.seqno is not None and record.seqno >= view.first
        ]
        assert got == visible
        for seqno, _, timestamp in visible[:: max(1, len(visible) // 3)]:
            wanted = next(number for number, _, moment in visible if moment >= timestamp)
            assert view.seqno_at(timestamp) == wanted
            entry = next(e for e in self.model.entries if e.base_seqno <= seqno < e.next_seqno)
            assert view.term_before(seqno + 1) == entry.term


settings.register_profile(
    "log",
    max_examples=int(os.environ.get("LOGBOOM_LOG_EXAMPLES", "60")),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestLog: Any = LogMachine.TestCase
TestLog.settings = settings.get_profile("log")
