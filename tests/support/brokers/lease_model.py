"""A queue of one log as anybody would write it down: a dictionary of records, and no thought of speed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ModelRecord:
    state: str = "free"
    member: str = ""
    until_ms: int = 0
    tries: int = 0


class LeaseModel:
    def __init__(self, window: int, tries_max: int) -> None:
        self.window = window
        self.tries_max = tries_max
        self.records: dict[int, ModelRecord] = {}
        self.buried: set[int] = set()
        self.lost: set[int] = set()
        self._base = 0

    @property
    def base(self) -> int:
        while self._base in self.records and self.records[self._base].state == "done":
            del self.records[self._base]
            self._base += 1
        return self._base

    def take(self, member: str, count: int, end: int, until_ms: int) -> list[tuple[int, int]]:
        """Seqnos, each with its tries."""
        taken: list[tuple[int, int]] = []
        for seqno in range(self.base, min(end, self.base + self.window)):
            if len(taken) == count:
                break
            record = self.records.setdefault(seqno, ModelRecord())
            if record.state == "free":
                record.state, record.member, record.until_ms = "leased", member, until_ms
                record.tries += 1
                taken.append((seqno, record.tries))
        return taken

    def holds(self, member: str) -> list[int]:
        return [seqno for seqno, record in self.records.items() if (record.state, record.member) == ("leased", member)]

    def give_back(self, seqno: int, rest_until_ms: int | None = None) -> None:
        record = self.records[seqno]
        if record.tries >= self.tries_max:
            record.state = "failed"
        elif rest_until_ms is None:
            record.state = "free"
        else:
            record.state, record.until_ms = "resting", rest_until_ms

    def expire(self, now_ms: int) -> None:
        for seqno, record in self.records.items():
            if record.state == "leased" and record.until_ms <= now_ms:
                self.give_back(seqno)
            elif record.state == "resting" and record.until_ms <= now_ms:
                record.state = "free"

    def drop_below(self, first: int) -> None:
        seqno = self.base
        while seqno < min(first, self.base + self.window):
            record = self.records.setdefault(seqno, ModelRecord())
            if record.state in ("free", "resting"):
                record.state = "done"
                self.lost.add(seqno)
            seqno += 1
