"""Jobs of the pipeline over HTTP, and the page of a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from logboom.batch import build
from logboom.broker.api import PIPELINE_TOPIC, Part
from logboom.results.pipeline_state import Covered, Ended, Event, Leased, Result, ResultFile
from logboom.results.places import ResultPlace
from support.nodes.web import WebNode, tell

JOB = "report/all"


async def publish(node: WebNode, place: ResultPlace, page: ResultFile | None, topic_id: str = "") -> None:
    covers = {"orders": Covered(topic_id, {0: (0, 1)})} if topic_id else {}
    facts: dict[str, Any] = {} if page is None else {"page": msgspec.to_builtins(page)}
    events: list[Event] = [
        Leased(JOB, "report", 1, "one", "here:1", 30_000, ("orders",)),
        Ended(JOB, 1, "one", Result("one", place.uri, covers, None, 3, 4, facts)),
    ]
    for event in events:
        await node.front_end.pipeline.put(lambda _, event=event: event)  # type: ignore[misc]


def test_a_node_without_jobs_lists_none(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        assert (await node.client.get("/pipeline")).json()["jobs"] == []

    assert tell(tmp_path, story) == []


def test_a_job_is_listed_with_its_result_and_how_far_that_is_behind(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        info = await node.broker.create_topic("orders")
        await node.broker.append([Part("orders", [build([b"1", b"2", b"3"])])], "durable")
        await publish(node, ResultPlace(str(tmp_path)), None, info.id)
        (job,) = (await node.client.get("/pipeline", params={"prefix": "report/"})).json()["jobs"]
        assert (job["job"], job["state"], job["lag"], job["result"]["records"]) == (JOB, "idle", 2, 3)
        assert (await node.client.get("/pipeline", params={"prefix": "archive"})).json()["jobs"] == []
        metrics = (await node.client.get("/metrics")).text
        assert f'logboom_job_lag_records{{job="{JOB}"}} 2\n' in metrics
        assert f'logboom_job_running{{job="{JOB}"}} 0\n' in metrics
        assert f'logboom_job_failing{{job="{JOB}"}} 0\n' in metrics

    assert tell(tmp_path, story) == []


def test_the_page_of_a_report_is_served_so_that_it_can_do_nothing(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        place = ResultPlace(str(tmp_path / "results"))
        await publish(node, place, place.write("report.html", b"<h1>Report</h1>"))
        answer = await node.client.get("/pipeline/report", params={"job": JOB})
        assert (answer.status_code, answer.text) == (200, "<h1>Report</h1>")
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        policy = answer.headers["content-security-policy"].split("; ")
        assert {"sandbox", "default-src 'none'", "frame-ancestors 'none'"} <= set(policy)
        assert not any("script" in rule for rule in policy)
        assert answer.headers["x-content-type-options"] == "nosniff"

    assert tell(tmp_path, story) == []


@pytest.mark.parametrize(
    ("page", "status"),
    [
        (None, 404),
        (ResultFile("gone.html", 3, 3), 500),
        (ResultFile("../secret", 6, 1), 500),
        (ResultFile("/etc/hostname", 6, 1), 500),
        (ResultFile("large.html", 1 << 40, 1), 500),
    ],
)
def test_what_is_no_page_of_a_result_is_not_served(tmp_path: Path, page: ResultFile | None, status: int) -> None:
    async def story(node: WebNode) -> None:
        await publish(node, ResultPlace(str(tmp_path / "results")), page)
        answer = await node.client.get("/pipeline/report", params={"job": JOB})
        assert answer.status_code == status
        assert (await node.client.get("/pipeline/report", params={"job": "archive/none"})).status_code == 404

    assert tell(tmp_path, story) == []


def test_a_log_that_cannot_be_understood_is_told_and_does_not_hide_the_metrics(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        async def say_something_strange(seqno: int) -> None:
            await node.broker.append([Part(PIPELINE_TOPIC, [build([b"what?"])], 0, seqno)], "durable")

        await say_something_strange(0)
        answer = await node.client.get("/pipeline")
        assert (answer.status_code, answer.json()["jobs"]) == (200, []), "what makes no sense is passed over"
        await say_something_strange(1)
        await node.broker.trim(PIPELINE_TOPIC, 0, 1)  # what the log begins with now stands for all that was before
        answer = await node.client.get("/pipeline")
        assert (answer.status_code, answer.json()["code"]) == (500, "results-unreadable")
        assert "seqno 1" in answer.json()["detail"]
        assert (await node.client.get("/metrics")).status_code == 200

    assert tell(tmp_path, story) == []
