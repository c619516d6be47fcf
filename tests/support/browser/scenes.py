"""States of a node that are worth looking at, each brought about over its public interfaces.

    with busy(directory) as scene:
        print(scene.url)

A scene is whole when its function has yielded: everything that it says of itself can be read from the node. Its node,
and the traffic where there is some, end with the `with`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from time import time_ns
from typing import Any, Final

import httpx
import msgspec

from logboom.batch import Record
from logboom.batch.builder import build_records
from logboom.batch.partitioner import partition_of
from logboom.broker.api import Part, Settings
from logboom.client import connect
from logboom.storage import DataDirectory
from logboom.storage.data.topic import FlushSettings, RetentionSettings, SegmentSettings
from support.brokers.any_broker import AnyBroker
from support.browser import hostile as texts
from support.browser import records
from support.browser.traffic import Flow, Follower, Traffic
from support.disks.hasty import HastyDisk
from support.nodes.console import ConsoleNode
from support.waiting import wait_until

KIB: Final = 1024
DAY_MS: Final = 86_400_000
MANY: Final = 10_000
REFUSAL: Final = "settlement window until 18:00"


class Kept(msgspec.Struct, frozen=True):
    """A topic of the busy node: how it is made, and what is in it at the beginning."""

    name: str
    partitions: int
    maker: records.Maker
    count: int
    settings: Settings = Settings()
    batch: int = 50


SHOP: Final = (
    Kept("app.log", 1, records.log_line, 2_000, Settings(retention=RetentionSettings(age_ms=7 * DAY_MS))),
    Kept("audit", 1, records.order, 1_500, Settings(segment=SegmentSettings(bytes=16 * KIB)), 10),
    Kept("clicks", 8, records.click, 4_000, Settings(retention=RetentionSettings(bytes=64 * 1024 * KIB))),
    Kept("customers", 2, records.customer, 700),
    Kept("orders", 3, records.order, 1_200, Settings(retention=RetentionSettings(age_ms=30 * DAY_MS))),
    Kept("payments", 2, records.order, 300),
    Kept("pictures.thumbnails", 1, records.thumbnail, 150, Settings(retention=RetentionSettings(records=100_000))),
    Kept("sensors.temperature", 4, records.temperature, 4_000, Settings(segment=SegmentSettings(bytes=32 * KIB))),
)
FLOWS: Final = (
    Flow("app.log", records.log_line, 12, 30),
    Flow("clicks", records.click, 220, 50),
    Flow("customers", records.customer, 2),
    Flow("orders", records.order, 15, 70),
    Flow("sensors.temperature", records.temperature, 80, 25),
)
FOLLOWERS: Final = (
    *(Follower("orders", partition, "warehouse") for partition in range(3)),
    *(Follower("clicks", partition, "analytics", 10) for partition in range(8)),
    Follower("app.log", 0, "alerts"),
)


class Scene:
    """A node that runs, and how to look at it."""

    def __init__(self, node: ConsoleNode, traffic: Traffic | None = None) -> None:
        self.node = node
        self.traffic = traffic
        self.source: ConsoleNode | None = None
        """What a replica copies."""

    @property
    def url(self) -> str:
        return self.node.url


@contextmanager
def empty(root: Path, http_port: int = 0) -> Iterator[Scene]:
    with ConsoleNode(root, http_port=http_port) as node:
        yield Scene(node)


@contextmanager
def still(root: Path, http_port: int = 0) -> Iterator[Scene]:
    """The shop's topics with a few troubles, and nobody who writes or reads."""
    with ConsoleNode(root, http_port=http_port) as node:
        _run(_over(node.address, _open_shop))
        _set_cursors(node)
        _join_groups(node)
        node.call("POST", "/topics/payments/refuse", {"reason": REFUSAL})
        _provoke(node)
        yield Scene(node)


@contextmanager
def busy(root: Path, http_port: int = 0) -> Iterator[Scene]:
    """The same with writers and readers that go on until the end."""
    with still(root, http_port) as scene, Traffic(scene.node.address, FLOWS, FOLLOWERS) as traffic:
        scene.traffic = traffic
        yield scene


@contextmanager
def ten_thousand(root: Path, http_port: int = 0) -> Iterator[Scene]:
    """So many topics, every tenth with records; made in this process, then the node is started on them."""
    node = ConsoleNode(root, http_port=http_port)
    _fill_many(str(node.directory))
    with node:
        yield Scene(node)


@contextmanager
def hostile(root: Path, http_port: int = 0) -> Iterator[Scene]:
    with ConsoleNode(root, http_port=http_port) as node:
        _run(_over(node.address, _write_hostile))
        for number, cursor in enumerate(texts.CURSORS):
            path = f"/topics/{texts.MARKUP_TOPIC}/cursors/{cursor.replace('/', '%2F')}"
            node.call("PUT", path, {"seqno": number})
        node.call("POST", f"/topics/{texts.LONG_TOPIC}/refuse", {"reason": texts.SCRIPTS[0]})
        yield Scene(node)


@contextmanager
def damaged(root: Path, http_port: int = 0) -> Iterator[Scene]:
    """A byte of a closed segment is not what was written, and a scrub has found it."""
    quick = ("--set", "upkeep.scrub_every_ms=1s")
    node = ConsoleNode(root, *quick, http_port=http_port)
    with node:
        _run(_over(node.address, _open_damaged))
        node.stop()
        flip_a_byte(node.directory, "ledger")
        node.start()
        _await(lambda: node.ask("/stats")["upkeep"]["scrub"]["findings"], "a scrub that finds the damage")
        yield Scene(node)


@contextmanager
def replica(root: Path, http_port: int = 0) -> Iterator[Scene]:
    """A node that copies another one, which is busy."""
    with busy(root / "source") as source:
        copies = ("--replicate-from", source.node.logd_address)
        with ConsoleNode(root / "copy", *copies, http_port=http_port) as node:
            _await(lambda: len(node.ask("/topics")["topics"]) >= len(SHOP), "a copy of every topic")
            scene = Scene(node, source.traffic)
            scene.source = source.node
            yield scene


SceneMaker = Callable[..., AbstractContextManager[Scene]]
SCENES: Final[dict[str, SceneMaker]] = {
    made.__name__: made for made in (empty, still, busy, ten_thousand, hostile, damaged, replica)
}


async def write(broker: AnyBroker, topic: str, made: Sequence[Record], batch: int = 50, partitions: int = 1) -> None:
    """Append them, each to the partition of its key."""
    parts: dict[int, list[Record]] = {}
    for number, record in enumerate(made):
        place = number if record.key is None else partition_of(record.key, partitions)
        parts.setdefault(place % partitions, []).append(record)
    for partition, share in parts.items():
        for first in range(0, len(share), batch):
            (answer,) = await broker.append([Part(topic, [build_records(share[first : first + batch])], partition)])
            if isinstance(answer, Exception):
                raise answer


def flip_a_byte(directory: Path, topic: str) -> Path:
    """In the middle of the second segment of the topic's first partition; the node must not run."""
    log = next(directory.glob(f"topics/{topic}~*")) / "0"
    segment = sorted(log.glob("*.log"))[1]
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 0xFF
    segment.write_bytes(data)
    return segment


def _run(story: Coroutine[Any, Any, None]) -> None:
    """On a thread: this one may have a loop already, Playwright's."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, story).result()


async def _over(address: str, story: Callable[[AnyBroker], Any]) -> None:
    async with connect(address) as broker:
        await story(broker)


async def _open_shop(broker: AnyBroker) -> None:
    for kept in SHOP:
        await broker.create_topic(kept.name, kept.partitions, kept.settings)
        made = records.make(kept.maker, 0, kept.count)
        await write(broker, kept.name, made, kept.batch, kept.partitions)
    await broker.create_topic("drafts")


def _set_cursors(node: ConsoleNode) -> None:
    """Some far behind, one at the end, one of a partition only."""
    places = (("audit", 0, "yearly-report", 0.0), ("audit", 0, "archive", 1.0), ("customers", 0, "crm/sync", 0.4))
    for topic, partition, cursor, share in places:
        until = node.ask(f"/topics/{topic}")["partitions"][partition]["committed"]
        path = f"/topics/{topic}/cursors/{cursor.replace('/', '%2F')}"
        node.call("PUT", path, {"seqno": int(until * share)}, {"partition": partition})
    for partition in range(3):
        node.call("PUT", "/topics/orders/cursors/billing", {"seqno": 100 * partition}, {"partition": partition})


def _join_groups(node: ConsoleNode) -> None:
    """One with two members that have come some way, and one without any; sessions are longer than a test."""
    members = "/groups/dashboards/members"
    topics = "sensors.temperature,customers"
    for number in (1, 2):
        join = {"topics": topics, "member": f"{'panel' * 3}-{number}", "client": "panel 2.4", "session_ms": 3_600_000}
        node.call("POST", members, join)
    for number in (1, 2, 1):
        page = node.call("POST", f"{members}/{'panel' * 3}-{number}/poll", {}, {"limit": 700})
        node.call("POST", f"{members}/{'panel' * 3}-{number}/commit", {"next": page["next"]})
    node.call("POST", "/groups/nightly%2Freport/reset", {"topics": "payments", "to": "earliest"})


def _provoke(node: ConsoleNode) -> None:
    """What the node refuses: a topic that takes no writes, a name that cannot be, a place that is taken."""
    with httpx.Client(base_url=node.url, verify=False) as client:
        for _ in range(7):
            assert client.post("/topics/payments/records", json={"value": "late"}).is_error
        for _ in range(3):
            assert client.post("/topics/audit/records", params={"expect_seqno": 1}, json={"value": "old"}).is_error
        assert client.post("/topics", json={"name": "_mine"}).is_error


def _fill_many(path: str) -> None:
    """Into the files themselves: a broker takes eight times the CPU for so many topics, and do the same to them."""
    names, settings = many_names(), Settings(flush=FlushSettings(policy="os"))
    batch = build_records(records.make(records.order, 5, 5))
    with DataDirectory.open(path, HastyDisk.at(path)) as data:
        for name in names:
            data.create_topic(name, 1, settings)
        for name in names[::10]:
            data.open_partition(name, 0).append_one(batch, time_ns() // 1000)


def many_names(count: int = MANY) -> list[str]:
    kinds = ("orders", "invoices", "events", "metrics", "logs")
    return [
        f"{records.CITIES[number % len(records.CITIES)]}.{kinds[number // 6 % len(kinds)]}.{number:05}"
        for number in range(count)
    ]


async def _write_hostile(broker: AnyBroker) -> None:
    plain = ("-", "0", texts.MARKUP_TOPIC, texts.LARGE_TOPIC)
    for name in (texts.LONG_TOPIC, texts.DOTTED_TOPIC, texts.PARENT_TOPIC, *plain):
        await broker.create_topic(name)
    await write(broker, texts.MARKUP_TOPIC, texts.records(), 1)
    await write(broker, texts.LARGE_TOPIC, texts.large(), 1)
    await write(broker, texts.LONG_TOPIC, texts.records()[:3], 1)


async def _open_damaged(broker: AnyBroker) -> None:
    await broker.create_topic("ledger", 1, Settings(segment=SegmentSettings(bytes=8 * KIB)))
    await write(broker, "ledger", records.make(records.order, 3, 300), 10)
    await broker.create_topic("orders", 3)
    await write(broker, "orders", records.make(records.order, 4, 300), 10, 3)


def _await(holds: Callable[[], Any], what: str) -> None:
    def answered() -> bool:
        with suppress(httpx.HTTPError):
            return bool(holds())
        return False

    wait_until(answered, what, every_s=0.1)
