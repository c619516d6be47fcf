"""Every error Logboom raises, one tree, each named by its condition and carrying its data.

LogboomError
├── BatchError                 bytes that are not a batch we can take
│   ├── NotABatch              too short, wrong magic, impossible size
│   ├── HeaderCorrupt          header_crc does not hold
│   ├── BodyCorrupt            batch_crc does not hold, or the body does not inflate to what it says
│   ├── UnsupportedBatch       a version, flag, kind, encoding or codec this release does not know
│   ├── MalformedBatch         sound checksums around a broken structure
│   └── BatchTooLarge          more than the limit, stored or inflated
├── InvalidColumn              what the caller gave cannot become a column (also a ValueError)
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
├── ProtocolError              bytes that are not what the protocol says
│   ├── RemoteProtocolError    the other side has broken it
│   ├── LocalProtocolError     we would break it: a call in the wrong state
│   ├── UnsupportedVersion     no version of the protocol that both sides speak
│   └── WrongCluster           the node is of another cluster than the client wants
├── ConfigError                a setting with a wrong name or value (also a ValueError)
├── InvalidCursorName          not 1 to 249 of the characters allowed (also a ValueError)
├── CursorNotFound             no cursor has this name
├── CursorMovedBack            a commit would put a cursor before the place where it stands, and does not say `force`
├── UnexpectedCursor           a cursor stands elsewhere than a commit expects
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
from collections.abc import Sequence
from typing import Final


class LogboomError(Exception):
    """The root of the tree."""

    __slots__ = ("counted",)
    counted: bool
    """Set where it is among a node's rejections: whoever passes it on does not count it again. None of its data."""


class BatchError(LogboomError):
    """Bytes that are not a batch we can take."""


class NotABatch(BatchError):
    """Too short, wrong magic, or a size no batch can have."""


class HeaderCorrupt(BatchError):
    """header_crc does not match the header."""


class BodyCorrupt(BatchError):
    """batch_crc does not match, or the body does not inflate to what the header says."""


class UnsupportedBatch(BatchError):
    """A version, flag, kind, encoding or codec this release does not know. Never skipped, never rewritten."""


class MalformedBatch(BatchError):
    """The checksums hold, the structure does not."""


class BatchTooLarge(BatchError):
    """A batch over the limit, as stored or inflated."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"batch of {size_bytes:,} bytes is over the limit of {limit_bytes:,}")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class InvalidColumn(LogboomError, ValueError):
    """What the caller gave cannot become a column of a batch."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"{column}: {reason}")
        self.column = column
        self.reason = reason


class InvalidPattern(LogboomError, ValueError):
    """A channel pattern that means nothing."""


class AppendRefused(LogboomError):
    """This batch was not appended, and nothing of it was written."""


class UnexpectedSeqno(AppendRefused):
    """The append demanded a seqno that is not the next one."""

    def __init__(self, expected: int, next_seqno: int) -> None:
        super().__init__(f"expected to append at seqno {expected}, the next is {next_seqno}")
        self.expected = expected
        self.next_seqno = next_seqno


class UnknownProducer(AppendRefused):
    """A producer this log does not know (any more) must start its stream at 0, under a new epoch or id.

    `fresh_id` is one that the node gives; 0 where it gives none.
    """

    def __init__(self, producer_id: int, sequence: int) -> None:
        super().__init__(f"producer {producer_id} is unknown and does not start at 0 but at {sequence}")
        self.producer_id = producer_id
        self.sequence = sequence
        self.fresh_id = 0


class ProducerForgotten(UnknownProducer):
    """The log has forgotten producers with ids as high as this one's: it may be a new one, or this may be a repeat."""

    def __init__(self, producer_id: int, sequence: int) -> None:
        AppendRefused.__init__(
            self, f"producer {producer_id} is one that the log may have known and forgotten: write with another id"
        )
        self.producer_id = producer_id
        self.sequence = sequence
        self.fresh_id = 0


class ProducerFenced(AppendRefused):
    """A newer incarnation of this producer has written already."""

    def __init__(self, producer_id: int, epoch: int, newest: int) -> None:
        super().__init__(f"producer {producer_id} with epoch {epoch} is fenced by epoch {newest}")
        self.producer_id = producer_id
        self.epoch = epoch
        self.newest = newest


class SequenceGap(AppendRefused):
    """Records between the producer's last batch and this one are missing."""

    def __init__(self, producer_id: int, sequence: int, expected: int) -> None:
        super().__init__(f"producer {producer_id} sent sequence {sequence}, expected {expected}")
        self.producer_id = producer_id
        self.sequence = sequence
        self.expected = expected
        self.fresh_id = 0


class RepeatForgotten(AppendRefused):
    """The sequence lies behind, but no remembered batch is the same: it cannot be answered as the first time."""

    def __init__(self, producer_id: int, sequence: int, expected: int) -> None:
        super().__init__(
            f"producer {producer_id} repeats sequence {sequence} (next is {expected}), no remembered batch matches it"
        )
        self.producer_id = producer_id
        self.sequence = sequence
        self.expected = expected


class NotNext(AppendRefused):
    """A batch that brings its numbers along, and they do not follow the log's last."""


class LowSpace(AppendRefused):
    """Writes wait until there is more free space than the reserve; reads go on."""

    def __init__(self, free_bytes: int, reserve_bytes: int) -> None:
        super().__init__(f"{free_bytes:,} bytes are free, {reserve_bytes:,} are kept in reserve: make room")
        self.free_bytes = free_bytes
        self.reserve_bytes = reserve_bytes


class WriteFailed(AppendRefused):
    """The operating system refused the write; the file was cut back to its last whole batch."""


class LogReadOnly(AppendRefused):
    """The log takes no writes, and says why."""


class WritesRefused(AppendRefused):
    """An operator has switched a topic, or the whole node, to read-only."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where} takes no writes: {reason or 'switched to read-only'}; `accept` switches back")
        self.where = where
        self.reason = reason


class ReadOnlyReplica(AppendRefused):
    """The node copies another one. Whoever wants to write or change something does it there."""

    def __init__(self, source: str) -> None:
        super().__init__(
            f"this node is a replica of {source} and takes no writes: write there, or end that with `logboom promote`"
        )
        self.source = source


class RecordsRejected(AppendRefused):
    """A validator of the topic has looked at the records and refuses them."""

    def __init__(self, topic: str, url: str, status: int, reason: str) -> None:
        super().__init__(f"a validator of topic {topic!r} refuses this ({url} answered {status}): {reason}")
        self.topic = topic
        self.url = url
        self.status = status
        self.reason = reason


class ValidatorNotAllowed(AppendRefused):
    """The node's configuration does not let it ask a validator of the topic, and unasked nothing is appended."""

    def __init__(self, topic: str, url: str, reason: str) -> None:
        super().__init__(
            f"a validator of topic {topic!r} may not be asked ({url}): {reason}; list it in validators.allow of the "
            "node's configuration, or take it from the topic"
        )
        self.topic = topic
        self.url = url
        self.reason = reason


class ValidatorFailed(AppendRefused):
    """A validator of the topic did not answer, and without its answer nothing is appended."""

    def __init__(self, topic: str, url: str, reason: str) -> None:
        super().__init__(
            f"a validator of topic {topic!r} could not be asked ({url}): {reason}; "
            "mend it, or let validators.on_failure be accept"
        )
        self.topic = topic
        self.url = url
        self.reason = reason


class Overloaded(AppendRefused):
    """Too many bytes wait to be written or synced. Nothing of this was appended: send it again later."""

    def __init__(self, where: str, waiting_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"{where}: {waiting_bytes:,} bytes wait to be synced, allowed are {limit_bytes:,}: send it later"
        )
        self.where = where
        self.waiting_bytes = waiting_bytes
        self.limit_bytes = limit_bytes


class OutcomeUnknown(LogboomError):
    """The answer never came. Whether the batch was appended is not known; an idempotent repeat finds out."""


class Unavailable(LogboomError):
    """Not now."""


class ShuttingDown(Unavailable):
    """The node is stopping and takes nothing new."""

    def __init__(self, message: str = "the node is shutting down") -> None:
        super().__init__(message)


class FeedEnded(Unavailable):
    """What a copy was told of a log when it began holds no more. It asks again, and learns what does."""

    def __init__(self, log: str, reason: str) -> None:
        super().__init__(f"{log}: {reason}")
        self.log = log
        self.reason = reason


class ConnectionLost(Unavailable):
    """No connection to a node, or the one there was is gone."""


class LimitExceeded(LogboomError):
    """More than a limit allows."""

    def __init__(self, limit: str, allowed: int, hint: str = "") -> None:
        super().__init__(f"more than {limit} = {allowed:,} allows{': ' if hint else ''}{hint}")
        self.limit = limit
        self.allowed = allowed


class ProtocolError(LogboomError):
    """Bytes that are not what the protocol says."""


class RemoteProtocolError(ProtocolError):
    """The other side has broken the protocol."""


class LocalProtocolError(ProtocolError):
    """This side would break the protocol: a call in the wrong state."""


class UnsupportedVersion(ProtocolError):
    """No version of the protocol is spoken by both sides."""

    def __init__(self, lowest: int, highest: int, ours: int) -> None:
        super().__init__(f"unsupported version: this node speaks {ours}, the client {lowest} to {highest}")
        self.version = ours


class WrongCluster(ProtocolError):
    """The client wants to talk to another cluster than this node's."""

    def __init__(self, wanted: str, cluster_id: str) -> None:
        super().__init__(f"this node is of cluster {cluster_id}, not of {wanted[:100]!r}")
        self.cluster_id = cluster_id


class ConfigError(LogboomError, ValueError):
    """A setting with a wrong name or value."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
        self.reason = reason


class InvalidCursorName(LogboomError, ValueError):
    """A name that a cursor cannot have."""

    def __init__(self, cursor: str) -> None:
        super().__init__(f"{cursor[:300]!r} is no cursor name: use 1 to 249 letters, digits, or any of . - _ / :")
        self.cursor = cursor


class CursorNotFound(LogboomError):
    """No cursor has this name, for this log."""

    def __init__(self, cursor: str, topic: str | None = None) -> None:
        super().__init__(f"there is no cursor {cursor!r}{f' on {topic}' if topic else ''}")
        self.cursor = cursor
        self.topic = topic


class CursorMovedBack(LogboomError):
    """The cursor stands further on: another reader with the same one was quicker, or this place was read before."""

    def __init__(self, cursor: str, log: str, seqno: int, at: int) -> None:
        super().__init__(
            f"cursor {cursor!r} stands at seqno {at} of {log}, and {seqno} is before that: another reader may be using "
            "it; to move it back all the same, say so with force (`--force`, force=True)"
        )
        self.cursor = cursor
        self.log = log
        self.seqno = seqno
        self.at = at


class UnexpectedCursor(LogboomError):
    """Compare and set: somebody else has moved the cursor, or made or deleted it."""

    def __init__(self, cursor: str, log: str, at: int | None) -> None:
        stands = "does not exist" if at is None else f"stands at seqno {at}"
        super().__init__(f"cursor {cursor!r} of {log} {stands}, which is not what this commit expects: fetch it again")
        self.cursor = cursor
        self.log = log
        self.at = at


class BufferFull(LogboomError):
    """The writer's buffer is full, and it was told not to wait."""

    def __init__(self, buffered_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"{buffered_bytes:,} bytes are waiting to be sent, allowed are {limit_bytes:,}")
        self.buffered_bytes = buffered_bytes
        self.limit_bytes = limit_bytes


class PackageMissing(LogboomError):
    """A package that only some calls need is not installed."""

    def __init__(self, package: str, what: str) -> None:
        super().__init__(f"{what} needs {package}: pip install {package}")
        self.package = package


class SparkMissing(LogboomError):
    """Spark, or the Java that it runs on, is not here or too old."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(f"{what}: {advice}")
        self.what = what
        self.advice = advice


class TopicError(LogboomError):
    """Something about a topic."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class InvalidTopicName(TopicError, ValueError):
    """A name that a topic cannot have."""

    def __init__(self, name: str) -> None:
        super().__init__(
            name, f"{name[:300]!r} is no topic name: use 1 to 249 letters, digits, dots, dashes, underscores"
        )


class TopicNotFound(TopicError):
    """No topic has this name."""

    near: Sequence[str] = ()
    """Names that may have been meant."""

    def __init__(self, name: str, where: str, near: Sequence[str] = ()) -> None:
        meant = f": did you mean {' or '.join(map(repr, near))}?" if near else ""
        super().__init__(name, f"there is no topic {name!r} in {where}{meant}")
        if near:
            self.near = list(near)


class PartitionNotFound(TopicError):
    """The topic has no partition with this number, or has several and none was named."""

    def __init__(self, name: str, partition: int | None, partitions: int) -> None:
        which = "none was named" if partition is None else f"{partition} is not one of them"
        super().__init__(name, f"topic {name!r} has partitions 0 to {partitions - 1}: {which}")
        self.partition = partition
        self.partitions = partitions


class TopicExists(TopicError):
    """Another topic has this name already."""

    def __init__(self, name: str, topic_id: str) -> None:
        super().__init__(name, f"there is a topic {name!r} already, with id {topic_id}")
        self.topic_id = topic_id


class TopicNotAllowed(TopicError):
    """The node's rules do not let a topic have this name, or do not let a write make it."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, f"topic {name!r} is not allowed: {reason}")
        self.reason = reason


class TopicDeleted(TopicError):
    """The topic that was being read is gone, and none has its name."""

    def __init__(self, name: str, topic_id: str) -> None:
        super().__init__(name, f"topic {name!r} with id {topic_id} was deleted")
        self.topic_id = topic_id


class TopicRecreated(TopicError):
    """Another topic has taken the name: its seqnos mean other records."""

    def __init__(self, name: str, topic_id: str, new_id: str) -> None:
        super().__init__(
            name, f"topic {name!r} is another one now: it had id {topic_id}, it has {new_id}; start at its beginning"
        )
        self.topic_id = topic_id
        self.new_id = new_id


class TopicBusy(TopicError):
    """A publish is under way that has records for this topic."""

    def __init__(self, name: str, key: str) -> None:
        super().__init__(
            name, f"topic {name!r}: a publish with key {key!r} is under way; delete it when that has ended"
        )
        self.key = key


class StageError(LogboomError):
    """About a stage."""


class StageNotFound(StageError):
    """There is no such stage."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"there is no stage {stage!r}: it was published, discarded, has expired, or never was")
        self.stage = stage


class StageBusy(StageError):
    """The stage is being published."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"stage {stage!r} is being published")
        self.stage = stage


class StageIncomplete(StageError):
    """A stage does not hold what its writer has put there."""

    def __init__(self, stage: str, expected: int, found: int) -> None:
        super().__init__(f"stage {stage!r} holds {found:,} records where {expected:,} were staged: stage them again")
        self.stage = stage
        self.expected = expected
        self.found = found


class StageFailed(StageError):
    """What is in a stage cannot be relied on."""

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(f"stage {stage!r} is of no use any more: {reason}; discard it and stage again")
        self.stage = stage
        self.reason = reason


class InvalidKey(LogboomError, ValueError):
    """Not a name and a number to publish under."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"key {name!r}: {reason}")
        self.name = name
        self.reason = reason


class KeyBusy(LogboomError):
    """A publish is under way under this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"key {name!r} is being published: wait until that has ended")
        self.name = name


class KeyMismatch(LogboomError):
    """What is to be published is no repeat of what was published under that name: nothing of it is written."""

    def __init__(self, name: str, number: int, digest: str, published_number: int, published_digest: str) -> None:
        super().__init__(
            f"key {name!r}: number {number} with digest {digest} is no repeat of what was published there last, "
            f"number {published_number} with digest {published_digest}: two publishers have the same name, "
            "or one has gone back; nothing is written"
        )
        self.name = name
        self.number = number
        self.digest = digest
        self.published_number = published_number
        self.published_digest = published_digest


class RecordsLost(LogboomError):
    """Records that somebody counted on are gone: dropped by retention, trimmed, or lost with the end of a log."""

    def __init__(self, log: str, seqno_from: int, seqno_until: int, reason: str, advice: str) -> None:
        super().__init__(f"{log}: seqnos {seqno_from} to {seqno_until - 1} are not there: {reason}; {advice}")
        self.log = log
        self.seqno_from = seqno_from
        self.seqno_until = seqno_until
        self.reason = reason
        self.advice = advice


class InvalidBookmark(LogboomError, ValueError):
    """Text that is no bookmark of ours."""


class BookmarkLost(LogboomError):
    """The log has another record before this place than the one its reader had read: a tail was lost in between."""

    def __init__(self, seqno: int, term: int, found_term: int) -> None:
        there, here = f"of term {found_term}", f"of term {term}"
        if term == found_term:
            there, here = f"of another term {found_term}", "of the one that another node has begun"
        super().__init__(
            f"the record before seqno {seqno} is {there}, the bookmark's {here}: "
            "what was read there was lost; start from an earlier seqno"
        )
        self.seqno = seqno
        self.term = term
        self.found_term = found_term


class StorageError(LogboomError):
    """Something about the files of a log."""


class SeqnoOutOfRange(StorageError):
    """A seqno below the first readable one or above the next."""

    def __init__(self, seqno: int, first: int, next_seqno: int) -> None:
        super().__init__(f"seqno {seqno} is outside of the log, which has {first} up to and not including {next_seqno}")
        self.seqno = seqno
        self.first = first
        self.next = next_seqno


class IndexOutOfRange(StorageError):
    """A batch number the log does not hold, or must not be cut back to."""

    def __init__(self, index: int, lowest: int, highest: int) -> None:
        super().__init__(f"index {index} is outside of {lowest} to {highest}")
        self.index = index
        self.lowest = lowest
        self.highest = highest


class Damage(StorageError):
    """Bytes of a log that were once sound are not any more.

    Seqnos from `seqno_from` up to and not including `seqno_until` cannot be read;
    `seqno_until` is None where nothing sound follows.
    """

    def __init__(self, path: str, position: int, seqno_from: int, seqno_until: int | None, reason: str) -> None:
        until = "the end" if seqno_until is None else f"{seqno_until - 1}"
        super().__init__(f"{path} is damaged at byte {position} (seqnos {seqno_from} to {until}): {reason}")
        self.path = path
        self.position = position
        self.seqno_from = seqno_from
        self.seqno_until = seqno_until
        self.reason = reason


class SyncFailed(StorageError):
    """A sync failed. What was not yet promised is unknown; the log stops writing and a restart recovers."""


class ReplicaDiverged(StorageError):
    """A copy of a log has a batch that its source does not have, or has differently."""

    def __init__(self, log: str, index: int, reason: str) -> None:
        super().__init__(
            f"{log}: batch {index} is not what the source has: {reason}; "
            "nothing more is copied; see which of the two is right, then promote the replica, "
            "or move its data directory away to begin anew"
        )
        self.log = log
        self.index = index
        self.reason = reason


class DumpError(StorageError):
    """Something about a dump."""


class DumpCorrupt(DumpError):
    """Bytes of a dump are not as they were written."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"the dump is damaged at byte {position:,}: {reason}; make it again, or fetch it again")
        self.position = position
        self.reason = reason


class DumpIncomplete(DumpError):
    """The stream ends before its END frame: what came is sound, and not all there is."""

    def __init__(self, position: int) -> None:
        super().__init__(f"the dump ends at byte {position:,}, before its end: it was cut off, or is still being made")
        self.position = position


class DumpUnsupported(DumpError):
    """Not a dump, or one of a format, frame or codec this release does not know."""


class DumpMismatch(DumpError):
    """What is here already is not what the dump holds; or a dump to be gone on with is of something else."""


class PublishUnfinished(StorageError):
    """A publish was cut off, and may be in some of its logs only; the next start of the node finishes it."""

    def __init__(self, publish: str, otherwise: str = "") -> None:
        super().__init__(f"{publish}: start the node once on this directory, which finishes it{otherwise}")
        self.publish = publish


class DumpOvertaken(DumpError):
    """Retention dropped batches before they were dumped."""

    def __init__(self, path: str, index: int, first_index: int) -> None:
        super().__init__(
            f"{path}: retention dropped batch {index} before it was dumped, the log begins with {first_index} now: "
            "dump again, or set a longer retention first"
        )
        self.path = path
        self.index = index
        self.first_index = first_index


class NotOpened(StorageError):
    """How much of a log is committed, its writer says; none has opened it since the state file was made."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the state file says nothing of {path}: start the server, or open the directory once")
        self.path = path


class NotLocal(StorageError):
    """Readers beside the writer share its page cache; a network file system has none to share."""

    def __init__(self, path: str, file_system: str) -> None:
        super().__init__(
            f"{path} is on {file_system}: files can be followed on local file systems only; read through the server"
        )
        self.path = path
        self.file_system = file_system


class PipelineError(LogboomError):
    """A job of the pipeline could not be done."""


class LeaseHeld(PipelineError):
    """Somebody else runs this job."""

    def __init__(self, job: str, runner: str) -> None:
        super().__init__(f"{job} is being run by {runner}: wait for it, or for its lease to end")
        self.job = job
        self.runner = runner


class LeaseLost(PipelineError):
    """A runner that was not heard of for too long may not publish what it has made."""

    def __init__(self, job: str, epoch: int, reason: str) -> None:
        super().__init__(f"{job} is no longer this runner's, which has epoch {epoch}: {reason}")
        self.job = job
        self.epoch = epoch
        self.reason = reason


class CheckpointNotFound(PipelineError):
    """There is no checkpoint of the topic, or not the one that was asked for."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"no checkpoint of {topic} to read: {reason}")
        self.topic = topic
        self.reason = reason


class ResultsUnreadable(PipelineError):
    """A result, or what is known of results, is not there or not what was published."""


class DirectoryInUse(StorageError):
    """Another process writes to this data directory."""


class DirectoryUnusable(StorageError):
    """Not a data directory this release can write to."""


CODES: Final[dict[str, type[LogboomError]]] = {
    re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower(): value
    for name, value in list(vars().items())
    if isinstance(value, type) and issubclass(value, LogboomError)
}
"""Every error by its stable name on a wire: its own in lower case with dashes, `seqno-out-of-range`."""
_NAMES: Final = {value: code for code, value in CODES.items()}


def code_of(error: LogboomError) -> str:
    return next(_NAMES[kind] for kind in type(error).__mro__ if kind in _NAMES)
