"""Which micro-batch this is, whatever its number: a digest of what Spark has written down before it ran it.

Spark writes `offsets/NUMBER` in the checkpoint once, before the micro-batch runs, and when it repeats that it
reads that file again. So a repeat has the same bytes, and another micro-batch with the same number (of a copy of the
checkpoint, or of one that was put back) has others: its offsets, or at least its time, differ.

Only a checkpoint that is a directory here can be read: there is no Java beside whoever commits. `metadata` in it says
whose it is; a directory that only has the same path, as where Spark's own paths are on another file system, is left
alone.
"""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from typing import Final

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


def is_checkpoint_of(directory: str, query: str) -> bool:
    try:
        with open(os.path.join(directory, "metadata"), "rb") as file:
            said = json.load(file)
    except (OSError, ValueError):
        return False
    return isinstance(said, dict) and said.get("id") == query


def digest_of(directory: str, number: int) -> str | None:
    """None where there is nothing written down of this micro-batch, or it cannot be read."""
    try:
        with open(os.path.join(directory, "offsets", str(number)), "rb") as file:
            return blake2b(file.read(), digest_size=DIGEST_BYTES).hexdigest()
    except OSError:
        return None
