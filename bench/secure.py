"""What do users, rules and TLS cost?

Two nodes run side by side. One is open, as a node on a laptop is. The other lets nobody do anything who has not signed
in, has a thousand rules, and listens twice: plainly, and with TLS (a certificate with a P-256 key, TLS 1.3). The same
values are written and read by the same calls on all three ways, unsynced; what has signed in stands against what is
open, and TLS against the same node without it. Client and node share the machine: both encrypt, or decrypt.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness import QUICK, Row, Subject, rate, report, time_prepared
from logboom import Reader, Writer
from logboom.access.credential import Credential
from logboom.access.rule import Rule
from logboom.cli.certificate import make_ca, make_server
from logboom.client.link.profile import Profile
from logboom.client.remote import connect
from node import OS, running_node
from produce import UNIT, make_values

SHAPES = ((100, 100), (1024, 250))
"""Bytes of a value, batches of 64 KiB in a round."""
ROUNDS = 3 if QUICK else 31
RULES = 1000
PASSWORD = "pencil-box"
GOALS = {"signed in, rules": ("open", 0.97), "TLS": ("signed in, rules", 0.5)}
"""What each stands against, and how much of its speed is to be left."""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory, _ways(directory) as ways:
        rows: list[Row] = []
        for size, batches in SHAPES:
            rows += _compare(ways, make_values(size, batches), size)
        report("secure", rows)


@contextmanager
def _ways(directory: str) -> Iterator[dict[str, Profile]]:
    ca, certificate, key = _make_certificates(directory)
    options = ("--set", f"tls.certificate={certificate}", "--set", f"tls.key={key}", "--set", "access.anonymous=none")
    listen = ("--listen", "tls://127.0.0.1:0", "--unix", f"{directory}/closed.sock")
    with (
        running_node(f"{directory}/open") as open_node,
        running_node(f"{directory}/closed", *listen, *options) as closed,
    ):
        asyncio.run(_admit(f"unix:{directory}/closed.sock"))
        secured = json.loads(Path(f"{directory}/closed/ready.json").read_text())["binary"][1]
        yield {
            "open": Profile(open_node.address),
            "signed in, rules": Profile(closed.address, "ann", PASSWORD),
            "TLS": Profile(f"tls://{secured.removeprefix('tls://')}", "ann", PASSWORD, ca=ca),
        }


async def _admit(address: str) -> None:
    """A user with rules, the last of which says what is needed."""
    async with connect(address) as broker:
        await broker.add_user("ann", [Credential.derive(PASSWORD, os.urandom(16))])
        for number in range(RULES):
            await broker.add_rule(Rule("allow", "ann", ("read",), "topic", f"other-{number}"))
        await broker.add_rule(Rule("allow", "ann", ("read", "write", "create"), "topic", "bench*"))


def _make_certificates(directory: str) -> tuple[str, str, str]:
    """The CA, a certificate that it has signed, and its key."""
    made = make_ca(directory, "bench", 1, False)
    server = make_server(directory, ["127.0.0.1"], 1, False)
    return made.certificate, server.certificate, server.key


def _compare(ways: dict[str, Profile], values: list[bytes], size: int) -> list[Row]:
    with ExitStack() as stack:
        calls: dict[str, Subject] = {}
        for number, (way, profile) in enumerate(ways.items()):
            writer = stack.enter_context(_open(profile, f"bench-{size}-{number}"))
            writer.write_many(values)
            writer.flush()
            reader = stack.enter_context(Reader(writer.topic, profile))
            calls |= {f"{name}, {way}, {size} B": call for name, call in _calls(writer, reader, values).items()}
        for call in calls.values():
            call()
        timings = time_prepared({name: (_nothing, call) for name, call in calls.items()}, ROUNDS)
    rows: list[Row] = []
    for name in calls:
        call_name, _, rest = name.partition(", ")
        against, goal = GOALS.get(rest.removesuffix(f", {size} B"), (None, None))
        stands = None if against is None else f"{call_name}, {against}, {size} B"
        rows.append(rate(name, timings, len(values), stands, goal, UNIT))
    return rows


def _open(profile: Profile, topic: str) -> Writer:
    async def create() -> None:
        async with connect(profile) as broker:
            await broker.create_topic(topic, 1, OS)

    asyncio.run(create())
    return Writer(topic, profile, acks="leader")


def _calls(writer: Writer, reader: Reader, values: list[bytes]) -> dict[str, Subject]:
    """By name; each returns when the last value is acknowledged, or here."""

    def write() -> None:
        for value in values:
            writer.write(value)
        writer.flush()

    def write_many() -> None:
        writer.write_many(values)
        writer.flush()

    def tables() -> None:
        reader.seek(seqno=0)
        left = len(values)
        for table in reader.tables():
            left -= table.num_rows
            if left <= 0:
                break

    return {"Writer.write": write, "Writer.write_many": write_many, "Reader.tables": tables}


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
