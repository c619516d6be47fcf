"""Validators in the broker: who is asked, what an answer means, and that order and memory are kept meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logboom.batch import Batch, Producer, build
from logboom.broker.allowances import Allowances
from logboom.broker.api import Answer, Appended, Part, PublishKey, ReadRequest, Receipt, Settings
from logboom.broker.append import validation
from logboom.broker.append.gatherer import Gatherer, RecordColumns
from logboom.broker.append.validation import Verdict
from logboom.broker.append.validator_address import ValidatorRules
from logboom.broker.caller import EVERYBODY
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits, TopicRules
from logboom.broker.local import LocalBroker
from logboom.errors import (
    BodyCorrupt,
    LimitExceeded,
    LogboomError,
    Overloaded,
    RecordsRejected,
    RepeatForgotten,
    SequenceGap,
    ShuttingDown,
    TopicDeleted,
    UnexpectedSeqno,
    ValidatorFailed,
)
from logboom.storage.data.topic import ValidatorSettings
from logboom.storage.producers import Producers
from support.brokers.any_broker import AnyBroker

URL = "http://validator.test/check"
OTHER = "http://other.test/"
OK = Verdict(204, "")
LISTED = Allowances(validators=ValidatorRules((URL, OTHER)))
CONFIG = BrokerConfig(allowed=LISTED)


class Judges:
    """Validators that say yes; unless a test wants them to wait, to say no, or to be silent."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.now = self.most = 0
        self.gates: dict[bytes | str, asyncio.Event] = {}
        self.verdicts: dict[bytes | str, Verdict | OSError] = {}
        self.news = asyncio.Event()

    async def ask(self, url: str, body: bytes, timeout_s: float) -> Verdict:
        shown = msgspec.json.decode(body)
        self.asked.append((url, shown))
        self.now += 1
        self.most = max(self.most, self.now)
        self.news.set()
        try:
            value = str(shown["records"][0]["value"])[:20]
            gate = self.gates.get(value) or self.gates.get(url)
            if gate is not None:
                await gate.wait()
            verdict = self.verdicts.get(value) or self.verdicts.get(url) or OK
        finally:
            self.now -= 1
        if isinstance(verdict, OSError):
            raise verdict
        return verdict

    def hold(self, what: str) -> asyncio.Event:
        gate = self.gates[what] = asyncio.Event()
        return gate

    async def until_asked(self, count: int) -> None:
        while len(self.asked) < count:
            self.news.clear()
            await self.news.wait()


Story = Callable[[LocalBroker, Judges], Awaitable[None]]


def validated(*urls: str, **more: Any) -> Settings:
    return Settings(validators=ValidatorSettings(urls or (URL,), **more))


def tell(path: Path, story: Story, config: BrokerConfig = CONFIG, injected: bool = True) -> None:
    async def run() -> None:
        async with asyncio.timeout(300):
            judges = Judges()
            broker = await LocalBroker.open(str(path), config, validators=judges if injected else None)
            try:
                await story(broker, judges)
            finally:
                await broker.close()

    asyncio.run(run())


def send(
    broker: AnyBroker, *values: bytes, topic: str = "t", partition: int | None = None
) -> asyncio.Future[list[Answer]]:
    return broker.append([Part(topic, [build([value]) for value in values], partition)])


async def values_of(broker: AnyBroker, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    chunk = await broker.read(ReadRequest(topic, partition=partition))
    assert chunk.at_end
    return [record.value for record in chunk.records()]


def seqnos(answers: list[Answer]) -> list[int | type[LogboomError]]:
    return [answer.base_seqno if isinstance(answer, Appended) else type(answer) for answer in answers]


def test_a_validator_is_shown_the_records_before_they_are_appended(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t", 2, validated())
        gate = judges.hold(URL)
        batch = build(
            [b'{"t": 21.5}', None, b"\xff"], keys=[b"k", None, None], timestamps=[1, None, 0], tags=[["a"], [], []]
        )
        answer = broker.append([Part("t", [batch], 1)])
        await judges.until_asked(1)
        assert await values_of(broker, partition=1) == []
        gate.set()
        assert seqnos(await answer) == [0]
        assert await values_of(broker, partition=1) == [b'{"t": 21.5}', None, b"\xff"]
        url, shown = judges.asked[0]
        assert (url, shown["topic"], shown["partition"]) == (URL, "t", 1)
        first, second, third = shown["records"]
        assert (first["value"], first["key"], first["tags"]) == ({"t": 21.5}, "k", ["a"])
        assert first["timestamp"] == "1970-01-01T00:00:00.000001Z"
        assert (second["value"], second["timestamp"], third["value"]) == (None, None, {"base64": "/w=="})

    tell(tmp_path, story)


def test_what_a_validator_refuses_is_not_appended_and_says_why(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t", 1, validated())
        judges.verdicts["bad"] = Verdict(422, "too hot")
        (refused,) = await send(broker, b"bad")
        assert isinstance(refused, RecordsRejected)
        assert (refused.topic, refused.url, refused.status, refused.reason) == ("t", URL, 422, "too hot")
        assert seqnos(await send(broker, b"good")) == [0]
        assert await values_of(broker) == [b"good"]
        stats = await broker.stats()
        assert stats.rejections["RecordsRejected"] == stats.writes["refused"] == 1
        assert stats.writes["waiting_bytes"] == 0

    tell(tmp_path, story)


def test_topics_without_validators_ask_nobody(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t")
        assert seqnos(await send(broker, b"a")) == [0]
        assert judges.asked == []

    tell(tmp_path, story)


def test_each_batch_is_judged_by_itself(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t", 1, validated())
        judges.verdicts["bad"] = Verdict(400, "no")
        assert seqnos(await send(broker, b"a", b"bad", b"c")) == [0, RecordsRejected, 1]
        assert await values_of(broker) == [b"a", b"c"]

    tell(tmp_path, story)


def test_batches_that_demand_a_seqno_stand_or_fall_together(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t", 1, validated())
        batches = [build([b"a"]), build([b"b"])]
        assert seqnos(await broker.append([Part("t", batches, expect_seqno=0)])) == [0, 1]
        assert seqnos(await broker.append([Part("t", batches, expect_seqno=1)])) == [UnexpectedSeqno] * 2
        judges.verdicts["a"] = Verdict(400, "no")
        assert seqnos(await broker.append([Part("t", batches, expect_seqno=2)])) == [RecordsRejected] * 2

    tell(tmp_path, story)


def test_a_log_keeps_the_order_of_its_appends_however_long_a_validator_takes(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t", 2, validated())
        gate = judges.hold("0")
        judges.verdicts["3"] = Verdict(400, "no")
        answers = [send(broker, b"%d" % number, partition=0) for number in range(8)]
        assert seqnos(await send(broker, b"elsewhere", partition=1)) == [0]
        await judges.until_asked(9)
        assert not any(answer.done() for answer in answers)
        gate.set()
        assert [seqnos(await answer)[0] for answer in answers] == [0, 1, 2, RecordsRejected, 3, 4, 5, 6]
        assert await values_of(broker) == [b"0", b"1", b"2", b"4", b"5", b"6", b"7"]

    tell(tmp_path, story)


def test_no_more_appends_of_a_topic_are_with_its_validators_than_it_allows(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t", 2, validated(concurrency=3))
        gate = judges.hold(URL)
        answers = [send(broker, b"%d" % number, partition=number % 2) for number in range(20)]
        await judges.until_asked(3)
        await asyncio.sleep(0)
        assert len(judges.asked) == 3
        gate.set()
        await asyncio.gather(*answers)
        assert (len(judges.asked), judges.most) == (20, 3)

    tell(tmp_path, story)


def test_validators_of_all_topics_share_a_bound_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "IN_HAND_BYTES", 1000)

    async def story(broker: LocalBroker, judges: Judges) -> None:
        for topic in "abc":
            await broker.create_topic(topic, 1, validated())
        gate = judges.hold(URL)
        answers = [send(broker, bytes(2000), topic=topic) for topic in "abcabc"]
        await judges.until_asked(1)
        gate.set()
        assert [seqnos(await answer) for answer in answers] == [[0], [0], [0], [1], [1], [1]]
        assert judges.most == 1

    tell(tmp_path, story)


def test_all_validators_are_asked_at_once_and_the_first_that_refuses_decides(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t", 1, validated(URL, OTHER))
        judges.hold(URL)
        judges.verdicts[OTHER] = Verdict(403, "not mine")
        (refused,) = await send(broker, b"a")
        assert isinstance(refused, RecordsRejected)
        assert refused.url == OTHER
        assert {url for url, _ in judges.asked} == {URL, OTHER}
        assert judges.now == 0

    tell(tmp_path, story)


def test_a_validator_that_does_not_answer_refuses_or_accepts_as_the_topic_says(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t", 1, validated(URL, OTHER))
        judges.verdicts[URL] = TimeoutError("no answer within 2 s")
        (failed,) = await send(broker, b"a")
        assert isinstance(failed, ValidatorFailed)
        assert (failed.url, failed.reason) == (URL, "no answer within 2 s")
        await broker.configure_topic("t", validated(URL, OTHER, on_failure="accept"))
        assert seqnos(await send(broker, b"b")) == [0]
        judges.verdicts[OTHER] = Verdict(400, "no")
        assert seqnos(await send(broker, b"c")) == [RecordsRejected]
        rejections = (await broker.stats()).rejections
        assert rejections["ValidatorFailed"] == 1
        assert rejections["unvalidated"] >= 1

    tell(tmp_path, story)


def test_a_node_that_cannot_ask_refuses_or_accepts_as_the_topic_says(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t", 1, validated())
        await broker.create_topic("open", 1, validated(on_failure="accept"))
        (failed,) = await send(broker, b"a")
        assert isinstance(failed, ValidatorFailed)
        assert "cannot ask" in failed.reason
        assert seqnos(await send(broker, b"a", topic="open")) == [0]

    tell(tmp_path, story, injected=False)


def test_a_validator_with_a_bug_refuses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        async def ask(url: str, body: bytes, timeout_s: float) -> Verdict:
            raise KeyError(url)

        judges.ask = ask  # type: ignore[method-assign]
        await broker.create_topic("t", 1, validated(on_failure="accept"))
        assert seqnos(await send(broker, b"a")) == [ValidatorFailed]
        assert "KeyError" in caplog.text

    tell(tmp_path, story)


def test_what_waits_for_validators_is_bounded_as_what_waits_for_the_disk(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t", 1, validated())
        gate = judges.hold(URL)
        answers = [send(broker, bytes(30_000)) for _ in range(5)]
        assert (await broker.stats()).writes["waiting_bytes"] > 60_000
        gate.set()
        assert [seqnos(await answer)[0] for answer in answers] == [0, 1, Overloaded, Overloaded, Overloaded]
        assert (await broker.stats()).writes["waiting_bytes"] == 0

    tell(tmp_path, story, BrokerConfig(limits=Limits(unsynced_bytes_per_log=64 * 1024), allowed=LISTED))


def test_a_validator_is_shown_no_more_than_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "BODY_BYTES_MAX", 1000)

    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t", 1, validated())
        many = broker.append([Part("t", [build([b"x"] * 100)])])
        assert seqnos(await many) == [LimitExceeded]
        assert judges.asked == []

    tell(tmp_path, story)


def test_a_deleted_topic_waits_for_no_validator(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t", 1, validated(concurrency=1))
        judges.hold(URL)
        answers = [send(broker, b"a"), send(broker, b"b")]
        await judges.until_asked(1)
        await broker.delete_topic("t")
        assert [seqnos(await answer) for answer in answers] == [[TopicDeleted], [TopicDeleted]]
        await broker.create_topic("t")
        assert seqnos(await send(broker, b"c")) == [0]

    tell(tmp_path, story)


def test_closing_waits_for_validators_and_refuses_what_they_leave_undecided(tmp_path: Path) -> None:
    async def open_and_close() -> None:
        judges = Judges()
        broker = await LocalBroker.open(str(tmp_path), CONFIG, validators=judges)
        await broker.create_topic("t", 1, validated(concurrency=2))
        gate = judges.hold("soon")
        judges.hold("never")
        answers = [send(broker, value) for value in (b"soon", b"never", b"behind it", b"and this")]
        await judges.until_asked(2)
        closing = asyncio.create_task(broker.close(1.0))
        await asyncio.sleep(0)
        assert seqnos(await send(broker, b"late")) == [ShuttingDown]
        gate.set()
        assert seqnos(await answers[0]) == [0]
        await closing
        assert [seqnos(await answer) for answer in answers[1:]] == [[ShuttingDown]] * 3

    asyncio.run(open_and_close())

    async def after(broker: LocalBroker, judges: Judges) -> None:
        assert await values_of(broker) == [b"soon"]

    tell(tmp_path, after)


def test_when_validators_are_taken_away_what_comes_later_stays_behind(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t", 1, validated(concurrency=1))
        gate = judges.hold("0")
        answers = [send(broker, b"%d" % number) for number in range(3)]
        await judges.until_asked(1)
        await broker.configure_topic("t", Settings())
        answers.append(send(broker, b"3"))
        assert not any(answer.done() for answer in answers)
        gate.set()
        assert [seqnos(await answer) for answer in answers] == [[0], [1], [2], [3]]
        assert len(judges.asked) == 1

    tell(tmp_path, story)


def test_a_broken_batch_is_shown_to_nobody_and_refused_by_the_log(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t", 1, validated())
        data = bytearray(build([b"a value"]).data)
        data[-1] ^= 1
        assert seqnos(await broker.append([Part("t", [Batch.parse(data)])])) == [BodyCorrupt]
        assert judges.asked == []

    tell(tmp_path, story)


def numbered(seq: int, value: bytes | None = None) -> Part:
    return Part("t", [build([b"%d" % seq if value is None else value], producer=Producer(7, 0, seq))])


def test_a_repeat_gets_its_first_answer_whatever_validators_would_say_of_it_now(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t", 1, validated())
        assert seqnos(await broker.append([numbered(0)])) == [0]
        judges.verdicts[URL] = Verdict(400, "no")
        assert seqnos(await broker.append([numbered(0)])) == [0]
        judges.verdicts[URL] = TimeoutError("no answer")
        assert seqnos(await broker.append([numbered(0)])) == [0]
        assert seqnos(await broker.append([numbered(1)])) == [ValidatorFailed]
        assert [shown["records"][0]["value"] for _, shown in judges.asked] == [0, 1]

    tell(tmp_path, story)

    async def after(broker: LocalBroker, judges: Judges) -> None:
        judges.verdicts[URL] = Verdict(400, "no")
        assert seqnos(await broker.append([numbered(0)])) == [0]
        assert seqnos(await broker.append([numbered(0), numbered(1)])) == [0, RecordsRejected]
        assert await values_of(broker) == [b"0"]

    tell(tmp_path, after)


def test_what_is_refused_is_no_answer_to_what_comes_behind_it(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t", 1, validated())
        assert seqnos(await broker.append([numbered(0)])) == [0]
        judges.verdicts["1"] = Verdict(400, "no")
        batches = [batch for seq in range(3) for batch in numbered(seq).batches]
        assert seqnos(await broker.append([Part("t", batches)])) == [0, RecordsRejected, SequenceGap]
        assert len(judges.asked) == 3

    tell(tmp_path, story)


@pytest.mark.parametrize("verdict", [OK, Verdict(400, "no")])
def test_a_repeat_of_what_is_with_the_validators_is_asked_about_once(verdict: Verdict, tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t", 1, validated())
        gate = judges.hold("0")
        judges.verdicts["0"] = verdict
        first = broker.append([numbered(0)])
        first.cancel()  # its connection is gone
        again, third = broker.append([numbered(0)]), broker.append([numbered(0)])
        forged = broker.append([numbered(0, b"forged")])
        judges.verdicts["forged"] = Verdict(403, "forged")
        await judges.until_asked(2)
        gate.set()
        wanted = [0] if verdict is OK else [RecordsRejected]
        assert seqnos(await again) == seqnos(await third) == wanted
        assert seqnos(await forged) == [RecordsRejected]
        assert len(judges.asked) == 2
        assert await values_of(broker) == ([b"0"] if verdict is OK else [])
        judges.verdicts["0"] = OK
        assert seqnos(await broker.append([numbered(0)])) == [0]  # what was refused is asked about anew
        assert broker._validation._firsts == {}

    tell(tmp_path, story)


def test_a_repeat_that_the_log_forgets_while_it_waits_is_not_written_unseen(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t", 1, validated())
        assert seqnos(await broker.append([numbered(0)])) == [0]
        gate = judges.hold("slow")
        slow, again = send(broker, b"slow"), broker.append([numbered(0, b"forged")])
        await judges.until_asked(2)
        hosted = broker._catalog.get("t")
        assert hosted is not None
        hosted.writer(0).log.tail.producers = Producers()
        gate.set()
        assert seqnos(await slow) == [1]
        assert seqnos(await again) == [RepeatForgotten]
        assert await values_of(broker) == [b"0", b"slow"]

    tell(tmp_path, story)


def test_a_repeat_of_what_is_staged_gets_its_first_answer(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t", 1, validated())
        stage = await broker.open_stage()
        part = Part("t", [build([b"a"], producer=Producer(stage.producer_id, 0, 0))])
        gate = judges.hold("a")
        answers = [broker.stage(stage.id, [part]) for _ in range(3)]
        await judges.until_asked(1)
        gate.set()
        assert [seqnos(await answer) for answer in answers] == [[0]] * 3
        judges.verdicts["a"] = Verdict(400, "no")
        assert seqnos(await broker.stage(stage.id, [part])) == [0]
        assert len(judges.asked) == 1
        await broker.publish(PublishKey("k", 1), [Receipt(stage.id)])
        assert await values_of(broker) == [b"a"]

    tell(tmp_path, story)


def test_a_topic_that_a_write_makes_has_the_validators_of_the_rules(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        judges.verdicts["bad"] = Verdict(400, "no")
        assert seqnos(await send(broker, b"bad", b"good", topic="fresh")) == [RecordsRejected, 0]

    tell(tmp_path, story, BrokerConfig(topics=TopicRules(settings=validated()), allowed=LISTED))


def test_who_asked_may_go_away_and_the_append_goes_on(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        await broker.create_topic("t", 1, validated())
        gate = judges.hold("a")
        send(broker, b"a").cancel()
        gate.set()
        assert seqnos(await send(broker, b"b")) == [1]

    tell(tmp_path, story)


def test_of_records_gathered_at_the_edge_only_those_are_refused_that_deserve_it(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, judges: Judges) -> None:
        async def ask(url: str, body: bytes, timeout_s: float) -> Verdict:
            values = [record["value"] for record in msgspec.json.decode(body)["records"]]
            return Verdict(400, "bad") if "bad" in values else OK

        judges.ask = ask  # type: ignore[method-assign]
        await broker.create_topic("t", 1, validated())
        gatherer = Gatherer(broker)
        values = [b"bad" if number % 7 == 3 else b"%d" % number for number in range(40)]
        places = [gatherer.add("t", None, RecordColumns([value]), len(value), caller=EVERYBODY) for value in values]
        outcomes = await asyncio.gather(*places, return_exceptions=True)
        assert [isinstance(outcome, RecordsRejected) for outcome in outcomes] == [value == b"bad" for value in values]
        assert await values_of(broker) == [value for value in values if value != b"bad"]

    tell(tmp_path, story)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_validators_say_and_whenever_logs_hold_what_was_accepted_in_its_order(
    seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)

    async def story(broker: LocalBroker, judges: Judges) -> None:
        async def ask(url: str, body: bytes, timeout_s: float) -> Verdict:
            for _ in range(chance.randrange(20)):
                await asyncio.sleep(0)
            return chance.choice((OK, OK, Verdict(400, "no")))

        judges.ask = ask  # type: ignore[method-assign]
        await broker.create_topic("t", 2, validated(URL, OTHER, concurrency=chance.randint(1, 8)))
        sent: list[list[tuple[bytes, asyncio.Future[list[Answer]], int]]] = [[], []]
        for number in range(150):
            partition, values = chance.randrange(2), [b"%d-%d" % (number, k) for k in range(chance.randint(1, 4))]
            answers = send(broker, *values, partition=partition)
            sent[partition] += [(value, answers, k) for k, value in enumerate(values)]
            if chance.random() < 0.1:
                await asyncio.sleep(0.001)
        for partition in range(2):
            found = [(value, (await answers)[k]) for value, answers, k in sent[partition]]
            accepted = [(value, answer.base_seqno) for value, answer in found if isinstance(answer, Appended)]
            assert accepted == [
                (value, seqno) for seqno, value in enumerate(await values_of(broker, partition=partition))
            ]
        assert (await broker.stats()).writes["waiting_bytes"] == 0

    tell(tmp_path, story)
