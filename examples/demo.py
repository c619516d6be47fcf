"""The story of a log: who writes to it and how, what happens when it is killed, and what is made of it.

A node. Four processes write to it: two with the Python client, one with nothing but HTTP, and a device that has only
a socket and lines of text. Two follow it. Where Spark can be had, two live queries work on it meanwhile: one counts,
one writes what it has made of each record to another topic, exactly once. In the middle the node is killed. A second
node copies the first. Then the pipeline makes a checkpoint, a report and an archive, and verifies all of it; retention
drops what is archived, and reading from the beginning goes on as before.

    python examples/demo.py [--records N] [--keep DIR]

Every process notes down what it was promised and what it saw; the checker of the test suite compares the notes. On a
terminal the node then stays up, with its console, until Ctrl-C. Exits with 1, and says what, if anything is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from story.counting import check_parsed, show_counts, start_spark
from story.pipeline import SETTINGS, make_results, segment_bytes
from story.plan import METER, PARSED, PARTITIONS, TOPIC, WRITERS, Wrong, share
from story.processes import Node
from story.roles import ROLES
from story.screen import Screen
from story.writing import copy, read_by_tag, write_and_kill

from checker import Report, check, read_histories
from logboom import Writer
from logboom.errors import LogboomError

OFTEN = "upkeep.retention_every_ms=1s"


def run(root: str, records: int, screen: Screen) -> None:
    screen.console.print(
        "\n[bold]Logboom[/]: a node, four writers, two followers, Spark, one kill -9, a copy, and a pipeline\n",
        soft_wrap=True,
    )
    node, spark, page = Node(root, "--set", OFTEN), None, None
    seconds = node.start()
    try:
        screen.done("serve", f"listening on {node.address} after {seconds:.1f} s, process {node.pid}")
        make_topics(node, records)
        spark = start_spark(node, root, records, screen)
        tables = write_and_kill(node, root, records, screen)
        read_by_tag(node, records, screen)
        os.mkdir(f"{root}/copy")
        copied = copy(node, f"{root}/copy", screen)
        if spark is not None:
            show_counts(spark, node, root, screen)
            check_parsed(node, root, screen)
            page = make_results(node, root, copied, tables, screen)
        report = check(read_histories(sorted(Path(root).glob("history-*"))))
        tell(report, records, screen)
        show_commands(node, spark is not None, screen)
        show_places(node, page, screen)
        if screen.console.is_terminal:
            stay(node, screen)
    finally:
        if spark is not None:
            spark.kill()
        node.end(signal.SIGTERM)


def make_topics(node: Node, records: int) -> None:
    settings = (f"segment.bytes={segment_bytes(records)}", *SETTINGS)
    options = [word for setting in settings for word in ("--set", setting)]
    node.command("topic", "create", TOPIC, "--partitions", str(PARTITIONS), *options)
    node.command("topic", "create", METER)
    node.command("topic", "create", PARSED, "--partitions", str(PARTITIONS))


def tell(report: Report, records: int, screen: Screen) -> None:
    if not report.clean or report.acknowledged != share(records) * len(WRITERS):
        raise Wrong(f"the checker says:\n{report}")
    seen, verdict = str(report).splitlines()
    screen.done("check", seen)
    screen.console.print(f"\n[bold green]{verdict}[/]", soft_wrap=True)


def show_commands(node: Node, has_results: bool, screen: Screen) -> None:
    commands = ["topic list", f"read {TOPIC}/0 --from 0 --limit 3 -n", f"read {TOPIC}/0 --tag alert --limit 3 -n"]
    if has_results:
        commands += [f"read {TOPIC}/0 --from checkpoint --limit 3 -n", "cursor list", "pipeline list"]
    for command in commands:
        screen.shown(command, node.command(*command.split()))


def show_places(node: Node, page: Path | None, screen: Screen) -> None:
    places = [f"console   http://{node.http}/", f"API       http://{node.http}/docs"]
    if page is not None:
        places += [f"pipeline  http://{node.http}/#/pipeline", f"report    {page}"]
    screen.console.print("\n" + "\n".join(places), markup=False, soft_wrap=True)


def stay(node: Node, screen: Screen) -> None:
    """Until Ctrl-C, with something to look at: a reading each second."""
    screen.console.print(
        f"\nThe node stays up. In another terminal:\n\n"
        f"  [bold]export LOGBOOM_SERVERS={node.address} PATH={os.path.dirname(sys.executable)}:$PATH[/]\n"
        f"  logboom read {TOPIC}/0 --from latest --follow\n"
        f"  logboom write {TOPIC} 'hello' --key sensor-1\n"
        f"  logboom top\n"
        f"  printf 'MSG {METER} 5\\r\\nhello\\r\\nCLOSE\\r\\n' | nc {node.logd.replace(':', ' ')}\n"
        f"  curl -N 'http://{node.http}/topics/{TOPIC}/tail?partition=0'\n"
        f"  python -i -c 'import logboom.spark; spark = logboom.spark.session()'\n"
        f"  >>> spark.read.format('logboom').option('topic', '{TOPIC}').load('logboom://{node.address}').show()\n\n"
        f"Ctrl-C ends it.",
        soft_wrap=True,
    )
    with Writer(TOPIC, node.address, partition=0) as writer:
        while True:
            writer.write(f"it is {time.strftime('%H:%M:%S')}".encode())
            time.sleep(1)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write to a node, kill it, lose nothing, and make something of it.")
    parser.add_argument("--records", type=int, default=150_000, metavar="N", help="how many, at least 10,000")
    parser.add_argument("--keep", metavar="DIR", help="use this new directory and leave it there")
    parser.add_argument("--role", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role:
        role, where, history, name, number = arguments.role
        with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
            try:
                ROLES[role](where, history, name, int(number))
            except Wrong as error:
                print(error, file=sys.stderr)
                return 1
        return 0
    if arguments.records < 10_000:
        parser.error("--records must be 10,000 or more")
    if arguments.keep and os.path.exists(arguments.keep):
        parser.error(f"{arguments.keep} is there already: name a new directory")
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)
    screen = Screen()
    kept = arguments.keep and os.path.abspath(arguments.keep)
    root = kept or tempfile.mkdtemp(prefix="logboom-")
    try:
        os.makedirs(root, exist_ok=True)
        run(root, arguments.records, screen)
    except KeyboardInterrupt:
        screen.console.print("\nstopped")
        return 0
    except (Wrong, LogboomError) as error:
        kept = root
        screen.console.print("\n[bold red]Wrong:[/]", end=" ")
        screen.console.print(
            f"{error}\n\nWhat all of them have said and written is in {root}", markup=False, soft_wrap=True
        )
        return 1
    finally:
        if not kept:
            shutil.rmtree(root, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
