"""A reader beside the writer, in its own process: writes down every record it is shown, until the last.

life_reader.py DIRECTORY OUTPUT WAY
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from logboom.client import FileReader
from system.life_writer import END, TOPIC

WAYS = ("records", "batches", "lists", "tables", "bookmarks")


def shown(path: str, way: str) -> Iterator[tuple[int, Any]]:
    reader = FileReader(path, TOPIC, gaps="skip")
    if way == "records":
        for record in reader.records(follow=True):
            assert record.seqno is not None
            yield record.seqno, record.value
    elif way == "batches":
        for batch in reader.batches(follow=True):
            yield from zip(batch.seqnos(), batch.values(), strict=True)
    elif way == "lists":
        for seqnos, values in reader.lists(["seqno", "value"], follow=True):
            yield from zip(seqnos, values, strict=True)
    elif way == "tables":
        for table in reader.tables(["seqno", "value"], follow=True):
            yield from zip(*(column.to_pylist() for column in table.columns), strict=True)
    else:
        yield from by_bookmarks(path)


def by_bookmarks(path: str) -> Iterator[tuple[int, Any]]:
    """A new reader for every few records."""
    bookmark = None
    while True:
        with FileReader(path, TOPIC, bookmark=bookmark, gaps="skip") as reader:
            for count, record in enumerate(reader.records(follow=True)):
                bookmark = reader.bookmark
                assert record.seqno is not None
                yield record.seqno, record.value
                if count == 500:
                    break


def main(path: str, output: str, way: str) -> None:
    with open(output, "w") as lines:
        print("reading", flush=True)
        for seqno, value in shown(path, way):
            lines.write(f"{seqno} {value.decode()}\n")
            if value == END:
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
