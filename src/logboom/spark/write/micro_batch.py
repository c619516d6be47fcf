"""Which micro-batch this is, whatever its number: a digest of what Spark has written down before it ran it.

Spark writes `offsets/NUMBER` in the checkpoint once, before the micro-batch runs, and when it repeats that it
reads that file again. So a repeat has the same bytes, and another micro-batch with the same number (of a copy of the
checkpoint, or of one that was put back) has others: its offsets, or at least its time, differ.

There is no Java beside whoever commits: the checkpoint is a directory here, or in a store that pyarrow reads
(`stored_files`). `metadata` in it says whose it is; one that only has the same path, as where Spark's own paths are on
another file system, is left alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from logboom.spark.write.stored_files import read_stored

DIGEST_BYTES: Final = 8


def local_path(location: str) -> str | None:
    """As Hadoop reads it, which decodes nothing; None where it is on another file system."""
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return os.path.abspath(location)
    if scheme.lower() != "file":
        return None
    if rest.startswith("//"):
        rest = "/" + rest[2:].partition("/")[2]
    return os.path.abspath(rest)


def digest_of(location: str, number: int, query: str | None = None) -> str:
    """Of what the checkpoint there has written down of this micro-batch; with a `query`, where it is the query's own.

    Raises FileNotFoundError where there is nothing, and another OSError, which says why, where it cannot be read.
    """
    offsets, *metadata = _read(location, [f"offsets/{number}", *([] if query is None else ["metadata"])])
    if metadata and not _is_of(metadata[0], query):
        raise OSError("what is there is not the checkpoint of this query")
    return blake2b(offsets, digest_size=DIGEST_BYTES).hexdigest()


def _read(location: str, names: Sequence[str]) -> list[bytes]:
    directory = local_path(location)
    if directory is None:
        return read_stored(location, names)
    found = []
    for name in names:
        with open(os.path.join(directory, name), "rb") as file:
            found.append(file.read())
    return found


def _is_of(metadata: bytes, query: str | None) -> bool:
    try:
        said = json.loads(metadata)
    except ValueError:
        return False
    return isinstance(said, dict) and said.get("id") == query
