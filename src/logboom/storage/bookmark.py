"""Where a reader stands: topic id, partition, the seqno it reads next, and term and lineage of the record before that.

As text it is opaque: `1` for the version, then base64url of the four numbers and a checksum; `2` where the lineage is
known, with that behind the term. A recreated topic is noticed by the id, a lost tail by the term, or, where two nodes
have begun a term of the same number, by its lineage.

Who reads several logs stands in each of them: a `BookmarkSet` is one text for all, `3` and then base64url of msgpack
and a checksum. A set of one is written as that one.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, NamedTuple

import msgspec
from crc32c import crc32c

from logboom.errors import InvalidBookmark

TERM_UNKNOWN: Final = 2**32 - 1
"""The record before was dropped already when the bookmark was made: nothing can be compared."""

LOGS_MAX: Final = 100_000
"""In one set."""
SET_CHARACTERS_MAX: Final = 8 * 1024 * 1024
_SET: Final = "3"
_ID_BYTES: Final = 16
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
        form, fields = _FIELDS.get(text[:1]), _unwrap(text)
        if text[:1] == _SET:
            raise InvalidBookmark(f"{text[:100]!r} is a bookmark of several logs: read all of them with it")
        if form is None or len(fields) != form.size:
            raise InvalidBookmark(f"{text[:100]!r} is no bookmark")
        return cls(*form.unpack(fields))


class BookmarkSet(tuple[Bookmark, ...]):
    """Of several logs, each once."""

    __slots__ = ()

    def __new__(cls, bookmarks: Iterable[Bookmark] = ()) -> BookmarkSet:
        return super().__new__(cls, sorted(bookmarks))

    def __str__(self) -> str:
        if len(self) == 1:
            return str(self[0])
        topics: dict[bytes, list[tuple[int, int, int, int]]] = {}
        for topic_id, *place in self:
            topics.setdefault(topic_id, []).append(tuple(place))  # type: ignore[arg-type]
        fields = _encoder.encode(list(topics.items()))
        return _SET + base64.urlsafe_b64encode(fields + _CRC.pack(crc32c(fields))).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> BookmarkSet:
        """
        >>> some = BookmarkSet((Bookmark(bytes(16), 1, 5, 1), Bookmark(bytes(16), 0, 7, 1)))
        >>> [bookmark.seqno for bookmark in BookmarkSet.parse(str(some))]
        [7, 5]
        """
        if text[:1] != _SET:
            return cls((Bookmark.parse(text),))
        if len(text) > SET_CHARACTERS_MAX:
            raise InvalidBookmark(f"a bookmark of {len(text):,} characters is too long")
        try:
            topics = _decoder.decode(_unwrap(text))
        except msgspec.MsgspecError:
            raise InvalidBookmark(f"{text[:100]!r} is no bookmark") from None
        found = cls(Bookmark(topic_id, *place) for topic_id, places in topics for place in places)
        logs = {bookmark[:2] for bookmark in found}
        if len(logs) < len(found) or len(found) > LOGS_MAX or any(map(_is_wild, found)):
            raise InvalidBookmark(f"{text[:100]!r} is no bookmark")
        return found


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[tuple[bytes, list[tuple[int, int, int, int]]]])


def _unwrap(text: str) -> bytes:
    """What is between the version and the checksum. Raises InvalidBookmark."""
    try:
        data = base64.b64decode(text[1:] + "=" * (-len(text[1:]) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if len(data) <= _CRC.size:
        raise InvalidBookmark(f"{text[:100]!r} is no bookmark")
    fields = data[: -_CRC.size]
    if _CRC.unpack_from(data, len(fields))[0] != crc32c(fields):
        raise InvalidBookmark(f"{text[:100]!r} is a mistyped bookmark")
    return fields


def _is_wild(bookmark: Bookmark) -> bool:
    """Whether its numbers are none that a single one could have."""
    try:
        _FIELDS["2"].pack(*bookmark)
    except StructError:
        return True
    return len(bookmark.topic_id) != _ID_BYTES
