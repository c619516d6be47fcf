"""The same batch in other bytes: another codec, another producer; and whether two batches are the same.

Only a verified batch is written anew: else fresh checksums would make damage look sound. What another codec makes is
read back and compared with what was there before anybody gets it.
"""

from __future__ import annotations

from typing import Final

from crc32c import crc32c

from logboom.batch import codec as codecs
from logboom.batch import vector
from logboom.batch.batch import Batch
from logboom.batch.header import (
    HEADER_SIZE,
    KIND_DATA,
    PADDING_MASK,
    SEQUENCE_MODULUS,
    Buffer,
    Header,
    Producer,
    pack_signed,
    pack_unstamped,
    stamp,
)
from logboom.errors import BodyCorrupt, InvalidColumn

NOBODY: Final = Producer()


def recompressed(batch: Batch, codec: int, level: int | None = None) -> Batch:
    """The batch with its body in another codec, every number of its stamp kept.

    The batch itself where that would not be smaller, where it has that codec already, and where it holds no records.
    """
    header = batch.header
    if header.kind != KIND_DATA or header.codec == codec:
        return batch
    body = batch.body
    stored = body if codec == codecs.NONE else codecs.deflate(body, codec, level)
    if _whole_size(stored) >= header.size:
        return batch
    data = _assemble(header._replace(codec=codec), stored)
    front = stamp(data[:HEADER_SIZE], header.base_seqno, header.index, header.append_time, header.term, header.synced)
    result = Batch.parse(front + data[HEADER_SIZE:])
    if not equal(batch, result):
        raise BodyCorrupt(f"batch {header.index} is not the same after it was recompressed with codec {codec}")
    return result


def without_producer(batch: Batch, producer: Producer = NOBODY) -> Batch:
    """The same records as a batch nobody has appended yet, by this producer or by none."""
    if not (0 <= producer.seq < SEQUENCE_MODULUS and 0 <= producer.epoch < 2**16 and 0 <= producer.id < 2**64):
        raise InvalidColumn("producer", f"{producer} does not fit: seq is below 2^31, epoch below 2^16, id below 2^64")
    batch.verify()
    header = batch.header._replace(producer_id=producer.id, producer_epoch=producer.epoch, producer_seq=producer.seq)
    return Batch.trusted(_assemble(header, batch.data[HEADER_SIZE : HEADER_SIZE + header.stored_size]))


def equal(one: Batch, other: Batch) -> bool:
    """Whether two replicas of a batch are the same, however each is compressed and whenever each was synced.

    Raises BatchError where one of them is not sound.
    """
    if _essence(one.header) != _essence(other.header):
        return False
    same: bool = vector.pa.py_buffer(one.body).equals(vector.pa.py_buffer(other.body))
    return same


def _essence(header: Header) -> Header:
    """The header without what may differ between replicas."""
    flags = header.flags & ~PADDING_MASK
    return header._replace(size=0, synced=0, codec=0, flags=flags, batch_crc=0, header_crc=0)


def _whole_size(stored: Buffer) -> int:
    return HEADER_SIZE + len(stored) + (-len(stored) & PADDING_MASK)


def _assemble(header: Header, stored: Buffer) -> bytes:
    """A whole batch, unstamped, from what the header says of its records and the body as stored."""
    padding = bytes(-len(stored) & PADDING_MASK)
    signed = pack_signed(
        header.kind,
        header.encoding,
        header.codec,
        header.record_count,
        header.body_size,
        header.columns,
        header.min_timestamp,
        header.max_timestamp,
        Producer(header.producer_id, header.producer_epoch, header.producer_seq),
        header.flags & ~PADDING_MASK | len(padding),
    )
    crc = crc32c(padding, crc32c(stored, crc32c(signed)))
    return b"".join((pack_unstamped(_whole_size(stored), signed, crc), stored, padding))
