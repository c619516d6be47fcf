"""A dump becomes logs again: equal ones, with their ids, numbers, times, segments and producers.

Invariant: a topic is there whole or not at all, because its topic.json is written last. Nothing that is here already is
changed: it is compared with the dump, skipped where it is the same, and refused where it is not.

Crash rule: a load that was cut off is run again with the same dump. Logs that it began lie without a topic.json; they
are recovered as every log is, and gone on with.
"""

from __future__ import annotations

from typing import Final

import msgspec

from logboom.batch.batch import Batch
from logboom.batch.rewrite import equal
from logboom.errors import DumpMismatch
from logboom.storage.config import LogConfig
from logboom.storage.data.directory import DataDirectory
from logboom.storage.data.topic import Topic
from logboom.storage.files.disk import read_file, replace_file
from logboom.storage.log import Log
from logboom.storage.moving.background_sync import BackgroundSync
from logboom.storage.moving.load import TopicLoaded, check_name, need_space
from logboom.storage.moving.outline import DumpHead, LogBegin, TopicBegin
from logboom.storage.recovery import begin_log
from logboom.storage.segment import parse_name
from logboom.storage.staged.unfinished import Unfinished, check_finished, unfinished_in
from logboom.storage.tail import Snapshot

_CONFIG: Final = LogConfig(segment_bytes=2**40, segment_age_us=2**62)
"""Segments end where the dump says."""


class EqualLoader:
    """Makes logs that are equal to those that were dumped."""

    def __init__(self, data: DataDirectory, name: str | None = None) -> None:
        """`name` is what the dump's one topic is to be called here. Raises InvalidTopicName."""
        if name is not None:
            Topic.make(name)
        self._data = data
        self._disk = data.files.disk
        self._name = name
        self._whole = True
        """Whether the floors in the dump are the log's own, and none is of the range that was asked for."""
        self._topic: Topic | None = None
        self._loaded: TopicLoaded | None = None
        self._log: Log | None = None
        self._span: LogBegin | None = None
        self._present = 0
        """The last index that was here before this load; 0 where there was no log."""
        self._syncing = BackgroundSync(self._disk, threads=data.means.threads)
        self._unfinished: list[Unfinished] = []

    def begin(self, head: DumpHead) -> None:
        if self._name is not None and len(head.topics) != 1:
            raise DumpMismatch(f"{len(head.topics)} topics cannot all be called {self._name}: name one with --topic")
        self._whole = head.request.seqno_from is None
        self._unfinished = unfinished_in(self._data)
        known = {name.rpartition("~")[2] for name in self._directories("topics")}
        need_space(self._data, sum(listed.size_bytes for listed in head.topics if listed.id not in known))

    def begin_topic(self, begun: TopicBegin) -> TopicLoaded:
        name = check_name(self._name or begun.topic.name)
        topic = msgspec.structs.replace(begun.topic, name=name, maker=msgspec.UNSET)
        loaded = TopicLoaded(topic.name, topic.id, hook=topic.settings.hook.delete)
        for here in self._data.topics():
            if here.name == topic.name and here.id != topic.id:
                raise DumpMismatch(
                    f"there is another topic {here.name!r} already, with id {here.id}: load under another name with "
                    "--as NAME, or add the records to it with --append"
                )
            if here.id == topic.id and (here.name, here.partitions) != (topic.name, topic.partitions):
                raise DumpMismatch(
                    f"this topic is here already, as {here.name!r} with {here.partitions} partitions: "
                    f"move {self._data.path}/{here.directory} away, or add the records as new ones with --append"
                )
        check_finished(self._unfinished, {(topic.id, number) for number in range(topic.partitions)})
        self._clear_way(topic)
        self._topic, self._loaded = topic, loaded
        return loaded

    def _clear_way(self, topic: Topic) -> None:
        """What is left of this very topic: in the trash, or begun under another name by a load that was cut off."""
        if any(name.endswith(f"~{topic.id}") for name in self._directories("trash")):
            self._data.empty_trash()
        root = self._data.path
        for name in self._directories("topics"):
            left, wanted = f"{root}/topics/{name}", f"{root}/{topic.directory}"
            if name.endswith(f"~{topic.id}") and left != wanted and not self._disk.exists(f"{left}/topic.json"):
                self._disk.rename(left, wanted)
                self._disk.sync_directory(f"{root}/topics")

    def _directories(self, below: str) -> list[str]:
        path = f"{self._data.path}/{below}"
        return self._disk.list(path) if self._disk.exists(path) else []

    def begin_log(self, span: LogBegin) -> None:
        self._span, self._log, self._present = span, None, 0
        directory = self._directory
        if self._disk.exists(directory) and any(map(parse_name, self._disk.list(directory))):
            log = self._open()
            if not log.last_index and span.first_index > 1:
                self._forget_empty(log)
            else:
                self._check_place()
        size_here = 0 if self._log is None else self._log.size_bytes
        need_space(self._data, max(0, span.size_bytes - size_here))

    def _forget_empty(self, log: Log) -> None:
        """It was opened and never written to: as good as none."""
        log.close()
        self._log = None
        for name in filter(parse_name, self._disk.list(self._directory)):
            self._disk.unlink(f"{self._directory}/{name}")
        self._disk.sync_directory(self._directory)

    @property
    def _log_name(self) -> str:
        assert self._topic is not None
        assert self._span is not None
        return self._topic.log_name(self._span.partition)

    @property
    def _directory(self) -> str:
        return f"{self._data.path}/{self._log_name}"

    def _open(self) -> Log:
        log = self._log = self._data.open_log(self._log_name, _CONFIG)
        if log.refusal is not None:
            raise DumpMismatch(f"what is here already takes no writes: {log.refusal}")
        log.commit_synced()
        self._present = log.last_index
        return log

    def _check_place(self) -> None:
        """What is here must begin where the dump does, or before, and reach at least to where the dump begins."""
        log, span = self._log, self._span
        assert log is not None
        assert span is not None
        # Retention may have dropped here what the dump begins with: one common batch tells that it is the same log.
        common = min(log.last_index, span.next_index - 1)
        begins = log.first_index <= max(span.first_index, common)
        if not begins or span.first_index > log.last_index + 1:
            raise DumpMismatch(
                f"{self._directory} has seqnos {log.segments[0].first_seqno} to {log.next}, the dump goes on at "
                f"{span.first_seqno}: load the part between first, or move {self._directory} away"
            )

    def begin_segment(self, snapshot: Snapshot) -> None:
        log, span = self._log, self._span
        assert span is not None
        if log is None:
            # The state file may remember one that was lost: that is what the dump is to restore.
            self._data.forget_log(self._log_name)
            begin_log(self._disk, self._directory, snapshot)
            self._open()
            self._present = 0
        elif snapshot.next_index != log.last_index + 1:
            pass  # here already
        elif snapshot.next_index == span.first_index > log.first_index:
            self._check_follows(log, snapshot)
        elif snapshot.next_seqno != log.next:
            raise DumpMismatch(
                f"{self._directory} goes on at seqno {log.next}, the dump at {snapshot.next_seqno}: not the same log"
            )
        else:
            self._syncing.finish()
            if log.segments[-1].first_index != snapshot.next_index:
                log.roll()
            self._set_snapshot(log, snapshot, span)

    def _check_follows(self, log: Log, snapshot: Snapshot) -> None:
        """The dump goes on where the log here ends: then both say the same of the batch before."""
        dumped = snapshot.next_seqno, snapshot.term, snapshot.append_time
        if dumped != (log.next, log.term, log.append_time):
            raise DumpMismatch(
                f"{self._directory} does not end with the batch before the dump's first: not the same log"
            )

    def _set_snapshot(self, log: Log, snapshot: Snapshot, span: LogBegin) -> None:
        """A repair may have left a snapshot that does not follow from the batches before it: it counts all the same."""
        segment = log.segments[-1]
        here = Snapshot.decode(read_file(self._disk, segment.snap_path))
        assert here is not None
        is_own = span.first_index == log.first_index and (self._whole or snapshot.floor > span.floor)
        floor = snapshot.floor if is_own else here.floor
        snapshot = msgspec.structs.replace(snapshot, generation=here.generation, floor=floor)
        if log.active_bytes or snapshot == here:
            return
        present = self._present
        log.close()
        replace_file(self._disk, segment.snap_path, snapshot.encode())
        self._open()
        self._present = present

    def take(self, batches: list[Batch]) -> None:
        log, loaded, span = self._log, self._loaded, self._span
        assert log is not None
        assert loaded is not None
        assert span is not None
        common = min(self._present, span.next_index - 1)
        if batches[0].header.index <= common:
            for batch in batches:
                if batch.header.index == common:
                    self._compare(log, batch)
            there = common + 1 - batches[0].header.index
            loaded.present += min(there, len(batches))
            batches = batches[there:]
        if batches:
            log.replicate(batches)
            loaded.batches += len(batches)
            loaded.records += sum(batch.header.record_count for batch in batches)
            self._syncing.written(log, sum(batch.header.size for batch in batches))

    def _compare(self, log: Log, batch: Batch) -> None:
        run = log.read_index(batch.header.index, 1)
        here = None if run is None else next(run.batches())
        if here is None or not equal(here, batch):
            raise DumpMismatch(
                f"{self._directory} holds another batch {batch.header.index} than the dump: it is not the same log; "
                "add the records as new ones with --append"
            )

    def end_log(self) -> None:
        self._syncing.finish()
        log, self._log = self._log, None
        assert log is not None
        log.sync()
        log.commit_synced()
        log.close()
        if self._loaded is not None and self._span is not None:
            self._loaded.next[self._span.partition] = log.next

    def end_topic(self) -> None:
        topic = self._topic
        assert topic is not None
        if all(here.id != topic.id for here in self._data.topics()):
            self._data.adopt_topic(topic)

    def stop(self) -> None:
        """Whatever happened: what was written is closed as the directory is."""
        self._syncing.close()
