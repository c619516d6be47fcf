"""The records of a dump appended as new ones, to topics that may have records of their own.

Batches keep their records, timestamps and codec, and get new numbers. What is hidden below the floor is left out, and
so are control batches and what a repair had given up.

What is appended to a log that may have lost its tail is of a new term, as it is where a node appends.

Crash rule: a repeated load goes on where the first one ended. Batches come as from a producer of their own, one per
dump and log, numbered through; the log knows how far that producer came, as long as it remembers it.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Final

from logboom.batch.batch import Batch
from logboom.batch.builder import build_table
from logboom.batch.codec import CODECS
from logboom.batch.header import BATCH_SIZE_MAX, KIND_CONTROL, KIND_LOST, SEQUENCE_MODULUS, Producer, own_id
from logboom.batch.rewrite import without_producer
from logboom.errors import DumpMismatch, LogboomError
from logboom.storage.data.directory import DataDirectory
from logboom.storage.data.topic import Topic
from logboom.storage.log import Log
from logboom.storage.moving.background_sync import BackgroundSync
from logboom.storage.moving.load import TopicLoaded, check_name, need_space
from logboom.storage.moving.outline import DumpHead, LogBegin, TopicBegin
from logboom.storage.staged.unfinished import Unfinished, check_finished, unfinished_in
from logboom.storage.tail import Snapshot, new_lineage

_CODEC_NAMES: Final = {number: name for name, number in CODECS.items()}


class AppendLoader:
    def __init__(self, data: DataDirectory, now: int, name: str | None = None) -> None:
        self._data = data
        self._now = now
        self._name = name
        self._head: DumpHead | None = None
        self._dumped_id = ""
        self._topic: Topic | None = None
        self._loaded = TopicLoaded("", "")
        self._log: Log | None = None
        self._first = 0
        self._next = Producer()
        """The number the next batch of the dump gets."""
        self._done = (0, 0)
        """The epoch and sequence that the log expects of this producer: what is below them is here already."""
        self._syncing = BackgroundSync(data.files.disk, threads=data.means.threads)
        self._unfinished: list[Unfinished] = []

    def begin(self, head: DumpHead) -> None:
        if self._name is not None and len(head.topics) != 1:
            raise DumpMismatch(f"{len(head.topics)} topics cannot all be called {self._name}: name one with --topic")
        self._head = head
        self._unfinished = unfinished_in(self._data)
        need_space(self._data, sum(listed.size_bytes for listed in head.topics))

    def begin_topic(self, begun: TopicBegin) -> TopicLoaded:
        dumped = begun.topic
        name = check_name(self._name or dumped.name)
        loaded = TopicLoaded(name, dumped.id, hook=dumped.settings.hook.delete)
        here = next((topic for topic in self._data.topics() if topic.name == name), None)
        if here is None:
            here = self._data.create_topic(name, dumped.partitions, dumped.settings)
        if here.partitions < dumped.partitions:
            raise DumpMismatch(
                f"topic {name!r} has {here.partitions} partitions here and {dumped.partitions} in the dump: "
                "append to another topic with --as NAME"
            )
        check_finished(self._unfinished, {(here.id, number) for number in range(here.partitions)})
        self._topic, self._dumped_id = here, dumped.id
        loaded.id = here.id
        self._loaded = loaded
        return loaded

    def begin_log(self, span: LogBegin) -> None:
        assert self._head is not None
        assert self._topic is not None
        config = replace(self._topic.settings.log_config(), batch_bytes_max=BATCH_SIZE_MAX)
        log = self._log = self._data.open_log(self._topic.log_name(span.partition), config)
        log.commit_synced()
        if self._data.owes_term(self._topic):
            log.begin_term(log.term + 1, self._now, new_lineage(self._data.means.chance))
        key = f"{self._head.dump_id}/{self._dumped_id}/{span.partition}".encode()
        self._next = Producer(own_id(int.from_bytes(sha256(key).digest()[:8], "little")))
        stream = log.producer(self._next.id)
        self._done = (0, 0) if stream is None else (stream.epoch, stream.expected)
        self._first = span.first

    def begin_segment(self, snapshot: Snapshot) -> None:
        """Segments are the log's own here."""

    def take(self, batches: list[Batch]) -> None:
        log, loaded, renumbered = self._log, self._loaded, []
        assert log is not None
        for batch in batches:
            header = batch.header
            if header.kind == KIND_CONTROL:
                loaded.skipped_controls += 1
            elif header.next_seqno <= self._first:
                pass
            elif header.kind == KIND_LOST:
                loaded.skipped_lost += header.next_seqno - max(header.base_seqno, self._first)
            else:
                visible = batch if header.base_seqno >= self._first else _from(batch, self._first)
                producer = self._number(visible)
                if (producer.epoch, producer.seq) < self._done:
                    loaded.present += 1
                else:
                    renumbered.append(without_producer(visible, producer))
        self._append(log, renumbered)

    def _number(self, batch: Batch) -> Producer:
        """The batch's number in the dump's stream; a sequence that runs out begins again in the next epoch."""
        producer, count = self._next, len(batch)
        if producer.seq + count >= SEQUENCE_MODULUS:
            producer = Producer(producer.id, producer.epoch + 1, 0)
        self._next = producer._replace(seq=producer.seq + count)
        return producer

    def _append(self, log: Log, batches: list[Batch]) -> None:
        for answer in log.append(batches, self._now):
            if isinstance(answer, LogboomError):
                raise answer
        self._loaded.batches += len(batches)
        self._loaded.records += sum(map(len, batches))
        self._syncing.written(log, sum(batch.header.size for batch in batches))

    def end_log(self) -> None:
        self._syncing.finish()
        log, self._log = self._log, None
        assert log is not None
        log.sync()
        log.commit_synced()
        log.close()

    def end_topic(self) -> None:
        """The topic was there before its records."""

    def stop(self) -> None:
        self._syncing.close()


def _from(batch: Batch, seqno: int) -> Batch:
    """The records of a batch from this one on."""
    rest = batch.to_arrow().slice(seqno - batch.header.base_seqno)
    return build_table(rest, codec=_CODEC_NAMES[batch.header.codec])
