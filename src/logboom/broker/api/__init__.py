"""The one API of a node, without any protocol: what every front-end calls, and what every kind of node implements.

In the process it is `broker.local.LocalBroker`, through the network `client.remote.RemoteBroker`; nobody tells them
apart. Everything that can go wrong is an error of errors.py.

`Broker` is the sum of small Protocols, each in a file of its own with the values it takes and gives: topics, logs
(appends, reads), cursors, groups, queues, stages, insight, operations, access. Feeds stand beside it, for nodes that
others copy.
"""

from __future__ import annotations

from logboom.broker.api.access import (
    AccessCalls,
    CallerInfo,
    Explanation,
    NewToken,
    QuotaUsage,
    RemovedUser,
    RoleInfo,
    RuleInfo,
    TokenInfo,
    UserInfo,
)
from logboom.broker.api.appends import AppendCalls, Outcome, Part, call_when_done, count_batches
from logboom.broker.api.broker import Broker
from logboom.broker.api.cursors import MOVES_MAX, CursorCalls, CursorInfo, CursorMove, check_moves
from logboom.broker.api.feeds import Feed, FeedOrigin, FeedPiece, Feeds
from logboom.broker.api.groups import (
    Grant,
    GroupCalls,
    GroupDescription,
    GroupInfo,
    GroupJoin,
    GroupLog,
    GroupMode,
    GroupMove,
    GroupReset,
    GroupStanding,
    GroupState,
    HeldLog,
    MemberInfo,
    QueueSettings,
    RefusedMove,
)
from logboom.broker.api.insight import AccessStats, InsightCalls, NodeStats, QuotaStats, ReplicaStats
from logboom.broker.api.logs import LogCalls
from logboom.broker.api.operations import OperatorCalls
from logboom.broker.api.queues import (
    JobRange,
    JobVerdict,
    LeasedChunk,
    LeasedJobs,
    QueueCalls,
    RefusedSettlement,
    Settlement,
    TakeJobs,
)
from logboom.broker.api.reads import Chunk, Filter, LogPlace, ReadCalls, ReadRequest, Start, Subscription
from logboom.broker.api.stages import StageCalls
from logboom.broker.api.topics import PIPELINE_TOPIC, PartitionInfo, TopicCalls, TopicInfo
from logboom.broker.monitor.activity import (
    Activity,
    ActivityRequest,
    DiskStats,
    History,
    Incident,
    SegmentInfo,
    TopicHistory,
)
from logboom.broker.monitor.measures import Measures
from logboom.broker.publish.publication import KeyInfo, Publication, PublishedPart, PublishKey, Receipt, StageInfo
from logboom.storage.append import Answer, Appended
from logboom.storage.data.deletions import Deletion
from logboom.storage.data.topic import Acks, Settings

__all__ = [
    "MOVES_MAX",
    "PIPELINE_TOPIC",
    "AccessCalls",
    "AccessStats",
    "Acks",
    "Activity",
    "ActivityRequest",
    "Answer",
    "AppendCalls",
    "Appended",
    "Broker",
    "CallerInfo",
    "Chunk",
    "CursorCalls",
    "CursorInfo",
    "CursorMove",
    "Deletion",
    "DiskStats",
    "Explanation",
    "Feed",
    "FeedOrigin",
    "FeedPiece",
    "Feeds",
    "Filter",
    "Grant",
    "GroupCalls",
    "GroupDescription",
    "GroupInfo",
    "GroupJoin",
    "GroupLog",
    "GroupMode",
    "GroupMove",
    "GroupReset",
    "GroupStanding",
    "GroupState",
    "HeldLog",
    "History",
    "Incident",
    "InsightCalls",
    "JobRange",
    "JobVerdict",
    "KeyInfo",
    "LeasedChunk",
    "LeasedJobs",
    "LogCalls",
    "LogPlace",
    "Measures",
    "MemberInfo",
    "NewToken",
    "NodeStats",
    "OperatorCalls",
    "Outcome",
    "Part",
    "PartitionInfo",
    "Publication",
    "PublishKey",
    "PublishedPart",
    "QueueCalls",
    "QueueSettings",
    "QuotaStats",
    "QuotaUsage",
    "ReadCalls",
    "ReadRequest",
    "Receipt",
    "RefusedMove",
    "RefusedSettlement",
    "RemovedUser",
    "ReplicaStats",
    "RoleInfo",
    "RuleInfo",
    "SegmentInfo",
    "Settings",
    "Settlement",
    "StageCalls",
    "StageInfo",
    "Start",
    "Subscription",
    "TakeJobs",
    "TokenInfo",
    "TopicCalls",
    "TopicHistory",
    "TopicInfo",
    "UserInfo",
    "call_when_done",
    "check_moves",
    "count_batches",
]
