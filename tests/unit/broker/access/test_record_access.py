"""Rules on channels and tags, at a broker: what callers read and write of topics that they may use."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from logboom.access.restriction import Restriction
from logboom.access.rule import Rule
from logboom.batch import Batch, Producer, build
from logboom.broker.api import PIPELINE_TOPIC, Appended, Chunk, Filter, Part, PublishKey, ReadRequest, Receipt, Start
from logboom.broker.caller import ITSELF, Caller
from logboom.broker.config import BrokerConfig
from logboom.broker.local import LocalBroker
from logboom.broker.rules import ObjectKind, OpenRules, Right
from logboom.errors import BatchError, LogboomError, NotAllowed, RecordNotAllowed, TopicNotFound
from support.brokers.every_call import ASKED, arguments

ANN = Caller("ann", by="certificate")
BOB = Caller("bob", by="certificate")
RULES = (
    "allow * all topic *",
    "allow * all transaction *",
    "allow * all cursor *",
)
Story = Callable[[LocalBroker], Awaitable[None]]


@pytest.fixture(params=["quick", "on a thread"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a batch: small ones are looked through at once."""
    if request.param != "quick":
        monkeypatch.setattr("logboom.broker.access.write_screen.QUICK_BYTES", 0)
        monkeypatch.setattr("logboom.access.restriction.FEW", 0)


def tell(path: Path, story: Story, *rules: str) -> None:
    """With these rules, and a topic `events`."""

    async def live() -> None:
        broker = await LocalBroker.open(str(path), BrokerConfig(anonymous="none"))
        try:
            for text in (*RULES, *rules):
                await add(broker, text)
            await broker.create_topic("events", caller=ITSELF)
            await story(broker)
        finally:
            await broker.close()

    asyncio.run(live())


async def add(broker: LocalBroker, text: str) -> int:
    effect, who, rights, kind, name = text.split()
    rule = Rule(effect, who, tuple(rights.split(",")), kind, name)  # type: ignore[arg-type]
    return (await broker.add_rule(rule, caller=ITSELF)).number


def batch_of(*records: tuple[Any, ...], **more: Any) -> Batch:
    """Of a channel, and tags: the value says both."""
    return build(
        [" ".join(map(str, record)).encode() for record in records],
        channels=[record[0] for record in records],
        tags=[record[1:] for record in records],
        **more,
    )


async def write(broker: LocalBroker, *records: tuple[Any, ...], caller: Caller = ITSELF, **more: Any) -> Any:
    return (await broker.append([Part("events", [batch_of(*records, **more)])], caller=caller))[0]


async def read(broker: LocalBroker, caller: Caller = ANN, seqno: int = 0, **more: Any) -> Chunk:
    return await broker.read(ReadRequest("events", Start(seqno=seqno), **more), caller=caller)


async def read_all(broker: LocalBroker, caller: Caller = ANN, **more: Any) -> list[tuple[int | None, str]]:
    """Seqnos and values, to the end."""
    found: list[tuple[int | None, str]] = []
    seqno = 0
    while True:
        chunk = await read(broker, caller, seqno, **more)
        found += [(record.seqno, (record.value or b"").decode()) for record in chunk.records()]
        assert chunk.next_seqno > seqno or chunk.at_end
        seqno = chunk.next_seqno
        if chunk.at_end:
            return found


MIXED = [("a/1",), ("b/1",), (None,), ("a/2", "secret"), ("a/3", "red")]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_records_that_may_not_be_read_are_left_out(tmp_path: Path, codec: str) -> None:
    async def story(broker: LocalBroker) -> None:
        await write(broker, *MIXED, codec=codec)
        await write(broker, ("b/2",), codec=codec)
        await write(broker, *MIXED, codec=codec)
        everything = await read_all(broker, BOB)
        assert len(everything) == 11
        expected = [(0, "a/1"), (4, "a/3 red"), (6, "a/1"), (10, "a/3 red")]
        assert await read_all(broker) == expected
        assert await read_all(broker, max_records=1) == expected
        assert await read_all(broker, max_bytes=1) == expected
        assert await read_all(broker, filter=Filter(tags_any=("red",))) == [expected[1], expected[3]]
        assert await read_all(broker, filter=Filter(channel="b/#")) == []
        assert await read_all(broker, filter=Filter(tags_all=("secret",))) == []

    tell(tmp_path, story, "allow ann read channel a/#", "deny ann read tag secret")


def test_a_limit_of_records_is_kept_where_some_are_left_out(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await write(broker, *[("a" if number % 3 else "b",) for number in range(100)])
        chunk = await read(broker, max_records=4, seqno=3)
        assert [record.seqno for record in chunk.records()] == [4, 5, 7, 8]
        assert (chunk.seqno, chunk.next_seqno, chunk.record_count) == (3, 9, 4)

    tell(tmp_path, story, "deny ann read channel b")


@pytest.mark.usefixtures("way")
def test_a_record_that_may_not_be_written_refuses_its_batch(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        for codec in ("none", "lz4", "zstd"):
            assert isinstance(await write(broker, ("a/ann/x",), ("a/ann",), caller=ANN, codec=codec), Appended)
            for records, kind, name in (
                ([("a/ann/x",), ("a/bob/x",)], "channel", "a/bob/x"),
                ([("a/ann/x",), (None,)], "channel", ""),
                ([("a/ann/x", "red"), ("a/ann", "ok", "secret")], "tag", "secret"),
            ):
                refused = await write(broker, *records, caller=ANN, codec=codec)
                assert isinstance(refused, RecordNotAllowed), refused
                assert (refused.principal, refused.right, refused.kind, refused.name) == ("ann", "write", kind, name)
        assert "without a channel" in str(await write(broker, (None,), caller=ANN))
        assert isinstance(await write(broker, (None,), ("a/ann", "secret"), caller=BOB), RecordNotAllowed)
        assert isinstance(await write(broker, ("a/bob",), caller=BOB), Appended)
        assert len(await read_all(broker, ITSELF)) == 7

    tell(tmp_path, story, "allow * write channel a/%u/#", "deny * write tag secret")


@pytest.mark.usefixtures("way")
def test_of_several_batches_those_that_may_be_written_are(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        good, bad = batch_of(("a",)), batch_of(("b",))
        answers = await broker.append([Part("events", [good, bad, good])], caller=ANN)
        assert [type(answer) for answer in answers] == [Appended, RecordNotAllowed, Appended]
        answers = await broker.append([Part("events", [good, bad, good], expect_seqno=2)], caller=ANN)
        assert [type(answer) for answer in answers] == [RecordNotAllowed] * 3
        assert await read_all(broker, ITSELF) == [(0, "a"), (1, "a")]

    tell(tmp_path, story, "deny ann write channel b")


def test_appends_keep_their_order_beside_those_that_are_looked_through(tmp_path: Path) -> None:
    dice = random.Random(1)

    async def story(broker: LocalBroker) -> None:
        answers = [
            broker.append([Part("events", [batch_of(*[(f"{number}",)] * dice.choice([1, 30]))])], caller=caller)
            for number, caller in enumerate([ANN, BOB] * 20)
        ]
        placed = [(await answer)[0] for answer in answers]
        seqnos = [answer.base_seqno for answer in placed if isinstance(answer, Appended)]
        assert (len(seqnos), seqnos) == (40, sorted(seqnos))
        values = [value for _, value in await read_all(broker, ITSELF)]
        assert list(dict.fromkeys(values)) == [str(number) for number in range(40)]

    tell(tmp_path, story, "deny ann write channel b")


@pytest.mark.usefixtures("way")
def test_who_may_write_some_records_only_says_to_the_pipeline_what_he_likes(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        part = Part(PIPELINE_TOPIC, [build([b"{}"])], 0, 0)
        (answer,) = await broker.append([part], "durable", caller=ANN)
        assert isinstance(answer, Appended)

    tell(tmp_path, story, "allow ann all pipeline *", "allow ann write channel in/#")


@pytest.mark.usefixtures("way")
def test_what_is_no_batch_is_refused_as_such(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        broken = bytearray(batch_of(("a",), ("b",), codec="zstd").data)
        broken[-1] ^= 0xFF
        (answer,) = await broker.append([Part("events", [Batch.parse(bytes(broken))])], caller=ANN)
        assert isinstance(answer, BatchError)
        assert await read_all(broker, ITSELF) == []

    tell(tmp_path, story, "allow ann write channel a")


@pytest.mark.usefixtures("way")
def test_a_repeat_of_what_another_may_write_is_judged_by_itself(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        batch = batch_of(("b",), producer=Producer(7, 0, 0))
        refused = broker.append([Part("events", [batch])], caller=ANN)
        placed = broker.append([Part("events", [batch])], caller=BOB)
        assert isinstance((await refused)[0], RecordNotAllowed)
        assert isinstance((await placed)[0], Appended)
        (again,) = await broker.append([Part("events", [batch])], caller=ANN)
        assert isinstance(again, Appended)  # nothing is written by that
        assert len(await read_all(broker, ITSELF)) == 1

    tell(tmp_path, story, "deny ann write channel b")


@pytest.mark.parametrize("large", [False, True])
def test_stages_are_looked_through_when_they_are_filled_and_when_they_are_published(
    tmp_path: Path, large: bool
) -> None:
    async def story(broker: LocalBroker) -> None:
        stage = await broker.open_stage(caller=ANN)

        def staged(seq: int, *channels: str) -> list[Part]:
            values = [b"x" * (6 << 20 if large else 10)] * len(channels)
            producer = Producer(stage.producer_id, 0, seq)
            return [Part("events", [build(values, channels=list(channels), producer=producer)])]

        assert isinstance((await broker.stage(stage.id, staged(0, "a"), caller=ANN))[0], Appended)
        assert isinstance((await broker.stage(stage.id, staged(1, "a", "b"), caller=ANN))[0], RecordNotAllowed)
        assert isinstance((await broker.stage(stage.id, staged(1, "a", "b"), caller=BOB))[0], Appended)
        assert isinstance((await broker.stage(stage.id, staged(3, "a"), caller=ANN))[0], Appended)
        with pytest.raises(RecordNotAllowed, match="channel 'b'"):
            await broker.publish(PublishKey("k", 1), [Receipt(stage.id)], caller=ANN)
        assert await read_all(broker, ITSELF) == []
        published = await broker.publish(PublishKey("k", 1), [Receipt(stage.id)], caller=BOB)
        assert not published.repeat
        assert len(await read_all(broker, ITSELF)) == 4

    tell(tmp_path, story, "deny ann write channel b")


def test_a_publish_in_one_call_is_looked_through(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("others", caller=ITSELF)
        parts = [Part("others", [batch_of(("a",))]), Part("events", [batch_of(("a",), ("b",))])]
        with pytest.raises(RecordNotAllowed):
            await broker.publish_batches(PublishKey("k", 1), parts, caller=ANN)
        assert await read_all(broker, ITSELF) == []
        await broker.publish_batches(PublishKey("k", 1), parts[:1], caller=ANN)

    tell(tmp_path, story, "deny ann write channel b")


def test_an_open_subscription_goes_by_the_rules_as_they_are(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        subscription = await broker.subscribe(ReadRequest("events"), caller=ANN)

        async def following(*records: tuple[Any, ...]) -> list[str]:
            coming = asyncio.ensure_future(subscription.next())
            await asyncio.sleep(0)
            await write(broker, *records)
            return [(record.value or b"").decode() for record in (await coming).records()]

        assert await following(("a",), ("b",)) == ["a", "b"]
        number = await add(broker, "deny ann read channel b")
        assert await following(("a",), ("b",)) == ["a"]
        coming = asyncio.ensure_future(subscription.next())
        await asyncio.sleep(0.05)  # it waits, with the rules of before
        await broker.remove_rule(number, caller=ITSELF)
        other = await add(broker, "allow ann read channel b")
        await write(broker, ("a",), ("b",))
        assert [record.value for record in (await coming).records()] == [b"b"]
        await broker.remove_rule(other, caller=ITSELF)
        assert await following(("a",), ("b",)) == ["a", "b"]
        await subscription.close()

    tell(tmp_path, story)


def test_a_chunk_that_was_looked_for_by_other_rules_is_looked_for_again(tmp_path: Path) -> None:
    class Changing(OpenRules):
        """They change while a chunk is looked for."""

        def __init__(self) -> None:
            self.coming: list[Restriction | None] = []
            self.is_over = False

        def check(self, caller: Caller, right: Right, kind: ObjectKind, name: str = "") -> None:
            if self.is_over and not self.coming:
                raise NotAllowed(caller.principal, right, kind, name)

        def restriction(self, caller: Caller, right: Right) -> Restriction | None:
            return None if caller is ITSELF or right != "read" else self.coming.pop(0)

    async def live() -> None:
        rules = Changing()
        broker = await LocalBroker.open(str(tmp_path), rules=rules)
        await broker.create_topic("events", caller=ITSELF)
        await write(broker, ("a",), ("b",), ("c",))
        no_b, no_c = Restriction(channels_denied=("b",)), Restriction(channels_denied=("c",))
        rules.coming = [None, None, no_b, no_b, no_c, no_c, no_c]
        assert [record.value for record in (await read(broker)).records()] == [b"a", b"b"]
        no_d = Restriction(channels=("d",))
        rules.coming = [no_d, no_d, None, None, None]
        assert [record.value for record in (await read(broker)).records()] == [b"a", b"b", b"c"]
        rules.coming, rules.is_over = [no_b, no_b, None, None], True
        with pytest.raises(NotAllowed):  # he is not restricted any more, because he may not read any more
            await read(broker)
        rules.is_over = False
        await broker.close()

    asyncio.run(live())


def test_who_loses_the_group_that_restricts_him_loses_what_it_gave_too(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.remove_rule(1, caller=ITSELF)
        await broker.add_user("cleo", groups=["guests"], caller=ITSELF)
        made = await broker.create_token("cleo", caller=ITSELF)
        caller = await broker.sign_in.with_token(Caller(), made.token)
        await write(broker, ("a",), ("b",))
        assert await read_all(broker, caller) == [(0, "a")]
        subscription = await broker.subscribe(ReadRequest("events", Start(seqno=2)), caller=caller)
        coming = asyncio.ensure_future(subscription.next())
        await asyncio.sleep(0.01)
        await broker.change_user("cleo", groups=[], caller=ITSELF)
        await write(broker, ("a",), ("b",))
        with pytest.raises(TopicNotFound):
            await coming
        with pytest.raises(TopicNotFound):
            await read(broker, caller)

    tell(tmp_path, story, "allow group:guests read topic events", "deny group:guests read channel b")


def test_a_long_stretch_without_a_readable_record_is_passed(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        for _ in range(20):
            await write(broker, *[("b",)] * 50)
        await write(broker, ("a",))
        await write(broker, ("b",))
        assert await read_all(broker) == [(1000, "a")]
        subscription = await broker.subscribe(ReadRequest("events"), caller=ANN)
        chunk = await subscription.next()
        assert [record.seqno for record in chunk.records()] == [1000]
        chunk = await read(broker, seqno=1001, wait_ms=10)
        assert (chunk.record_count, chunk.next_seqno, chunk.at_end) == (0, 1002, True)
        await subscription.close()

    tell(tmp_path, story, "allow ann read channel a")


def test_stored_batches_are_not_for_who_may_read_some_records_only(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await write(broker, ("a",))
        with pytest.raises(NotAllowed, match="may not copy topic 'events': rules on channels or tags"):
            await broker.feed("events", 0, 1, caller=ANN)
        feed = await broker.feed("events", 0, 1, caller=BOB)
        assert len((await feed.next()).data)
        await add(broker, "deny bob read tag secret")
        with pytest.raises(NotAllowed):
            await feed.next()

    tell(tmp_path, story, "deny ann read tag secret")


def test_who_may_read_some_records_only_is_not_sent_to_the_files(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        assert broker.shows_files(ANN)
        number = await add(broker, "deny ann read tag secret")
        assert not broker.shows_files(ANN)
        assert broker.shows_files(BOB)
        await broker.remove_rule(number, caller=ITSELF)
        assert broker.shows_files(ANN)

    tell(tmp_path, story, "deny ann write tag secret")


@pytest.mark.usefixtures("way")
def test_what_a_client_calls_itself_stands_for_it_and_for_nothing_else(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        for client, allowed in (("d7", "in/d7"), ("d/7", None), ("+", None), ("", None)):
            caller = Caller("ann", by="certificate", client=client)
            for channel in ("in/d7", "in/d8", "in/d/7", "in/+", "in/", f"in/{client}"):
                answer = await write(broker, (channel,), caller=caller)
                assert isinstance(answer, Appended) == (channel == allowed), (client, channel)

    tell(tmp_path, story, "allow ann write channel in/%c")


def test_a_token_reads_what_its_user_may(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.add_user("cleo", caller=ITSELF)
        made = await broker.create_token("cleo", rights=["read"], topics=["events"], caller=ITSELF)
        caller = await broker.sign_in.with_token(Caller(), made.token)
        await write(broker, ("a",), ("b",))
        assert await read_all(broker, caller) == [(0, "a")]

    tell(tmp_path, story, "deny cleo read channel b")


@pytest.mark.usefixtures("way")
def test_what_is_refused_is_in_the_audit_trail(tmp_path: Path) -> None:
    noted: list[tuple[str, ...]] = []

    async def story(broker: LocalBroker) -> None:
        broker._validation.on_refusal = lambda caller, act, name, error: noted.append((caller.principal, act, name))
        await write(broker, ("b",), caller=ANN)

    tell(tmp_path, story, "deny ann write channel b")
    assert noted == [("ann", "write channel", "b")]


EXPLAINED: Sequence[tuple[dict[str, Any], bool, str]] = (
    ({"kind": "topic", "name": "events"}, True, "which records, rules 4, 5, 6 decide"),
    ({"kind": "topic", "name": "events", "channel": "a/x"}, True, "rule 4: allow ann read channel a/#"),
    ({"kind": "topic", "name": "events", "channel": "c"}, False, "not channel c"),
    ({"kind": "topic", "name": "events", "channel": "in/d7"}, False, "not channel in/d7"),
    ({"kind": "topic", "name": "events", "channel": "in/d7", "client": "d7"}, True, "channel in/%c"),
    ({"kind": "topic", "name": "events", "channel": "a", "tags": ["secret"]}, False, "rule 5: deny * read tag secret"),
    ({"kind": "topic", "name": "events", "tags": ["red"]}, False, "not no channel with tag red"),
    ({"kind": "channel", "name": "a/x"}, True, "rule 4"),
    ({"kind": "tag", "name": "secret"}, False, "rule 5"),
)


@pytest.mark.parametrize(("asked", "allowed", "reason"), EXPLAINED)
def test_which_rule_decides_is_explained(tmp_path: Path, asked: dict[str, Any], allowed: bool, reason: str) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.add_user("ann", caller=ITSELF)
        found = await broker.explain_access("ann", "read", **asked, caller=ITSELF)
        assert (found.allowed, reason in found.reason) == (allowed, True), found
        nothing = await broker.explain_access("ann", "write", "channel", "zzz", caller=ITSELF)
        assert nothing.allowed

    rules = "allow ann read channel a/#", "deny * read tag secret", "allow ann read channel in/%c"
    tell(tmp_path, story, *rules)


@pytest.mark.parametrize("call", sorted(ASKED))
def test_no_call_shows_what_may_not_be_read(tmp_path: Path, call: str) -> None:
    """To somebody who has every right, and may not read records of a channel."""
    hidden = "zz-hidden"

    async def story(broker: LocalBroker) -> None:
        batch = build(
            [hidden.encode(), b"seen"],
            keys=[hidden.encode(), b"seen"],
            channels=[hidden, "seen"],
            tags=[(hidden,), ("seen",)],
            headers=[((hidden, b""),), ()],
        )
        await broker.append([Part("events", [batch])], "durable", caller=ITSELF)
        assert isinstance(await write(broker, (hidden, hidden), caller=BOB), RecordNotAllowed)
        shown: list[Any] = []
        try:
            answer = getattr(broker, call)(**arguments(call, shown), caller=ANN)
            answer = await answer if inspect.isawaitable(answer) else answer
            if call == "subscribe":
                answer = await answer.next()
            shown.append(answer)
        except LogboomError as error:
            shown.append(error)
        if isinstance(shown[0], Chunk):
            assert [record.value for record in shown[0].records()] == [b"seen"]
            shown.append(bytes(shown[0].data))
        assert hidden not in repr(shown)
        assert call != "feed" or isinstance(shown[0], NotAllowed)

    tell(tmp_path, story, "allow ann all all *", "deny ann read channel z*", "deny bob write channel z*")


def test_subscriptions_of_whole_topics_leave_out_the_same_records(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await write(broker, *MIXED)
        whole = ReadRequest("ev*", whole=True)
        subscription = await broker.subscribe(whole, caller=ANN)
        chunk = await subscription.next()
        assert [record.seqno for record in chunk.records()] == [0, 4]
        await add(broker, "deny ann read channel a/1")
        await write(broker, *MIXED)
        chunk = await subscription.next()
        while not chunk.record_count:
            chunk = await subscription.next()
        assert [record.seqno for record in chunk.records()] == [9], "rules count at once"
        await subscription.close()

    tell(tmp_path, story, "allow ann read channel a/#", "deny ann read tag secret")


def test_whole_topics_are_those_that_a_caller_may_read(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("hidden", caller=ITSELF)
        for topic in ("events", "hidden"):
            await broker.append([Part(topic, [build([topic.encode()])])], caller=ITSELF)
        denied = await add(broker, "deny ann all topic hidden")
        whole = ReadRequest("*", whole=True)
        assert [place.topic for place in await broker.locate(whole, caller=ANN)] == ["events"]
        assert [place.topic for place in await broker.locate(whole, caller=BOB)] == ["events", "hidden"]
        for named in ("hidden", "events,hidden", "hidden/0"):
            with pytest.raises(TopicNotFound):
                await broker.locate(ReadRequest(named, whole=True), caller=ANN)
        subscription = await broker.subscribe(whole, caller=ANN)
        assert (await subscription.next()).topic == "events"
        await broker.remove_rule(denied, caller=ITSELF)
        assert (await subscription.next()).topic == "hidden", "it joins as soon as he may read it"
        denied = await add(broker, "deny ann read topic hidden")
        await broker.append([Part("hidden", [build([b"more"])])], caller=ITSELF)
        gone = await subscription.next()
        assert (gone.topic, gone.is_gone) == ("hidden", True)
        await broker.remove_rule(denied, caller=ITSELF)
        again = await subscription.next()
        assert (again.topic, again.seqno, again.next_seqno) == ("hidden", 1, 2), "and goes on where it was"
        await subscription.close()

    tell(tmp_path, story)
