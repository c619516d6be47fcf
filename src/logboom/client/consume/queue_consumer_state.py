"""What a consumer of a queue is asked for when it is made; the same for both kinds."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final

from logboom import __version__
from logboom.batch import microseconds
from logboom.broker.api import GroupJoin, GroupMode, QueueSettings, Start
from logboom.broker.read.log_names import join_names
from logboom.client.consume.job import Job, JobWord, LeasedPiece
from logboom.client.consume.queue_member import QueueMember, QueueTimes, check_refused
from logboom.client.keywords import explained
from logboom.client.link.address import Servers, parse_servers
from logboom.client.read.start import CONNECT_PATIENCE_S, At, check_start
from logboom.values.serializer import Serializer, ValueFormat, coder_of

CLOSE_S: Final = 10.0
FLUSH_S: Final = 60.0


class QueueConsumerState:
    """A member of a group whose members share single records: each is leased to one of them for `lease_s`, and goes to
    another when the lease is over, when it is released, or when its member is not heard of for `session_s`. A record
    that was leased `tries` times, or is rejected, becomes a record of the topic `dead_letter`, or is given up without
    one. What the member that joined last says of these holds for all.

    No more than `prefetch` records are held at one time, those that are worked on included. While they wait to be given
    their lease is kept up, unless no record is asked for for `max_idle_s`. With `value` that of a job is decoded as a
    Reader's records are, when it is asked for.
    """

    @explained()
    def __init__(
        self,
        topic: str | Sequence[str],
        servers: Servers = None,
        *,
        group: str,
        lease_s: float = 30.0,
        tries: int = 5,
        retry_delay_s: float = 0.0,
        dead_letter: str | None = None,
        prefetch: int = 500,
        at: At | None = None,
        timestamp: datetime | int | None = None,
        value: ValueFormat | Serializer | None = None,
        mode: GroupMode = "queue",
        instance: str = "",
        session_s: float = 20.0,
        max_idle_s: float = 300.0,
        connect_timeout_s: float = CONNECT_PATIENCE_S,
    ) -> None:
        check_start(at, "raise", timestamp=timestamp)
        if mode != "queue":
            raise ValueError(f"mode is {mode!r}, allowed here is 'queue'")
        if prefetch < 1:
            raise ValueError(f"prefetch is {prefetch}, allowed is 1 and more")
        self.topic = join_names(topic)
        """As topics and patterns are written, with commas between them."""
        self.group = group
        self.member = secrets.token_hex(16)
        """Its id in the group."""
        addresses = parse_servers(servers)
        settings = QueueSettings(round(1000 * lease_s), tries, round(1000 * retry_delay_s), dead_letter or "")
        join = GroupJoin(
            *(group, self.member, self.topic, "queue", instance),
            client=addresses[0].profile.client or f"logboom-python/{__version__}",
            session_ms=round(1000 * session_s),
            start=Start(time=None if timestamp is None else microseconds(timestamp), at=at or "earliest"),
            queue=settings,
        )
        times = QueueTimes(lease_s, max_idle_s, connect_timeout_s)
        self._coder = coder_of(value)
        self._is_closed = self._is_stopped = False
        self._current: tuple[LeasedPiece, Iterator[Job]] | None = None
        self._member = QueueMember(join, addresses, times, prefetch, self._receiver())
        self._begin()

    def _begin(self) -> None:
        """A blocking consumer joins as soon as it is made."""

    def _receiver(self) -> Callable[[LeasedPiece | BaseException], None]:
        """Called on the member's thread, which keeps no reference to the consumer: one that is forgotten leaves."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic} in group {self.group!r}>"

    @property
    def refused(self) -> int:
        """Records that were settled when their lease was over."""
        return self._member.refused

    def _jobs_of(self, piece: LeasedPiece) -> Iterator[Job]:
        """Its records, as long as they are held."""
        chunk, clock = piece.leased.chunk, time.monotonic
        for record in chunk.records():
            seqno = record.seqno or 0
            if seqno >= chunk.next_seqno or clock() >= piece.until_s:
                return
            piece.given = seqno
            yield Job(record, piece, self, self._coder)

    def say(self, said: JobWord) -> None:
        """See JobDesk."""
        self._member.say(said)

    def wait_for(self, said: JobWord) -> None:
        """See JobDesk."""
        self.say(said)
        check_refused(self._member.flush().result(FLUSH_S), said, self.group)

    def _next_of_current(self) -> Job | None:
        if self._current is None:
            return None
        job = next(self._current[1], None)
        if job is None:
            self._current = None
        return job
