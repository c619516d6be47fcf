"""What a broker charges, where it waits, what it refuses; and that quotas are kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from logboom.access.quota import INTO, OUT_OF, Quota
from logboom.batch import Producer, build
from logboom.broker.api import Part, PublishKey, ReadRequest, Receipt, Start
from logboom.broker.caller import ITSELF, Caller
from logboom.broker.local import LocalBroker
from logboom.broker.rules import OPEN
from logboom.errors import InvalidPrincipal, InvalidQuota, QuotaExceeded, QuotaNotFound
from support.peers.served import run

BOB, EVE = Caller("bob", by="certificate"), Caller("eve", by="certificate")
BATCH = build([b"x" * 1000] * 4)
THOUSAND = build([b"x"] * 1000)


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[LocalBroker]:
    broker = await LocalBroker.open(str(path / "data"), rules=OPEN)
    try:
        yield broker
    finally:
        await broker.close()


def owed(broker: LocalBroker, kinds: tuple[str, ...] = INTO, caller: Caller = BOB) -> int:
    """Thousands that are owed, of a rate of 1: however slow the test, it is paid off more slowly."""
    rest = broker.quotas.rest_of(caller, kinds)
    return 0 if rest is None else round(rest.seconds / 1000)


async def set_quota(broker: LocalBroker, who: str, **limits: int) -> None:
    await broker.set_quota(who, Quota(**limits), caller=ITSELF)


def test_appends_stages_and_publishes_are_charged_and_the_nodes_own_are_not(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as broker:
            await set_quota(broker, "bob", records_in=1)
            part = Part("events", [THOUSAND])
            await broker.append([part], caller=BOB)
            assert owed(broker) == 1
            stage = await broker.open_stage(caller=BOB)
            staged = build([b"x"] * 1000, producer=Producer(stage.producer_id, 0, 0))
            await broker.stage(stage.id, [Part("events", [staged], 0)], caller=BOB)
            assert owed(broker) == 2
            await broker.publish(PublishKey("k", 1), [Receipt(stage.id, 1000)], caller=BOB)
            assert owed(broker) == 2  # it was charged when it was staged
            await broker.publish_batches(PublishKey("k", 2), [part], caller=BOB)
            assert owed(broker) == 3
            await broker.append([part], caller=ITSELF)
            await broker.append([part], caller=EVE)
            assert owed(broker, caller=EVE) == 0
            assert owed(broker) == 3
            assert (await broker.describe_topic("events")).partitions[0].committed == 5000

    run(story())


def test_a_read_waits_for_what_the_one_before_it_has_taken(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as broker:
            for _ in range(4):
                await broker.append([Part("events", [BATCH])], caller=ITSELF)
            await set_quota(broker, "bob", records_out=8)
            request = ReadRequest("events", Start(seqno=0), max_records=4)
            for seqno in (0, 4, 8, 12):
                step = msgspec.structs.replace(request, start=Start(seqno=seqno))
                assert (await broker.read(step, caller=BOB)).record_count == 4
            assert broker.quotas.throttled_s["records_out"] > 0
            assert broker.quotas.throttled["records_out"] > 0

    run(story())


def test_a_subscription_waits_loses_nothing_and_is_freed_by_a_raised_quota(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as broker:
            for _ in range(8):
                await broker.append([Part("events", [BATCH])], caller=ITSELF)
            subscription = await broker.subscribe(ReadRequest("events", Start(seqno=0)), caller=BOB)
            await set_quota(broker, "bob", bytes_out=1)  # after it was begun
            first = await subscription.next(1)
            assert first.next_seqno == 4
            coming = asyncio.ensure_future(subscription.next(1))
            await asyncio.sleep(0.05)
            assert not coming.done()
            await set_quota(broker, "bob", bytes_out=2**40)
            found = first.record_count + (await coming).record_count
            while found < 32:
                found += (await subscription.next(1)).record_count
            assert found == 32
            assert broker.quotas.throttled == dict.fromkeys(broker.quotas.throttled, 0) | {"bytes_out": 1}
            await subscription.close()

    run(story())


def test_a_feed_that_has_to_wait_says_in_time_that_nothing_has_come(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as broker:
            for _ in range(3):
                await broker.append([Part("events", [THOUSAND])], caller=ITSELF)
            await set_quota(broker, "bob", records_out=1)
            feed = await broker.feed("events", 0, 1, caller=BOB)
            first = await feed.next(1)
            assert len(first.data) == len(THOUSAND.data)
            assert owed(broker, OUT_OF) == 1
            waiting = await feed.next(1, wait_ms=10)
            assert not len(waiting.data)
            assert waiting[1:] == first[1:]
            another = await broker.feed("events", 0, 1, caller=BOB)  # is no way around what is owed
            standing = await another.next(1, wait_ms=10)
            assert not len(standing.data)
            assert (standing.next_index, standing.committed) == (1, 3000)
            await broker.remove_quota("bob", caller=ITSELF)
            assert len((await feed.next(1)).data) == len(THOUSAND.data)
            assert len((await another.next(1)).data) == len(THOUSAND.data)

    run(story())


def test_topics_made_in_any_way_count_for_their_maker_after_a_restart_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as broker:
            await broker.create_topic("one", caller=BOB)
            await broker.append([Part("two", [BATCH])], caller=BOB)
            await broker.describe_topic("three", create=True, caller=BOB)
            await broker.create_topic("hers", caller=EVE)
            await set_quota(broker, "bob", topics=3)
        async with opened(tmp_path) as broker:
            assert (await broker.show_quota("bob", caller=ITSELF))[0].used == {"topics": 3}
            for attempt in (
                broker.create_topic("four", caller=BOB),
                broker.describe_topic("four", create=True, caller=BOB),
            ):
                with pytest.raises(QuotaExceeded, match="gives 3 topics"):
                    await attempt
            (refused,) = await broker.append([Part("four", [BATCH])], caller=BOB)
            assert isinstance(refused, QuotaExceeded)
            await broker.describe_topic("one", create=True, caller=BOB)
            await broker.create_topic("more", caller=EVE)
            await broker.delete_topic("two", caller=BOB)
            await broker.append([Part("four", [BATCH])], caller=BOB)
            assert broker.rejections["quota.topics"] == 3

    run(story())


def test_topics_that_are_made_at_once_are_no_more_than_the_quota_gives(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as broker:
            await set_quota(broker, "bob", topics=2)
            appends = [broker.append([Part(f"t{number}", [BATCH])], caller=BOB) for number in range(5)]
            theirs = [broker.append([Part(f"t{number}", [BATCH])], caller=EVE) for number in range(5)]
            answers = [(await future)[0] for future in appends]
            assert sum(isinstance(answer, QuotaExceeded) for answer in answers) == 3
            assert [isinstance((await future)[0], Exception) for future in theirs] == [False] * 5
            assert broker.quotas.makers == {"bob": 2, "eve": 3}

    run(story())


def test_quotas_are_kept_listed_removed_and_checked(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as broker:
            await set_quota(broker, "group:analysts", bytes_in=5)
            await set_quota(broker, "*", requests=10, connections=2)
            await set_quota(broker, "*", requests=20)
            for who, quota in (("role:x", Quota()), ("bob", Quota(requests=0))):
                with pytest.raises(InvalidQuota):
                    await broker.set_quota(who, quota, caller=ITSELF)
            with pytest.raises(InvalidPrincipal):
                await set_quota(broker, "no name")
        async with opened(tmp_path) as broker:
            assert broker.quotas.is_on
            found = {info.who: info.quota for info in await broker.list_quotas(caller=ITSELF)}
            assert found == {"*": Quota(requests=20), "group:analysts": Quota(bytes_in=5)}
            await broker.remove_quota("*", caller=ITSELF)
            for who in ("*", "bob", "group:none"):
                with pytest.raises(QuotaNotFound):
                    await broker.remove_quota(who, caller=ITSELF)
                with pytest.raises(QuotaNotFound):
                    await broker.show_quota(who, caller=ITSELF)

    run(story())


def test_everybody_sees_the_quotas_that_bind_himself(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as broker:
            await set_quota(broker, "bob", requests=10)
            assert [usage.quota for usage in (await broker.whoami(caller=BOB)).quotas] == [Quota(requests=10)]
            assert (await broker.whoami(caller=EVE)).quotas == []

    run(story())
