"""The checkpoint of a topic: the latest record of each key, or channel, of one of its logs, and where the log goes on.

Its files are read where they are, on a thread, and sent as they are read: of a large state no more is held than a
piece. The node that answers must reach the place that the pipeline writes to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.batch.moment import rfc3339
from logboom.errors import PartitionNotFound
from logboom.protocols.http.formats import (
    MEDIA_TYPES,
    WHOLE_BYTES,
    Format,
    RecordShown,
    RecordSource,
    choose,
    encode,
    respond,
)
from logboom.protocols.http.record_page import check_reader
from logboom.protocols.http.schema.operation import Content, Operation, caller_of, parse_query, topic_of
from logboom.results.checkpoint import By, Checkpoint, find_result
from logboom.results.pipeline_state import Result
from logboom.storage.bookmark import Bookmark

if TYPE_CHECKING:
    import pyarrow as pa

    from logboom.protocols.http.front_end import HttpFrontEnd


class CheckpointQuery(msgspec.Struct, frozen=True):
    partition: int | None = None
    by: By | None = None
    tag: str | None = None
    format: Format | None = None


class CheckpointShown(msgspec.Struct, frozen=True):
    records: list[RecordShown]
    topic: str
    topic_id: str
    partition: int
    by: By
    tag: str | None
    run: str
    """Of the pipeline, which made it."""
    made: str | int | None
    next: str
    """A bookmark: the log goes on there, from the records that are not in the state."""
    next_seqno: int


async def read_checkpoint(front_end: HttpFrontEnd, request: Request) -> Response:
    query, name = parse_query(request, CheckpointQuery), topic_of(request)
    choice = choose(", ".join(request.headers.getlist("accept")), query.format)
    caller = caller_of(request)
    await check_reader(front_end.broker, name, caller)  # its records are what is shown
    topic = await front_end.broker.describe_topic(name, caller=caller)
    floors = {log.partition: log.floor for log in topic.partitions}
    partition = next(iter(floors)) if query.partition is None and len(floors) == 1 else query.partition
    if partition is None or partition not in floors:
        raise PartitionNotFound(name, partition, len(floors))
    result = find_result(await front_end.pipeline.refresh(), name, topic.id, query.by, query.tag)
    front_end.places.demand(result.place)
    checkpoint, tables = await asyncio.to_thread(_open, result, partition, floors[partition])
    manifest, following = checkpoint.manifest, checkpoint.bookmark(partition, floors[partition])
    facts = CheckpointShown(
        [],
        name,
        topic.id,
        partition,
        manifest.by,
        manifest.tag,
        result.run,
        rfc3339(result.at),
        following,
        Bookmark.parse(following).seqno,
    )
    headers = {
        "Cache-Control": "no-store",
        "Logboom-Next": facts.next,
        "Logboom-Next-Seqno": str(facts.next_seqno),
        "Vary": "Accept",
    }
    pieces = encode(choice.format, tables, RecordSource(name, partition), facts)
    return await respond(front_end.threads, pieces, WHOLE_BYTES, choice.media_type, headers)


def _open(result: Result, partition: int, floor: int) -> tuple[Checkpoint, Iterator[pa.Table]]:
    """Its tables, the first of them read: what cannot be read is mostly known by then, and can be said."""
    checkpoint = Checkpoint.open(result)
    tables = checkpoint.tables(partition, floor)
    first = next(tables, None)
    return checkpoint, iter(()) if first is None else chain((first,), tables)


_TOPIC_ID: Final = "5f0c7a5e9d1b4c3f8a2e6d7b1c0f9e8d"
_RECORD: Final = {
    "seqno": 12,
    "timestamp": "2026-01-31T12:00:00.000000Z",
    "key": "sensor-7",
    "value": {"t": 21.5},
    "channel": "site/7/temp",
    "tags": ["outdoor"],
    "headers": [],
}
_SHOWN: Final = {
    "records": [_RECORD],
    "topic": "events",
    "topic_id": _TOPIC_ID,
    "partition": 0,
    "by": "key",
    "tag": None,
    "run": "20260131T120000-0a1b2c3d",
    "made": "2026-01-31T12:00:05.000000Z",
    "next": str(Bookmark(bytes.fromhex(_TOPIC_ID), 0, 13, 1)),
    "next_seqno": 13,
}

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET",
        "/topics/{topic}/checkpoint",
        read_checkpoint,
        "Read the latest record of each key",
        "Read",
        "The state of a log as the newest checkpoint has it: the latest record of each key, or of each channel, in no "
        "order. What was removed by a tombstone, or lies below what was trimmed, is left out. All of it comes, however "
        "much that is. Go on with the records from `next`: none is missed, and none comes twice. Where the pipeline "
        "has made no checkpoint of the topic, the problem is `checkpoint-not-found`. It is for those who may read all "
        "records of the topic.",
        query=CheckpointQuery,
        meanings={
            "topic": "Its name.",
            "partition": "Needed where the topic has several.",
            "by": "What the records are the latest of; needed where there is a checkpoint of both kinds.",
            "tag": "Take the checkpoint of the records with this tag.",
            "format": "What Accept says otherwise.",
        },
        answers={
            200: {
                MEDIA_TYPES["json"][0]: Content(CheckpointShown, _SHOWN),
                MEDIA_TYPES["ndjson"][0]: Content(RecordShown, _RECORD),
                MEDIA_TYPES["arrow"][0]: Content(bytes),
                MEDIA_TYPES["parquet"][0]: Content(bytes),
            }
        },
        problems=(403, 404, 406),
        answer_headers={
            "Logboom-Next": "A bookmark: where the log goes on.",
            "Logboom-Next-Seqno": "The seqno there.",
        },
    ),
)
