"""Group calls of the binary protocol, as who means harm sends them: each is answered, and nobody else notices."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from logboom.batch import build
from logboom.broker.api import GroupMove, Part
from logboom.broker.caller import EVERYBODY, Caller
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits
from logboom.broker.local import LocalBroker
from logboom.broker.rules import OPEN
from logboom.errors import LimitExceeded
from logboom.protocols.binary.messages import Kind
from support.brokers.group_member import GroupMember
from support.peers.binary import BinaryPeer, serve

Story = Callable[[LocalBroker, BinaryPeer], Awaitable[None]]
MEMBER = "ann".ljust(16, "-")
CALLS = 600


def tell(path: Path, story: Story, limits: Limits = Limits()) -> None:  # noqa: B008
    async def run() -> None:
        async with asyncio.timeout(300):
            broker = await LocalBroker.open(str(path / "data"), BrokerConfig(limits=limits), rules=OPEN)
            try:
                await broker.create_topic("rooms", 3)
                for partition in range(3):
                    await broker.append([Part("rooms", [build([b"x"] * 10)], partition)])
                async with serve(broker) as served:
                    await story(broker, await served.peer())
            finally:
                await broker.close()

    path.mkdir(exist_ok=True)
    asyncio.run(run())


async def ask(peer: BinaryPeer, call: str, **about: Any) -> tuple[int, Any]:
    kind, correlation, head, _ = await peer.ask(Kind.CALL, 7, {"type": call, **about})
    assert correlation == 7
    return kind, head


class Malice:
    """Calls that make sense to the eye."""

    def __init__(self, seed: int, topic_id: str) -> None:
        self._chance = Random(seed)
        self._topic_id = topic_id

    def call(self) -> dict[str, Any]:
        makers = self._join, self._beat, self._leave, self._commit, self._reset, self._read
        return self._chance.choice(makers)()

    def _name(self) -> Any:
        names = "billing", "", "no such", "@billing", "x" * 248, "x" * 10_000, "ä\0", "_groups", f"g{self._number()}"
        return self._chance.choice(names)

    def _member(self) -> str:
        return self._chance.choice((MEMBER, "", "x" * 16, "x" * 64, "x" * 5_000, "../" * 6, "member\n" * 3))

    def _number(self) -> int:
        return self._chance.choice((0, 1, 2, 3, -1, 7, 2**31, 2**62, -(2**62)))

    def _topic(self) -> str:
        return self._chance.choice(
            ("rooms", "rooms/1", "*", "rooms/9", "", "_groups", ",".join(["a*"] * 900), "x" * 300)
        )

    def _place(self) -> str:
        return self._chance.choice(("", "1", "x" * 2_000, "1" + "A" * 43, "2" * 60, "\0"))

    def _held(self) -> list[list[Any]]:
        ids = self._topic_id, "", "f" * 32, "x" * 100
        count = self._chance.choice((0, 1, 3, 900))
        return [[self._chance.choice(ids), self._number()] for _ in range(count)]

    def _join(self) -> dict[str, Any]:
        wish = {"group": self._name(), "member": self._member(), "topics": self._topic()}
        odd = {"session_ms": self._number(), "give_back_ms": self._number(), "instance": self._name(), "mode": "queue"}
        odd |= {"start": {"at": "latest"}, "client": self._name(), "queue": {"lease_ms": self._number()}}
        some = self._chance.sample(sorted(odd), self._chance.randrange(3))
        return {"type": "join_group", "join": wish | {name: odd[name] for name in some}}

    def _beat(self) -> dict[str, Any]:
        about = {"group": self._name(), "member": self._member(), "generation": self._number(), "wait_ms": 0}
        return {"type": "beat_group", "held": self._held(), **about}

    def _leave(self) -> dict[str, Any]:
        member = self._member()
        return {"type": "leave_group", "group": self._name(), "member": "x" * 16 if member == MEMBER else member}

    def _commit(self) -> dict[str, Any]:
        count = self._chance.choice((0, 1, 3, 9))
        moves = [[self._topic(), self._number(), self._place(), self._number()]] * count
        return {"type": "commit_group", "group": self._name(), "member": self._member(), "moves": moves}

    def _reset(self) -> dict[str, Any]:
        start = self._chance.choice(({}, {"at": "latest"}, {"seqno": self._number()}, {"bookmark": self._place()}))
        return {"type": "reset_group", "group": self._name(), "topics": self._topic(), "start": start}

    def _read(self) -> dict[str, Any]:
        call = self._chance.choice(("describe_group", "delete_group"))
        return {"type": call, "group": self._name()}


@pytest.mark.parametrize("seed", [1, 2])
def test_malicious_calls_are_answered_and_a_member_goes_on(tmp_path: Path, seed: int) -> None:
    async def story(broker: LocalBroker, peer: BinaryPeer) -> None:
        ann = await GroupMember(broker, "ann", caller=Caller("ann"), session_ms=600_000).join()
        grants = dict(ann.grants)
        malice = Malice(seed, next(iter(grants.values())).topic_id)
        answers = set()
        for _ in range(CALLS):
            call = malice.call()
            kind, head = await ask(peer, call.pop("type"), **call)
            answers.add(kind if kind == Kind.RESULT else head["code"])
        assert {Kind.RESULT, "invalid-group", "member-unknown", "group-not-found"} <= answers
        assert "internal" not in answers
        await ann.beat()
        assert {log: ann.grants[log].generation for log in ann.grants}.items() <= {
            log: grant.generation for log, grant in grants.items()
        }.items()
        assert await ann.commit(5, partition=ann.logs[0][1]) == []

    tell(tmp_path, story, Limits(groups=10, group_members=5))


def test_a_place_that_is_none_and_a_generation_of_nobody_are_refused_by_name(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, peer: BinaryPeer) -> None:
        ann = await GroupMember(broker, "ann").join()
        grant = ann.grants["rooms", 0]
        moves = [["rooms", 0, "x" * 20_000, grant.generation], ["rooms", 1, "1x", grant.generation + 1]]
        _, refused = await ask(peer, "commit_group", group="billing", member=MEMBER, moves=moves)
        assert [each["code"] for each in refused] == ["invalid-bookmark", "log-not-held"]
        assert all(len(each["reason"]) < 500 for each in refused)
        with pytest.raises(LimitExceeded):
            await broker.commit_group("billing", MEMBER, [GroupMove("rooms", 0, "x", 1)] * 10_001)
        kind, head = await ask(peer, "commit_group", group="nobody", member=MEMBER, moves=moves)
        assert (kind, head["code"]) == (Kind.ERROR, "member-unknown")

    tell(tmp_path, story)


def test_more_groups_than_the_limit_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, peer: BinaryPeer) -> None:
        answers = []
        for number in range(300):
            wish = {"group": f"g{number}", "member": MEMBER, "topics": "rooms", "start": {"at": "latest"}}
            kind, head = await ask(peer, "join_group", join=wish)
            answers.append(head["code"] if kind == Kind.ERROR else "joined")
        assert answers == ["joined"] * 20 + ["limit-exceeded"] * 280
        assert "limits.groups" in head["message"]
        assert len(await broker.list_groups(caller=EVERYBODY)) == 20
        assert len(await broker.list_cursors()) == 60

    tell(tmp_path, story, Limits(groups=20))


def test_thousands_of_joins_and_leaves_leave_nothing(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, peer: BinaryPeer) -> None:
        ann = await GroupMember(broker, "ann", session_ms=600_000).join()
        kept = ann.grants["rooms", 0].generation
        for number in range(1_000):
            member = f"member-{number:012}"
            wish = {"group": "billing", "member": member, "topics": "nothing.*", "session_ms": 3_600_000 - number}
            assert (await ask(peer, "join_group", join=wish))[0] == Kind.RESULT
            assert (await ask(peer, "leave_group", group="billing", member=member))[0] == Kind.RESULT
        found = await broker.describe_group("billing")
        assert [each.member for each in found.members] == [ann.member]
        await ann.beat()
        assert ann.grants["rooms", 0].generation == kept

    tell(tmp_path, story)
