"""What a node says, as bytes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from logboom.batch import Batch
from logboom.broker.api import Chunk, CursorInfo, Deletion, FeedPiece, TopicInfo
from logboom.broker.limits import Limits
from logboom.errors import BatchError, Damage, LogboomError
from logboom.protocols.logd.errors import reason_of
from logboom.protocols.logd.requests import LogName

PONG: Final = b"PONG\r\n"
DONE: Final = b"OK 0 0\r\n"
PIECE_RECORDS: Final = 16_384
"""About so many are answered at once, however small they are."""
UNPRINTABLE: Final = frozenset(map(chr, (*range(32), 127)))


class ChunkPage(NamedTuple):
    """Records of a chunk, as they go out."""

    topic_id: str
    seqno: int
    """Of the first record, or where one was looked for."""
    next_seqno: int
    batches: list[bytes]
    error: LogboomError | None = None
    """Why it goes no further, where something there cannot be read."""


def encode_ok(seqno: int, count: int) -> bytes:
    return b"OK %d %d\r\n" % (seqno, count)


def encode_oks(seqno: int, count: int) -> bytes:
    """An answer for each of so many records.

    >>> encode_oks(7, 2)
    b'OK 7 1\\r\\nOK 8 1\\r\\n'
    """
    return (b"OK %d 1\r\n" * count) % tuple(range(seqno, seqno + count))


def encode_refusal(reason: bytes) -> bytes:
    return b"ERR %b\r\n" % reason


def encode_error(error: BaseException) -> bytes:
    return encode_refusal(reason_of(error))


def encode_facts(lines: list[bytes]) -> bytes:
    body = b"".join(lines)
    return b"MOK %d\r\n%b" % (len(body), body)


def encode_fact(key: str, value: Any) -> bytes:
    """
    >>> encode_fact("limits.topics", 20000), encode_fact("refused", None)
    (b'limits.topics: 20000\\r\\n', b'refused: null\\r\\n')
    """
    if not isinstance(value, str) or UNPRINTABLE.intersection(value):
        value = msgspec.json.encode(value).decode()
    return f"{key}: {value}\r\n".encode()


def encode_tree(facts: dict[str, Any], above: str = "") -> Iterator[bytes]:
    """A line for each leaf; its key is the way there, with dots."""
    for key, value in facts.items():
        name = f"{above}.{key}" if above else str(key)
        if isinstance(value, dict) and value:
            yield from encode_tree(value, name)
        else:
            yield encode_fact(name, value)


def encode_known(address: str, limits: Limits) -> Iterator[bytes]:
    """What logd's own client knows of a configuration: it reads four lines, takes no others, and then stops reading."""
    yield encode_fact("Host", address)
    yield encode_fact("Timeout", f"{limits.append_wait_ms}ms")
    yield encode_fact("IdleTimeout", f"{limits.idle_ms}ms")
    yield encode_fact("MaxBatchSize", limits.batch_bytes)


def encode_topic(topic: TopicInfo) -> Iterator[bytes]:
    for log in topic.partitions:
        facts = f"id={topic.id} first={log.first} committed={log.committed}"
        yield encode_fact(f"{topic.name}/{log.partition}", facts)


def encode_cursor(cursor: CursorInfo) -> bytes:
    return encode_fact(cursor.cursor, f"{cursor.topic}/{cursor.partition} {cursor.bookmark}")


def encode_deletion(deletion: Deletion) -> bytes:
    return encode_fact(deletion.topic_id, f"{deletion.name} {deletion.time}")


def encode_kept(version: str, entries: Mapping[bytes, bytes] | None) -> Iterator[bytes]:
    """None where the one who asks has this version."""
    yield encode_fact("version", version)
    if entries is None:
        yield encode_fact("same", True)
        return
    for key, value in entries.items():
        yield b"%b: %b\r\n" % (b64encode(key), b64encode(value))


def encode_batch(log: LogName, values: list[bytes | None]) -> bytes:
    """A tombstone is an empty body here."""
    bodies = [value or b"" for value in values]
    data = b"".join([b"MSG %d\r\n%b\r\n" % (len(body), body) for body in bodies])
    return b"BATCH %d %b %d %d\r\n%b" % (len(data), log.text, crc32(data), len(values), data)


def encode_chunk(log: LogName, chunk: Chunk, page_bytes: int, most: int | None = None) -> Iterator[ChunkPage]:
    """The records of a chunk from where it begins, no more than `most`; up to the first that cannot be read.

    A little that is stored may be much: each page has about `page_bytes`, and is made when it is asked for. Records of
    a page follow each other: where some are left out another one begins.
    """
    until = chunk.next_seqno if most is None or chunk.seqnos is not None else min(chunk.next_seqno, chunk.seqno + most)
    found: list[bytes] = []
    start = following = chunk.seqno
    size, error = 0, None
    try:
        for base, values in _pieces(chunk, until) if chunk.seqnos is None else _left(chunk, most):
            is_behind = base > following  # those between are not for who reads
            if found and (size >= page_bytes or base - start >= PIECE_RECORDS or is_behind):
                yield ChunkPage(chunk.topic_id, start, following, found)
                found, start, size = [], base, 0
            start = base if not found else start
            found.append(encode_batch(log, values))
            following = base + len(values)
            size += len(found[-1])
    except (BatchError, Damage) as reason:
        error = reason
    else:
        if chunk.seqnos is not None:
            if found:
                yield ChunkPage(chunk.topic_id, start, following, found)
            start, found = until, []
        following = until
    yield ChunkPage(chunk.topic_id, start, following, found, error)


def _pieces(chunk: Chunk, until: int) -> Iterator[tuple[int, list[bytes | None]]]:
    """Values that follow one another, and the seqno of the first: of a batch, or of some of a large one."""
    for batch in chunk.batches():
        base = batch.header.base_seqno
        if base >= until:
            return
        start, end = max(0, chunk.seqno - base), min(len(batch), until - base)
        if len(batch) <= PIECE_RECORDS:
            yield base + start, batch.values()[start:end]
            continue
        column = batch.to_arrow(("value",)).column(0)
        for at in range(start, end, PIECE_RECORDS):
            yield base + at, column.slice(at, min(PIECE_RECORDS, end - at)).to_pylist()


def _left(chunk: Chunk, most: int | None) -> Iterator[tuple[int, list[bytes | None]]]:
    """The same, where records are left out."""
    if chunk.seqnos is None or not len(chunk.data):
        return
    seqnos = chunk.seqnos.cast("B").cast("q").tolist()[:most]
    values = Batch.parse(chunk.data).values()
    start = 0
    for at in range(1, len(seqnos) + 1):
        if at == len(seqnos) or seqnos[at] != seqnos[at - 1] + 1 or at - start == PIECE_RECORDS:
            yield seqnos[start], values[start:at]
            start = at


def encode_page(page: ChunkPage) -> bytes:
    return b"".join((encode_ok(page.seqno, len(page.batches)), *page.batches))


def encode_stored(log: LogName, stored: FeedPiece) -> bytes:
    """What goes before the stored bytes."""
    facts = (len(stored.data), stored.next_index, stored.first, stored.committed, stored.committed_index)
    return b"STORED %b %d %d %d %d %d\r\n" % (log.text, *facts)
