"""Entries of all kinds, into the log: on whatever thread has it, with as few calls as their order allows.

New batches that stand next to each other become one call of `Log.append`. What must be by itself (a piece of a stage
that becomes a segment, a repeat, batches of a log's source, several with one demand) ends such a run. Each entry gets
its answers here; whoever owns the log gives them to who waits. A write whose outcome nobody knows stops the node.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from logboom.batch import Batch
from logboom.broker.append.promise import Adoption, Entry
from logboom.broker.append.sync_rounds import SyncRounds
from logboom.errors import BatchError, LogboomError, RepeatForgotten, SyncFailed
from logboom.storage.append import Answer, Appended
from logboom.storage.log import Log
from logboom.storage.tail import new_lineage

logger: Final = logging.getLogger("logboom.broker")


class EntryAppender:
    def __init__(self, name: str, log: Log, rounds: SyncRounds, term: int | None) -> None:
        self.name = name
        """`topic/partition`."""
        self.log = log
        self._rounds = rounds
        self._now_us = rounds.world.now_us
        self.term = term
        """What is appended is of this one, which is not in the log yet, durably; None where the log's own is."""

    def append(self, entries: Sequence[Entry]) -> None:
        """On whatever thread has the log: one call for all of them. Their answers are not given to anybody yet."""
        together: list[Entry] = []
        for entry in entries:
            if isinstance(entry, Adoption):
                self._append_together(together)
                self._adopt(entry)
                together = []
            elif entry.is_repeat:
                self._append_together(together)
                self._answer_again(entry)
                together = []
            elif entry.stamped:
                self._append_together(together)
                self._replicate(entry)
                together = []
            elif entry.expect is not None and len(entry.batches) > 1:  # the first one's seqno decides for all
                self._append_together(together)
                self._append_together([entry])
                together = []
            else:
                together.append(entry)
        self._append_together(together)

    def _append_together(self, entries: list[Entry]) -> None:
        if not entries:
            return
        batches: Sequence[Batch] = entries[0].batches
        expect: list[int | None] | None = None
        if len(entries) > 1:
            batches = [batch for entry in entries for batch in entry.batches]
        if [entry for entry in entries if entry.expect is not None]:
            expect = [seqno for entry in entries for seqno in entry.expected(self.log.next)]
        try:
            if self.term is not None:
                self._begin_owed_term()
            answers = self.log.append(batches, self._now_us(), self.term, expect)
        except LogboomError as error:  # the term could not be begun
            answers = [error] * len(batches)
        except Exception as error:  # nothing of ours: what was written is not known
            failure = SyncFailed(f"{self.name}: {type(error).__name__}: {error}")
            self._rounds.call_soon(self._rounds.fail, failure, error)
            answers = [failure] * len(batches)
        offset = 0
        for entry in entries:
            entry.answers = answers[offset : offset + len(entry.batches)]
            offset += len(entry.batches)

    def _answer_again(self, entry: Entry) -> None:
        """As the first time, from what the log remembers. What it has forgotten meanwhile is not written: no validator
        has seen it."""
        answers: list[Answer] = []
        for batch in entry.batches:
            header = batch.header
            try:
                batch.verify(self.log.config.batch_bytes_max)
                found = self.log.repeat_of(header)
                answers.append(found or RepeatForgotten(header.producer_id, header.producer_seq, 0))
            except BatchError as error:
                answers.append(error)
        entry.answers = answers

    def _replicate(self, entry: Entry) -> None:
        """As above, for batches that have their numbers already."""
        failure: LogboomError | None = None
        try:
            self.log.replicate(entry.batches)
        except LogboomError as error:
            failure = error
        except Exception as error:  # nothing of ours: what was written is not known
            failure = SyncFailed(f"{self.name}: {type(error).__name__}: {error}")
            self._rounds.call_soon(self._rounds.fail, failure, error)
        last, headers = self.log.last_index, [batch.header for batch in entry.batches]
        entry.answers = [
            failure
            if failure is not None and header.index > last
            else Appended(header.base_seqno, header.record_count, header.index, header.append_time)
            for header in headers
        ]

    def _adopt(self, entry: Adoption) -> None:
        """Where it cannot be, whoever asked appends the batches: what stands in the way of that is said then."""
        try:
            batches = list(entry.piece.batches())
            self._begin_owed_term()
            entry.answers = self.log.adopt(entry.piece.file(), batches, self._now_us(), self.term)
            entry.batches, entry.size = batches, sum(len(batch.data) for batch in batches)
        except (LogboomError, OSError) as error:
            logger.warning("%s: %s does not become a segment: %s", self.name, entry.piece.path, error)
        except Exception as error:  # nothing of ours: what was written is not known
            failure = SyncFailed(f"{self.name}: {type(error).__name__}: {error}")
            self._rounds.call_soon(self._rounds.fail, failure, error)
        entry.piece.let_go()

    def _begin_owed_term(self) -> None:
        """A term that could not be written down before begins with the first batch that can be."""
        if self.term is not None and self.log.term < self.term:
            self.log.begin_term(self.term, self._now_us(), new_lineage(self._rounds.world.chance))
