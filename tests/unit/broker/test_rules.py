"""Every call of a broker asks the rules in the name of its caller, before it does anything."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from logboom.batch import build
from logboom.broker.api import Part, Settings
from logboom.broker.caller import Caller
from logboom.broker.local import LocalBroker
from logboom.broker.rules import ObjectKind, OpenRules, Right
from logboom.errors import LogboomError
from support.brokers.every_call import ASKED, ask, calls

SOMEBODY = Caller("somebody", protocol="test")


class NotAllowed(LogboomError):
    """What these rules say."""


class Scribe(OpenRules):
    """Writes down what it is asked. Allows everything before the last question it is told of, and then nothing."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.callers: set[Caller] = set()
        self.allowed: int | None = None

    def check(self, caller: Caller, right: Right, kind: ObjectKind, name: str = "") -> None:
        if self.allowed is not None:
            self.callers.add(caller)
            self.asked.append((right, kind, name))
            if len(self.asked) > self.allowed:
                raise NotAllowed(f"{caller.principal} may not {right} {kind} {name}")


def test_what_each_call_asks_for_is_known() -> None:
    assert set(calls()) == ASKED.keys()


@pytest.mark.parametrize("call", sorted(ASKED))
def test_a_call_asks_in_the_name_of_its_caller_and_does_nothing_where_that_is_refused(
    call: str, tmp_path: Path
) -> None:
    async def story() -> None:
        rules = Scribe()
        broker = await LocalBroker.open(str(tmp_path), rules=rules)
        try:
            await broker.create_topic("events", settings=Settings())
            await broker.append([Part("events", [build([b"a", b"b"])])])
            before = await broker.list_topics()
            for allowed in range(len(ASKED[call])):
                rules.asked.clear()
                rules.allowed = allowed
                refused = await ask(broker, call, SOMEBODY)
                rules.allowed = None
                assert [type(error) for error in refused] == [NotAllowed]
                assert rules.asked == ASKED[call][: allowed + 1]
            assert rules.callers == ({SOMEBODY} if ASKED[call] else set())
            assert broker.rejections["NotAllowed"] == len(ASKED[call])
            assert (await broker.list_topics(), (await broker.stats()).refused) == (before, None)
        finally:
            await broker.close()

    asyncio.run(story())


def test_a_write_that_would_make_its_topic_asks_for_that_too(tmp_path: Path) -> None:
    async def story() -> None:
        rules = Scribe()
        broker = await LocalBroker.open(str(tmp_path), rules=rules)
        try:
            rules.allowed = 1
            (answer,) = await broker.append([Part("new", [build([b"x"])])], caller=SOMEBODY)
            assert rules.asked == [("write", "topic", "new"), ("create", "topic", "new")]
            rules.allowed = None
            assert isinstance(answer, NotAllowed)
            assert await broker.list_topics() == []
        finally:
            await broker.close()

    asyncio.run(story())


def test_the_page_about_rules_says_of_every_call_what_it_asks_for() -> None:
    page = (Path(__file__).parents[3] / "docs/howto/access.md").read_text()
    table = page[page.index("## What is needed for what") :].split("\n\n")[1]
    said: dict[str, set[tuple[str, ...]]] = {}
    for row in table.splitlines()[2:]:
        _, _, named, needed, _ = row.split("|")
        rights = {tuple(part.split()[:2]) for part in needed.split(",") if part.strip()}
        said |= dict.fromkeys(re.findall(r"`(\w+)`", named), rights)
    assert said == {call: {asked[:2] for asked in ASKED[call]} for call in ASKED}
