"""The kinds of jobs there are, and a job made of its options.

What a kind can be told are the fields of its class; each is imported when it is first wanted.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import msgspec
from msgspec import inspect as shapes

from logboom.errors import ConfigError
from logboom.spark.jobs.job_run import JobWork

KINDS: Final = {
    "archive": "logboom.spark.jobs.archive:ArchiveWork",
    "checkpoint": "logboom.spark.jobs.checkpoint:CheckpointWork",
    "report": "logboom.spark.jobs.report:ReportWork",
    "verify": "logboom.spark.jobs.verify:VerifyWork",
}


def class_of(kind: str, where: str = "") -> type[msgspec.Struct]:
    """Raises ConfigError where there is no such kind."""
    if kind not in KINDS:
        raise ConfigError(f"{where}kind", f"is {kind!r}, allowed is one of {', '.join(KINDS)}")
    module, _, name = KINDS[kind].partition(":")
    found: type[msgspec.Struct] = getattr(import_module(module), name)
    return found


def lists_of(kind: str) -> frozenset[str]:
    """Its options that are lists."""
    info = shapes.type_info(class_of(kind))
    assert isinstance(info, shapes.StructType)
    lists = shapes.ListType | shapes.VarTupleType
    return frozenset(field.encode_name for field in info.fields if isinstance(field.type, lists))


def make_work(kind: str, options: Mapping[str, Any], where: str = "", strict: bool = True) -> JobWork:
    """A job with these options. `where` stands before their names in errors; not `strict` takes texts for numbers."""
    struct = class_of(kind, where)
    known = struct.__struct_encode_fields__
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"the nearest is {near[0]}" if near else f"there are {', '.join(known)}"
            raise ConfigError(where + name, f"a job of kind {kind} has no such option; {hint}")
    try:
        work: Any = msgspec.convert(dict(options), struct, strict=strict)
    except msgspec.ValidationError as error:
        raise _wrong(error, kind, where) from None
    try:
        work.check()
    except ConfigError as error:
        raise ConfigError(where + error.key, error.reason) from None
    made: JobWork = work
    return made


def _wrong(error: msgspec.ValidationError, kind: str, where: str) -> ConfigError:
    message, _, at = str(error).partition(" - at `$")
    missing = message.partition("missing required field `")[2].rstrip("`")
    if missing:
        return ConfigError(where + missing, f"is missing: a job of kind {kind} needs it")
    return ConfigError(where + at.rstrip("`").lstrip("."), message[:1].lower() + message[1:])
