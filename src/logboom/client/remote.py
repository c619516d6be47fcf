"""A node's broker, through the network: every call of `broker.api.Broker`, over one connection.

    async with connect("localhost:1773") as broker:
        await broker.create_topic("events", partitions=3)

One connection and no other: where it is lost, calls raise ConnectionLost (appends under way OutcomeUnknown), and
whoever called decides. Errors of the node are raised here as the classes they were there.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop, sleep
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from msgspec.msgpack import Decoder

from logboom.batch import Producer
from logboom.batch.header import Buffer
from logboom.batch.rewrite import without_producer
from logboom.broker import api
from logboom.broker.caller import EVERYBODY, ITSELF, Caller
from logboom.client.link.address import Servers, parse_servers
from logboom.client.link.async_link import CONNECT_TIMEOUT_S, AsyncLink
from logboom.client.link.backoff import Backoff
from logboom.client.publish.publish_calls import check_movable
from logboom.client.remote_access import RemoteAccess
from logboom.client.remote_groups import RemoteGroups
from logboom.errors import InvalidKey, LogboomError, OutcomeUnknown, Overloaded, RemoteProtocolError, Unavailable
from logboom.protocols.binary import messages
from logboom.protocols.binary.errors import decode_failure
from logboom.protocols.binary.messages import Append, AppendPart, Appends, Kind, Read, Welcome
from logboom.protocols.binary.spoken_for import head_of

SEQNO_UNKNOWN: Final = -1
"""Where a batch went that was sent with acks none: there is no answer."""

Result = TypeVar("Result")

_topic = Decoder(api.TopicInfo)
_topics = Decoder(list[api.TopicInfo])
_partition = Decoder(api.PartitionInfo)
_cursors = Decoder(list[api.CursorInfo])
_stats = Decoder(api.NodeStats)
_measures = Decoder(api.Measures)
_history = Decoder(api.History)
_activity = Decoder(api.Activity)
_topic_history = Decoder(api.TopicHistory)
_segments = Decoder(list[api.SegmentInfo])
_incidents = Decoder(list[api.Incident])
_stage = Decoder(api.StageInfo)
_stages = Decoder(list[api.StageInfo])
_publication = Decoder(api.Publication)
_keys = Decoder(list[api.KeyInfo])
_count = Decoder(int)
_places = Decoder(list[api.LogPlace])
_flag = Decoder(bool)
_text: Decoder[str | None] = Decoder(str | None)
_nothing = Decoder(None)


@asynccontextmanager
async def connect(
    servers: Servers = None,
    timeout_s: float = CONNECT_TIMEOUT_S,
    retry: bool = True,
    speaks_for_callers: bool = False,
) -> AsyncIterator[RemoteBroker]:
    """The broker of the first of these servers that answers. Without any: $LOGBOOM_SERVERS, else localhost.

    They are tried in turn until `timeout_s` is up: one may just be restarting. Without `retry` each is tried once.
    `speaks_for_callers` is for gateways: see RemoteBroker.
    """
    broker = await RemoteBroker.connect(servers, timeout_s, retry, speaks_for_callers)
    try:
        yield broker
    finally:
        await broker.close()


class RemoteBroker(RemoteAccess, RemoteGroups):
    """The broker at the other end of a link.

    Every call takes its caller, as `broker.api.Broker` says, and does not send it: to the node at the other end whoever
    made the connection is the caller. With `speaks_for_callers` it is sent, and his rights count there, not those of
    the connection, whose user must have the right to manage him. Whoever names no caller is then anonymous.
    """

    def __init__(self, link: AsyncLink, speaks_for_callers: bool = False) -> None:
        self._link = link
        self._speaks = speaks_for_callers
        self._spoken_for = ITSELF
        """Whose requests the node takes those for that are sent now."""

    @classmethod
    async def connect(
        cls,
        servers: Servers = None,
        timeout_s: float = CONNECT_TIMEOUT_S,
        retry: bool = True,
        speaks_for_callers: bool = False,
    ) -> RemoteBroker:
        """Whoever calls this closes it; `connect` of this module does both."""
        addresses, clock, backoff = parse_servers(servers), get_running_loop().time, Backoff(immediate=0)
        give_up = clock() + timeout_s
        while True:
            for address in addresses:
                try:
                    link = await AsyncLink.connect(address, timeout_s)
                except Unavailable as error:
                    failure = error
                    continue
                if speaks_for_callers and not link.welcome.speaks_for:
                    await link.close()
                    raise RemoteProtocolError(f"{address} does not know of callers who are spoken for: it is too old")
                return cls(link, speaks_for_callers)
            wait_s = backoff.next_s()
            if not retry or clock() + wait_s >= give_up:
                raise failure
            await sleep(wait_s)

    async def close(self) -> None:
        await self._link.close()

    def _as(self, caller: Caller) -> AsyncLink:
        """The link, on which this one asks: what is sent at once is his."""
        if self._speaks and caller is not self._spoken_for and self._link.lost is None:
            if caller != self._spoken_for:
                self._link.send(Kind.SPEAK_FOR, head_of(caller))
            self._spoken_for = caller
        return self._link

    def __repr__(self) -> str:
        state = f", lost: {self._link.lost}" if self._link.lost else ""
        return f"<RemoteBroker {self._link.address} node {self.welcome.node_id}{state}>"

    @property
    def welcome(self) -> Welcome:
        """What the node said of itself: node and cluster id, its limits, its data directory."""
        return self._link.welcome

    async def ping(self) -> float:
        """How long an answer took, in seconds."""
        loop = get_running_loop()
        began = loop.time()
        await self._link.request(Kind.PING)
        return loop.time() - began

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        settings: api.Settings | None = None,
        *,
        caller: Caller = EVERYBODY,
    ) -> api.TopicInfo:
        return await self._call(messages.CreateTopic(name, partitions, settings), _topic, caller)

    async def configure_topic(self, name: str, settings: api.Settings, *, caller: Caller = EVERYBODY) -> api.TopicInfo:
        return await self._call(messages.ConfigureTopic(name, settings), _topic, caller)

    async def describe_topic(self, name: str, create: bool = False, *, caller: Caller = EVERYBODY) -> api.TopicInfo:
        return await self._call(messages.DescribeTopic(name, create), _topic, caller)

    async def list_topics(
        self, prefix: str = "", internal: bool = False, *, caller: Caller = EVERYBODY
    ) -> list[api.TopicInfo]:
        return await self._call(messages.ListTopics(prefix, internal), _topics, caller)

    async def delete_topic(self, name: str, topic_id: str | None = None, *, caller: Caller = EVERYBODY) -> None:
        await self._call(messages.DeleteTopic(name, topic_id), _nothing, caller)

    async def trim(
        self, topic: str, partition: int | None, seqno: int, *, caller: Caller = EVERYBODY
    ) -> api.PartitionInfo:
        return await self._call(messages.Trim(topic, partition, seqno), _partition, caller)

    async def commit_cursor(
        self,
        cursor: str,
        topic: str,
        partition: int | None,
        bookmark: str,
        force: bool = False,
        expect: str | None = None,
        *,
        caller: Caller = EVERYBODY,
    ) -> None:
        await self._call(messages.CommitCursor(cursor, topic, partition, bookmark, force, expect), _nothing, caller)

    async def fetch_cursor(
        self, cursor: str, topic: str, partition: int | None = None, *, caller: Caller = EVERYBODY
    ) -> str | None:
        return await self._call(messages.FetchCursor(cursor, topic, partition), _text, caller)

    async def list_cursors(
        self, topic: str | None = None, prefix: str = "", *, caller: Caller = EVERYBODY
    ) -> list[api.CursorInfo]:
        return await self._call(messages.ListCursors(topic, prefix), _cursors, caller)

    async def delete_cursor(self, cursor: str, topic: str | None = None, *, caller: Caller = EVERYBODY) -> int:
        return await self._call(messages.DeleteCursor(cursor, topic), _count, caller)

    async def refuse(self, topic: str | None = None, reason: str = "", *, caller: Caller = EVERYBODY) -> None:
        await self._call(messages.Refuse(topic, reason), _nothing, caller)

    async def accept(self, topic: str | None = None, *, caller: Caller = EVERYBODY) -> None:
        await self._call(messages.Accept(topic), _nothing, caller)

    async def stats(self, *, caller: Caller = EVERYBODY) -> api.NodeStats:
        return await self._call(messages.Stats(), _stats, caller)

    async def measures(self, *, caller: Caller = EVERYBODY) -> api.Measures:
        return await self._call(messages.GetMeasures(), _measures, caller)

    async def promote(self, *, caller: Caller = EVERYBODY) -> None:
        await self._call(messages.Promote(), _nothing, caller)

    async def history(self, since: int = 0, *, caller: Caller = EVERYBODY) -> api.History:
        return await self._call(messages.GetHistory(since), _history, caller)

    async def activity(self, request: api.ActivityRequest, *, caller: Caller = EVERYBODY) -> api.Activity:
        return await self._call(messages.GetActivity(request), _activity, caller)

    async def topic_history(self, topic: str, *, caller: Caller = EVERYBODY) -> api.TopicHistory:
        return await self._call(messages.GetTopicHistory(topic), _topic_history, caller)

    async def segments(
        self, topic: str, partition: int | None = None, limit: int = 1000, *, caller: Caller = EVERYBODY
    ) -> list[api.SegmentInfo]:
        return await self._call(messages.GetSegments(topic, partition, limit), _segments, caller)

    async def incidents(self, *, caller: Caller = EVERYBODY) -> list[api.Incident]:
        return await self._call(messages.GetIncidents(), _incidents, caller)

    async def open_stage(self, note: str = "", *, caller: Caller = EVERYBODY) -> api.StageInfo:
        return await self._call(messages.OpenStage(note), _stage, caller)

    async def publish(
        self,
        key: api.PublishKey,
        stages: Sequence[api.Receipt],
        moves: Sequence[api.CursorMove] = (),
        *,
        caller: Caller = EVERYBODY,
    ) -> api.Publication:
        check_movable(self.welcome.limits, moves)
        return await self._call(messages.Publish(key, list(stages), list(moves)), _publication, caller)

    async def publish_batches(
        self,
        key: api.PublishKey,
        parts: Sequence[api.Part],
        moves: Sequence[api.CursorMove] = (),
        *,
        caller: Caller = EVERYBODY,
    ) -> api.Publication:
        """Through a stage where the node does not take it in one call."""
        check_movable(self.welcome.limits, moves)
        if not self.welcome.limits.publish_bytes:
            if not key.lasting:  # said again, it would come with another stage
                raise InvalidKey(key.name, "it does not last, and the node takes no publish in one call: use a stage")
            return await self._publish_staged(key, parts, caller)
        heads, payload = _flatten(parts)
        head = messages.PublishBatches(key, heads, list(moves))
        publication: api.Publication = await self._as(caller).request(
            Kind.PUBLISH, head, payload, _publication.decode, OutcomeUnknown
        )
        return publication

    async def _publish_staged(self, key: api.PublishKey, parts: Sequence[api.Part], caller: Caller) -> api.Publication:
        opened = await self.open_stage(f"{key.name}/{key.number}", caller=caller)
        counts: dict[tuple[str, int | None], int] = {}
        staged = []
        for part in parts:
            log, batches = (part.topic, part.partition), []
            for batch in part.batches:
                seq = counts.setdefault(log, 0)
                batches.append(without_producer(batch, Producer(opened.producer_id, 0, seq)))
                counts[log] += len(batch)
            staged.append(api.Part(part.topic, batches, part.partition, None, part.topic_id))
        for answer in await self.stage(opened.id, staged, caller=caller):
            if isinstance(answer, LogboomError):
                await self.discard([opened.id], caller=caller)
                raise answer
        return await self.publish(key, [api.Receipt(opened.id, sum(counts.values()))], caller=caller)

    async def discard(self, stages: Sequence[str], *, caller: Caller = EVERYBODY) -> int:
        return await self._call(messages.Discard(list(stages)), _count, caller)

    async def list_stages(self, *, caller: Caller = EVERYBODY) -> list[api.StageInfo]:
        return await self._call(messages.ListStages(), _stages, caller)

    async def list_keys(self, prefix: str = "", *, caller: Caller = EVERYBODY) -> list[api.KeyInfo]:
        return await self._call(messages.ListKeys(prefix), _keys, caller)

    async def forget_key(self, name: str, *, caller: Caller = EVERYBODY) -> bool:
        return await self._call(messages.ForgetKey(name), _flag, caller)

    def stage(self, stage: str, parts: Sequence[api.Part], *, caller: Caller = EVERYBODY) -> Future[list[api.Answer]]:
        return self._send(parts, None, stage, caller)

    def append(
        self, parts: Sequence[api.Part], acks: api.Acks | None = None, *, caller: Caller = EVERYBODY
    ) -> Future[list[api.Answer]]:
        """With acks none the answers say SEQNO_UNKNOWN: the node sends none."""
        return self._send(parts, acks, None, caller)

    def append_then(
        self,
        parts: Sequence[api.Part],
        acks: api.Acks | None,
        then: Callable[[api.Outcome], None],
        *,
        caller: Caller = EVERYBODY,
    ) -> None:
        api.call_when_done(self.append(parts, acks, caller=caller), then)

    def _send(
        self, parts: Sequence[api.Part], acks: api.Acks | None, stage: str | None, caller: Caller
    ) -> Future[list[api.Answer]]:
        heads, payload = _flatten(parts)
        link, limit = self._link, 2 * self.welcome.limits.in_flight_bytes
        if link.waiting_bytes > limit:
            return _failed(Overloaded(f"the connection to {link.address}", link.waiting_bytes, limit))
        self._as(caller)
        if acks != "none":
            return link.request(Kind.APPEND, Append(heads, acks, stage), payload, _answers, OutcomeUnknown)
        done: Future[list[api.Answer]] = get_running_loop().create_future()
        link.send(Kind.APPEND, Append(heads, acks), payload)
        unknown = [
            api.Appended(SEQNO_UNKNOWN, len(batch), SEQNO_UNKNOWN, 0) for part in parts for batch in part.batches
        ]
        done.set_result(list(unknown))
        return done

    async def read(self, request: api.ReadRequest, *, caller: Caller = EVERYBODY) -> api.Chunk:
        chunk: api.Chunk = await self._as(caller).request(Kind.READ, Read(request), decode=_chunk)
        return chunk

    async def subscribe(self, request: api.ReadRequest, *, caller: Caller = EVERYBODY) -> api.Subscription:
        """What is wrong with the request, the first `next` raises."""
        return self._as(caller).subscribe(request)

    async def locate(self, request: api.ReadRequest, *, caller: Caller = EVERYBODY) -> list[api.LogPlace]:
        return await self._call(messages.Locate(request), _places, caller)

    async def _call(self, head: messages.Call, result: Decoder[Result], caller: Caller) -> Result:
        answer: Result = await self._as(caller).request(Kind.CALL, head, decode=result.decode)
        return answer


def _flatten(parts: Sequence[api.Part]) -> tuple[list[AppendPart], list[Buffer]]:
    """What is said of them, and their bytes."""
    heads: list[AppendPart] = []
    payload: list[Buffer] = []
    for part in parts:
        size = 0
        for batch in part.batches:
            payload.append(batch.data)
            size += len(batch.data)
        heads.append(AppendPart(part.topic, size, part.partition, part.expect_seqno, part.topic_id))
    return heads, payload


def _answers(appends: Appends) -> list[api.Answer]:
    found: list[api.Answer] = []
    for number, at in enumerate(appends.answers):
        if at is not None:
            found.append(api.Appended(at.base_seqno, at.record_count, at.index, at.append_time, at.repeat))
        elif number in appends.failures:
            found.append(decode_failure(appends.failures[number]))
        else:
            raise RemoteProtocolError(f"batch {number} of an append has neither an answer nor a failure")
    return found


def _chunk(answer: object) -> api.Chunk:
    if not isinstance(answer, api.Chunk):
        raise RemoteProtocolError("a read was answered with something else")
    return answer


def _failed(error: Exception) -> Future[list[api.Answer]]:
    future: Future[list[api.Answer]] = get_running_loop().create_future()
    future.set_exception(error)
    return future
