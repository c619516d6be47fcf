"""`logboom load DIR FILE`."""

from __future__ import annotations

import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from logboom.cli.options import Flag, Json, Quiet
from logboom.cli.show.output import show_json
from logboom.cli.show.progress import bytes_read
from logboom.cli.show.wording import count_of, printable
from logboom.errors import DirectoryUnusable, DumpCorrupt, DumpIncomplete, DumpUnsupported

if TYPE_CHECKING:
    from logboom.storage.data.directory import DataDirectory
    from logboom.storage.moving.load import Loader, LoadResult, TopicLoaded

DONE, DAMAGED, REFUSED = 0, 1, 2
_BEGUN = {"lock", "node.json.tmp", "lost+found"}
"""What a new volume has, or a load that found no space leaves, before there is a data directory."""
DETAILS = """\
A loaded log is identical to the dumped one: ids, seqnos, times, segments and producers are kept. With --append the
records are added as new ones instead. Stop the server first. To continue a load that was interrupted, run it again with
the same dump. An incomplete dump loads as far as it goes; topics that are not complete stay hidden.

Exit code 0: done. 1: the dump is damaged or not complete. 2: refused, or an error. 130: interrupted.

Examples:
  logboom load data data.lgdump
  logboom load other data.lgdump --topic events --as events-copy
  logboom load data data.lgdump --append
  logboom load --dry-run data.lgdump
"""
app = App(name="load", help_epilogue=DETAILS)


@app.default
def load(
    *places: Annotated[str, Parameter(allow_leading_hyphen=True)],
    topic: Annotated[list[str] | None, Parameter(negative="")] = None,
    rename: Annotated[str | None, Parameter(name="--as")] = None,
    append: Flag = False,
    dry_run: Flag = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Import logs from a dump.

    Parameters
    ----------
    places
        A data directory, made where there is none, and a dump: a file, or - for standard input, which is the default.
    topic
        Only this topic of the dump; may be given more than once.
    rename
        Give the one topic that is loaded this name.
    append
        Add the records as new ones, with new seqnos, to the topics of the same names.
    dry_run
        Read and verify the whole dump, say what is in it, and change nothing; needs no data directory.
    as_json
        One JSON object on standard output instead of text.
    quiet
        No progress and no summary.
    """
    directory, file = _split(places, dry_run)
    if file == "-" and sys.stdin.isatty():
        print("logboom: a dump comes from a file or a pipe: name the file", file=sys.stderr)
        return REFUSED
    from logboom.storage.moving.load import LoadResult

    loaded, trouble = LoadResult(), None
    with _source(file) as source:
        try:
            source.check_is_dump()
            _run(directory, source, set(topic) if topic else None, (append, rename), loaded, quiet)
        except (DumpCorrupt, DumpIncomplete) as error:
            trouble = error
        except KeyboardInterrupt:
            if directory is not None:
                print("logboom: not everything is loaded: run the same command again to continue", file=sys.stderr)
            raise
    if as_json:
        _show_json(loaded, trouble)
    elif not quiet:
        _show(loaded, directory is None)
    if trouble is not None:
        print(f"logboom: {trouble}", file=sys.stderr)
        if directory is not None:
            print("logboom: what was loaded is kept; load the complete dump to continue from there", file=sys.stderr)
        return DAMAGED
    return DONE


def _split(places: tuple[str, ...], dry_run: bool) -> tuple[str | None, str]:
    if dry_run and len(places) in (1, 2):
        return None, places[-1]
    if not dry_run and len(places) in (1, 2):
        return places[0], places[1] if len(places) == 2 else "-"
    raise DirectoryUnusable("name a data directory and a dump: logboom load DIR FILE")


class _Source:
    """A file or pipe, read on a thread that an interrupt must not leave waiting for bytes that never come."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._stopped, self._stop = os.pipe()

    @property
    def size(self) -> int:
        """Where it is known."""
        return os.fstat(self._fd).st_size

    def read(self, size: int, /) -> bytes:
        ready, _, _ = select.select([self._fd, self._stopped], [], [])
        return b"" if self._stopped in ready else os.read(self._fd, size)

    def check_is_dump(self) -> None:
        """Before a data directory is made for it; a pipe shows only when it is read."""
        from logboom.storage.moving.stream import MAGIC

        if stat.S_ISREG(os.fstat(self._fd).st_mode):
            front = os.pread(self._fd, len(MAGIC), os.lseek(self._fd, 0, os.SEEK_CUR))
            if front != MAGIC[: len(front)]:
                raise DumpUnsupported("this is not a dump: it does not begin with LGDUMP")

    def stop(self) -> None:
        os.close(self._stop)


@contextmanager
def _source(file: str) -> Iterator[_Source]:
    source = _Source(sys.stdin.fileno() if file == "-" else os.open(file, os.O_RDONLY | os.O_CLOEXEC))
    try:
        yield source
    finally:
        source.stop()


def _run(
    directory: str | None,
    source: _Source,
    names: set[str] | None,
    how: tuple[bool, str | None],
    loaded: LoadResult,
    quiet: bool,
) -> None:
    from logboom.storage.data.directory import DataDirectory
    from logboom.storage.moving.load import load as load_dump
    from logboom.storage.moving.origin import recover_all

    title = "verifying" if directory is None else "loading"
    with (
        DataDirectory.open(_usable(directory)) if directory is not None else nullcontext() as data,
        bytes_read(title, source.size, not quiet) as progress,
    ):
        if data is not None:
            recover_all(data)
        loader = None if data is None else _loader(data, *how)
        load_dump(source, loader, names, _advance(progress), loaded)


def _usable(directory: str) -> str:
    """Not a directory with other things in it."""
    path = os.path.abspath(Path(directory))
    if os.path.exists(path) and not os.path.isdir(path):
        raise DirectoryUnusable(f"{path} is not a directory")
    names = set(os.listdir(path)) - _BEGUN if os.path.isdir(path) else set()
    if names and "node.json" not in names:
        raise DirectoryUnusable(f"{path} is not a data directory, and not empty: name another")
    return path


def _loader(data: DataDirectory, append: bool, rename: str | None) -> Loader:
    from logboom.storage.moving.reappend import AppendLoader
    from logboom.storage.moving.restore import EqualLoader

    if append:
        return AppendLoader(data, time.time_ns() // 1000, rename)
    return EqualLoader(data, rename)


def _advance(progress: Callable[[int], None] | None) -> Callable[[int], None] | None:
    """From positions to steps."""
    if progress is None:
        return None
    done = 0

    def advance(position: int) -> None:
        nonlocal done
        progress(position - done)
        done = position

    return advance


def _show(loaded: LoadResult, only_read: bool) -> None:
    if loaded.head is not None and only_read:
        head = loaded.head
        dump_id, node_id, creator = map(printable, (head.dump_id, head.node_id, head.creator))
        print(f"dump {dump_id} of node {node_id}, made by Logboom {creator}")
    for topic in loaded.topics:
        if only_read:
            print(f"{topic.name} ({topic.id}): {count_of(topic.logs, 'log')}{_hook_of(topic)}")
            continue
        words = [count_of(topic.records, "record") + " loaded"]
        if topic.present:
            words.append(count_of(topic.present, "batch") + " already there")
        if topic.skipped_lost:
            words.append(count_of(topic.skipped_lost, "lost record") + " left out")
        if not topic.complete:
            words.append("not complete")
        elif not topic.batches:
            words = ["already there" if topic.present else "empty"]
        print(f"{topic.name} ({topic.id}): {', '.join(words)}{_hook_of(topic)}")
    totals = loaded.totals
    counts = ", ".join(
        count_of(number, noun)
        for number, noun in ((totals.batches, "batch"), (totals.records, "record"), (totals.size_bytes, "byte"))
    )
    print(f"{counts} in the dump{': sound' if loaded.complete else ', as far as it was read'}")


def _hook_of(topic: TopicLoaded) -> str:
    """What a topic's delete hook is. What is no name of the node's own configuration is never run."""
    if topic.hook is None:
        return ""
    return f"\n    delete hook, run only if the node's configuration has it: {printable(topic.hook)}"


def _show_json(loaded: LoadResult, trouble: Exception | None) -> None:
    import msgspec

    said = msgspec.to_builtins(loaded) | {"error": None if trouble is None else str(trouble)}
    show_json(said)
