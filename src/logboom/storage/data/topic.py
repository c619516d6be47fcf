"""A topic on disk: its directory, its topic.json, its settings.

    DATA/topics/<name, at most 80 characters>~<id, 32 hex digits>/topic.json   id, name, partitions, settings, maker

A topic exists if and only if its topic.json does: it is written last when a topic is made, so that a topic is whole or
not there. Deleting renames the directory into DATA/trash/, durably; what is there is unlinked later. What a topic means
(who may write, how records find a partition) is not known here.
"""

from __future__ import annotations

import re
from contextlib import suppress
from random import Random
from typing import Final, Literal

import msgspec

from logboom.batch.codec import CodecName
from logboom.errors import ConfigError, InvalidTopicName
from logboom.storage.config import DAY_US, MIB, LogConfig
from logboom.storage.files.disk import Disk, read_file, replace_file
from logboom.storage.files.envelope import UNREADABLE
from logboom.storage.means import SYSTEM, new_id
from logboom.values.serializer import FORMATS, ValueFormat

NAME_IN_PATH_MAX: Final = 80
PARTITIONS_MAX: Final = 10_000
VALIDATORS_MAX: Final = 16

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_ID: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_DIRECTORY: Final = re.compile(r"[A-Za-z0-9._-]{1,80}~([0-9a-f]{32})", re.ASCII)
_HOOK_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)
_URL: Final = re.compile(r"https?://[^\s/?#]+[^\s]*", re.ASCII | re.IGNORECASE)
_DAY_MS: Final = DAY_US // 1000


Acks = Literal["none", "leader", "durable"]
"""When an append is answered: when it was sent, when it is written, when it is synced."""


class SegmentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The files that a log is cut into. Retention drops, and recompression rewrites, only whole closed segments."""

    bytes: int = 128 * MIB
    """A segment is closed before it becomes larger than this. Smaller segments let retention drop records sooner, and
    make more files."""
    age_ms: int = 7 * _DAY_MS
    """A segment is closed when its first batch is older than this many milliseconds, whatever its size, so that
    retention can drop old records of a quiet log too."""


class RetentionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much is kept, per partition. Whole segments are dropped, oldest first.

    If several limits are set, a segment is dropped as soon as one of them allows it. Without any, records are kept
    forever.
    """

    bytes: int | None = None
    """Keep at least this many of the newest bytes of each partition, and drop older segments. Null means forever."""
    age_ms: int | None = None
    """Keep at least the records younger than this many milliseconds, and drop segments that are older as a whole. Null
    means forever."""
    records: int | None = None
    """Keep at least this many of the newest records of each partition, and drop older segments. Null means forever."""
    hard_bytes: int | None = None
    """If a partition has more bytes than this, the oldest segments are dropped even if their delete hooks have not
    succeeded, or they are not archived. Null lets them wait forever, and the volume may fill."""
    after: Literal["archive"] | None = None
    """`archive` drops a segment only when all of it is archived; readers then get its records from the archive. Null
    does not wait for the archive."""


class HookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command that the node runs before retention drops a segment."""

    delete: str | None = None
    """The name of one of the commands in the node's configuration, under `hooks`. It gets the segment's file and
    range, and must exit with code 0 before the segment is dropped. Null drops segments without a hook."""
    timeout_ms: int = 300_000
    """A command that runs for longer than this many milliseconds is killed, and counts as failed."""
    backoff_ms: int = 1_000
    """How many milliseconds to wait after a first failure before the command is run again; doubled with each further
    failure."""
    backoff_max_ms: int = 600_000
    """The longest wait between two attempts, in milliseconds."""


class RecompressionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How closed segments are recompressed, in the background. Readers do not notice it."""

    codec: CodecName = "none"
    """The codec of closed segments: `none` leaves them as they were written, `lz4` is fast, `zstd` is small."""
    level: int = 3
    """The zstd compression level: higher levels are smaller and slower. Other codecs have no level."""
    min_gain: float = 0.1
    """A segment is replaced only if it shrinks by at least this share of its size: 0.1 is a tenth."""


class FlushSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When written records are synced to disk, and so committed."""

    policy: Literal["each", "interval", "os"] = "each"
    """`each`: sync as soon as the last sync has ended. `interval`: within `interval_ms`, or at once for acks=durable.
    `os`: the operating system decides; written records count as committed, and a power loss may lose them."""
    interval_ms: int = 100
    """With the policy `interval`: written records are synced after this many milliseconds at the latest."""

    @property
    def may_lose(self) -> bool:
        """Whether a power loss may take back, on a node that stands alone, what readers have seen."""
        return self.policy == "os"


class AcksSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a writer is answered: `none` when it was sent, `leader` when it is written, `durable` when it is synced."""

    default: Acks = "durable"
    """The acks of a write that names none."""
    least: Acks = "none"
    """The weakest acks allowed; a weaker request is raised to this."""


class ValidatorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Webhooks that must accept records before they are appended."""

    urls: tuple[str, ...] = ()
    """At most 16 URLs, which `validators.allow` in the node's configuration must list. Each gets the records as JSON
    before they are appended, all at the same time, and must answer 2xx. Without any, records are not validated."""
    timeout_ms: int = 2_000
    """A validator that does not answer within this many milliseconds has failed."""
    concurrency: int = 16
    """How many appends of the topic are validated at once; others wait."""
    on_failure: Literal["refuse", "accept"] = "refuse"
    """Whether records are refused or accepted if a validator fails."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that can be set of a topic."""

    segment: SegmentSettings = SegmentSettings()
    """When a segment is closed."""
    retention: RetentionSettings = RetentionSettings()
    """How much is kept."""
    hook: HookSettings = HookSettings()
    """The command that runs before a segment is dropped."""
    recompression: RecompressionSettings = RecompressionSettings()
    """How closed segments are recompressed."""
    flush: FlushSettings = FlushSettings()
    """When written records are synced."""
    acks: AcksSettings = AcksSettings()
    """When a write is acknowledged."""
    validators: ValidatorSettings = ValidatorSettings()
    """Webhooks that must accept records."""
    value: ValueFormat | msgspec.UnsetType = msgspec.UNSET
    """What values are: `json`, `text`, `msgpack` or `bytes`; the console and the command line show them so. Nothing is
    checked, and programs get bytes unless they ask for more. Null: whatever a value looks like. In the file only where
    it is set: earlier releases do not know it."""

    def check(self) -> Settings:
        """These settings, or a ConfigError that names the key and what it may be."""
        if self.hook.delete is not None and not self.hook.delete.strip():
            raise ConfigError("hook.delete", "is empty: name a hook of the node's configuration, or none at all")
        if len(self.validators.urls) > VALIDATORS_MAX:
            raise ConfigError("validators.urls", f"has {len(self.validators.urls)}, allowed are {VALIDATORS_MAX}")
        for url in self.validators.urls:
            if _URL.fullmatch(url) is None:
                raise ConfigError("validators.urls", f"{url[:200]!r} is no URL: write http://host:port/path")
        if self.value is not msgspec.UNSET and self.value not in FORMATS:
            raise ConfigError("value", f"is {self.value!r}, allowed are {', '.join(FORMATS)}")
        for key, (low, high) in RANGES.items():
            group, _, name = key.partition(".")
            value = getattr(getattr(self, group), name)
            if value is not None and not low <= value <= high:
                raise ConfigError(key, f"is {value!r}, allowed are {low} to {high}")
        return self

    def log_config(self) -> LogConfig:
        return LogConfig(segment_bytes=self.segment.bytes, segment_age_us=self.segment.age_ms * 1000)


RANGES: Final[dict[str, tuple[float, float]]] = {
    "segment.bytes": (4096, 2**40),
    "segment.age_ms": (1000, 2**52),
    "retention.bytes": (0, 2**62),
    "retention.age_ms": (0, 2**52),
    "retention.records": (0, 2**62),
    "retention.hard_bytes": (0, 2**62),
    "hook.timeout_ms": (1, 86_400_000),
    "hook.backoff_ms": (1, 86_400_000),
    "hook.backoff_max_ms": (1, 86_400_000),
    "flush.interval_ms": (1, 3_600_000),
    "validators.timeout_ms": (1, 600_000),
    "validators.concurrency": (1, 1_000),
    "recompression.level": (1, 19),
    "recompression.min_gain": (0, 0.99),
}


class Topic(msgspec.Struct, frozen=True):
    id: str
    name: str
    partitions: int = 1
    settings: Settings = Settings()
    maker: str | msgspec.UnsetType = msgspec.UNSET
    """The principal that made it; not in the file where nobody knows: of topics of earlier releases and of dumps."""

    @classmethod
    def make(
        cls,
        name: str,
        partitions: int = 1,
        settings: Settings = Settings(),  # noqa: B008
        topic_id: str | None = None,
        chance: Random = SYSTEM.chance,
    ) -> Topic:
        """A new topic; one of another node keeps the id it has there."""
        if _NAME.fullmatch(name) is None:
            raise InvalidTopicName(name)
        if topic_id is not None and _ID.fullmatch(topic_id) is None:
            raise ConfigError("id", f"is {topic_id[:100]!r}, allowed are 32 hex digits")
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise ConfigError("partitions", f"is {partitions}, allowed are 1 to {PARTITIONS_MAX}")
        return cls(topic_id or new_id(chance), name, partitions, settings.check())

    @property
    def is_internal(self) -> bool:
        """Whether it is what a node keeps for itself: it means something beside that node's other files alone."""
        return self.name.startswith("_")

    @property
    def directory(self) -> str:
        """Below the data directory."""
        return f"topics/{self.name[:NAME_IN_PATH_MAX]}~{self.id}"

    @property
    def id_bytes(self) -> bytes:
        return bytes.fromhex(self.id)

    def log_name(self, partition: int) -> str:
        """The path of a partition's log below the data directory."""
        return f"{self.directory}/{partition}"

    @property
    def log_names(self) -> list[str]:
        return [self.log_name(partition) for partition in range(self.partitions)]


def check_name(name: str) -> str:
    """A name that a topic can have. Raises InvalidTopicName."""
    if _NAME.fullmatch(name) is None:
        raise InvalidTopicName(name)
    return name


def is_hook_name(text: str) -> bool:
    """Whether a hook can be called so. Topics made by older releases have commands here: those cannot be meant."""
    return _HOOK_NAME.fullmatch(text) is not None


def read_topics(disk: Disk, root: str) -> list[Topic]:
    """Every topic of a data directory, by name. What is not a topic of ours is passed over."""
    path = f"{root}/topics"
    names = disk.list(path) if disk.exists(path) else []
    found = [topic for name in names if (topic := read_topic(disk, f"{path}/{name}")) is not None]
    return sorted(found, key=lambda topic: topic.name)


def unreadable_topics(disk: Disk, root: str) -> list[str]:
    """The ids of topics that are there, with files, and whose topic.json cannot be read."""
    path = f"{root}/topics"
    found = []
    for name in disk.list(path) if disk.exists(path) else []:
        match = _DIRECTORY.fullmatch(name)
        if match is not None and read_topic(disk, f"{path}/{name}") is None:
            with suppress(NotADirectoryError):
                if any(entry == "topic.json" or entry.isdigit() for entry in disk.list(f"{path}/{name}")):
                    found.append(match[1])
    return found


def find_topic(disk: Disk, root: str, name: str) -> Topic | None:
    """The topic with this name, without reading the others."""
    path, start = f"{root}/topics", f"{name[:NAME_IN_PATH_MAX]}~"
    for entry in disk.list(path) if disk.exists(path) else []:
        if entry.startswith(start):
            topic = read_topic(disk, f"{path}/{entry}")
            if topic is not None and topic.name == name:
                return topic
    return None


def read_topic(disk: Disk, directory: str) -> Topic | None:
    """The topic in this directory; None where there is none, or nothing that can be read."""
    match = _DIRECTORY.fullmatch(directory.rpartition("/")[2])
    if match is None:
        return None
    try:
        data = read_file(disk, f"{directory}/topic.json")
        topic = None if data is None else msgspec.json.decode(data, type=Topic)
    except (*UNREADABLE, NotADirectoryError, IsADirectoryError):
        return None
    if topic is None or topic.id != match[1] or _NAME.fullmatch(topic.name) is None:
        return None
    return topic


def write_topic(disk: Disk, root: str, topic: Topic) -> None:
    """Durably: when this returns the topic exists, or has its new settings."""
    path = f"{root}/{topic.directory}"
    disk.make_directory(path)
    data = msgspec.json.format(msgspec.json.encode(topic), indent=2)
    replace_file(disk, f"{path}/topic.json", data + b"\n")


def take_back_topic(disk: Disk, root: str, topic: Topic) -> None:
    """A new topic could not be written: nothing of it stays, unless its topic.json is there."""
    path = f"{root}/{topic.directory}"
    with suppress(OSError):
        if disk.exists(path) and not disk.exists(f"{path}/topic.json"):
            if disk.exists(f"{path}/topic.json.tmp"):
                disk.unlink(f"{path}/topic.json.tmp")
            disk.remove_directory(path)
