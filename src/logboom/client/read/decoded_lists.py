"""Columns of records whose values are decoded, up to the first that cannot be.

What comes before that one is given, then its error is raised, and the reader stands behind it: so nothing is lost with
it, and the next loop goes on. `stand` moves the reader: so many rows of the piece were taken, and this seqno is next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from logboom.batch import Record
from logboom.values.serializer import ValueCoder

Lists = tuple[list[Any], ...]


def decoded_lists(
    read: Callable[[Sequence[str]], Iterator[Lists]],
    columns: Sequence[str],
    coder: ValueCoder,
    log: tuple[str, int],
    stand: Callable[[int, int], None],
) -> Iterator[Lists]:
    names = columns if "seqno" in columns else (*columns, "seqno")
    for lists in read(names):
        have = dict(zip(names, lists, strict=True))
        stored, seqnos = have["value"], have["seqno"]
        have["value"], error = coder.decode_list(stored)
        if error is None:
            yield tuple(have[name] for name in columns)
            continue
        count = len(have["value"])
        if count:
            stand(count, seqnos[count])
            yield tuple(have[name][:count] for name in columns)
        stand(count + 1, seqnos[count] + 1)
        topic, partition = log
        raise coder.unreadable(
            Record(stored[count], seqno=seqnos[count], topic=topic, partition=partition), error
        ) from error
