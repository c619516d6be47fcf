"""Where a reader stands: topic id, partition, the seqno it reads next, and the term of the record before that.

As text it is opaque: `1` for the version, then base64url of the four numbers and a checksum. A recreated topic is
noticed by the id, a lost tail by the term.
"""

from __future__ import annotations

import base64
import binascii
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from logboom.errors import InvalidBookmark

TERM_UNKNOWN: Final = 2**32 - 1
"""The record before was dropped already when the bookmark was made: nothing can be compared."""

_VERSION: Final = "1"
_FIELDS = Struct("<16sIQI")
_CRC = Struct("<I")


class Bookmark(NamedTuple):
    topic_id: bytes
    partition: int
    seqno: int
    term: int

    def __str__(self) -> str:
        fields = _FIELDS.pack(*self)
        return _VERSION + base64.urlsafe_b64encode(fields + _CRC.pack(crc32c(fields))).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> Bookmark:
        """
        >>> Bookmark.parse(str(Bookmark(bytes(16), 0, 5, 1))).seqno
        5
        """
        try:
            data = base64.b64decode(text[1:] + "=" * (-len(text[1:]) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            data = b""
        if not text.startswith(_VERSION) or len(data) != _FIELDS.size + _CRC.size:
            raise InvalidBookmark(f"{text[:100]!r} is no bookmark")
        fields = data[: _FIELDS.size]
        if _CRC.unpack_from(data, _FIELDS.size)[0] != crc32c(fields):
            raise InvalidBookmark(f"{text[:100]!r} is a mistyped bookmark")
        return cls._make(_FIELDS.unpack(fields))
