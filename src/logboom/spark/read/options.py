"""How topics are read from Spark, as one value made of a reader's options: each checked, with errors that help."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, Literal

from logboom.batch import Selection
from logboom.batch.moment import parse_rfc3339
from logboom.errors import ConfigError, InvalidCursorName, InvalidPattern
from logboom.spark.option_table import (
    PROFILE,
    SECRETS,
    Entries,
    OptionTable,
    own_options,
    read_names,
    read_path,
    read_seconds,
    read_servers,
    read_size,
    read_whole,
    read_word,
    take_place,
)

SPLIT_BYTES: Final = 128 * 1024 * 1024
"""As for the files that Spark reads itself: a task of a Python source costs tens of milliseconds before it reads."""

Access = Literal["auto", "files", "server"]
Point = int | Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class Points:
    """A place in each log: for all alike, or by topic and partition; None where nothing is said."""

    default: Any = None
    topics: Mapping[str, Any] = field(default_factory=dict)
    """By topic: one for all its partitions, or a mapping of its partitions."""

    def of(self, topic: str, partition: int) -> Any:
        found = self.topics.get(topic, self.default)
        return found.get(partition) if isinstance(found, dict) else found


@dataclass(frozen=True, slots=True)
class ReadOptions:
    directory: str | None = None
    servers: tuple[str, ...] = ()
    """One of these two says where to read; with both, the directory is where the files of that node are found here."""
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: Mapping[str, tuple[int, ...]] | None = None
    """Only these, where given."""
    starting: Points = Points()
    ending: Points = Points()
    starting_times: Points = Points()
    ending_times: Points = Points()
    beyond: Literal["latest", "error"] = "latest"
    """What a starting time that no record has reached yet means."""
    max_records: int | None = None
    max_bytes: int | None = None
    min_splits: int = 1
    split_bytes: int = SPLIT_BYTES
    split_records: int | None = None
    fail_on_loss: bool = True
    skip_damage: bool = False
    wanted: Selection = field(default_factory=Selection)
    cursor: str | None = None
    access: Access = "auto"
    timeout_s: float = 60.0
    """How long a node that does not answer is waited for."""
    text: bool = False
    """Whether key and value are text, as far as the schema is ours to say."""
    pushdown: bool = False
    """Whether filters are taken over: in a session that pushes them, of a DataFrame that is read with one alone."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Raises ConfigError, which names the option and what it may be."""
        given = _OPTIONS.read(own_options(options))
        given.setdefault("topics", tuple(given.get("partitions", ())) if "pattern" not in given else ())
        return cls(**take_place(given), wanted=_selection(given), **given)._checked()

    def _checked(self) -> ReadOptions:
        if self.directory is None and not self.servers:
            raise ConfigError("path", "say what to read: load('DATA directory') or load('logboom://host:port')")
        if not self.topics and self.pattern is None:
            raise ConfigError("topic", "name one: option('topic', 'events'), several with commas, or topicPattern")
        for what, seqnos, times in (
            ("starting", self.starting, self.starting_times),
            ("ending", self.ending, self.ending_times),
        ):
            if seqnos != Points() and times != Points():
                raise ConfigError(f"{what}Timestamp", f"cannot be given with {what}Seqno: give one of them")
            self._check_topics(f"{what}Seqno", seqnos.topics)
            self._check_topics(f"{what}Timestamp", times.topics)
        self._check_topics("partitions", self.partitions or {})
        unread = [name for name in self.topics if self.partitions is not None and name not in self.partitions]
        if unread:
            raise ConfigError("partitions", f"names none of topic {unread[0]}: give them, or leave the topic out")
        if self.cursor is not None and not self.servers:
            raise ConfigError("cursor", "is kept by a running node: load('logboom://host:port')")
        if self.access == "server" and not self.servers:
            raise ConfigError("access", "is 'server', but no server is named: load('logboom://host:port')")
        return self

    def _check_topics(self, option: str, named: Mapping[str, Any]) -> None:
        """A topic that is not read is most likely one with a slip of the pen."""
        strange = sorted(named.keys() - set(self.topics)) if self.pattern is None else []
        if strange:
            near = get_close_matches(strange[0], self.topics, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"read are {', '.join(self.topics)}"
            raise ConfigError(option, f"names topic {strange[0]}, which is not read: {hint}")


def names_place(options: Mapping[str, str]) -> bool:
    return any(_OPTIONS.attribute(name) in ("path", "servers", "profile") for name in options)


def options_to_keep(options: Mapping[str, str]) -> dict[str, str]:
    """What the user gave with a table; a directory by its whole name, for sessions that run elsewhere."""
    given = own_options(options)
    directory = read_path(given["path"])[0] if "path" in given else None
    return given if directory is None else {**given, "path": directory}


def overlay(kept: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """The options of a table, but for what a query says otherwise, by whatever name."""
    said = {_OPTIONS.attribute(name) for name in more}
    said |= {other for pair in _RIVALS if said & set(pair) for other in pair}
    return {**{name: text for name, text in kept.items() if _OPTIONS.attribute(name) not in said}, **more}


def _selection(given: dict[str, Any]) -> Selection:
    key, encoded = given.pop("key", None), given.pop("key_base64", None)
    if key is not None and encoded is not None:
        raise ConfigError("keyBase64", "says the same as key: give one of them")
    try:
        return Selection(
            tags_any=given.pop("tags_any", ()),
            tags_all=given.pop("tags_all", ()),
            channel=given.pop("channel", None),
            key=encoded if key is None else key,
        )
    except InvalidPattern as error:
        raise ConfigError("channel", str(error)) from None


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
    return text


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f'{text[:100]!r} is not as in {{"events": {{"0": 17}}}}')
    return found


def _partitions(text: str) -> dict[str, tuple[int, ...]]:
    found = {}
    for topic, numbers in _object(text).items():
        if not isinstance(numbers, list) or not numbers or not all(_is_whole(number) for number in numbers):
            raise ValueError(f'{text[:100]!r} is not as in {{"events": [0, 2]}}')
        found[topic] = tuple(sorted(set(numbers)))
    if not found:
        raise ValueError("names no topic")
    return found


def _is_whole(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def _points(read: Callable[[Any], Any]) -> Callable[[str], Points]:
    """For all logs alike, or a JSON object of topics: each has one for all its partitions, or an object of them."""

    def parse(text: str) -> Points:
        if not text.lstrip().startswith("{"):
            return Points(read(text))
        topics: dict[str, Any] = {}
        for topic, entry in _object(text).items():
            if isinstance(entry, dict):
                topics[topic] = {read_whole(number): read(point) for number, point in entry.items()}
            else:
                topics[topic] = read(entry)
        return Points(topics=topics)

    return parse


def _seqno(point: Any) -> Point:
    """A seqno, or one of Kafka's numbers for both ends."""
    if isinstance(point, str):
        word = point.strip().lower()
        if word in ("earliest", "latest"):
            return "earliest" if word == "earliest" else "latest"
        if re.fullmatch(r"-?\d+", word):
            point = int(word)
    if point == -2:
        return "earliest"
    if point == -1:
        return "latest"
    if not _is_whole(point) or point >= 2**63:
        raise ValueError(f"is {point!r}, allowed are earliest, latest, a seqno, or JSON of topics and partitions")
    return int(point)


def _moment(point: Any) -> int:
    """Microseconds: of a date and time with a zone, or of milliseconds since 1970, as in the Kafka source."""
    if isinstance(point, str) and re.fullmatch(r"\d+", point.strip()):
        point = int(point)
    if _is_whole(point) and point < 2**63 // 1000:
        return int(point) * 1000
    if not isinstance(point, str):
        raise ValueError(f"is {point!r}, allowed are 2026-01-31T12:00:00Z or milliseconds since 1970")
    return parse_rfc3339(point.strip())


def _count(text: str) -> int:
    count = read_whole(text)
    if not 0 < count < 2**63:
        raise ValueError(f"is {text!r}, allowed are numbers from 1 on")
    return count


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(f"is {text!r}, allowed are true and false")
    return word == "true"


def _is_skip(text: str) -> bool:
    return read_word("fail", "skip")(text) == "skip"


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(f"{text!r} is no base64") from None


def _cursor(text: str) -> str:
    from logboom.client.values import check_cursor_name

    try:
        check_cursor_name(text.strip())
    except InvalidCursorName as error:
        raise ValueError(str(error)) from None
    return text.strip()


_TABLE: Final[Entries] = {
    "path": ("path", read_path, ()),
    "servers": ("servers", read_servers, ("kafka.bootstrap.servers",)),
    **PROFILE,
    "topic": ("topics", read_names, ("topics", "subscribe")),
    "topicPattern": ("pattern", _pattern, ("subscribePattern",)),
    "partitions": ("partitions", _partitions, ("assign",)),
    "startingSeqno": ("starting", _points(_seqno), ("startingOffsets",)),
    "endingSeqno": ("ending", _points(_seqno), ("endingOffsets",)),
    "startingTimestamp": ("starting_times", _points(_moment), ("startingOffsetsByTimestamp",)),
    "endingTimestamp": ("ending_times", _points(_moment), ("endingOffsetsByTimestamp",)),
    "startingTimestampStrategy": ("beyond", read_word("latest", "error"), ("startingOffsetsByTimestampStrategy",)),
    "maxRecordsPerTrigger": ("max_records", _count, ("maxOffsetsPerTrigger",)),
    "maxBytesPerTrigger": ("max_bytes", read_size, ()),
    "minPartitions": ("min_splits", _count, ()),
    "splitBytes": ("split_bytes", read_size, ()),
    "maxRecordsPerPartition": ("split_records", _count, ()),
    "failOnDataLoss": ("fail_on_loss", _flag, ()),
    "onDamage": ("skip_damage", _is_skip, ()),
    "tag": ("tags_any", read_names, ("tags",)),
    "tagsAll": ("tags_all", read_names, ()),
    "channel": ("channel", str, ()),
    "key": ("key", str.encode, ()),
    "keyBase64": ("key_base64", _bytes, ()),
    "cursor": ("cursor", _cursor, ()),
    "access": ("access", read_word("auto", "files", "server"), ()),
    "timeout": ("timeout_s", read_seconds, ()),
    "text": ("text", _flag, ()),
    "pushdown": ("pushdown", _flag, ()),
}

_OPTIONS: Final = OptionTable(
    "source",
    _TABLE,
    ignored=(
        "includeHeaders",
        "groupIdPrefix",
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
    ),
    unsupported={
        **SECRETS,
        "minOffsetsPerTrigger": "a trigger takes what there is; let trigger(processingTime=…) wait for more",
        "maxTriggerDelay": "a trigger takes what there is; let trigger(processingTime=…) wait for more",
    },
)
NAMES: Final = _OPTIONS.names
_RIVALS: Final = (
    ("starting", "starting_times"),
    ("ending", "ending_times"),
    ("topics", "pattern"),
    ("key", "key_base64"),
)
"""Of the fields that say the same in other ways, the one that a query gives takes the place of its table's."""
