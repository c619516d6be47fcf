"""What a reader of a node is asked for when it is made, and what it says of itself; the same for both kinds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Literal

from logboom.batch import microseconds
from logboom.broker.api import CursorMove, Filter, Start
from logboom.broker.read.log_names import LogNames, join_names
from logboom.client.keywords import explained
from logboom.client.link.address import Servers, parse_servers
from logboom.client.read.checkpoints import choose_checkpoint, find_state
from logboom.client.read.cursor_marks import CursorMarks
from logboom.client.read.fetcher import Fetcher
from logboom.client.read.log_position import LogPosition
from logboom.client.read.merged_core import MergedCore
from logboom.client.read.reader_core import ReaderCore
from logboom.client.read.start import CONNECT_PATIENCE_S, At, Gaps, check_seqno, check_start
from logboom.client.read.topics_core import TopicsCore
from logboom.errors import LogboomError, PackageMissing
from logboom.results.checkpoint import By
from logboom.storage.bookmark import Bookmark, BookmarkSet
from logboom.values.serializer import Serializer, ValueFormat, coder_of


class ReaderState:
    """Where a reader stands. Reads a topic, all of its partitions or one; several topics, given as a list; or all whose
    names fit a pattern (`"orders.*"`), those that come later too. Records come as they are there, in order inside each
    partition, and say their `topic` and `partition`. One bookmark, or cursor, stands for all logs. With `order="time"`
    records of all logs that are there come by their timestamps; what is written meanwhile comes when it is found.

    Starts at `seqno`, at the first record at or after `timestamp`, at a `bookmark`, where its `cursor` was committed
    last, or `at` the earliest record or the latest.

    With `from_checkpoint` the latest record of each key comes first, or of each channel where `checkpoint` says so, as
    the newest checkpoint has them; then the log from where that ends. A cursor that has a place goes on there instead.
    The files of the checkpoint are read from where they are. Until all of it was given there is no position.

    `tags_any`, `tags_all`, `channel` (a pattern: `site/+/temp`, `site/#`, `site/7*`) and `key` let the node leave out
    what is not wanted; seqnos stay what they are. With `gaps="skip"` a reader goes on behind what is gone: records that
    retention dropped, damage, a topic that was deleted and made again (there with the first record). A node that does
    not answer is tried for `connect_timeout_s`: it may just be restarting.

    `value` says how values were written: "json", "text", "msgpack", or an object with `encode` and `decode`. Records
    and lists then have them decoded; stored batches and tables have bytes always. A value that cannot be decoded raises
    ValueUnreadable, which has its bytes, and the reader stands behind it: the next loop goes on.
    """

    @explained()
    def __init__(
        self,
        topic: str | Sequence[str],
        servers: Servers = None,
        partition: int | None = None,
        *,
        seqno: int | None = None,
        timestamp: datetime | int | None = None,
        bookmark: str | Bookmark | None = None,
        cursor: str | None = None,
        at: At | None = None,
        from_checkpoint: bool = False,
        checkpoint: By | None = None,
        tags_any: Sequence[str] = (),
        tags_all: Sequence[str] = (),
        channel: str | None = None,
        key: bytes | str | None = None,
        gaps: Gaps = "raise",
        order: Literal["time"] | None = None,
        value: ValueFormat | Serializer | None = None,
        connect_timeout_s: float = CONNECT_PATIENCE_S,
    ) -> None:
        from_checkpoint = from_checkpoint or checkpoint is not None
        begins = {"seqno": seqno, "timestamp": timestamp, "bookmark": bookmark}
        check_start(at, gaps, **begins, from_checkpoint=from_checkpoint or None)
        if isinstance(tags_any, str) or isinstance(tags_all, str):
            raise ValueError("tags are a list of texts, such as ['red']")
        start = Start(
            seqno=None if seqno is None else check_seqno(seqno),
            time=None if timestamp is None else microseconds(timestamp),
            bookmark=None if bookmark is None else str(BookmarkSet.parse(str(bookmark))),
            cursor=cursor if (seqno, timestamp, bookmark) == (None, None, None) else None,
            at=at or "earliest",
        )
        wanted = Filter(tuple(tags_any), tuple(tags_all), channel, key.encode() if isinstance(key, str) else key)
        wanted.selection()  # a pattern that means nothing is said at once
        if not connect_timeout_s >= 0:
            raise ValueError(f"connect_timeout_s is {connect_timeout_s!r}, allowed are 0 and more")
        self._connect_timeout_s = connect_timeout_s
        self.cursor = cursor
        """Where `commit` goes."""
        what = None if wanted == Filter() else wanted, gaps == "skip", coder_of(value)
        name, several = name_logs(topic, partition), partition is None and is_several(topic, start.bookmark)
        reading: ReaderCore | TopicsCore
        if order is not None:
            check_order(order, partition)
            reading = MergedCore(name, start, *what)
        else:
            reading = TopicsCore(name, start, *what) if several else ReaderCore(name, partition, start, *what)
        prepare = None
        if from_checkpoint:
            if isinstance(reading, TopicsCore):
                raise ValueError("a checkpoint is of one topic: name that alone, or read without from_checkpoint")
            prepare = partial(find_state, reading, choose_checkpoint(checkpoint, wanted, cursor))
        self._marks = CursorMarks(start.cursor is not None)
        self._fetching = Fetcher(reading, parse_servers(servers), time.monotonic, prepare)
        self._begin()

    def _begin(self) -> None:
        """A blocking reader connects as soon as it is made."""

    @property
    def _reading(self) -> ReaderCore | TopicsCore:
        return self._fetching.reading

    def __repr__(self) -> str:
        reading, name = self._reading, type(self).__name__
        if not reading.is_located:
            return f"<{name} {reading.topic} not opened>"
        if isinstance(reading, TopicsCore):
            return f"<{name} {reading.topic}, {len(reading.logs)} logs>"
        return f"<{name} {reading.topic}/{reading.partition} at {reading.seqno} of {reading.committed}>"

    @property
    def topic(self) -> str:
        return self._reading.topic

    @property
    def topic_id(self) -> str | None:
        """Of the topic that is being read; another one after it was made again."""
        return self._reading.topic_id

    @property
    def partition(self) -> int | None:
        return self._reading.partition

    @property
    def seqno(self) -> int | None:
        """The seqno that is read next; None where there are several logs."""
        return self._reading.seqno if self._reading.state is None else None

    @property
    def first(self) -> int:
        """The first readable seqno, when the node last said so."""
        return self._reading.first

    @property
    def committed(self) -> int:
        """The seqno behind the last readable one, when the node last said so."""
        return self._reading.committed

    @property
    def reads_several(self) -> bool:
        """Whether there are several logs, or may be: then places are in `logs`, and tables say whose a record is."""
        return isinstance(self._reading, TopicsCore)

    @property
    def logs(self) -> list[LogPosition]:
        """Where it stands in each log that it reads."""
        return [
            LogPosition(log.topic, log.partition or 0, log.seqno, log.first, log.committed)
            for log in self._reading.logs
        ]

    @property
    def bookmark(self) -> str:
        """Where the reader stands, to be given to a later one. Inside a loop: behind what the loop was given last."""
        return self._reading.bookmark

    @property
    def at_end(self) -> bool:
        """Whether everything was read, as far as the node has said."""
        return self._reading.at_end

    @property
    def skipped(self) -> int:
        """Records that were passed over because they are gone."""
        return self._reading.skipped

    @property
    def last_gap(self) -> LogboomError | None:
        """Why records were passed over, the last time."""
        return self._reading.last_gap

    def moved(self, moves: Sequence[CursorMove]) -> None:
        """What `moves` has given was published: the next moves begin there. A transaction says so itself."""
        self._marks.moved(self._reading.logs, moves)

    def _cursor(self) -> str:
        if self.cursor is None:
            raise ValueError("this reader has no cursor to commit: make it with cursor='name'")
        return self.cursor


def name_logs(topic: str | Sequence[str], partition: int | None) -> str:
    """As `LogNames` are written. Raises InvalidPattern, or ValueError."""
    name = join_names(topic)
    if partition is not None and is_several(topic):
        raise ValueError(f"{name!r} names several logs: write a partition behind each topic, as in orders/2")
    return name


def check_order(order: str, partition: int | None) -> None:
    if order != "time" or partition is not None:
        raise ValueError("order may be 'time', for a reader of several logs: name no partition")


def is_several(topic: str | Sequence[str], bookmark: str | None = None) -> bool:
    """Whether more than one topic is meant, or something other than a topic, or places in several logs."""
    names = LogNames.parse(join_names(topic))
    if len(names) > 1 or names[0].is_pattern or names[0].partition is not None:
        return True
    return bookmark is not None and len(BookmarkSet.parse(bookmark)) != 1


def need_pandas() -> None:
    """Raises PackageMissing, before anything was read."""
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise PackageMissing("pandas", "frames()") from None
