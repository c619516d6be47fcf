"""How topics are read from Spark, as one value, made of the options of a reader: each checked, with errors that help.

Names are taken in any case. Those of Spark's Kafka source mean here what they mean there, so that a job moves by
changing its format; what only tunes Kafka's client is named in the log and left alone.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, Literal, NoReturn
from urllib.parse import unquote, urlsplit

from logboom.batch import Selection
from logboom.batch.moment import parse_rfc3339
from logboom.broker.cursors import check_name
from logboom.client.address import parse_servers
from logboom.errors import ConfigError, InvalidCursorName, InvalidPattern

SPLIT_BYTES: Final = 128 * 1024 * 1024
"""As for the files that Spark reads itself: a task of a Python source costs tens of milliseconds before it reads."""

Access = Literal["auto", "files", "server"]
Point = int | Literal["earliest", "latest"]

logger = logging.getLogger("logboom.spark")


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
    pushdown: bool = False
    """Whether filters are taken over: in a session that pushes them, of a DataFrame that is read with one alone."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Raises ConfigError, which names the option and what it may be."""
        given: dict[str, Any] = {}
        spelled: dict[str, str] = {}
        for name, text in _own(options).items():
            lower = name.lower()
            if lower in _IGNORED or (lower.startswith("kafka.") and lower not in _OPTIONS):
                logger.warning("option %s is for Kafka's client and means nothing here", name)
                continue
            if lower not in _OPTIONS:
                _refuse(name)
            name = _SPELLED[lower]  # Spark gives all in lower case
            attribute, read = _OPTIONS[lower]
            if attribute in given:
                raise ConfigError(name, f"says the same as {spelled[attribute]}: give one of them")
            given[attribute], spelled[attribute] = _read(read, name, text), name
        given.setdefault("topics", tuple(given.get("partitions", ())) if "pattern" not in given else ())
        return cls(**_place(given), wanted=_selection(given), **given)._checked()

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


def is_catalogued(options: Mapping[str, str]) -> bool:
    """Whether these are of a table of Spark's catalogue: Spark mixes in what it knows of the table."""
    return "provider" in options


def names_place(options: Mapping[str, str]) -> bool:
    return any(_attribute(name) in ("path", "servers") for name in options)


def options_to_keep(options: Mapping[str, str]) -> dict[str, str]:
    """What the user gave with a table; a directory by its whole name, for sessions that run elsewhere."""
    given = _own(options)
    directory = _path(given["path"])[0] if "path" in given else None
    return given if directory is None else {**given, "path": directory}


def overlay(kept: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """The options of a table, but for what a query says otherwise, by whatever name."""
    said = {_attribute(name) for name in more}
    said |= {other for pair in _RIVALS if said & set(pair) for other in pair}
    return {**{name: text for name, text in kept.items() if _attribute(name) not in said}, **more}


def _attribute(name: str) -> str:
    return _OPTIONS[name.lower()][0] if name.lower() in _OPTIONS else name.lower()


def _own(options: Mapping[str, str]) -> dict[str, str]:
    """What the user gave."""
    if not is_catalogued(options):
        return dict(options)
    given = {name[len("option.") :]: text for name, text in options.items() if name.lower().startswith("option.")}
    for name in ("path", "location"):
        if name in options and "path" not in given:
            given["path"] = options[name]
    return given


def _read(read: Callable[[str], Any], name: str, text: str) -> Any:
    try:
        return read(text)
    except ConfigError:
        raise
    except (ValueError, TypeError) as error:
        raise ConfigError(name, str(error)) from None


def _refuse(name: str) -> NoReturn:
    if name.lower() in _UNSUPPORTED:
        raise ConfigError(name, f"is not supported: {_UNSUPPORTED[name.lower()]}")
    near = get_close_matches(name.lower(), _SPELLED, 1, 0.5)
    hint = f"did you mean {_SPELLED[near[0]]}?" if near else f"there are {', '.join(NAMES)}"
    raise ConfigError(name, f"is no option of the logboom source: {hint}")


def _place(given: dict[str, Any]) -> dict[str, Any]:
    """What path and servers say together."""
    directory, servers = given.pop("path", (None, ()))
    more = given.pop("servers", ())
    if servers and more and servers != more:
        raise ConfigError("servers", "is another place than the path: give one of them")
    return {"directory": directory, "servers": servers or more}


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


def _path(text: str) -> tuple[str | None, tuple[str, ...]]:
    """A directory, or servers."""
    if text.startswith(("logboom:", "unix:")):
        return None, _servers(text)
    if text.startswith("file:"):
        text = unquote(urlsplit(text).path)
    elif re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text):
        raise ValueError(f"{text!r} is neither a directory of this machine nor logboom://host:port")
    return os.path.abspath(os.path.expanduser(text)), ()


def _servers(text: str) -> tuple[str, ...]:
    return tuple(str(address) for address in parse_servers(text))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("is empty")
    return names


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
                topics[topic] = {_whole(number): read(point) for number, point in entry.items()}
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


def _whole(text: str) -> int:
    if not re.fullmatch(r"\d+", text.strip()):
        raise ValueError(f"is {text!r}, allowed are whole numbers")
    return int(text)


def _count(text: str) -> int:
    count = _whole(text)
    if not 0 < count < 2**63:
        raise ValueError(f"is {text!r}, allowed are numbers from 1 on")
    return count


def _size(text: str) -> int:
    """Bytes, as Spark writes sizes: 67108864, 64m, 64mb."""
    form = re.fullmatch(r"(\d+)\s*(?:([kmgt])(?:i?b)?|b)?", text.strip().lower())
    if form is None or not int(form[1]):
        raise ValueError(f"is {text!r}, allowed are bytes such as 67108864, 64k, 64m, 1g")
    return int(form[1]) << 10 * " kmgt".index(form[2] or " ")


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(f"is {text!r}, allowed are true and false")
    return word == "true"


def _word(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError(f"is {text!r}, allowed are {', '.join(words)}")
        return word

    return read


def _is_skip(text: str) -> bool:
    return _word("fail", "skip")(text) == "skip"


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(f"{text!r} is no base64") from None


def _cursor(text: str) -> str:
    try:
        check_name(text.strip())
    except InvalidCursorName as error:
        raise ValueError(str(error)) from None
    return text.strip()


_TABLE: Final[dict[str, tuple[str, Callable[[str], Any], tuple[str, ...]]]] = {
    "path": ("path", _path, ()),
    "servers": ("servers", _servers, ("kafka.bootstrap.servers",)),
    "topic": ("topics", _names, ("topics", "subscribe")),
    "topicPattern": ("pattern", _pattern, ("subscribePattern",)),
    "partitions": ("partitions", _partitions, ("assign",)),
    "startingSeqno": ("starting", _points(_seqno), ("startingOffsets",)),
    "endingSeqno": ("ending", _points(_seqno), ("endingOffsets",)),
    "startingTimestamp": ("starting_times", _points(_moment), ("startingOffsetsByTimestamp",)),
    "endingTimestamp": ("ending_times", _points(_moment), ("endingOffsetsByTimestamp",)),
    "startingTimestampStrategy": ("beyond", _word("latest", "error"), ("startingOffsetsByTimestampStrategy",)),
    "maxRecordsPerTrigger": ("max_records", _count, ("maxOffsetsPerTrigger",)),
    "maxBytesPerTrigger": ("max_bytes", _size, ()),
    "minPartitions": ("min_splits", _count, ()),
    "splitBytes": ("split_bytes", _size, ()),
    "maxRecordsPerPartition": ("split_records", _count, ()),
    "failOnDataLoss": ("fail_on_loss", _flag, ()),
    "onDamage": ("skip_damage", _is_skip, ()),
    "tag": ("tags_any", _names, ("tags",)),
    "tagsAll": ("tags_all", _names, ()),
    "channel": ("channel", str, ()),
    "key": ("key", str.encode, ()),
    "keyBase64": ("key_base64", _bytes, ()),
    "cursor": ("cursor", _cursor, ()),
    "access": ("access", _word("auto", "files", "server"), ()),
    "pushdown": ("pushdown", _flag, ()),
}
"""Each option: which field it becomes, how its text is read, and what else it may be called."""

_OPTIONS: Final = {
    name.lower(): (attribute, read)
    for option, (attribute, read, others) in _TABLE.items()
    for name in (option, *others)
}
NAMES: Final = tuple(name for option, (_, _, others) in _TABLE.items() for name in (option, *others))
_SPELLED: Final = {name.lower(): name for name in NAMES}
_RIVALS: Final = (
    ("starting", "starting_times"),
    ("ending", "ending_times"),
    ("topics", "pattern"),
    ("key", "key_base64"),
)
"""Of the fields that say the same in other ways, the one that a query gives takes the place of its table's."""
_IGNORED: Final = frozenset(
    name.lower()
    for name in (
        "includeHeaders",
        "groupIdPrefix",
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "serialization.format",
    )
)
_UNSUPPORTED: Final = {
    "minoffsetspertrigger": "a trigger takes what there is; let trigger(processingTime=…) wait for more",
    "maxtriggerdelay": "a trigger takes what there is; let trigger(processingTime=…) wait for more",
}
