"""The audit trail: what is in it, how little a flood of refusals costs, and that nobody waits for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logboom.access.credential import Credential
from logboom.access.rule import Rule
from logboom.batch import Batch, build
from logboom.broker.access import audit_trail
from logboom.broker.access.audit_trail import (
    DETAIL_BYTES_MOST,
    KEYS_MOST,
    KINDS_MOST,
    QUEUED_MOST,
    SAMPLE_S,
    TOPIC,
    AuditSettings,
    AuditTrail,
)
from logboom.broker.access.audited_acts import ACTS
from logboom.broker.api import Part, ReadRequest, Settings, Start
from logboom.broker.caller import ITSELF, Caller
from logboom.broker.config import BrokerConfig
from logboom.broker.local import LocalBroker
from logboom.broker.world import World
from logboom.errors import (
    ConfigError,
    NotAllowed,
    SignInFailed,
    SignInRequired,
    StorageError,
    TopicExists,
    TopicNotAllowed,
    TopicNotFound,
)

GUARDED = BrokerConfig(anonymous="none")
ALICE = Caller("alice", by="certificate", protocol="binary", address="10.0.0.1:4711")
BOB = Caller("bob", by="certificate", protocol="http", address="10.0.0.2:4712")
SECRET = "correct horse"


async def trail(broker: LocalBroker) -> list[dict[str, Any]]:
    """Everything in it, when nothing waits to be written."""
    while broker.audit._queue:
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.02)
    found: list[dict[str, Any]] = []
    request = ReadRequest(TOPIC)
    chunk = await broker.read(request, caller=ITSELF)
    for batch in chunk.batches():
        found += [msgspec.json.decode(value) for value in batch.values() if value is not None]
    return found


async def opened(path: Path, config: BrokerConfig = GUARDED) -> LocalBroker:
    broker = await LocalBroker.open(str(path), config)
    credential = Credential.derive(SECRET, b"salt" * 4, iterations=4096)
    await broker.add_user("alice", [credential], roles=["admin"], caller=ITSELF)
    await broker.add_user("bob", [credential], caller=ITSELF)
    return broker


def brief(records: list[dict[str, Any]], who: str) -> list[tuple[str, str, str]]:
    return [(each["act"], each.get("object", ""), each["outcome"]) for each in records if each["who"] == who]


def test_acts_are_recorded_with_who_from_where_and_how_they_ended(tmp_path: Path) -> None:
    async def story() -> None:
        broker = await opened(tmp_path)
        await broker.create_topic("orders", 2, caller=ALICE)
        with pytest.raises(TopicExists):
            await broker.create_topic("orders", caller=ALICE)
        await broker.configure_topic("orders", Settings(), caller=ALICE)
        await broker.trim("orders", 1, 0, caller=ALICE)
        await broker.delete_cursor("c", caller=ALICE)
        await broker.reset_group("billing", "orders/1", Start(at="latest"), caller=ALICE)
        await broker.delete_group("billing", caller=ALICE)
        await broker.refuse("orders", "for now", caller=ALICE)
        await broker.accept("orders", caller=ALICE)
        await broker.refuse(caller=ALICE)
        await broker.accept(caller=ALICE)
        await broker.promote(caller=ALICE)
        rule = await broker.add_rule(Rule("allow", "bob", ("read",), "topic", "orders"), caller=ALICE)
        await broker.remove_rule(rule.number, caller=ALICE)
        await broker.set_role("ops", ["bob"], caller=ALICE)
        await broker.change_user("bob", groups=["g"], enabled=False, caller=ALICE)
        made = await broker.create_token("bob", note="n", caller=ALICE)
        await broker.revoke_token(made.info.id, caller=ALICE)
        await broker.remove_user("bob", caller=ALICE)
        await broker.delete_topic("orders", caller=ALICE)
        await broker.append([Part("made", [build([b"a"])], 0)], caller=ALICE)
        records = await trail(broker)
        assert brief(records, "alice") == [
            ("create topic", "orders", "done"),
            ("create topic", "orders", "topic-exists"),
            ("configure topic", "orders", "done"),
            ("trim topic", "orders", "done"),
            ("delete cursor", "c", "done"),
            ("reset group", "billing", "done"),
            ("delete group", "billing", "done"),
            ("refuse writes", "orders", "done"),
            ("accept writes", "orders", "done"),
            ("refuse writes", "", "done"),
            ("accept writes", "", "done"),
            ("promote node", "", "done"),
            ("add rule", "allow bob read topic orders", "done"),
            ("remove rule", "1", "done"),
            ("set role", "ops", "done"),
            ("change user", "bob", "done"),
            ("create token", "bob", "done"),
            ("revoke token", made.info.id, "done"),
            ("remove user", "bob", "done"),
            ("delete topic", "orders", "done"),
            ("create topic by writing", "made", "done"),
        ]
        first = next(each for each in records if each["who"] == "alice")
        assert (first["by"], first["address"], first["protocol"]) == ("certificate", "10.0.0.1:4711", "binary")
        assert first["detail"] == {"partitions": 2}
        assert first["time"].endswith("Z")
        reset = next(each for each in records if each["act"] == "reset group")
        assert reset["detail"] == {"topics": "orders/1", "start": {"at": "latest"}}
        added = next(each for each in records if each["act"] == "add user")
        assert added["detail"] == {"roles": ["admin"], "password": "set"}
        text = msgspec.json.encode(records).decode()
        assert made.token not in text
        assert SECRET not in text
        await broker.close()

    asyncio.run(story())


def test_who_does_not_wait_for_the_end_of_an_act_is_not_said_to_have_failed(tmp_path: Path) -> None:
    async def story() -> None:
        broker = await opened(tmp_path)
        leaving = asyncio.create_task(broker.set_role("admin", ["bob"], caller=ALICE))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
        await broker.set_role("ops", ["bob"], caller=ALICE)
        assert {role.name for role in await broker.list_roles(caller=ITSELF)} == {"admin", "ops"}
        assert brief(await trail(broker), "alice") == [("set role", "admin", "unknown"), ("set role", "ops", "done")]
        await broker.close()

    asyncio.run(story())


def test_refusals_and_failed_sign_ins_are_recorded_once(tmp_path: Path) -> None:
    async def story() -> None:
        broker = await opened(tmp_path)
        await broker.create_topic("orders", caller=ITSELF)
        stranger = Caller(protocol="logd", address="10.0.0.3:1")
        for port in range(5):
            elsewhere = replace(BOB, address=f"10.0.0.2:{port}")
            with pytest.raises(NotAllowed):
                await broker.create_topic("more", caller=elsewhere)
            with pytest.raises(TopicNotFound):
                await broker.delete_topic("orders", caller=elsewhere)
            (answer,) = await broker.append([Part("orders", [build([b"a"])], 0)], caller=elsewhere)
            assert isinstance(answer, TopicNotFound)
        with pytest.raises(SignInRequired):
            await broker.stats(caller=stranger)
        with pytest.raises(SignInFailed):
            await broker.sign_in.with_password(stranger, "alice", "a wrong one")
        broker.sign_in.refuse(stranger)
        records = await trail(broker)
        assert brief(records, "bob") == [
            ("create topic", "more", "not-allowed"),
            ("delete topic", "orders", "not-allowed"),
            ("write topic", "orders", "not-allowed"),
        ]
        assert brief(records, "anonymous") == [
            ("describe node", "", "sign-in-required"),
            ("sign in", "alice", "sign-in-failed"),
            ("sign in", "", "sign-in-required"),
        ]
        assert "a wrong one" not in msgspec.json.encode(records).decode()
        await broker.close()
        broker = await LocalBroker.open(str(tmp_path), GUARDED)
        again = [each for each in await trail(broker) if each.get("count", 1) > 1]
        assert [(each["act"], each["count"]) for each in again] == [
            ("create topic", 4),
            ("delete topic", 4),
            ("write topic", 4),
        ]
        await broker.close()

    asyncio.run(story())


def test_only_those_with_a_rule_for_it_read_the_trail(tmp_path: Path) -> None:
    async def story() -> None:
        broker = await opened(tmp_path)
        await broker.add_rule(Rule("allow", "bob", ("all",), "all"), caller=ITSELF)
        with pytest.raises(TopicNotFound):
            await broker.read(ReadRequest(TOPIC), caller=BOB)
        await broker.add_rule(Rule("allow", "bob", ("read",), "topic", TOPIC), caller=ITSELF)
        assert (await broker.read(ReadRequest(TOPIC), caller=BOB)).next_seqno > 0
        for change in (broker.delete_topic(TOPIC, caller=ALICE), broker.trim(TOPIC, 0, 1, caller=ALICE)):
            with pytest.raises(TopicNotAllowed):
                await change
        with pytest.raises(TopicNotAllowed):
            await broker.configure_topic(TOPIC, Settings(), caller=ALICE)
        (answer,) = await broker.append([Part(TOPIC, [build([b"a lie"])], 0)], caller=ALICE)
        assert isinstance(answer, TopicNotAllowed)
        await broker.close()

    asyncio.run(story())


@pytest.mark.parametrize(("anonymous", "enabled", "is_on"), [("all", None, 0), ("all", True, 1), ("none", False, 0)])
def test_there_is_a_trail_where_callers_sign_in_or_somebody_wants_one(
    tmp_path: Path, anonymous: Any, enabled: bool | None, is_on: bool
) -> None:
    async def story() -> None:
        config = BrokerConfig(anonymous=anonymous, audit=AuditSettings(enabled))
        broker = await LocalBroker.open(str(tmp_path), config)
        names = [topic.name for topic in await broker.list_topics(internal=True, caller=ITSELF)]
        assert (TOPIC in names) == broker.audit.is_on == bool(is_on)
        await broker.create_topic("orders", caller=ITSELF)
        await broker.close()

    asyncio.run(story())


def test_how_much_is_kept_is_what_the_configuration_says_now(tmp_path: Path) -> None:
    async def story() -> None:
        for days in (7, 30):
            audit = AuditSettings(True, 16 << 20, days)
            broker = await LocalBroker.open(str(tmp_path), BrokerConfig(audit=audit))
            settings = (await broker.describe_topic(TOPIC, caller=ITSELF)).settings
            assert (settings.retention.bytes, settings.retention.age_ms) == (16 << 20, days * 86_400_000)
            assert settings.segment.bytes == 2 << 20
            await broker.close()

    asyncio.run(story())
    with pytest.raises(ConfigError, match=r"audit\.days: is 0, allowed are"):
        BrokerConfig(audit=AuditSettings(days=0))


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0
        self.world = World(monotonic_s=lambda: self.now_s)


def kept(audit: AuditTrail) -> list[tuple[str, str, int]]:
    return [(record.act, record.object, record.count) for record in audit._queue]


def test_a_minute_later_it_is_told_again_with_how_often_it_was() -> None:
    async def story() -> None:
        clock = Clock()
        audit = AuditTrail(clock.world, True)
        for _ in range(10):
            audit.note_refusal(BOB, "read topic", "orders", SignInFailed())
        clock.now_s += SAMPLE_S
        audit.note_refusal(BOB, "read topic", "orders", SignInFailed())
        audit.note_refusal(BOB, "read topic", "orders", SignInFailed())
        assert kept(audit) == [("read topic", "orders", 1), ("read topic", "orders", 10)]
        clock.now_s += SAMPLE_S
        audit._settle_old(SAMPLE_S)
        assert kept(audit)[2:] == [("read topic", "orders", 1)]
        assert not audit._repeats
        assert not audit._kinds

    asyncio.run(story())


def test_a_host_that_is_refused_ever_new_things_takes_no_more_room() -> None:
    async def story() -> None:
        audit = AuditTrail(Clock().world, True)
        for number in range(1000):
            audit.note_refusal(BOB, "read topic", f"topic{number}", SignInFailed())
        assert len(audit._queue) == KINDS_MOST + 1
        assert kept(audit)[-1] == ("*", "*", 1)
        audit._settle_old(0.0)
        assert kept(audit)[-1] == ("*", "*", 1000 - KINDS_MOST - 1)

    asyncio.run(story())


def test_what_is_remembered_and_queued_is_bounded_and_what_is_lost_is_counted() -> None:
    async def story() -> None:
        audit = AuditTrail(Clock().world, True)
        for number in range(2 * QUEUED_MOST):
            caller = Caller(address=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:9")
            audit.note_refusal(caller, "read topic", "x" * 10_000, SignInFailed())
        assert len(audit._repeats) == KEYS_MOST
        assert len(audit._kinds) == KEYS_MOST
        assert len(audit._queue) == QUEUED_MOST
        assert max(len(record.object) for record in audit._queue) == 260
        assert audit.lost == QUEUED_MOST
        written: list[dict[str, Any]] = []

        async def append(batch: Batch) -> None:
            written.extend(msgspec.json.decode(value) for value in batch.values() if value is not None)

        audit.close()
        await audit.run(append)
        assert [each["count"] for each in written if each["outcome"] == "lost"] == [QUEUED_MOST]
        assert len(written) == QUEUED_MOST + 1

    asyncio.run(story())


def test_nobody_waits_for_a_trail_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_trail, "RETRY_S", 0.01)

    async def story() -> None:
        audit = AuditTrail(World(), True)
        fails = True
        written: list[dict[str, Any]] = []

        async def append(batch: Batch) -> None:
            if fails:
                raise StorageError("the disk is full")
            written.extend(msgspec.json.decode(value) for value in batch.values() if value is not None)

        running = asyncio.create_task(audit.run(append))
        for _ in range(3):
            audit.note_act(ALICE, "create topic", "orders")
            await asyncio.sleep(0.02)
        assert audit.lost == 3
        fails = False
        while not written:
            await asyncio.sleep(0.005)
        assert [(each["who"], each["outcome"], each["count"]) for each in written] == [("_node", "lost", 3)]
        fails = True
        audit.note_act(ALICE, "create topic", "orders")
        audit.close()
        await running

    asyncio.run(story())


def test_what_is_said_about_an_act_is_bounded() -> None:
    async def story() -> None:
        audit = AuditTrail(World(), True)
        audit.note_act(ALICE, "set role", "ops", detail={"members": ["x" * 100] * 1000})
        audit.note_act(ALICE, "set role", "ops", detail={"members": ["x"]})
        large, small = (record.detail for record in audit._queue)
        assert list(large) == ["bytes"]
        assert large["bytes"] > DETAIL_BYTES_MOST
        assert small == {"members": ["x"]}

    asyncio.run(story())


def test_the_table_names_calls_and_arguments_that_there_are() -> None:
    for name, act in ACTS.items():
        call = getattr(LocalBroker, name)
        wanted = {act.object, *act.detail} - {""}
        assert wanted <= set(call.__wrapped__.__code__.co_varnames), name
