"""What a consumer is asked for when it is made, and what it says of itself; the same for both kinds."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from logboom import __version__
from logboom.batch import microseconds
from logboom.batch.batch import Latch
from logboom.broker.api import CursorMove, Filter, GroupJoin, GroupMode, Start
from logboom.broker.read.log_names import join_names
from logboom.client.consume.consumer_core import AssignedLog, CommitMode, ConsumerCore
from logboom.client.consume.held_logs import HeldLogs
from logboom.client.consume.mailbox import Mailbox
from logboom.client.consume.membership import GroupMembership, MemberTimes
from logboom.client.keywords import explained
from logboom.client.link.address import Servers, parse_servers
from logboom.client.read.fetcher import Fetcher
from logboom.client.read.start import CONNECT_PATIENCE_S, At, Gaps, check_start
from logboom.errors import LocalProtocolError, LogboomError
from logboom.values.serializer import Serializer, ValueFormat, coder_of

Listener = Callable[[list[AssignedLog]], Any]

CLOSE_S: Final = 10.0
"""How long a last commit may take."""
_MODES: Final = ("after", "before", "manual")


class ConsumerState:
    """A member of `group`. The members share the logs of the topics, which are named as for a Reader: each log is read
    by one of them, from where the group was. One that joins, leaves, or is not heard of for `session_s` moves what must
    be moved; the others read on. Who does not ask for records for `max_idle_s` leaves, and is back when he does.

    `commit` says when the group's place moves: `after` what was given was processed, which is when the loop comes back
    for more; `before` it is given; `manual` with `commit()`. A log in which the group has no place yet is read from its
    first record on, or from `at` the latest, or from the first record at or after `timestamp`.

    `on_assigned`, `on_revoked` and `on_lost` are called with the logs, in the loop that asks for records: when they are
    given to this member; when they are asked for and can be committed for the last time; when they are another's.

    With an `instance`, a name that outlives the process, its logs wait for it until its session ends. A log that is
    asked for and not given back within `give_back_s` is taken. Filters, `gaps` and `value` are those of a Reader.
    """

    @explained()
    def __init__(
        self,
        topic: str | Sequence[str],
        servers: Servers = None,
        *,
        group: str,
        mode: GroupMode = "logs",
        commit: CommitMode = "after",
        at: At | None = None,
        timestamp: datetime | int | None = None,
        instance: str = "",
        session_s: float = 20.0,
        max_idle_s: float = 300.0,
        give_back_s: float = 60.0,
        commit_interval_s: float = 1.0,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
        tags_any: Sequence[str] = (),
        tags_all: Sequence[str] = (),
        channel: str | None = None,
        key: bytes | str | None = None,
        gaps: Gaps = "raise",
        value: ValueFormat | Serializer | None = None,
        connect_timeout_s: float = CONNECT_PATIENCE_S,
    ) -> None:
        check_start(at, gaps, timestamp=timestamp)
        if isinstance(tags_any, str) or isinstance(tags_all, str):
            raise ValueError("tags are a list of texts, such as ['red']")
        if mode != "logs":
            raise ValueError(f"mode is {mode!r}, allowed are 'logs' and 'queue'")
        if commit not in _MODES:
            raise ValueError(f"commit is {commit!r}, allowed are {', '.join(map(repr, _MODES))}")
        _check_positive(
            session_s=session_s, max_idle_s=max_idle_s, give_back_s=give_back_s, commit_interval_s=commit_interval_s
        )
        wanted = Filter(tuple(tags_any), tuple(tags_all), channel, key.encode() if isinstance(key, str) else key)
        wanted.selection()  # a pattern that means nothing is said at once
        self.topic = join_names(topic)
        """As topics and patterns are written, with commas between them."""
        self.group = group
        self.member = secrets.token_hex(16)
        """Its id in the group."""
        self._listeners = {"assigned": on_assigned, "revoked": on_revoked, "lost": on_lost}
        addresses, latch = parse_servers(servers), Latch()
        start = Start(time=None if timestamp is None else microseconds(timestamp), at=at or "earliest")
        join = GroupJoin(
            *(group, self.member, self.topic, "logs", instance),
            client=addresses[0].profile.client or f"logboom-python/{__version__}",
            session_ms=round(1000 * session_s),
            give_back_ms=round(1000 * give_back_s),
            start=start,
        )
        mailbox = Mailbox(latch, time.monotonic)
        tick_s = min(commit_interval_s, session_s / 8, max_idle_s / 4)
        times = MemberTimes(session_s, max_idle_s, max(0.02, tick_s), connect_timeout_s)
        self._membership = GroupMembership(join, addresses, mailbox, times)
        reading = HeldLogs(self.topic, latch, None if wanted == Filter() else wanted, gaps == "skip", coder_of(value))
        fetching = Fetcher(reading, addresses, time.monotonic)
        self._latch = latch
        self._core = ConsumerCore(group, reading, fetching, mailbox, commit, commit_interval_s, time.monotonic)
        self._is_closed = self._is_stopped = False
        self._begin()

    def _begin(self) -> None:
        """A blocking consumer joins as soon as it is made."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic} in group {self.group!r}, {len(self.logs)} logs>"

    def _check(self) -> None:
        if self._is_closed:
            raise LocalProtocolError("the consumer is closed")

    def stop(self) -> None:
        """Let loops end when they come back, or wait. May be called from elsewhere: a signal, another thread."""
        self._is_stopped = True
        self._latch.shut()

    def rewind(self) -> None:
        """Give again what was given and not committed: after a transaction that has failed, say."""
        self._core.rewind()

    def moves(self) -> list[CursorMove]:
        """What a publish is to do so that the group's places are behind all that was given: see Transaction."""
        return self._core.moves(self.member)

    def moved(self, moves: Sequence[CursorMove]) -> None:
        """What `moves` has given was published."""
        self._core.moved(moves)

    @property
    def logs(self) -> list[AssignedLog]:
        """Those it holds, and where it stands in each."""
        return self._core.logs

    @property
    def skipped(self) -> int:
        """Records that were passed over because they are gone."""
        return self._core.reading.skipped

    @property
    def last_gap(self) -> LogboomError | None:
        """Why records were passed over, the last time."""
        return self._core.reading.last_gap


def _check_positive(**seconds: float) -> None:
    for name, value in seconds.items():
        if not value > 0:
            raise ValueError(f"{name} is {value!r}, allowed is more than 0")
