"""Cursors, held against the logs they stand in: a place that a log does not have is refused.

A cursor whose place was lost with the end of its log may go back: what is before it is all there is.
"""

from __future__ import annotations

from functools import partial

from logboom.broker.catalog import Hosted
from logboom.broker.read.log_reader import term_before
from logboom.broker.state.cursors import Cursors
from logboom.errors import BookmarkLost
from logboom.storage.bookmark import Bookmark, Term
from logboom.storage.log import Log


async def commit_in(
    hosted: Hosted,
    cursors: Cursors,
    cursor: str,
    partition: int | None,
    bookmark: str,
    now: int,
    force: bool,
    expect: str | None,
) -> None:
    """Durable when this returns. Without a partition it is the bookmark's."""
    place = Bookmark.parse(bookmark)
    writer = hosted.writer(place.partition if partition is None else partition)
    if place.topic_id == hosted.topic.id_bytes and place.seqno > writer.log.committed:
        raise BookmarkLost(place.seqno, place.term, writer.log.term)
    whose = cursor, hosted.topic.name, hosted.topic.id, hosted.writers.index(writer)
    await cursors.commit(*whose, bookmark, now, force, expect, partial(_is_lost, writer.log))


def _is_lost(log: Log, place: Bookmark) -> bool:
    """Whether what stood before this place is not there any more."""
    term = term_before(log, place.seqno)
    return place.seqno > log.committed or place.before.differs(Term(term, log.lineage_of(term)))
