"""Records that were not appended. An AppendRefused promises that nothing was written; OutcomeUnknown cannot."""

from __future__ import annotations

from logboom.errors.root import LogboomError


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


class BufferFull(LogboomError):
    """The writer's buffer is full, and it was told not to wait."""

    def __init__(self, buffered_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"{buffered_bytes:,} bytes are waiting to be sent, allowed are {limit_bytes:,}")
        self.buffered_bytes = buffered_bytes
        self.limit_bytes = limit_bytes
