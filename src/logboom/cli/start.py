"""Places in a log as text: where a read begins, and where it ends."""

from __future__ import annotations

from typing import NamedTuple

from logboom.broker.api import Start
from logboom.cli.show.moment import parse_moment
from logboom.errors import ConfigError, InvalidBookmark
from logboom.results.checkpoint import BYS
from logboom.storage.bookmark import BookmarkSet


class ReadEnd(NamedTuple):
    """Before this seqno, or before the first record at or after this time. Neither is the end of the log."""

    seqno: int | None = None
    time: int | None = None


def parse_start(text: str, option: str = "--from") -> Start:
    """
    >>> parse_start("1000").seqno, parse_start("latest").at, parse_start("cursor:billing").cursor
    (1000, 'latest', 'billing')
    """
    if text == "earliest":
        return Start()
    if text == "latest":
        return Start(at="latest")
    if text.startswith("cursor:"):
        return Start(cursor=text.removeprefix("cursor:"))
    if text.isascii() and text.isdecimal() and len(text) < 20:
        return Start(seqno=int(text))
    try:
        return Start(bookmark=str(BookmarkSet.parse(text)))
    except InvalidBookmark:
        pass
    try:
        return Start(time=parse_moment(text))
    except ValueError:
        places = "earliest, latest, a seqno, a time as 2026-01-31T12:00:00Z or -10m, a bookmark, or cursor:NAME"
        raise ConfigError(option, f"{text!r} is no place: write {places}") from None


def parse_checkpoint(text: str | None) -> str | None:
    """What a checkpoint is by, or nothing where that is left to what there is; None for any other place.

    >>> parse_checkpoint("checkpoint"), parse_checkpoint("checkpoint:channel"), parse_checkpoint("latest")
    ('', 'channel', None)
    """
    name, _, by = (text or "").partition(":")
    if name != "checkpoint":
        return None
    if by not in ("", *BYS):
        raise ConfigError(
            "--from", f"{text!r} is no checkpoint: write checkpoint, checkpoint:key or checkpoint:channel"
        )
    return by


def parse_end(text: str | None) -> ReadEnd:
    """
    >>> parse_end("1000")
    ReadEnd(seqno=1000, time=None)
    """
    if text is None:
        return ReadEnd()
    if text.isascii() and text.isdecimal() and len(text) < 20:
        return ReadEnd(seqno=int(text))
    try:
        return ReadEnd(time=parse_moment(text))
    except ValueError:
        raise ConfigError("--until", f"{text!r} is no seqno and no time, as 2026-01-31T12:00:00Z or -10m") from None
