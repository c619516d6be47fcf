"""Reads, and reads that go on: records as they come, and stored batches for a copy.

At most one chunk is held for each: the next one is asked for when the peer has read what it was sent. Whoever spawns
these closes the subscription or the feed when they have ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from logboom.broker.api import Chunk, Feed, FeedPiece, ReadRequest, Start, Subscription
from logboom.broker.caller import Caller
from logboom.errors import LogboomError
from logboom.protocols.logd import answers
from logboom.protocols.logd.requests import LogName

if TYPE_CHECKING:
    from logboom.protocols.logd.front_end import LogdFrontEnd
    from logboom.protocols.logd.handler import Peer

CHUNK_BYTES: Final = 1024 * 1024
"""Of stored batches that become one answer; a single batch may be larger."""
FEED_WAIT_MS: Final = 2000
"""After so long a feed says how far its log is, where that has changed and no batch has come."""
NO_LIMIT: Final = 2**31
PATIENCE_S: Final = 5.0
"""So long records are looked for where rules leave many out; then the answer says how far that came."""


async def read_page(front_end: LogdFrontEnd, caller: Caller, log: LogName, start: int, limit: int) -> answers.ChunkPage:
    """What is there now. Raises where the very first record cannot be read."""
    began = time.perf_counter()
    size = min(CHUNK_BYTES, front_end.limits.read_bytes)
    limit = min(limit, NO_LIMIT)
    request = ReadRequest(log.topic, Start(seqno=start), log.partition, max_bytes=size, max_records=limit)
    chunk = await front_end.broker.read(request, caller=caller)
    while chunk.seqnos is not None and not len(chunk.data) and not chunk.at_end:  # none of those is for him
        if time.perf_counter() - began >= PATIENCE_S:
            break
        following = Start(seqno=chunk.next_seqno)
        request = msgspec.structs.replace(request, start=following, topic_id=chunk.topic_id)
        chunk = await front_end.broker.read(request, caller=caller)
    page = next(answers.encode_chunk(log, chunk, size, limit))
    if page.error is not None and not page.batches:
        raise page.error
    _note(front_end, page, began)
    return page


async def follow(peer: Peer, front_end: LogdFrontEnd, log: LogName | None, subscription: Subscription) -> None:
    """Without a log, of several: each chunk is of the one that it names."""
    size = min(CHUNK_BYTES, front_end.limits.read_bytes)
    try:
        while True:
            await peer.writable()
            chunk = await subscription.next(size)
            await _send_chunk(peer, front_end, log or _log_of(chunk), chunk, size)
    except LogboomError as error:
        peer.send(answers.encode_error(error))
    except Exception as error:
        front_end.report(error)
        peer.send(answers.encode_error(error))


def _log_of(chunk: Chunk) -> LogName:
    return LogName(chunk.topic, chunk.partition, f"{chunk.topic}/{chunk.partition}".encode())


async def _send_chunk(peer: Peer, front_end: LogdFrontEnd, log: LogName, chunk: Chunk, page_bytes: int) -> None:
    pages = answers.encode_chunk(log, chunk, page_bytes)
    began = time.perf_counter()
    while (page := next(pages, None)) is not None:
        _note(front_end, page, began)
        await peer.writable()
        if page.batches:
            peer.send(answers.encode_page(page))
        if page.error is not None:
            raise page.error
        del page
        await asyncio.sleep(0)  # others have their turn, however much there is to send
        began = time.perf_counter()


async def push_stored(peer: Peer, front_end: LogdFrontEnd, log: LogName, feed: Feed, share: Callable[[], int]) -> None:
    """Until the log is gone, or cannot be fed any further; then whoever copies it asks again."""
    told: tuple[int, ...] = ()
    wait_ms = 0  # how far the log is, a copy learns at once
    try:
        while True:
            await peer.writable()
            stored = await feed.next(share(), wait_ms)
            await peer.writable()
            if len(stored.data) or stored[1:] != told:
                told = stored[1:]
                _send_stored(peer, log, stored)
            del stored
            wait_ms = FEED_WAIT_MS
            await asyncio.sleep(0)
    except LogboomError:
        pass
    except Exception as error:
        front_end.report(error)
    peer.send(b"GONE %b\r\n" % log.text)


def _send_stored(peer: Peer, log: LogName, stored: FeedPiece) -> None:
    peer.send(answers.encode_stored(log, stored))
    if len(stored.data):
        peer.send(stored.data)


def _note(front_end: LogdFrontEnd, page: answers.ChunkPage, began: float) -> None:
    if page.batches:
        front_end.meter.note_read(
            page.next_seqno - page.seqno, sum(map(len, page.batches)), time.perf_counter() - began
        )
