"""`logboom upkeep DIR`."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from logboom.broker.wording import printable, printable_lines
from logboom.cli.options import Flag, Json, Quiet
from logboom.cli.show.output import show_json
from logboom.cli.show.wording import count_of
from logboom.errors import DirectoryInUse, DirectoryUnusable, StorageError

if TYPE_CHECKING:
    from logboom.broker.allowances import Allowances
    from logboom.broker.config import UpkeepSettings
    from logboom.broker.upkeep.stats import UpkeepStats
    from logboom.broker.upkeep.upkeep import Upkeep
    from logboom.storage import DataDirectory

DONE, FAILED = 0, 1
LOOK_S = 0.2
DETAILS = """\
A running server does all this by itself. Use this for directories that no server has open: from cron, or before a
backup. It runs the delete hooks of segments that retention may drop, drops them, recompresses cold segments, and reads
cold segments again for damage if that is due. Each hook runs at most once; if it fails, it stays queued and its segment
stays. Hooks come from the node's configuration (--config, as for `logboom serve`); segments whose hook is missing there
stay, and are listed. Nothing is dropped from logs with an unfinished publish: start the node once, it finishes it.

Ctrl-C, SIGTERM and SIGHUP stop it: hooks get five seconds to end and stay queued; a second signal kills them at once.

Exit code 0: done. 1: something failed, or there is damage. 2: refused, nothing was done. 130, 143, 129: interrupted by
Ctrl-C, SIGTERM, SIGHUP.

Examples:
  logboom upkeep data
  logboom upkeep --config /etc/logboom.toml data
  logboom upkeep --scrub --no-throttle data
  logboom upkeep --json data | jq .hooks.failing
"""
app = App(name="upkeep", help_epilogue=DETAILS)


@app.default
def upkeep(
    directory: Path,
    /,
    *,
    config: Path | None = None,
    scrub: Flag = False,
    no_throttle: Flag = False,
    as_json: Json = False,
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative="")] = False,
    quiet: Quiet = False,
) -> int:
    """Drop, recompress and scrub what is due in a data directory.

    Parameters
    ----------
    directory
        A data directory that no server has open.
    config
        The node's TOML file, as for `logboom serve`; else $LOGBOOM_CONFIG, else ./logboom.toml.
    scrub
        Scrub every cold segment now, not only those that are due.
    no_throttle
        Ignore the limits on reading speed.
    as_json
        One JSON object on standard output instead of text.
    verbose
        Print each step, and the output of hooks, on standard error.
    quiet
        No progress, and no summary unless something failed.
    """
    from dataclasses import replace

    from logboom.server.sources import load

    configured = load(file=None if config is None else str(config)).config.broker()
    settings = configured.upkeep
    if no_throttle:
        settings = replace(settings, recompress_bytes_per_second=None, scrub_bytes_per_second=None)
    with _messages(verbose, not quiet and not as_json) as show, _Signals() as signals:
        stats, fault = _keep_up(directory, settings, configured.allowed, scrub, show, signals)
    if fault is not None:
        print(f"logboom: {fault}", file=sys.stderr)
    if signals.received is not None:
        return _interrupted(signals.received)
    code = FAILED if fault is not None else _verdict(stats)
    if as_json:
        show_json(stats)
    elif code or not quiet:
        print("\n".join([*_describe(stats), "something failed, or is damaged" if code else "done"]))
    return code


def _keep_up(
    directory: Path,
    settings: UpkeepSettings,
    allowed: Allowances,
    scrub: bool,
    show: Callable[[str], None],
    signals: _Signals,
) -> tuple[UpkeepStats, Exception | None]:
    """What was done, and why the directory could not be closed properly, if it could not."""
    from logboom.broker.upkeep.upkeep import Upkeep
    from logboom.storage.staged.unfinished import hold_unfinished

    stats: UpkeepStats | None = None
    try:
        with _taken(directory) as data:
            for publish in hold_unfinished(data):
                logging.getLogger("logboom.upkeep").warning(
                    "%s: nothing is dropped there before a start of the node has finished it", publish
                )
            work = Upkeep(data, settings, allowed=allowed)
            signals.hurry = work.hurry
            try:
                if scrub:
                    work.scrub_all()
                _run(work, show, signals)
            finally:
                work.close()
            stats = work.stats
    except (StorageError, OSError) as error:
        if stats is None:
            raise
        return stats, error
    return stats, None


class _Signals:
    """The first signal is noted, for a loop that looks at it: nothing is broken off half way. Each later one hurries.

    What this process was started to ignore, as `nohup` does, stays ignored.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.hurry: Callable[[], None] = lambda: None
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> _Signals:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: object) -> None:
        if self.received is None:
            self.received = number
        else:
            self.hurry()


def _interrupted(number: int) -> int:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    print(f"logboom: ended by {signal.Signals(number).name}", file=sys.stderr)
    return 128 + number


def _run(work: Upkeep, show: Callable[[str], None], signals: _Signals) -> None:
    """Until nothing is due and nothing runs. The time stands still, so that what fails is not tried twice."""
    now = time.time_ns() // 1000
    while signals.received is None:
        again_at = work.step(now)
        if work.under_way:
            show("; ".join(work.under_way))
            work.wait(LOOK_S)
        elif again_at is None or again_at > now:
            return


@contextmanager
def _taken(directory: Path) -> Iterator[DataDirectory]:
    """The directory as its writer. Only one that is there: others are not made."""
    from logboom.storage import DataDirectory, OsDisk
    from logboom.storage.data.directory import read_node

    path = os.path.abspath(directory)
    if not os.path.isdir(path) or read_node(OsDisk(path, read_only=True), path) is None:
        raise DirectoryUnusable(f"{path} is not a data directory: name one")
    try:
        data = DataDirectory.open(path)
    except DirectoryInUse as error:
        raise DirectoryInUse(f"{error}; a running server does its upkeep by itself") from None
    with data:
        yield data


@contextmanager
def _messages(verbose: bool, progress: bool) -> Iterator[Callable[[str], None]]:
    """What upkeep logs goes to standard error; on a terminal, above a line that says what is under way."""
    logger = logging.getLogger("logboom.upkeep")
    level = logger.level
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    if progress and sys.stderr.isatty():
        from rich.console import Console
        from rich.text import Text

        console = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
        handler: logging.Handler = _ConsoleHandler(console.print)
        with _added(logger, handler, level), console.status("") as status:
            yield lambda text: status.update(Text(printable(text), overflow="ellipsis", no_wrap=True))
        return
    with _added(logger, logging.StreamHandler(), level):
        yield lambda text: None


@contextmanager
def _added(logger: logging.Logger, handler: logging.Handler, level: int) -> Iterator[None]:
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _ConsoleHandler(logging.Handler):
    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(printable_lines(self.format(record)))


def _verdict(stats: UpkeepStats) -> int:
    failed = stats.errors or stats.hooks.failing or stats.scrub.findings or stats.dropped_without_hook.segments
    return FAILED if failed else DONE


def _describe(stats: UpkeepStats) -> Iterator[str]:
    for reason, dropped in sorted(stats.dropped.items()):
        yield f"dropped by {reason}: {count_of(dropped.segments, 'segment')}, {count_of(dropped.bytes, 'byte')}"
    lost = stats.dropped_without_hook
    if lost.segments:
        yield f"DROPPED WITHOUT THEIR HOOKS: {count_of(lost.segments, 'segment')}, {count_of(lost.bytes, 'byte')}"
    hooks = stats.hooks
    if hooks.run or hooks.pending:
        yield f"hooks: {hooks.run:,} run, {hooks.failed:,} failed, {hooks.pending:,} waiting"
    for hook in hooks.failing:
        seqnos = f"seqnos {hook.first_seqno} to {hook.next_seqno - 1}"
        if not hook.next_attempt_at:
            yield f"  {hook.topic}/{hook.partition}, {seqnos} and all that follows: held, nothing was run"
            yield f"    {hook.error}; name it there, and the file with --config"
            continue
        times = "once" if hook.attempts == 1 else f"{hook.attempts:,} times"
        yield f"  {hook.topic}/{hook.partition}, {seqnos}: failed {times}, waits until {_when(hook.next_attempt_at)}"
        yield f"    {hook.error}"
    done = stats.recompression
    if done.segments or done.left_alone:
        yield (
            f"recompressed: {count_of(done.segments, 'segment')}, {done.bytes_before:,} bytes to {done.bytes_after:,}; "
            f"{done.left_alone:,} left alone"
        )
    if stats.scrub.segments:
        yield f"scrubbed: {count_of(stats.scrub.segments, 'segment')}, {count_of(stats.scrub.bytes, 'byte')}"
    for finding in stats.scrub.findings:
        until = "the end" if finding.seqno_until is None else finding.seqno_until - 1
        yield f"damage in {finding.log}/{finding.file} (seqnos {finding.seqno_from} to {until})"
        yield f"    {finding.reason}"
    if stats.trash_emptied:
        yield f"removed: {count_of(stats.trash_emptied, 'deleted topic')}"
    if stats.errors:
        yield f"errors: {stats.errors:,}, the last one: {stats.last_error}"


def _when(microseconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(microseconds / 1e6))
