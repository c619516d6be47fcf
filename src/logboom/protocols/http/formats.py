"""What records go out as (JSON, NDJSON, an Arrow stream, Parquet), and which of these a request wants.

An encoder is a generator of pieces of the body, made as they are asked for, on any thread: of a large page no more than
a few MiB are held besides its tables, and a piece is small even where a value is not. Nothing loops over records but
what makes JSON of them.
"""

from __future__ import annotations

import asyncio
import io
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from logboom.batch import vector
from logboom.batch.arrow import ORDER, schema, to_list
from logboom.batch.moment import rfc3339
from logboom.batch.ndjson import readable, show_value
from logboom.protocols.http.large_record import pour_record
from logboom.protocols.http.problem import RequestError

if TYPE_CHECKING:
    import pyarrow as pa
    from _typeshed import ReadableBuffer

Format = Literal["json", "ndjson", "arrow", "parquet"]
MEDIA_TYPES: Final[dict[Format, tuple[str, ...]]] = {
    "json": ("application/json",),
    "ndjson": ("application/x-ndjson", "application/ndjson", "application/jsonl"),
    "arrow": ("application/vnd.apache.arrow.stream",),
    "parquet": ("application/vnd.apache.parquet",),
}
"""The first that is wanted most is given; a format answers with whichever of its types was asked for."""
INLINE_BYTES: Final = 128 * 1024
"""What is larger is encoded on a thread."""
LINES_BYTES: Final = 128 * 1024
UNEVEN: Final = 4
"""So many times as large as it should be a part may be."""
TABLES_BYTES: Final = 1024 * 1024
ROW_GROUP_BYTES: Final = 8 * 1024 * 1024
WHOLE_BYTES: Final = 2 * 1024 * 1024
"""A body that is no larger is made in one go, and says how long it is: that saves both sides most of their turns."""
PART_BYTES: Final = 256 * 1024
MESSAGE_BYTES: Final = 512 * 1024
"""Of an Arrow message so much goes out at once."""
END_OF_STREAM: Final = bytes.fromhex("ffffffff00000000")
"""Of an Arrow stream: a message without a length."""
_SECOND: Final = 1_000_000
_encoder = msgspec.json.Encoder()

Piece = TypeVar("Piece")
BodyPiece = bytes | memoryview


class RecordShown(msgspec.Struct, gc=False, omit_defaults=True):
    """A record as it is read. It can be written again as it is."""

    seqno: int
    timestamp: str | int | None
    """RFC 3339; the number of microseconds since 1970 where the calendar ends."""
    key: Any
    """A string, or {"base64": "..."} where it is no text; null where there is none."""
    value: Any
    """JSON as it was written; other text as a string; {"base64": "..."} for the rest; null is a tombstone."""
    channel: str | None
    tags: Sequence[str]
    headers: Sequence[tuple[str, Any]]
    topic: str | None = None
    partition: int | None = None
    """Both only where several logs are read."""


class RecordSource(NamedTuple):
    """Whose records they are."""

    topic: str
    partition: int


class Choice(NamedTuple):
    format: Format
    media_type: str


def choose(accept: str | None, named: Format | None = None) -> Choice:
    """The format named, else the one that an Accept header wants most. Raises RequestError 406.

    >>> choose("text/html, application/json;q=0.5, application/x-ndjson").format
    'ndjson'
    """
    if named is not None:
        return Choice(named, MEDIA_TYPES[named][0])
    wanted = _parse_accept(accept or "*/*")
    best, most = None, 0.0
    for form, types in MEDIA_TYPES.items():
        for media_type in types:
            quality = _quality(wanted, media_type)
            if quality > most:
                best, most = Choice(form, media_type), quality
    if best is None:
        there_are = ", ".join(types[0] for types in MEDIA_TYPES.values())
        raise RequestError(
            f"none of what is accepted can be given: there are {there_are}",
            406,
            "not-acceptable",
            "accept one of these, or add ?format=json, ndjson, arrow or parquet",
        )
    return best


def _parse_accept(accept: str) -> dict[str, float]:
    """How much each media range is wanted. What has a quality that is no number is wanted not at all."""
    wanted: dict[str, float] = {}
    for entry in accept.split(","):
        media_range, *parameters = (part.strip().lower() for part in entry.split(";"))
        quality = 1.0
        for parameter in parameters:
            name, _, text = parameter.partition("=")
            if name.strip() == "q":
                quality = _parse_quality(text.strip())
                break
        wanted[media_range] = max(quality, wanted.get(media_range, 0.0))
    return wanted


def _parse_quality(text: str) -> float:
    digits = text.replace(".", "", 1)
    return min(1.0, float(text)) if digits.isascii() and digits.isdecimal() and len(text) < 10 else 0.0


def _quality(wanted: dict[str, float], media_type: str) -> float:
    """Of the range that fits most closely."""
    for media_range in (media_type, media_type.partition("/")[0] + "/*", "*/*"):
        if media_range in wanted:
            return wanted[media_range]
    return 0.0


def encode(form: Format, tables: Iterable[pa.Table], place: RecordSource, facts: msgspec.Struct) -> Iterator[BodyPiece]:
    """The body of a page. JSON holds `facts` too, whose first field is an empty list of records."""
    if form == "json":
        return enclose(facts, map(show, cut(tables, LINES_BYTES)))
    if form == "ndjson":
        return _encode_lines(tables)
    return _encode_arrow(tables, place) if form == "arrow" else _encode_parquet(tables, place)


async def respond(
    threads: Executor, pieces: Iterator[BodyPiece], size: int, media_type: str, headers: dict[str, str]
) -> Response:
    """A body made of records of so many bytes: at once, or where that takes long in pieces, each made on a thread."""
    if size <= INLINE_BYTES:
        return Response(b"".join(pieces), headers=headers, media_type=media_type)
    held, is_whole = await asyncio.get_running_loop().run_in_executor(threads, _first_pieces, pieces)
    if is_whole:
        headers = headers | {"Content-Length": str(sum(map(len, held)))}
    return PageResponse(_body(held, threads, pieces), headers, media_type)


def _first_pieces(pieces: Iterator[BodyPiece]) -> tuple[list[BodyPiece], bool]:
    """Pieces of about `WHOLE_BYTES`, and whether these are all."""
    held, size = [], 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= WHOLE_BYTES:
            return held, False
    return held, True


class StreamedResponse(StreamingResponse):
    """Its generator is closed with it, wherever it was left: what that holds may be large, and has to go at once."""

    def __init__(self, pieces: AsyncGenerator[BodyPiece, None], headers: dict[str, str], media_type: str) -> None:
        super().__init__(pieces, headers=headers, media_type=media_type)
        self._pieces = pieces

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._pieces):
            await super().stream_response(send)


class PageResponse(StreamedResponse):
    """One that always has something to send: that tells when nobody is there any more, so nobody has to listen."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.stream_response(send)


async def on_thread(threads: Executor, pieces: Iterator[Piece]) -> AsyncGenerator[Piece, None]:
    """Each piece is made on a thread, when the one before has been taken."""
    loop = asyncio.get_running_loop()
    while (piece := await loop.run_in_executor(threads, next, pieces, None)) is not None:
        yield piece


async def _body(
    held: list[BodyPiece], threads: Executor, pieces: Iterator[BodyPiece]
) -> AsyncGenerator[BodyPiece, None]:
    """What is there already, and then as `on_thread`; small ones together, for each turn of a thread costs."""
    for piece in held:
        yield piece
    held.clear()
    async with aclosing(on_thread(threads, _gather(pieces))) as gathered:
        async for held in gathered:
            for piece in held:
                yield piece


def _gather(pieces: Iterator[BodyPiece]) -> Iterator[list[BodyPiece]]:
    held: list[BodyPiece] = []
    for piece in pieces:
        held.append(piece)
        if sum(map(len, held)) >= PART_BYTES:
            yield held
            held = []
    if held:
        yield held


async def at_once(pieces: Iterator[Piece]) -> AsyncGenerator[Piece, None]:
    for piece in pieces:
        yield piece


def rows(table: pa.Table) -> list[RecordShown]:
    """The records of a table, which has the columns of `batch.arrow.ORDER`."""
    seqnos, moments, keys, values, channels, tags, headers = (_column(table, name) for name in ORDER)
    shown = [[(name, readable(content)) for name, content in pairs] if pairs else () for pairs in headers]
    columns = (_show_times(moments), map(readable, keys), map(show_value, values), channels, tags, shown)
    log = [table.column(name).to_pylist() for name in ("topic", "partition")] if _is_placed(table) else []
    return list(map(RecordShown, seqnos, *columns, *log))


def _is_placed(table: pa.Table) -> bool:
    """Whether its records say of which log they are."""
    return "topic" in table.column_names


def _column(table: pa.Table, name: str) -> list[Any]:
    column = table.column(name).combine_chunks()
    if name in ("tags", "headers") and not len(column.flatten()):
        return [()] * len(column)
    return to_list(name, column)


def _show_times(moments: list[int | None]) -> list[str | int | None]:
    """As `rfc3339` does. Many records have the same, and most are of the same few seconds."""
    known: dict[int | None, str | int | None] = {None: None}
    seconds: dict[int, str | None] = {}
    for moment in moments:
        if moment is None or moment in known:
            continue
        second, rest = divmod(moment, _SECOND)
        if second not in seconds:
            text = rfc3339(second * _SECOND)
            seconds[second] = text[:20] if isinstance(text, str) else None
        begin = seconds[second]
        known[moment] = moment if begin is None else f"{begin}{rest:06d}Z"
    return [known[moment] for moment in moments]


def cut(tables: Iterable[pa.Table], size: int) -> Iterator[pa.Table]:
    """The same records in tables of about so many bytes. What is much more is a single record."""
    for table in tables:
        step = max(1, len(table) * size // max(1, table.nbytes))
        for start in range(0, len(table), step):
            part = table.slice(start, step)
            if 1 < len(part) < len(table) and part.nbytes > UNEVEN * size:
                yield from cut([part], size)
            else:
                yield part


def is_single(part: pa.Table) -> bool:
    """Whether a part has one record that is so large that its JSON is made piece by piece."""
    return len(part) == 1 and bool(part.nbytes > UNEVEN * LINES_BYTES)


def show(part: pa.Table) -> Iterable[bytes]:
    """The records of a part as JSON, with commas between them."""
    return pour_record(part) if is_single(part) else (_encoder.encode(rows(part))[1:-1],)


def enclose(facts: msgspec.Struct, parts: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """Put in records where an empty list of them begins."""
    head, tail = _encoder.encode(facts).split(b"[", 1)
    head += b"["
    for pieces in parts:
        for piece in pieces:
            yield head + piece
            head = b""
        head = b","
    yield tail if head == b"," else head + tail


def _encode_lines(tables: Iterable[pa.Table]) -> Iterator[bytes]:
    for part in cut(tables, LINES_BYTES):
        if is_single(part):
            yield from pour_record(part)
            yield b"\n"
        else:
            yield _encoder.encode_lines(rows(part))


def _encode_arrow(tables: Iterable[pa.Table], place: RecordSource) -> Iterator[BodyPiece]:
    """Messages are made by themselves, not through a file: their memory goes out as it is."""
    yield _schema().serialize().to_pybytes()
    for part in cut(tables, TABLES_BYTES):
        for batch in _with_place(part, place).to_batches():
            message = memoryview(batch.serialize())
            for start in range(0, len(message), MESSAGE_BYTES):
                yield message[start : start + MESSAGE_BYTES]
    yield END_OF_STREAM


def _encode_parquet(tables: Iterable[pa.Table], place: RecordSource) -> Iterator[bytes]:
    import pyarrow.parquet as pq

    sink = _Sink()
    with pq.ParquetWriter(sink, _schema(), compression="zstd") as writer:
        for part in cut(tables, ROW_GROUP_BYTES):
            writer.write_table(_with_place(part, place))
            yield from sink.drain()
    yield from sink.drain()


@lru_cache(maxsize=1)
def _schema() -> pa.Schema:
    """Of a record of any log."""
    pa = vector.pa
    return pa.schema([("topic", pa.string()), ("partition", pa.int32()), *schema()])


def _with_place(table: pa.Table, place: RecordSource) -> pa.Table:
    """In one piece, with a topic and a partition for each record."""
    if _is_placed(table):
        return table.combine_chunks()
    pa, count = vector.pa, len(table)
    columns = [pa.repeat(place.topic, count), pa.repeat(pa.scalar(place.partition, pa.int32()), count)]
    return pa.Table.from_arrays([*columns, *table.combine_chunks().columns], schema=_schema())


class _Sink(io.RawIOBase):
    """A file that can be taken away while it is written."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: deque[bytes] = deque()
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer) -> int:
        view = memoryview(data).cast("B")
        self._parts += (bytes(view[start : start + PART_BYTES]) for start in range(0, len(view), PART_BYTES))
        self._size += len(view)
        return len(view)

    def tell(self) -> int:
        return self._size

    def drain(self) -> Iterator[bytes]:
        while self._parts:
            held = [self._parts.popleft()]
            while self._parts and len(held[-1]) < PART_BYTES:
                held.append(self._parts.popleft())
            yield b"".join(held)
