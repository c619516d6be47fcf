"""What is said over the binary protocol: the heads of all frames, as msgpack.

Heads that travel with every batch are arrays, the others maps; both sides ignore what they do not know, so fields may
be added at the end. docs/protocols/binary.md specifies them for other languages.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import msgspec

from logboom.broker.api import Acks, ActivityRequest, CursorMove, PublishKey, ReadRequest, Receipt, Settings, TopicInfo
from logboom.protocols.binary.access_messages import AccessCall
from logboom.protocols.binary.group_messages import GroupCall

VERSION: Final = 1
TOKEN: Final = "TOKEN"
"""The mechanism of those who show a token."""


class Kind(IntEnum):
    """The type of a frame. Answers carry the correlation id of their request."""

    HELLO = 1
    WELCOME = 2
    PING = 3
    PONG = 4
    ERROR = 5
    """In place of any answer; with correlation 0 it is about the connection, which ends."""
    CHALLENGE = 6
    """In place of the welcome: what to answer, with SIGN_IN, to be welcomed."""
    SIGN_IN = 7
    """The answer to a CHALLENGE, with the correlation id of the hello."""
    SPEAK_FOR = 8
    """From here on requests are of somebody else, until the next one; has no answer."""
    APPEND = 10
    APPENDED = 11
    READ = 12
    CHUNK = 13
    """The answer to READ; after SUBSCRIBE as many as there is credit for."""
    SUBSCRIBE = 14
    CREDIT = 15
    """More bytes the server may push for a subscription; has no answer."""
    UNSUBSCRIBE = 16
    """Answered with RESULT; the last frame with that correlation id."""
    PUBLISH = 17
    """Batches to be staged and published in one call; answered with RESULT."""
    TAKE_JOBS = 18
    """The head is a `TakeJobs`; answered with JOBS."""
    JOBS = 19
    CALL = 20
    RESULT = 21


class Hello(msgspec.Struct, omit_defaults=True):
    """The first frame of a connection."""

    version_min: int = VERSION
    version_max: int = VERSION
    client: str = ""
    """What the client calls itself, such as `logboom-python/0.1`: for people, and `%c` in rules on channels."""
    cluster_id: str | None = None
    """Refuse to talk where the node is of another cluster."""
    topics: list[str] = []
    """The welcome describes these, where they exist."""
    mechanism: str = ""
    """How to sign in: SCRAM-SHA-256, SCRAM-SHA-512, TOKEN. Without one the caller is anonymous, or the one that its
    certificate or Unix socket says."""
    sign_in: bytes = b""
    """The first message of SCRAM, or the token."""


class WireLimits(msgspec.Struct):
    frame_bytes: int
    batch_bytes: int
    in_flight_bytes: int
    """Of appends without an answer on one connection; beyond that the server stops reading."""
    in_flight_batches: int
    """Of one producer in one log: what the server remembers for repeats."""
    idle_ms: int
    """A connection that is silent for so long is closed: ping before."""
    subscriptions: int
    publish_bytes: int = 0
    """Of batches in one PUBLISH; 0 where the server has no such call."""
    publish_batches: int = 0
    publish_moves: int = 0
    """Cursors that one publish may move; 0 where the server moves none with it."""


class Welcome(msgspec.Struct):
    version: int
    node_id: str
    cluster_id: str
    directory: str | None
    """The data directory on the node's machine: a reader there with the same node id in node.json may use the files."""
    server: str
    limits: WireLimits
    topics: list[TopicInfo] = []
    replica_of: str | None = None
    """Where the node copies from, which takes the writes in its stead; None where it takes them itself."""
    producer_id: int = 0
    """For whoever writes on this connection: no other has it, later ones are higher. 0 where the node gives none."""
    now: int = 0
    """The node's time, microseconds: the number of a PUBLISH under a name that does not last. 0: it does not say."""
    principal: str = ""
    """Who the node takes the caller for."""
    sign_in: bytes = b""
    """The last message of SCRAM: it proves that the node knows the password."""
    speaks_for: bool = False
    """Whether the node knows SPEAK_FOR."""


class SignInStep(msgspec.Struct):
    """CHALLENGE and SIGN_IN."""

    data: bytes


class SpokenFor(msgspec.Struct, omit_defaults=True):
    """SPEAK_FOR: who asks, as the one who speaks for him knows him."""

    principal: str
    """Empty: the connection's own."""
    groups: list[str] = []
    protocol: str = ""
    address: str = ""
    by: str = ""
    expires: int = 0
    account: tuple[int, int] = (0, 0)
    through: SpokenFor | None = None
    """Who speaks for him to the one who speaks here."""
    client: str = ""
    """What his program calls itself."""


class Failure(msgspec.Struct, omit_defaults=True):
    """An error: its code (see errors.py of this package), words for people, its data."""

    code: str
    message: str
    data: dict[str, Any] = {}


class AppendPart(msgspec.Struct, array_like=True, gc=False):
    """Batches for one log; their bytes follow one after another as the frame's payload."""

    topic: str
    size: int
    """Bytes of the payload that are this part's."""
    partition: int | None = None
    expect_seqno: int | None = None
    topic_id: str | None = None


class Append(msgspec.Struct, array_like=True, gc=False):
    parts: list[AppendPart]
    acks: Acks | None = None
    """With `none` there is no answer, not even to a refusal; only a malformed frame gets an ERROR."""
    stage: str | None = None
    """Not into the logs, but into this stage."""


class PublishBatches(msgspec.Struct, array_like=True, gc=False):
    """PUBLISH: batches for any logs, all or nothing. They carry no producer id, and demand no seqno."""

    key: PublishKey
    parts: list[AppendPart]
    moves: list[CursorMove] = []


class AppendedAt(msgspec.Struct, array_like=True, gc=False):
    base_seqno: int
    record_count: int
    index: int
    append_time: int
    repeat: bool = False


class Appends(msgspec.Struct, array_like=True, gc=False):
    """One entry for each batch, in order; `failures` by the entry's number, where it is None."""

    answers: list[AppendedAt | None]
    failures: dict[int, Failure] = {}


class Read(msgspec.Struct, gc=False):
    """READ and SUBSCRIBE. For a subscription `credit` is what may be pushed at first."""

    request: ReadRequest
    credit: int = 0


class ChunkHead(msgspec.Struct, array_like=True, gc=False):
    """A broker's Chunk; the payload is `size` bytes of batches, then, where there was a filter, `seqnos` i64s."""

    topic_id: str
    partition: int
    seqno: int
    next_seqno: int
    first: int
    committed: int
    term: int
    size: int
    seqnos: int | None = None
    lineage: int = 0
    topic: str = ""


class JobsHead(msgspec.Struct, array_like=True, gc=False):
    """A broker's LeasedJobs; the payload is that of the chunks, one after another."""

    lease_ms: int
    chunks: list[ChunkHead]
    tries: list[int]
    """Of each chunk."""


class Credit(msgspec.Struct, array_like=True, gc=False):
    """The frame's correlation id is the subscription's."""

    bytes: int


class CreateTopic(msgspec.Struct, tag="create_topic", omit_defaults=True):
    name: str
    partitions: int | None = None
    settings: Settings | None = None


class ConfigureTopic(msgspec.Struct, tag="configure_topic"):
    name: str
    settings: Settings


class DescribeTopic(msgspec.Struct, tag="describe_topic"):
    name: str
    create: bool = False


class ListTopics(msgspec.Struct, tag="list_topics"):
    prefix: str = ""
    internal: bool = False


class DeleteTopic(msgspec.Struct, tag="delete_topic"):
    name: str
    topic_id: str | None = None


class Trim(msgspec.Struct, tag="trim"):
    topic: str
    partition: int | None
    seqno: int


class CommitCursor(msgspec.Struct, tag="commit_cursor", omit_defaults=True):
    cursor: str
    topic: str
    partition: int | None
    bookmark: str
    force: bool = False
    expect: str | None = None


class FetchCursor(msgspec.Struct, tag="fetch_cursor"):
    cursor: str
    topic: str
    partition: int | None = None


class Locate(msgspec.Struct, tag="locate"):
    """Of a request that is `whole`."""

    request: ReadRequest


class ListCursors(msgspec.Struct, tag="list_cursors"):
    topic: str | None = None
    prefix: str = ""


class DeleteCursor(msgspec.Struct, tag="delete_cursor"):
    cursor: str
    topic: str | None = None


class Refuse(msgspec.Struct, tag="refuse"):
    topic: str | None = None
    reason: str = ""


class Accept(msgspec.Struct, tag="accept"):
    topic: str | None = None


class Stats(msgspec.Struct, tag="stats"):
    pass


class GetMeasures(msgspec.Struct, tag="measures"):
    pass


class Promote(msgspec.Struct, tag="promote"):
    pass


class GetHistory(msgspec.Struct, tag="history"):
    since: int = 0


class GetActivity(msgspec.Struct, tag="activity"):
    request: ActivityRequest = ActivityRequest()


class GetTopicHistory(msgspec.Struct, tag="topic_history"):
    topic: str


class GetSegments(msgspec.Struct, tag="segments"):
    topic: str
    partition: int | None = None
    limit: int = 1000


class GetIncidents(msgspec.Struct, tag="incidents"):
    pass


class OpenStage(msgspec.Struct, tag="open_stage", omit_defaults=True):
    note: str = ""


class Publish(msgspec.Struct, tag="publish", omit_defaults=True):
    key: PublishKey
    stages: list[Receipt]
    moves: list[CursorMove] = []


class Discard(msgspec.Struct, tag="discard"):
    stages: list[str]


class ListStages(msgspec.Struct, tag="list_stages"):
    pass


class ListKeys(msgspec.Struct, tag="list_keys", omit_defaults=True):
    prefix: str = ""


class ForgetKey(msgspec.Struct, tag="forget_key"):
    name: str


Call = (
    CreateTopic
    | ConfigureTopic
    | DescribeTopic
    | ListTopics
    | DeleteTopic
    | Trim
    | CommitCursor
    | FetchCursor
    | Locate
    | ListCursors
    | DeleteCursor
    | Refuse
    | Accept
    | Stats
    | GetMeasures
    | Promote
    | GetHistory
    | GetActivity
    | GetTopicHistory
    | GetSegments
    | GetIncidents
    | OpenStage
    | Publish
    | Discard
    | ListStages
    | ListKeys
    | ForgetKey
    | GroupCall
    | AccessCall
)
"""The head of CALL. The head of RESULT is what the broker's method of that name returns."""
