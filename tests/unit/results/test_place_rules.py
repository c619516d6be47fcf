"""Who may append to `_pipeline` says where results are: a node reads them only where its configuration lets it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from logboom.batch import build
from logboom.broker.api import Part, Settings
from logboom.broker.caller import EVERYBODY
from logboom.broker.local import LocalBroker
from logboom.errors import ConfigError, ResultsUnreadable
from logboom.results.pipeline_follower import PipelineFollower
from logboom.results.pipeline_ledger import PipelineLedger
from logboom.results.pipeline_state import Covered, Ended, Event, Leased, PipelineState, Result, ResultFile
from logboom.results.place_rules import PlaceRules
from logboom.results.places import ResultPlace
from logboom.storage.data.topic import SegmentSettings
from support.brokers.any_broker import AnyBroker
from support.nodes.web import WebNode, tell
from support.results.archived import archive

RUN = "archive/t/runs/1"
LISTED = PlaceRules(("/srv/results", "s3://bucket/logs?region=eu")).check()


@pytest.mark.parametrize("place", [f"/srv/results/{RUN}", f"s3://bucket/logs/{RUN}?region=eu"])
def test_what_is_below_a_listed_place_is_read(place: str) -> None:
    assert LISTED.refusal(place) is None


@pytest.mark.parametrize(
    "place",
    [
        *(f"/etc/{RUN}", f"/srv/results2/{RUN}", f"/srv/results/../{RUN}", f"srv/results/{RUN}", "/srv/results/t"),
        *(
            f"s3://bucket/logs/{RUN}",
            f"s3://bucket/logs/{RUN}?region=eu&endpoint_override=evil",
            f"s3://evil/logs/{RUN}",
        ),
        *(f"s3://bucket/logs/../../evil/{RUN}?region=eu", f"s3://bucket/logs/%2e%2e/{RUN}?region=eu"),
        *(f"file:///srv/results/{RUN}", "", "\0"),
    ],
)
def test_what_is_elsewhere_is_not(place: str) -> None:
    assert LISTED.refusal(place) is not None
    with pytest.raises(ResultsUnreadable, match="is not read by this node"):
        LISTED.demand(place)


def test_without_a_list_directories_of_this_machine_are_read_and_no_store_is() -> None:
    assert PlaceRules().refusal(f"/anywhere/100%/{RUN}") is None
    for place in (f"s3://bucket/{RUN}", f"hdfs://evil:9000/{RUN}", f"file:///{RUN}", "/a/../b/c/d"):
        assert PlaceRules().refusal(place) is not None


@pytest.mark.parametrize("place", ["results", "/a/../b", "s3://bucket/../x", ""])
def test_a_place_that_could_mean_anything_is_no_configuration(place: str) -> None:
    with pytest.raises(ConfigError, match=r"pipeline\.places"):
        PlaceRules((place,)).check()


def test_a_file_is_not_read_before_its_size_is_right_nor_is_what_is_no_file_or_elsewhere(
    tmp_path: Path,
) -> None:
    place = ResultPlace(str(tmp_path / "in"))
    stored = place.write("good", b"abc")
    assert place.read(stored) == b"abc"
    (tmp_path / "secret").write_text("12 letters..")
    os.mkfifo(tmp_path / "in" / "pipe")
    for path, size in (("good", 2), ("../secret", 12), ("pipe", 0), ("pipe", 5), ("../in/good", 3), ("none", 3)):
        with pytest.raises(ResultsUnreadable) as refused:
            place.read(ResultFile(path, size, stored.crc))
        assert "12 bytes" not in str(refused.value)
    for path in ("../secret", "pipe"):
        with pytest.raises(ResultsUnreadable):
            place.open(path)


async def publish(broker: AnyBroker, job: str, kind: str, result: Result) -> None:
    async def connect() -> AnyBroker:
        return broker

    def always(event: Event) -> object:
        return lambda pipeline: event

    ledger = PipelineLedger(connect, EVERYBODY)
    pipeline: PipelineState = await ledger.refresh()
    epoch = pipeline.jobs[job].epoch + 1 if job in pipeline.jobs else 1
    await ledger.put(always(Leased(job, kind, epoch, result.run, "evil", 30_000)))  # type: ignore[arg-type]
    await ledger.put(always(Ended(job, epoch, result.run, result)))  # type: ignore[arg-type]


def test_a_client_that_names_a_store_has_the_node_connect_to_nobody_and_spoils_no_other_archive(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[object] = []

    async def run() -> None:
        server = await asyncio.start_server(lambda reader, writer: called.append(writer), "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        broker = await LocalBroker.open(str(tmp_path / "data"))
        info = await broker.create_topic("good", 1, Settings(segment=SegmentSettings(bytes=4096)))
        victim = await broker.create_topic("victim")
        for _ in range(4):
            await broker.append([Part("good", [build([bytes(3000)])])])
        await archive(broker, "good", tmp_path / "archive")
        store = f"s3://bucket/{RUN}?region=x&scheme=http&endpoint_override={address}"
        covers = {"victim": Covered(victim.id, {0: (0, 5)})}
        await publish(broker, "archive/victim", "archive", Result("1", store, covers, ResultFile("m", 1, 1)))
        following = await PipelineFollower.start(broker, broker.archives.put)
        assert broker.archives.find(info.id, 0) is not None
        assert broker.archives.find(victim.id, 0) is None
        assert "counts for nothing" in caplog.text
        await following.close()
        await broker.close()
        server.close()

    asyncio.run(run())
    assert called == []


def test_a_page_and_a_checkpoint_in_a_place_that_is_not_allowed_are_not_shown(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        topic = await node.broker.create_topic("t")
        stored = {"path": "page", "size": 1, "crc": 1}
        report = Result("1", f"s3://evil/{RUN}", facts={"page": stored})
        await publish(node.broker, "report", "report", report)
        answer = await node.client.get("/pipeline/report", params={"job": "report"})
        assert "names no store" in answer.text
        covers = {"t": Covered(topic.id, {0: (0, 1)})}
        made = Result("1", f"s3://evil/{RUN}", covers, ResultFile("m", 1, 1), facts={"by": "key"})
        await publish(node.broker, "checkpoint/t/key", "checkpoint", made)
        answer = await node.client.get("/topics/t/checkpoint")
        assert "names no store" in answer.text

    tell(tmp_path, story)
