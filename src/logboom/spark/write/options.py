"""How Spark writes to topics, as one value made of a writer's options: each checked, with errors that help."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from logboom.batch import BATCH_SIZE_DEFAULT
from logboom.batch.codec import CODECS
from logboom.client.values import PublishKey, check_name
from logboom.errors import ConfigError
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
from logboom.spark.read import options as reading

BATCH_BYTES: Final = 1024 * 1024

Making = Literal["first", "always", "never"]
"""When a topic that is not there is made: for who has not written to it before, for anybody, for nobody."""


class Order(NamedTuple):
    """A column by which the rows of a task are sorted; nulls are less than all else, as Spark has it."""

    column: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class WriteOptions:
    servers: tuple[str, ...]
    topic: str | None = None
    """Where everything goes; None leaves it to the column."""
    codec: str = "none"
    batch_bytes: int = BATCH_BYTES
    app: str | None = None
    version: int = 0
    """With an `app`: the name and number under which this write happens once, however often it is run."""
    order: tuple[Order, ...] = ()
    timeout_s: float = 60.0
    """How long a node that does not answer, or has no room, is waited for."""
    create: Making = "first"
    checkpoint: str | None = None
    """Spark's own, of a stream; of a write with an `app`, the one that has its micro-batch."""
    query_name: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Raises ConfigError, which names the option and what it may be."""
        given = _OPTIONS.read(own_options(options))
        place = take_place(given)
        if not place["servers"]:
            raise ConfigError("path", _place_of(place["directory"]))
        if ("app" in given) != ("version" in given):
            there, lacking = ("txnAppId", "txnVersion") if "app" in given else ("txnVersion", "txnAppId")
            raise ConfigError(lacking, f"belongs to {there}: give both, or none")
        return cls(servers=place["servers"], **given)


def options_of_table(kept: Mapping[str, str]) -> dict[str, str]:
    """Of the options a table was made with, those that say where it is: the others are about reading."""
    found = {}
    for name, text in kept.items():
        if name.lower() in ("path", "servers", "kafka.bootstrap.servers", *map(str.lower, PROFILE)):
            found[name] = text
        elif name.lower() in ("topic", "topics", "subscribe") and "," not in text:
            found["topic"] = text
    return found


def overlay(kept: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """The options of a table, but for what a write says otherwise."""
    said = {_OPTIONS.attribute(name) for name in more}
    return {**{name: text for name, text in kept.items() if _OPTIONS.attribute(name) not in said}, **more}


def _place_of(directory: str | None) -> str:
    say = "save('logboom://host:port'), in a stream start('logboom://host:port')"
    if directory is None:
        return f"say where to write: {say}"
    return f"{directory} is a directory, and writing goes through its server: {say}"


def _topic(text: str) -> str:
    if "," in text:
        raise ValueError(f"{text!r} names several: write to one, or leave it out and have a column topic")
    return check_name(text.strip())


def _app(text: str) -> str:
    return PublishKey(text.strip()).check().name


def _version(text: str) -> int:
    version = read_whole(text)
    if version >= 2**63:
        raise ValueError(f"is {text!r}, allowed are numbers below 2^63")
    return version


def _batch_bytes(text: str) -> int:
    size = read_size(text)
    if not 1024 <= size <= BATCH_SIZE_DEFAULT:
        raise ValueError(f"is {text!r}, allowed are 1k to {BATCH_SIZE_DEFAULT >> 20}m")
    return size


def _order(text: str) -> tuple[Order, ...]:
    found = []
    for entry in read_names(text):
        form = re.fullmatch(r"(.+?)(?:\s+(asc|desc))?", entry, re.IGNORECASE)
        assert form is not None
        found.append(Order(form[1].strip("`"), (form[2] or "asc").lower() == "desc"))
    return tuple(found)


def _making(text: str) -> Making:
    word = text.strip().lower()
    found: Making | None = _MAKINGS.get(word)
    if found is None:
        raise ValueError(f"is {text!r}, allowed are first, always (or true), never (or false)")
    return found


_MAKINGS: Final[Mapping[str, Making]] = {
    "first": "first",
    "always": "always",
    "true": "always",
    "never": "never",
    "false": "never",
}
_TABLE: Final[Entries] = {
    "path": ("path", read_path, ()),
    "servers": ("servers", read_servers, ("kafka.bootstrap.servers",)),
    **PROFILE,
    "topic": ("topic", _topic, ()),
    "codec": ("codec", read_word(*CODECS), ()),
    "batchBytes": ("batch_bytes", _batch_bytes, ()),
    "txnAppId": ("app", _app, ()),
    "txnVersion": ("version", _version, ()),
    "orderBy": ("order", _order, ()),
    "timeout": ("timeout_s", read_seconds, ()),
    "createTopic": ("create", _making, ()),
    "checkpointLocation": ("checkpoint", str, ()),
    "queryName": ("query_name", str, ()),
}
_OPTIONS: Final = OptionTable(
    "sink",
    _TABLE,
    ignored=("includeHeaders",),
    unsupported={
        **SECRETS,
        "asyncProgressTrackingEnabled": "Spark then forgets batches that are written, and writes them again",
        **{
            name: "it is for reading"
            for name in reading.NAMES
            if name not in ("path", "servers", "topic", "timeout", *PROFILE)
        },
    },
)
NAMES: Final = _OPTIONS.names
