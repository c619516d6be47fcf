"""What a source tells of itself in lines of `key: value`: who it is, which logs it has, where its cursors stand."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from logboom.broker.api import FeedOrigin
from logboom.broker.state.cursors import CursorKey
from logboom.errors import RemoteProtocolError
from logboom.storage.files.envelope import UNREADABLE

_ORIGIN: Final = msgspec.json.Decoder(FeedOrigin)


class SourceLog(NamedTuple):
    """A log as the source lists it."""

    topic: str
    partition: int
    topic_id: str
    first: int
    committed: int

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.partition}"


def read_identity(body: memoryview) -> tuple[str, str]:
    """Node and cluster id, of STATS."""
    facts = dict(_lines(body))
    try:
        return facts["node_id"], facts["cluster_id"]
    except KeyError as error:
        raise RemoteProtocolError(f"the source does not say its {error}") from None


def read_unreadable(body: memoryview) -> frozenset[str]:
    """Of STATS: the ids of topics that the source has, and cannot serve.

    >>> read_unreadable(memoryview(b'node_id: n\\r\\nunreadable: ["7f"]\\r\\n'))
    frozenset({'7f'})
    """
    try:
        return frozenset(msgspec.json.decode(dict(_lines(body)).get("unreadable", "[]"), type=list[str]))
    except UNREADABLE:
        raise RemoteProtocolError("the source does not list the ids of its unreadable topics") from None


def tells_deletions(body: memoryview) -> bool:
    """Of STATS: whether this source can say which topics were deleted; earlier releases cannot.

    >>> tells_deletions(memoryview(b"node_id: n\\r\\n")), tells_deletions(memoryview(b"deletions: 0\\r\\n"))
    (False, True)
    """
    return "deletions" in dict(_lines(body))


def tells_access(body: memoryview) -> bool:
    """Of STATS: whether this source has users and rules that it can give to a copy; earlier releases have not."""
    return "access_entries" in dict(_lines(body))


def tells_groups(body: memoryview) -> bool:
    """Of STATS: whether this source has groups of consumers that it can give to a copy; earlier releases have not."""
    return any(key == "groups" or key.startswith("groups.") for key, _ in _lines(body))


def read_kept(body: memoryview) -> tuple[str, dict[bytes, bytes] | None]:
    """Which state this is; and all of it, where it is another one than the one that was named.

    >>> read_kept(memoryview(b"version: 7f\\r\\nYQ==: Yg==\\r\\n"))
    ('7f', {b'a': b'b'})
    >>> read_kept(memoryview(b"version: 7f\\r\\nsame: true\\r\\n"))
    ('7f', None)
    """
    (key, version), *lines = list(_lines(body)) or [("", "")]
    if key != "version":
        raise RemoteProtocolError("the source does not say which version this is")
    if lines == [("same", "true")]:
        return version, None
    try:
        return version, {b64decode(name, validate=True): b64decode(value, validate=True) for name, value in lines}
    except ValueError:
        raise RemoteProtocolError("the source sent lines that are no entries") from None


def read_deleted(body: memoryview) -> frozenset[str]:
    """The ids of topics that were deleted.

    >>> read_deleted(memoryview(b"7f: news 1700000000000000\\r\\n"))
    frozenset({'7f'})
    """
    return frozenset(topic_id for topic_id, _ in _lines(body))


def read_topics(body: memoryview) -> list[SourceLog]:
    """
    >>> read_topics(memoryview(b"news/0: id=7f first=0 committed=12\\r\\n"))
    [Listed(topic='news', partition=0, topic_id='7f', first=0, committed=12)]
    """
    return [_listed(log, text) for log, text in _lines(body)]


def _listed(log: str, text: str) -> SourceLog:
    facts = dict(word.partition("=")[::2] for word in text.split(" "))
    topic, _, partition = log.rpartition("/")
    try:
        return SourceLog(topic, int(partition), facts["id"], int(facts["first"]), int(facts["committed"]))
    except (KeyError, ValueError):
        raise RemoteProtocolError(f"{log}: {text[:100]!r} says nothing of a log") from None


def read_cursors(body: memoryview) -> dict[CursorKey, str]:
    """Their bookmarks. A cursor's name may have a colon, and a space never."""
    found: dict[CursorKey, str] = {}
    for line in _split(body):
        try:
            name, log, bookmark = line.split(" ")
            topic, _, partition = log.rpartition("/")
            found[name.removesuffix(":"), topic, int(partition)] = bookmark
        except ValueError:
            raise RemoteProtocolError(f"{line[:100]!r} says nothing of a cursor") from None
    return found


def read_origin(body: memoryview) -> FeedOrigin:
    key, _, text = bytes(body).partition(b": ")
    try:
        if key == b"origin":
            return _ORIGIN.decode(text)
        reason = f"{key[:40]!r} comes where the origin must be"
    except UNREADABLE as error:
        reason = f"an origin that this release does not know: {error}"
    raise RemoteProtocolError(reason)


def _lines(body: memoryview) -> Iterator[tuple[str, str]]:
    for line in _split(body):
        key, _, value = line.partition(": ")
        yield key, value


def _split(body: memoryview) -> list[str]:
    try:
        return str(body, "utf-8").removesuffix("\r\n").split("\r\n") if len(body) else []
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"facts that are no text: {error}") from None
