"""What the leader knows of one follower, and how it sends to it.

probe      one message at a time, until an answer tells where the logs meet
replicate  messages follow each other without waiting, up to a window of bytes; `next` runs ahead of `match`
snapshot   it needs entries that are gone: nothing is sent until it has installed a snapshot

`match` is what the follower has on its disk, and never goes back within a term; `next > match` always.
"""

from __future__ import annotations

from typing import Literal

from logboom.raft.settings import RaftSettings

ProgressState = Literal["probe", "replicate", "snapshot"]


class FollowerProgress:
    __slots__ = (
        "caught_up",
        "flight",
        "flight_bytes",
        "heard",
        "is_paused",
        "match",
        "member",
        "next",
        "read_round",
        "round_end",
        "round_ticks",
        "settings",
        "snapshot_index",
        "state",
        "told",
        "wants_look",
    )

    def __init__(self, member: int, last_index: int, settings: RaftSettings) -> None:
        self.member = member
        self.settings = settings
        self.match = 0
        self.next = last_index + 1
        self.state: ProgressState = "probe"
        self.is_paused = False
        """In probe: whether an answer is awaited."""
        self.snapshot_index = 0
        self.flight: list[tuple[int, int]] = []
        """(last index, bytes) of messages with entries that are not answered."""
        self.flight_bytes = 0
        self.heard = True
        """Since the leader last looked whether a majority is there; a new one gets the benefit of the doubt."""
        self.read_round = 0
        self.told = 0
        """How far it will know the log to be committed when what was sent arrives."""
        self.wants_look = False
        """Whether it answers but lacks entries: what was sent may be lost."""
        self.round_end = last_index
        self.round_ticks = 0
        self.caught_up = False
        """Whether it took less than an election time to get what there was when that time began."""

    @property
    def window_is_full(self) -> bool:
        return self.flight_bytes >= self.settings.window_bytes or len(self.flight) >= self.settings.window_messages

    @property
    def may_send(self) -> bool:
        if self.state == "replicate":
            return not self.window_is_full
        return self.state == "probe" and not self.is_paused

    def sent(self, last_index: int, size: int) -> None:
        """A message with entries up to an index left."""
        if self.state == "replicate":
            self.next = last_index + 1
            self.flight.append((last_index, size))
            self.flight_bytes += size
        else:
            self.is_paused = True

    def accepted(self, index: int, first_index: int) -> bool:
        """It has everything up to an index on its disk. Whether that is news."""
        is_news = index > self.match
        if is_news:
            self.match = index
            if index >= self.next:
                self.next = index + 1
        if self.state == "replicate":
            flight = self.flight
            while flight and flight[0][0] <= index:
                self.flight_bytes -= flight.pop(0)[1]
        elif self.state == "probe":
            if index >= self.match:
                self.replicate()
        elif self.match + 1 >= first_index:
            self.replicate()
        return is_news

    def rejected(self, index: int, hint: int) -> bool:
        """It lacks the entry at an index, and meets the log at `hint` at best. Whether that was not known before."""
        if self.state == "replicate":
            if index <= self.match:
                return False
            self.probe()
        elif (self.state == "probe" and index != self.next - 1) or self.state == "snapshot":
            return False
        self.next = max(min(index, hint + 1), self.match + 1)
        self.is_paused = False
        return True

    def probe(self) -> None:
        """What is on its way counts for nothing any more."""
        after = max(self.match, self.snapshot_index)
        self._begin("probe")
        self.next = after + 1

    def replicate(self) -> None:
        self._begin("replicate")
        self.next = self.match + 1

    def install(self, index: int) -> None:
        self._begin("snapshot")
        self.snapshot_index = index

    def _begin(self, state: ProgressState) -> None:
        self.state = state
        self.is_paused = self.wants_look = False
        self.snapshot_index = self.flight_bytes = 0
        self.told = min(self.told, self.match)
        self.flight.clear()

    def note_round(self, last_index: int) -> None:
        """Of a learner: it has caught up when it got in an election time what there was when that began."""
        if self.match >= self.round_end:
            self.caught_up = self.round_ticks <= self.settings.election_ticks
            self.round_end, self.round_ticks = last_index, 0
