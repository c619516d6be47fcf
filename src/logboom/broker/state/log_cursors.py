"""Cursors, held against the logs they stand in: a place that a log does not have is refused.

A cursor whose place was lost with the end of its log may go back: what is before it is all there is.
"""

from __future__ import annotations

from functools import partial

from logboom.broker.api import CursorMove
from logboom.broker.catalog import Hosted
from logboom.broker.read.log_reader import term_before
from logboom.broker.state.cursors import CursorChange, Cursors
from logboom.errors import BookmarkLost
from logboom.storage.bookmark import Bookmark, Term
from logboom.storage.log import Log


async def commit_in(hosted: Hosted, cursors: Cursors, move: CursorMove, now: int) -> None:
    """Durable when this returns. Without a partition it is the bookmark's."""
    await cursors.carry_out(begin_in(hosted, cursors, move, now, with_publish=False))


def begin_in(hosted: Hosted, cursors: Cursors, move: CursorMove, now: int, with_publish: bool) -> CursorChange:
    """Decide it, and give it to whoever carries it out: later commits are compared with it."""
    place = Bookmark.parse(move.bookmark)
    writer = hosted.writer(place.partition if move.partition is None else move.partition)
    if place.topic_id == hosted.topic.id_bytes and place.seqno > writer.log.committed:
        raise BookmarkLost(place.seqno, place.term, writer.log.term)
    whose = move.cursor, hosted.topic.name, hosted.topic.id, hosted.writers.index(writer)
    how = move.force, move.expect, partial(_is_lost, writer.log), with_publish
    return cursors.begin(*whose, move.bookmark, now, *how)


def _is_lost(log: Log, place: Bookmark) -> bool:
    """Whether what stood before this place is not there any more."""
    term = term_before(log, place.seqno)
    return place.seqno > log.committed or place.before.differs(Term(term, log.lineage_of(term)))
