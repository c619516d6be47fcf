"""The node over HTTP: health, readiness, stats, configuration, and metrics as Prometheus reads them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from logboom.batch import build
from logboom.broker.api import (
    CursorInfo,
    GroupInfo,
    GroupJoin,
    GroupMove,
    Measures,
    NodeStats,
    Part,
    PartitionInfo,
    ReadRequest,
    ReplicaStats,
    Settings,
    TopicInfo,
)
from logboom.broker.caller import Caller
from logboom.broker.monitor.measures import BOUNDS_S, Histogram, Meter
from logboom.errors import ConnectionLost
from logboom.protocols.http.metrics import (
    CURSORS_MAX,
    FAMILIES,
    GROUP_LAGS_MAX,
    GROUPS_MAX,
    TOPICS_MAX,
    MetricFacts,
    render,
)
from support.nodes.web import WebNode, tell

PAGE = Path(__file__).parents[3] / "docs/howto/watch.md"


class Page:
    """What a strict reader makes of the text."""

    def __init__(self, text: str) -> None:
        assert text.endswith("\n")
        families = list(text_string_to_metric_families(text))
        self.kinds = {family.name: family.type for family in families}
        self.help = {family.name: family.documentation for family in families}
        self.samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
        for family in families:
            assert family.documentation
            for sample in family.samples:
                found = self.samples.setdefault(sample.name, {})
                labels = tuple(sorted(sample.labels.items()))
                assert labels not in found, f"{sample.name} {labels} is there twice"
                found[labels] = sample.value

    def get(self, name: str, **labels: str) -> float:
        return self.samples[name][tuple(sorted(labels.items()))]

    def labels(self, name: str, label: str) -> list[str]:
        return [dict(labels)[label] for labels in self.samples.get(name, {})]


async def page_of(node: WebNode, query: str = "") -> Page:
    answer = await node.client.get(f"/metrics{query}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Page(answer.text)


def test_a_node_that_runs_is_healthy_and_ready(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        health, ready = await node.client.get("/healthz"), await node.client.get("/readyz")
        assert (health.status_code, health.json()) == (200, {"status": "ok"})
        assert (ready.status_code, ready.json()) == (200, {"status": "ready", "reasons": [], "warnings": []})

    assert tell(tmp_path, story) == []


def test_a_node_that_an_operator_has_switched_to_read_only_is_ready_with_a_warning(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.broker.refuse(reason="moving house")
        ready = await node.client.get("/readyz")
        assert ready.status_code == 200
        assert ready.json()["warnings"] == ["the node takes no writes: moving house"]

    tell(tmp_path, story)


class Elsewhere:
    """A broker of which nothing is known but its stats."""

    def __init__(self, outcome: NodeStats | Exception) -> None:
        self.outcome = outcome

    async def stats(self, *, caller: Caller) -> NodeStats:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def stats(**more: Any) -> NodeStats:
    return NodeStats("n", "c", "1.0", 1_000_000, 2_000_000, 1, 1, {}, {}, {}, {}, **more)


def readiness(tmp_path: Path, outcome: NodeStats | Exception) -> tuple[int, Any]:
    found: list[tuple[int, Any]] = []

    async def story(node: WebNode) -> None:
        node.front_end.broker = Elsewhere(outcome)  # type: ignore[assignment]
        answer = await node.client.get("/readyz")
        found.append((answer.status_code, answer.json()))

    tell(tmp_path, story)
    return found[0]


def test_a_node_whose_writes_have_failed_is_not_ready_and_says_why(tmp_path: Path) -> None:
    status, body = readiness(tmp_path, stats(refused="a sync failed", failure="a sync failed"))
    assert (status, body["status"], body["reasons"], body["warnings"]) == (503, "not ready", ["a sync failed"], [])


def test_a_gateway_without_its_node_is_not_ready(tmp_path: Path) -> None:
    assert readiness(tmp_path, ConnectionLost("nobody is there"))[0] == 503


def test_a_replica_without_its_source_is_ready_with_a_warning(tmp_path: Path) -> None:
    replica = ReplicaStats("other:1774", False, 7, {"t/0": 7}, 1_500_000, "connection refused")
    status, body = readiness(tmp_path, stats(replica=replica))
    assert status == 200
    assert body["warnings"] == ["its source other:1774 is not connected: connection refused"]


def test_stats_and_configuration_are_json(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        node.front_end.config = lambda: {"data": {"value": "/d", "source": "flag", "meaning": "where"}}
        found = (await node.client.get("/stats")).json()
        assert (found["node_id"], found["failure"]) == (node.broker.node.node_id, None)
        assert (await node.client.get("/config")).json()["data"]["value"] == "/d"

    tell(tmp_path, story)


def test_metrics_tell_of_topics_protocols_and_the_node(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        broker = node.broker
        broker.meters["http"] = node.front_end.meter
        broker.connections["http"] = lambda: node.front_end.connections
        await broker.create_topic("events", 2)
        await broker.append([Part("events", [build([b"a", b"b"])], 0)])
        await broker.append([Part("events", [build([b"c"])], 1), Part("_cursors", [build([b"c"])])])
        chunk = await broker.read(ReadRequest("events", partition=0))
        await broker.commit_cursor("reader/1", "events", 0, chunk.bookmark)
        page = await page_of(node)
        assert page.get("logboom_topic_records_appended_total", topic="events") == 3
        assert page.get("logboom_topic_records_read_total", topic="events") == 2
        assert page.get("logboom_topic_partitions", topic="events") == 2
        assert page.get("logboom_topic_records", topic="events") == 3
        assert page.get("logboom_topic_disk_bytes", topic="events") > 0
        assert page.get("logboom_topic_append_seconds_count", topic="events") == 2
        assert page.get("logboom_cursors") == 1
        assert page.get("logboom_rejections_total", reason="TopicNotAllowed") == 1
        assert page.get("logboom_connections", protocol="http") == 1
        assert page.get("logboom_protocol_records_appended_total", protocol="http") == 0
        assert page.get("logboom_limit", limit="idle_seconds") == 600
        assert page.get("logboom_failed") == 0
        assert page.get("logboom_memory_bytes") > 1_000_000
        assert page.get("logboom_sync_seconds_count") >= 1

    tell(tmp_path, story)


def test_the_lag_of_a_cursor_is_told(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        broker = node.broker
        await broker.append([Part("events", [build([b"a"])])])
        chunk = await broker.read(ReadRequest("events"))
        await broker.append([Part("events", [build([b"b", b"c"])])])
        await broker.commit_cursor("reader/1", "events", 0, chunk.bookmark)
        page = await page_of(node)
        assert page.get("logboom_cursor_lag_records", cursor="reader/1", topic="events", partition="0") == 2

    tell(tmp_path, story)


def test_groups_their_lag_and_what_befell_their_members_are_told(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        broker = node.broker
        await broker.append([Part("events", [build([b"a", b"b"])])])
        await broker.append([Part("orders", [build([b"a"])])])
        member, join = "member-0123456789", GroupJoin("billing", "member-0123456789", "events,orders")
        (events, _) = (await broker.join_group(join)).grants
        chunk = await broker.read(ReadRequest("events", max_records=1))
        await broker.commit_group("billing", member, [GroupMove("events", 0, chunk.bookmark, events.generation)])
        await broker.commit_group("billing", member, [GroupMove("events", 0, chunk.bookmark, events.generation - 1)])
        page = await page_of(node)
        assert page.get("logboom_group_lag_records", group="billing", topic="events") == 0
        assert page.get("logboom_group_lag_records", group="billing", topic="orders") == 1
        assert page.get("logboom_group_members", group="billing") == 1
        told = {
            name: page.get(f"logboom_{name}")
            for name in ("groups", "members", "member_logs", "group_joins_total", "group_moves_total")
        }
        assert told == {"groups": 1, "members": 1, "member_logs": 2, "group_joins_total": 1, "group_moves_total": 2}
        assert page.get("logboom_group_commits_total") == page.get("logboom_group_commits_refused_total") == 1
        assert page.get("logboom_group_sessions_expired_total") == page.get("logboom_group_taken_total") == 0
        of_orders = await page_of(node, "?topics=ord")
        assert of_orders.labels("logboom_group_lag_records", "topic") == ["orders"]

    tell(tmp_path, story)


def test_topics_can_be_chosen_by_prefix_or_left_out(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        for name in ("a.1", "a.2", "b.1"):
            await node.broker.create_topic(name)
        assert (await page_of(node)).labels("logboom_topic_partitions", "topic") == [
            "_access",
            "_cursors",
            "_groups",
            "_pipeline",
            "_publish",
            "_queues",
            "a.1",
            "a.2",
            "b.1",
        ]
        assert (await page_of(node, "?topics=a.")).labels("logboom_topic_partitions", "topic") == ["a.1", "a.2"]
        bare = await page_of(node, "?topics=none")
        assert not [name for name in bare.samples if name.startswith("logboom_topic_")]
        assert "logboom_records_appended_total" in bare.samples
        wrong = await node.client.get("/metrics?topic=a")
        assert (wrong.status_code, wrong.json()["parameter"]) == (400, "topic")

    tell(tmp_path, story)


def facts(topics: int = 1, cursors: int = 1, name: str = "t", groups: int = 1) -> MetricFacts:
    meter = Meter()
    meter.note_append(1, 10, 100, 0.001)
    meter.note_read(10, 100, 1e9)
    names = [f"{name}{number:05}" for number in range(topics)]
    infos = [TopicInfo(each, "0" * 32, [PartitionInfo(0, 0, 5, 5, size_bytes=9)], Settings()) for each in names]
    found = [CursorInfo(f"c{n}", names[0], "0" * 32, 0, 0, "b", 1, n) for n in range(cursors)]
    measures = Measures({each: meter.shown() for each in names}, {"http": meter.shown()}, Histogram().shown())
    replica = ReplicaStats("s", True, 3, {"t/0": 3}, 5)
    lags = dict.fromkeys(names[:10], 1)
    grouped = [GroupInfo(f"g{n}", "logs", "stable", n, 10, n, 1, lags) for n in range(groups)]
    return MetricFacts(stats(replica=replica), measures, infos, found, groups=grouped)


def test_buckets_are_cumulative_and_end_with_all_of_them() -> None:
    page = Page(render(facts()).decode())
    buckets = [
        page.get("logboom_topic_append_seconds_bucket", topic="t00000", le=bound)
        for bound in [*map(repr, BOUNDS_S), "+Inf"]
    ]
    assert buckets == [0.0] * 4 + [1.0] * (len(BOUNDS_S) - 3)
    assert page.get("logboom_topic_append_seconds_sum", topic="t00000") == 0.001
    assert page.get("logboom_topic_read_seconds_bucket", topic="t00000", le="+Inf") == 1
    assert page.get("logboom_topic_read_seconds_bucket", topic="t00000", le=repr(BOUNDS_S[-1])) == 0


def test_labels_are_escaped() -> None:
    page = Page(render(facts(name='a"b\\c\nd')).decode())
    assert page.labels("logboom_topic_partitions", "topic") == ['a"b\\c\nd00000']


def test_a_page_is_bounded_however_many_topics_cursors_and_groups_there_are() -> None:
    text = render(facts(topics=10_000, cursors=3_000, groups=3_000)).decode()
    page = Page(text)
    assert len(page.labels("logboom_topic_partitions", "topic")) == TOPICS_MAX
    assert page.get("logboom_topics_left_out") == 9_000
    assert page.get("logboom_disk_bytes") == 90_000
    lags = page.samples["logboom_cursor_lag_records"].values()
    assert (len(lags), min(lags), page.get("logboom_cursors")) == (CURSORS_MAX, 2_000, 3_000)
    assert min(page.samples["logboom_group_members"].values()) == 3_000 - GROUPS_MAX
    assert len(page.samples["logboom_group_members"]) == GROUPS_MAX
    assert len(page.samples["logboom_group_lag_records"]) == GROUP_LAGS_MAX
    assert len(text) < 8_000_000


def test_names_and_kinds_follow_the_rules_of_prometheus() -> None:
    for family in FAMILIES:
        assert re.fullmatch(r"logboom_[a-z_]+", family.name)
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert family.kind != "histogram" or family.name.endswith("_seconds")
        assert family.meaning.endswith(".")
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)


def test_the_page_for_people_lists_every_metric() -> None:
    rows = re.findall(r"^\| `(logboom_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", PAGE.read_text(), re.MULTILINE)
    ours = [
        (family.name, family.kind, ", ".join(f"`{label}`" for label in family.labels) or "-", family.meaning)
        for family in FAMILIES
    ]
    assert rows == ours


def test_other_requests_have_their_turn_while_metrics_are_made(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        pages = [asyncio.ensure_future(page_of(node)) for _ in range(4)]
        assert (await node.client.get("/healthz")).status_code == 200
        for page in await asyncio.gather(*pages):
            assert page.get("logboom_topics") == 0

    assert tell(tmp_path, story) == []
