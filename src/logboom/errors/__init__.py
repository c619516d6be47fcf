"""Every error Logboom raises, one tree, each named by its condition and carrying its data.

A module of this package holds one family; everybody imports from here. Nothing else of ours is imported.

LogboomError
├── BatchError                 bytes that are not a batch we can take
│   ├── NotABatch              too short, wrong magic, impossible size
│   ├── HeaderCorrupt          header_crc does not hold
│   ├── BodyCorrupt            batch_crc does not hold, or the body does not inflate to what it says
│   ├── UnsupportedBatch       a version, flag, kind, encoding or codec this release does not know
│   ├── MalformedBatch         sound checksums around a broken structure
│   └── BatchTooLarge          more than the limit, stored or inflated
├── InvalidColumn              what the caller gave cannot become a column (also a ValueError)
├── ValueUnreadable            a value that its reader's serializer cannot decode
├── InvalidPattern             a channel pattern that means nothing (also a ValueError)
├── AppendRefused              this batch was not appended; nothing was written of it
│   ├── UnexpectedSeqno        expect_seqno is not the next seqno
│   ├── UnknownProducer        a stream that does not start at 0 from a producer this log does not know
│   │   └── ProducerForgotten  from one that it may have known: nobody can tell whether this is a repeat
│   ├── ProducerFenced         a lower epoch than the producer's newest
│   ├── SequenceGap            numbers between the producer's last batch and this one are missing
│   ├── RepeatForgotten        a repeat too old, or cut differently, to be answered as the first time
│   ├── NotNext                a batch with numbers already, which are not the next ones
│   ├── LowSpace               the volume's free space is below the reserve, or ran out
│   ├── WriteFailed            the operating system refused the write
│   ├── LogReadOnly            damaged, failed or closed: the log takes no writes, and says why
│   ├── WritesRefused          an operator has switched the topic or the node to read-only
│   ├── ReadOnlyReplica        the node is a copy of another one, which takes the writes
│   ├── RecordsRejected        a validator of the topic has said no
│   ├── ValidatorFailed        a validator of the topic could not be asked
│   ├── ValidatorNotAllowed    a validator of the topic that the node's configuration does not let it ask
│   └── Overloaded             too much is waiting to be written or synced; nothing of this was
├── OutcomeUnknown             the connection was lost before the answer: appended or not, nobody here knows
├── Unavailable                not now: the node is starting, stopping, or cannot be reached
│   ├── ShuttingDown           the node is stopping
│   ├── FeedEnded              what was said of a log to its copy holds no more: to be asked again
│   └── ConnectionLost         no connection to a node, or the one there was is gone
├── LimitExceeded              more than a limit allows; says which, and what it is
│   └── QuotaExceeded          more connections or topics at one time than a quota gives to somebody
├── ProtocolError              bytes that are not what the protocol says
│   ├── RemoteProtocolError    the other side has broken it
│   ├── LocalProtocolError     we would break it: a call in the wrong state
│   ├── UnsupportedVersion     no version of the protocol that both sides speak
│   └── WrongCluster           the node is of another cluster than the client wants
├── AccessError
│   ├── SignInRequired         the node does nothing for callers it does not know
│   ├── SignInFailed           the name or the secret is wrong
│   ├── NotAllowed             no rule gives the caller this right
│   │   └── RecordNotAllowed   rules on channels or tags do not let him write a record of a batch
│   ├── InvalidPrincipal       a name that no user, group or role can have (also a ValueError)
│   ├── InvalidPassword        a password that cannot be set (also a ValueError)
│   ├── InvalidRule            a rule that means nothing (also a ValueError)
│   ├── InvalidQuota           a quota that means nothing (also a ValueError)
│   ├── UserNotFound           no user has this name
│   ├── UserExists             another user has this name already
│   ├── TokenNotFound          no token has this id
│   ├── RuleNotFound           no rule has this number
│   └── QuotaNotFound          nobody of this name has a quota of his own
├── ConfigError                a setting with a wrong name or value (also a ValueError)
├── InvalidCursorName          not 1 to 249 of the characters allowed (also a ValueError)
├── CursorNotFound             no cursor has this name
├── CursorBusy                 a publish that moves a cursor is not done: the cursor cannot be deleted now
├── CursorMovedBack            a commit would put a cursor before the place where it stands, and does not say `force`
├── UnexpectedCursor           a cursor stands elsewhere than a commit expects
├── GroupError
│   ├── InvalidGroup           a name, or a wish of a member, that means nothing (also a ValueError)
│   ├── GroupNotFound          no group has this name
│   ├── GroupBusy              the group has members, who would not know of it
│   ├── GroupMismatch          the group shares logs, and was to share records, or the other way round
│   ├── MemberUnknown          the group has no such member: silent for too long, or gone
│   ├── LogNotHeld             a member speaks of a log that it does not hold in that generation
│   └── JobNotHeld             a member speaks of records that it does not hold: the lease is over, or they are settled
├── BufferFull                 the writer holds as much as it may, and was told not to wait
├── PackageMissing             a package that only some calls need is not installed; says what to install
├── SparkMissing               Spark, or what it runs on, is not here or too old; says what to install
├── TopicError
│   ├── InvalidTopicName       not 1 to 249 of the characters allowed (also a ValueError)
│   ├── TopicNotFound          no topic has this name
│   ├── PartitionNotFound      the topic has no such partition, or several and none was named
│   ├── TopicExists            another topic has this name already
│   ├── TopicNotAllowed        the node's rules do not let a topic have this name, or be made by a write
│   ├── TopicDeleted           the topic that was being read is gone
│   ├── TopicRecreated         another topic has taken the name of the one that was being read
│   └── TopicBusy              a publish is under way that has records for the topic: it cannot go now
├── StageError
│   ├── StageNotFound          no such stage: never opened, or published, discarded, expired
│   ├── StageBusy              the stage is being published: it takes no more, and is not published twice
│   ├── StageIncomplete        a stage does not hold what its writer has put there
│   └── StageFailed            what is in a stage cannot be relied on: a write or sync of it failed
├── PipelineError              a job of the pipeline could not be done
│   ├── LeaseHeld              somebody else runs the job
│   ├── LeaseLost              a runner that was not heard of for too long: another has the job
│   ├── CheckpointNotFound     no checkpoint of this topic, or none that was asked for, was made yet
│   └── ResultsUnreadable      a result is not there, or not what was published
├── InvalidKey                 not a name and number to publish under (also a ValueError)
├── KeyBusy                    a publish is under way under a name: it cannot be forgotten now
├── KeyMismatch                what was published under a name and number is not what is to be published now
├── RecordsLost                a stream, or a read of given seqnos, wants records that are not there any more
├── InvalidBookmark            text that no reader of ours has given (also a ValueError)
├── BookmarkLost               what stands before a bookmark is not what its reader had read
└── StorageError
    ├── SeqnoOutOfRange        below first or above next
    ├── IndexOutOfRange        a batch number the log does not hold, or may not truncate to
    ├── Damage                 bytes that were once sound are not: where, and which seqnos
    ├── SyncFailed             a sync failed: what was not yet promised is unknown, the log stops writing
    ├── ReplicaDiverged        a copy holds what its source does not: it is no prefix of it
    ├── DumpError
    │   ├── DumpCorrupt        bytes of a dump that are not as they were written
    │   ├── DumpIncomplete     a dump that ends before its end
    │   ├── DumpUnsupported    not a dump, or a format, frame or codec this release does not know
    │   ├── DumpMismatch       what is here already is not what the dump holds, or not what was dumped before
    │   └── DumpOvertaken      retention dropped batches before they were dumped
    ├── PublishUnfinished      a publish was cut off, and may be in some of its logs only: the node finishes it
    ├── NotOpened              the state file says nothing of a log that has files: no writer has opened it
    ├── NotLocal               files on a network file system cannot be followed
    ├── DirectoryInUse         another process writes to this data directory
    └── DirectoryUnusable      not a data directory of ours: newer format, foreign, broken, of another node
"""

from __future__ import annotations

import re
from typing import Final

from logboom.errors.access import (
    AccessError,
    InvalidPassword,
    InvalidPrincipal,
    InvalidQuota,
    InvalidRule,
    NotAllowed,
    QuotaNotFound,
    RecordNotAllowed,
    RuleNotFound,
    SignInFailed,
    SignInRequired,
    TokenNotFound,
    UserExists,
    UserNotFound,
)
from logboom.errors.appends import (
    AppendRefused,
    BufferFull,
    LogReadOnly,
    LowSpace,
    NotNext,
    OutcomeUnknown,
    Overloaded,
    ProducerFenced,
    ProducerForgotten,
    ReadOnlyReplica,
    RecordsRejected,
    RepeatForgotten,
    SequenceGap,
    UnexpectedSeqno,
    UnknownProducer,
    ValidatorFailed,
    ValidatorNotAllowed,
    WriteFailed,
    WritesRefused,
)
from logboom.errors.batches import (
    BatchError,
    BatchTooLarge,
    BodyCorrupt,
    HeaderCorrupt,
    InvalidColumn,
    InvalidPattern,
    MalformedBatch,
    NotABatch,
    UnsupportedBatch,
    ValueUnreadable,
)
from logboom.errors.bookmarks import (
    BookmarkLost,
    CursorBusy,
    CursorMovedBack,
    CursorNotFound,
    InvalidBookmark,
    InvalidCursorName,
    RecordsLost,
    UnexpectedCursor,
)
from logboom.errors.configuration import (
    ConfigError,
    PackageMissing,
    SparkMissing,
)
from logboom.errors.connections import (
    ConnectionLost,
    FeedEnded,
    LimitExceeded,
    LocalProtocolError,
    ProtocolError,
    QuotaExceeded,
    RemoteProtocolError,
    ShuttingDown,
    Unavailable,
    UnsupportedVersion,
    WrongCluster,
)
from logboom.errors.groups import (
    GroupBusy,
    GroupError,
    GroupMismatch,
    GroupNotFound,
    InvalidGroup,
    JobNotHeld,
    LogNotHeld,
    MemberUnknown,
)
from logboom.errors.pipeline import (
    CheckpointNotFound,
    LeaseHeld,
    LeaseLost,
    PipelineError,
    ResultsUnreadable,
)
from logboom.errors.publish import (
    InvalidKey,
    KeyBusy,
    KeyMismatch,
    StageBusy,
    StageError,
    StageFailed,
    StageIncomplete,
    StageNotFound,
)
from logboom.errors.root import LogboomError
from logboom.errors.storage import (
    Damage,
    DirectoryInUse,
    DirectoryUnusable,
    DumpCorrupt,
    DumpError,
    DumpIncomplete,
    DumpMismatch,
    DumpOvertaken,
    DumpUnsupported,
    IndexOutOfRange,
    NotLocal,
    NotOpened,
    PublishUnfinished,
    ReplicaDiverged,
    SeqnoOutOfRange,
    StorageError,
    SyncFailed,
)
from logboom.errors.topics import (
    InvalidTopicName,
    PartitionNotFound,
    TopicBusy,
    TopicDeleted,
    TopicError,
    TopicExists,
    TopicNotAllowed,
    TopicNotFound,
    TopicRecreated,
)

__all__ = [
    "CODES",
    "AccessError",
    "AppendRefused",
    "BatchError",
    "BatchTooLarge",
    "BodyCorrupt",
    "BookmarkLost",
    "BufferFull",
    "CheckpointNotFound",
    "ConfigError",
    "ConnectionLost",
    "CursorBusy",
    "CursorMovedBack",
    "CursorNotFound",
    "Damage",
    "DirectoryInUse",
    "DirectoryUnusable",
    "DumpCorrupt",
    "DumpError",
    "DumpIncomplete",
    "DumpMismatch",
    "DumpOvertaken",
    "DumpUnsupported",
    "FeedEnded",
    "GroupBusy",
    "GroupError",
    "GroupMismatch",
    "GroupNotFound",
    "HeaderCorrupt",
    "IndexOutOfRange",
    "InvalidBookmark",
    "InvalidColumn",
    "InvalidCursorName",
    "InvalidGroup",
    "InvalidKey",
    "InvalidPassword",
    "InvalidPattern",
    "InvalidPrincipal",
    "InvalidQuota",
    "InvalidRule",
    "InvalidTopicName",
    "JobNotHeld",
    "KeyBusy",
    "KeyMismatch",
    "LeaseHeld",
    "LeaseLost",
    "LimitExceeded",
    "LocalProtocolError",
    "LogNotHeld",
    "LogReadOnly",
    "LogboomError",
    "LowSpace",
    "MalformedBatch",
    "MemberUnknown",
    "NotABatch",
    "NotAllowed",
    "NotLocal",
    "NotNext",
    "NotOpened",
    "OutcomeUnknown",
    "Overloaded",
    "PackageMissing",
    "PartitionNotFound",
    "PipelineError",
    "ProducerFenced",
    "ProducerForgotten",
    "ProtocolError",
    "PublishUnfinished",
    "QuotaExceeded",
    "QuotaNotFound",
    "ReadOnlyReplica",
    "RecordNotAllowed",
    "RecordsLost",
    "RecordsRejected",
    "RemoteProtocolError",
    "RepeatForgotten",
    "ReplicaDiverged",
    "ResultsUnreadable",
    "RuleNotFound",
    "SeqnoOutOfRange",
    "SequenceGap",
    "ShuttingDown",
    "SignInFailed",
    "SignInRequired",
    "SparkMissing",
    "StageBusy",
    "StageError",
    "StageFailed",
    "StageIncomplete",
    "StageNotFound",
    "StorageError",
    "SyncFailed",
    "TokenNotFound",
    "TopicBusy",
    "TopicDeleted",
    "TopicError",
    "TopicExists",
    "TopicNotAllowed",
    "TopicNotFound",
    "TopicRecreated",
    "Unavailable",
    "UnexpectedCursor",
    "UnexpectedSeqno",
    "UnknownProducer",
    "UnsupportedBatch",
    "UnsupportedVersion",
    "UserExists",
    "UserNotFound",
    "ValidatorFailed",
    "ValidatorNotAllowed",
    "ValueUnreadable",
    "WriteFailed",
    "WritesRefused",
    "WrongCluster",
    "code_of",
]

CODES: Final[dict[str, type[LogboomError]]] = {
    re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower(): value
    for name, value in list(vars().items())
    if isinstance(value, type) and issubclass(value, LogboomError)
}
"""Every error by its stable name on a wire: its own in lower case with dashes, `seqno-out-of-range`."""
_NAMES: Final = {value: code for code, value in CODES.items()}
for _kind in _NAMES:
    _kind.__module__ = __name__  # tracebacks and pickles name the public module, whatever file an error stands in


def code_of(error: LogboomError) -> str:
    return next(_NAMES[kind] for kind in type(error).__mro__ if kind in _NAMES)
