"""Conversations of the logd protocol, as they were agreed: whole, and cut wherever a stream can be cut."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logboom.access.credential import Credential
from logboom.access.quota import Quota
from logboom.access.rule import Rule
from logboom.batch import build
from logboom.broker.api import Part, ReadRequest
from logboom.broker.caller import ITSELF
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits, Rejections
from logboom.broker.local import LocalBroker
from logboom.protocols.logd import errors
from logboom.protocols.logd.front_end import LogdFrontEnd
from logboom.protocols.logd.requests import WORDS
from logboom.protocols.logd.settings import LogdSettings
from support.peers.transcript import Transcript, load
from support.peers.wire import Line

GOLDEN = Path(__file__).parent / "golden" / "logd"
TRANSCRIPTS = sorted(GOLDEN.glob("*.txt"))
NAMES = [path.stem for path in TRANSCRIPTS]
ADDRESS = "127.0.0.1:1774"
ANONYMOUS = "access.anonymous"
EXPOSED = "peer.exposed"
CONFIG = {"data": "here", "listen": {"logd": [ADDRESS]}}


async def act(broker: LocalBroker, action: Sequence[str]) -> None:
    what, *rest = action
    match what:
        case "create":
            await broker.create_topic(rest[0], int(rest[1]) if len(rest) > 1 else 1)
        case "delete":
            await broker.delete_topic(rest[0])
        case "append":
            topic, slash, partition = rest[0].partition("/")
            values = [None if value == "TOMBSTONE" else value.encode() for value in rest[1:]]
            await broker.append([Part(topic, [build(values)], int(partition) if slash else None)])
        case "trim":
            await broker.trim(rest[0], None, int(rest[1]))
        case "cursor":
            chunk = await broker.read(ReadRequest(rest[1]))
            await broker.commit_cursor(rest[0], rest[1], None, chunk.bookmark)
        case "refuse":
            await broker.refuse()
        case "user":
            credential = Credential.derive(" ".join(rest[1:]), b"salt" * 4, iterations=4096)
            await broker.add_user(rest[0], [credential], caller=ITSELF)
        case "connections":
            await broker.set_quota(rest[0], Quota(connections=int(rest[1])), caller=ITSELF)
        case "rule":
            await broker.add_rule(Rule("allow", rest[0], (rest[1],), *rest[2:]), caller=ITSELF)
        case _:
            raise AssertionError(action)


async def begin_anew(broker: LocalBroker) -> None:
    await broker.accept(caller=ITSELF)
    for topic in await broker.list_topics(caller=ITSELF):
        await broker.delete_topic(topic.name, caller=ITSELF)
    for user in await broker.list_users(caller=ITSELF):
        await broker.remove_user(user.name, caller=ITSELF)
    for quota in await broker.list_quotas(caller=ITSELF):
        await broker.remove_quota(quota.who, caller=ITSELF)
    broker.sign_in._brake._failures.clear()


def front_end_of(broker: LocalBroker, transcript: Transcript, ended: Callable[[], None]) -> LogdFrontEnd:
    settings = dict(transcript.settings)
    shutdown = bool(settings.pop("logd.shutdown", 0))
    for name in (ANONYMOUS, EXPOSED):
        settings.pop(name, None)
    changed: dict[str, Any] = {name.removeprefix("limits."): value for name, value in settings.items()}
    limits = msgspec.structs.replace(Limits(), **changed)
    where = lambda: CONFIG, broker, ended, ADDRESS
    own = broker, limits, Rejections(), LogdSettings(shutdown), *where, broker.sign_in
    return LogdFrontEnd(*own, quotas=broker.quotas)


async def replay(broker: LocalBroker, transcript: Transcript, cuts: Sequence[int]) -> None:
    """`cuts` are places in the first thing that is sent."""
    ends: list[bool] = []
    front_end = front_end_of(broker, transcript, lambda: ends.append(True))
    line = Line(front_end, "192.0.2.1" if transcript.settings.get(EXPOSED) else None)
    for number, step in enumerate(transcript.steps):
        for action in step.actions:
            await act(broker, action)
        bounds = [0, *(() if number else cuts), len(step.sent)]
        for start, end in pairwise(bounds):
            line.send(step.sent[start:end])
            if number == 0 and cuts:
                await asyncio.sleep(0)
        await line.expect(step.pattern)
    if transcript.is_closed:
        await line.until_closed()
    else:
        line.send(b"PING\r\n")
        await line.expect(b"PONG\r\n")
        assert not line.wire.closed
    line.lose()
    await front_end.close(0.0)
    assert front_end.receive_memory.bytes == 0
    assert len(ends) == transcript.settings.get("logd.shutdown", 0)


def replay_all(path: Path, ways: Callable[[int], list[list[int]]]) -> None:
    """A conversation once for every way to cut it, each time with nothing left of the time before."""
    transcript = load(path)
    complaints: list[str] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(str(context)))
        is_open = transcript.settings.get(ANONYMOUS, 1)
        broker = await LocalBroker.open(directory, BrokerConfig(anonymous="all" if is_open else "none"))
        for cuts in ways(len(transcript.steps[0].sent)):
            await replay(broker, transcript, cuts)
            await begin_anew(broker)
        await broker.close()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(story())
    assert complaints == []


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=NAMES)
def test_a_conversation_goes_as_it_is_written(path: Path) -> None:
    replay_all(path, lambda _: [[]])


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=NAMES)
def test_a_conversation_does_not_depend_on_where_the_stream_is_cut(path: Path) -> None:
    replay_all(path, lambda size: [[cut] for cut in range(1, size)])


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=NAMES)
def test_a_conversation_that_comes_byte_by_byte_is_the_same(path: Path) -> None:
    replay_all(path, lambda size: [list(range(1, size))])


def test_there_is_a_conversation_for_every_command_and_every_error() -> None:
    written = "".join(path.read_text() for path in TRANSCRIPTS)
    for word in WORDS:
        assert f"> {word.decode()}" in written
    reasons = [value for name, value in vars(errors).items() if name.isupper() and isinstance(value, bytes)]
    assert len(reasons) == 15
    for reason in reasons:
        assert f"< ERR {reason.decode()}\n" in written
