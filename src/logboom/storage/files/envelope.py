"""A small file of ours: 16 bytes (magic, version, size, CRC32C of the rest), then msgpack.

Snapshots, the hook queue and the scrub ledger are kept so. A file is whole and ours, or it is nothing.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeVar

import msgspec
from crc32c import crc32c

VERSION: Final = 1
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding raises on bytes that are not what was expected."""
_FRONT = Struct("<4sIII")

Content = TypeVar("Content")


def pack(magic: bytes, content: msgspec.Struct) -> bytes:
    body = msgspec.msgpack.encode(content)
    return _FRONT.pack(magic, VERSION, len(body), crc32c(body)) + body


def unpack(magic: bytes, data: bytes, decoder: msgspec.msgpack.Decoder[Content]) -> Content:
    """What a file holds; ValueError says why it is none of ours.

    A decoder that was made before: msgspec takes a type in when it is first used, and crashes where two threads do so
    at once, as those would that open the logs of a directory.
    """
    if len(data) < _FRONT.size:
        raise ValueError(f"{len(data)} bytes are too few")
    found, version, size, crc = _FRONT.unpack_from(data)
    body = data[_FRONT.size :]
    if found != magic:
        raise ValueError(f"it begins with {found!r}, not with {magic!r}")
    if version != VERSION:
        raise ValueError(f"version {version} is not known, this release writes {VERSION}")
    if size != len(body) or crc != crc32c(body):
        raise ValueError("the checksum does not hold")
    try:
        return decoder.decode(body)
    except UNREADABLE as error:
        raise ValueError(str(error)) from None
