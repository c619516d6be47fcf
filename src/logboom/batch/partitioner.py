"""Which partition a record goes to: the same everywhere, and the same as Kafka's Java client.

    partition = (murmur2(bytes) & 0x7fffffff) % partitions

of the key's bytes; of the channel's UTF-8 where there is no key; where there is neither, the record may go anywhere,
and writers stay with one partition for a batch. An empty key is a key.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from struct import unpack_from
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np

    Vector = np.ndarray[Any, np.dtype[np.int64]]

ANYWHERE: Final = -1
_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_MASK: Final = 0xFFFF_FFFF
_POSITIVE: Final = 0x7FFF_FFFF


def murmur2(data: bytes) -> int:
    """The hash as Java has it, a signed number of 32 bits.

    >>> murmur2(b"foobar")
    -790332482
    """
    size = len(data)
    h = _SEED ^ size
    for k in unpack_from(f"<{size >> 2}I", data):
        k = k * _M & _MASK
        h = (h * _M & _MASK) ^ ((k ^ k >> _R) * _M & _MASK)
    rest = size & 3
    if rest:
        h = (h ^ int.from_bytes(data[-rest:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - ((h & 0x8000_0000) << 1)


@lru_cache(maxsize=65_536)
def partition_of(key: bytes, partitions: int) -> int:
    """
    >>> partition_of(b"foobar", 4)
    2
    """
    return (murmur2(key) & _POSITIVE) % partitions


def partitions_of(keys: Iterable[bytes | None], partitions: int) -> Vector:
    """The partition of each key, ANYWHERE for None. Each different key is hashed once."""
    import numpy as np

    entries = list(keys)
    known: dict[bytes | None, int] = {
        key: ANYWHERE if key is None else (murmur2(key) & _POSITIVE) % partitions for key in set(entries)
    }
    return np.fromiter(map(known.__getitem__, entries), np.int64, len(entries))
