"""What a writer does, without sockets, threads or a clock: records in, bytes out; bytes in, results out.

    add → Gathered → (cut) → Parcel in its Lane → (turn) → outgoing … received → results

Both shells, blocking and asyncio, drive this: after whatever has happened they call `turn`, send what is in `outgoing`,
say so (`sent`), and tell those named in `results` outside of any lock. Time is passed in, as seconds of any clock that
only goes forward.

Invariants. A record that was added ends up in `results` or `losses` exactly once, or in the spill file. Batches are
numbered when they are built and keep their numbers until their log has said that they are not in it (see lane.py).
Nothing is ever sent to another topic than the one the writer began with, even if that has the same name.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, Literal

import msgspec

from logboom import __version__
from logboom.batch import BATCH_SIZE_DEFAULT, Batch
from logboom.batch.header import Buffer
from logboom.batch.partitioner import partition_of
from logboom.batch.rewrite import without_producer
from logboom.broker.api import Acks, TopicInfo
from logboom.client.backoff import Backoff
from logboom.client.gathering import RECORD_BYTES, Fields, Gathered, Waiter, Written, as_bytes, check_fields
from logboom.client.lane import TRANSIENT, Lane, Parcel, State, Verdict
from logboom.client.session import Event, Session
from logboom.client.spill import Spill
from logboom.errors import (
    BatchTooLarge,
    ConfigError,
    ConnectionLost,
    LogboomError,
    OutcomeUnknown,
    PartitionNotFound,
    RemoteProtocolError,
    TopicDeleted,
    TopicError,
    TopicRecreated,
)
from logboom.protocols.binary.messages import (
    Append,
    AppendedAt,
    AppendPart,
    Appends,
    DescribeTopic,
    Hello,
    Kind,
    Welcome,
    WireLimits,
)
from logboom.protocols.binary.errors import decode_failure

WINDOW: Final = 16
SILENCE_S: Final = 30.0
"""A connection that says nothing for so long, although it was asked, is given up."""
PROBE_S: Final = 10.0
"""After so much silence it is asked whether it is still there."""
NO_FIELDS: Final = Fields(None, None, None, (), (), 0)
_topic_info = msgspec.msgpack.Decoder(TopicInfo)

OnFull = Literal["block", "error", "drop"]
