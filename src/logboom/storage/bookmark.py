"""Where a reader stands: topic id, partition, the seqno it reads next, and term and lineage of the record before that.

As text it is opaque: `1` for the version, then base64url of the four numbers and a checksum; `2` where the lineage is
known, with that behind the term. A recreated topic is noticed by the id, a lost tail by the term, or, where two nodes
have begun a term of the same number, by its lineage.
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

_FIELDS: Final = {"1": Struct("<16sIQI"), "2": Struct("<16sIQIQ")}
_CRC = Struct("<I")


class Term(NamedTuple):
    """The term of a record, and which of all terms of that number it is."""

    number: int
    lineage: int = 0
    """0 where nobody knows: then the number alone is compared."""

    def differs(self, other: Term) -> bool:
        """Whether records of these terms cannot be the same one, as far as both are known."""
        if TERM_UNKNOWN in (self.number, other.number):
            return False
        return self.number != other.number or bool(self.lineage and other.lineage and self.lineage != other.lineage)


class Bookmark(NamedTuple):
    topic_id: bytes
    partition: int
    seqno: int
    term: int
    lineage: int = 0
    """Of that term, as Term has it."""

    def __str__(self) -> str:
        version = "2" if self.lineage else "1"
        fields = _FIELDS[version].pack(*(self if self.lineage else self[:4]))
        return version + base64.urlsafe_b64encode(fields + _CRC.pack(crc32c(fields))).decode().rstrip("=")

    @property
    def before(self) -> Term:
        """Of the record before."""
        return Term(self.term, self.lineage)

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
        form = _FIELDS.get(text[:1])
        if form is None or len(data) != form.size + _CRC.size:
            raise InvalidBookmark(f"{text[:100]!r} is no bookmark")
        fields = data[: form.size]
        if _CRC.unpack_from(data, form.size)[0] != crc32c(fields):
            raise InvalidBookmark(f"{text[:100]!r} is a mistyped bookmark")
        return cls(*form.unpack(fields))
