"""How far a stream has come in each log, as Spark keeps it: JSON in its checkpoint.

    {"topics": {"events": {"id": "…", "seqnos": {"0": 17}, "terms": {"0": 3}, "lineages": {"0": …}}}, "since": …,
     "cursor": …}

The topic's id tells a topic that was made again, the term of the record before each seqno a tail that was lost, and its
lineage, which is there where it is known, a term of the same number that another node has begun.
`since` says where a micro-batch begins in the logs where that is not the end of the one before: those that have
appeared or lost something, and all of them in the first batch, because Spark keeps only ends and asks for the beginning
again after a crash. `cursor` names who is to be told of the progress, and where.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from logboom.client.values import TERM_UNKNOWN, Term
from logboom.errors import ConfigError


@dataclass(frozen=True, slots=True)
class OffsetMark:
    """What is read next of one log."""

    topic_id: str
    seqno: int
    term: int | None = None
    """Of the record before; None where nobody knows."""
    lineage: int = 0
    """Of that term; 0 where nobody knows."""

    @property
    def before(self) -> Term:
        return Term(TERM_UNKNOWN if self.term is None else self.term, self.lineage)


Log = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class Offsets:
    marks: Mapping[Log, OffsetMark]
    since: Mapping[Log, OffsetMark] | None = None
    """Where the micro-batch that ends here began, where the offset before it does not say so."""
    is_initial: bool = False
    cursor: Mapping[str, str] | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"topics": _encode(self.marks)}
        if self.since is not None:
            found["since"] = _encode(self.since)
        if self.is_initial:
            found["initial"] = True
        if self.cursor is not None:
            found["cursor"] = dict(self.cursor)
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Offsets:
        """Raises ConfigError for what no stream of ours has written."""
        try:
            since = data.get("since")
            return cls(
                dict(_decode(data["topics"])),
                None if since is None else dict(_decode(since)),
                bool(data.get("initial", False)),
                data.get("cursor"),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                "checkpointLocation", f"holds no offsets of a logboom stream ({error!r}): use one checkpoint per query"
            ) from None


def _encode(marks: Mapping[Log, OffsetMark]) -> dict[str, Any]:
    topics: dict[str, Any] = {}
    for (topic, partition), mark in sorted(marks.items()):
        entry = topics.setdefault(topic, {"id": mark.topic_id, "seqnos": {}, "terms": {}})
        entry["seqnos"][str(partition)] = mark.seqno
        if mark.term is not None:
            entry["terms"][str(partition)] = mark.term
        if mark.lineage:
            entry.setdefault("lineages", {})[str(partition)] = mark.lineage
    return topics


def _decode(topics: Mapping[str, Any]) -> Iterator[tuple[Log, OffsetMark]]:
    for topic, entry in topics.items():
        for number, seqno in entry["seqnos"].items():
            lineage = int(entry.get("lineages", {}).get(number, 0))
            yield (topic, int(number)), OffsetMark(str(entry["id"]), int(seqno), entry["terms"].get(number), lineage)
