"""Where a node reads results from: places that its configuration names, not whatever an event of `_pipeline` says.

Whoever may append to `_pipeline` says where a result is. A node that believed that would read any file for them, and
connect to any store that they name. Without a list it reads directories of its own machine and nothing else; what is in
them counts only with the size and checksum that were published.
"""

from __future__ import annotations

import os

import msgspec

from logboom.errors import ConfigError, ResultsUnreadable


class PlaceRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    places: tuple[str, ...] = ()
    """Directories and stores; with none, any directory of this machine and no store."""

    def check(self) -> PlaceRules:
        """Raises ConfigError."""
        for place in self.places:
            if not _is_store(place) and not os.path.isabs(place):
                raise ConfigError(
                    "pipeline.places", f"{place!r} is no absolute path, and no URI such as s3://bucket/logs"
                )
            if _has_way_up(place):
                raise ConfigError("pipeline.places", f"{place!r} has . or .. in it")
        return self

    def refusal(self, place: str) -> str | None:
        """Why a node does not read what is there; None where it does."""
        if _has_way_up(place) or not (_is_store(place) or os.path.isabs(place)):
            return "it is no plain path"
        if any(_is_below(place, allowed) for allowed in self.places):
            return None
        if self.places:
            return f"pipeline.places in the node's configuration has only {', '.join(self.places)}"
        return "pipeline.places in the node's configuration names no store" if _is_store(place) else None

    def demand(self, place: str) -> None:
        """Raises ResultsUnreadable."""
        refusal = self.refusal(place)
        if refusal is not None:
            raise ResultsUnreadable(f"{place[:200]} is not read by this node: {refusal}")


def _is_store(place: str) -> bool:
    return "://" in place


def _has_way_up(place: str) -> bool:
    front = place.partition("?")[0] if _is_store(place) else place
    is_escaped = _is_store(place) and ("%" in front or "\\" in front)
    return is_escaped or "\0" in place or any(part in (".", "..") for part in front.split("/"))


def _is_below(place: str, allowed: str) -> bool:
    """Also the directory of the job, two levels above: files of earlier runs are in it. Queries are the same."""
    front, mark, query = place.partition("?") if _is_store(place) else (place, "", "")
    listed, same_mark, same_query = allowed.partition("?") if _is_store(allowed) else (allowed, "", "")
    home = front.rstrip("/").rsplit("/", 2)[0]
    listed = listed.rstrip("/")
    return (mark, query) == (same_mark, same_query) and (home == listed or home.startswith(f"{listed}/"))
