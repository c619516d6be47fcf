"""Where a reader stands: cursors, bookmarks, and records that are gone from where it wants to read on."""

from __future__ import annotations

from logboom.errors.root import LogboomError


class InvalidCursorName(LogboomError, ValueError):
    """A name that a cursor cannot have."""

    def __init__(self, cursor: str) -> None:
        super().__init__(f"{cursor[:300]!r} is no cursor name: use 1 to 249 letters, digits, or any of . - _ / :")
        self.cursor = cursor


class CursorNotFound(LogboomError):
    """No cursor has this name, for this log."""

    def __init__(self, cursor: str, topic: str | None = None) -> None:
        super().__init__(f"there is no cursor {cursor!r}{f' on {topic}' if topic else ''}")
        self.cursor = cursor
        self.topic = topic


class CursorMovedBack(LogboomError):
    """The cursor stands further on: another reader with the same one was quicker, or this place was read before."""

    def __init__(self, cursor: str, log: str, seqno: int, at: int) -> None:
        super().__init__(
            f"cursor {cursor!r} stands at seqno {at} of {log}, and {seqno} is before that: another reader may be using "
            "it; to move it back all the same, say so with force (`--force`, force=True)"
        )
        self.cursor = cursor
        self.log = log
        self.seqno = seqno
        self.at = at


class UnexpectedCursor(LogboomError):
    """Compare and set: somebody else has moved the cursor, or made or deleted it."""

    def __init__(self, cursor: str, log: str, at: int | None) -> None:
        stands = "does not exist" if at is None else f"stands at seqno {at}"
        super().__init__(f"cursor {cursor!r} of {log} {stands}, which is not what this commit expects: fetch it again")
        self.cursor = cursor
        self.log = log
        self.at = at


class CursorBusy(LogboomError):
    """A publish moves the cursor, and is not done yet: it cannot be deleted."""

    def __init__(self, cursor: str) -> None:
        super().__init__(f"cursor {cursor!r} is moved by a publish that is not done: delete it when that has ended")
        self.cursor = cursor


class RecordsLost(LogboomError):
    """Records that somebody counted on are gone: dropped by retention, trimmed, or lost with the end of a log."""

    def __init__(self, log: str, seqno_from: int, seqno_until: int, reason: str, advice: str) -> None:
        super().__init__(f"{log}: seqnos {seqno_from} to {seqno_until - 1} are not there: {reason}; {advice}")
        self.log = log
        self.seqno_from = seqno_from
        self.seqno_until = seqno_until
        self.reason = reason
        self.advice = advice


class InvalidBookmark(LogboomError, ValueError):
    """Text that is no bookmark of ours."""


class BookmarkLost(LogboomError):
    """The log has another record before this place than the one its reader had read: a tail was lost in between."""

    def __init__(self, seqno: int, term: int, found_term: int) -> None:
        there, here = f"of term {found_term}", f"of term {term}"
        if term == found_term:
            there, here = f"of another term {found_term}", "of the one that another node has begun"
        super().__init__(
            f"the record before seqno {seqno} is {there}, the bookmark's {here}: "
            "what was read there was lost; start from an earlier seqno"
        )
        self.seqno = seqno
        self.term = term
        self.found_term = found_term
