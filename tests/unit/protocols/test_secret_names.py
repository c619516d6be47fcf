"""A topic that is not for somebody: nothing that he can ask for, of any front-end, has its name in it.

He may do everything else. Others write to it, read it, publish to it, run jobs over it, and fail to find it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logboom.access.credential import Credential
from logboom.access.rule import Rule
from logboom.batch import build
from logboom.broker.api import Part, PublishKey, ReadRequest, ReplicaStats
from logboom.broker.caller import EVERYBODY, ITSELF
from logboom.broker.local import LocalBroker
from logboom.broker.monitor.discretion import UNSAID, discreet_replica
from logboom.client.remote import connect
from logboom.errors import LogboomError
from logboom.results.pipeline_ledger import PipelineLedger
from logboom.results.pipeline_state import Ended, Event, Leased
from support.brokers.every_call import ASKED, arguments
from support.callers.closed_node import address, closed_node, profile
from support.callers.everybody import PASSWORD, Visitor
from support.callers.http_requests import HTTP
from support.callers.logd_lines import LOGD
from support.nodes.guarded import basic
from support.nodes.web import plain_client
from support.simulation.staged import staged_batch

SECRET = "topsecret42"
GONE = "topsecret43"
CURSED = Visitor("nosy", "nosy")
TELLING = (
    *("list_topics", "list_cursors", "list_stages", "list_keys", "list_jobs", "show_metrics", "show_checkup"),
    *("show_incidents", "list_activity"),
)
"""Pages on which everybody else finds it."""
KNOWN = ("list_rules", "explain_access")
"""Who may describe all users sees rules, and what they name."""


async def happen(broker: LocalBroker) -> None:
    """All that can happen to a topic."""
    credential = Credential.derive(PASSWORD, b"salt" * 4, iterations=4096)
    await broker.add_user("nosy", [credential], caller=ITSELF)
    await broker.add_user("root", [credential], roles=["admin"], caller=ITSELF)
    for rule in (
        Rule("allow", "nosy", ("all",), "all"),
        Rule("allow", "nosy", ("all",), "all", "_pipeline"),
        Rule("deny", "nosy", ("all",), "topic", "topsecret*"),
    ):
        await broker.add_rule(rule, caller=ITSELF)
    for topic in (SECRET, GONE, "events"):
        await broker.create_topic(topic, caller=ITSELF)
        await broker.append([Part(topic, [build([b"a", b"b"])])], caller=ITSELF)
    chunk = await broker.read(ReadRequest(SECRET), caller=ITSELF)
    for topic, place in ((SECRET, chunk), ("events", await broker.read(ReadRequest("events"), caller=ITSELF))):
        await broker.commit_cursor("billing", topic, 0, place.bookmark, caller=ITSELF)
    stage = await broker.open_stage("an import", caller=ITSELF)
    await broker.stage(stage.id, [Part(SECRET, [staged_batch(stage, [b"x"], 0)])], caller=ITSELF)
    await broker.publish_batches(PublishKey("orders", 1), [Part(SECRET, [build([b"x"])])], caller=ITSELF)
    await broker.delete_topic(GONE, caller=ITSELF)
    await broker.refuse(SECRET, "being moved", caller=ITSELF)
    for asked in (broker.read(ReadRequest(f"{SECRET}s"), caller=ITSELF), broker.trim(SECRET, 7, 0, caller=ITSELF)):
        with pytest.raises(LogboomError):
            await asked
    (refused,) = await broker.append([Part(SECRET, [build([b"x"])])], caller=ITSELF)
    assert isinstance(refused, LogboomError)

    async def its_broker() -> LocalBroker:
        return broker

    ledger = PipelineLedger(its_broker, ITSELF)
    events: list[Event] = [
        Leased(f"archive/{SECRET}", "archive", 1, "one", "here:1", 30_000, (SECRET,)),
        Ended(f"archive/{SECRET}", 1, "one", None, f"{SECRET} could not be read"),
    ]
    for event in events:
        await ledger.put(lambda _, event=event: event)  # type: ignore[misc]


def told(error: LogboomError) -> str:
    return f"{error} {vars(error)}"


def test_no_call_names_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with closed_node(tmp_path) as node:
            await happen(node.broker)
            async with connect(profile(node, CURSED)) as remote:
                for call in ASKED:
                    if call in KNOWN or not hasattr(remote, call) or call in ("subscribe", "append_then"):
                        continue
                    given: dict[str, Any] = arguments(call, [])
                    try:
                        answer = await getattr(remote, call)(**given, caller=EVERYBODY)
                        shown = repr(msgspec.to_builtins(answer, enc_hook=told)) if call != "read" else ""
                    except LogboomError as error:
                        shown = told(error)
                    assert "topsecret" not in shown, (call, shown)

    asyncio.run(story())


@pytest.mark.parametrize("name", sorted(HTTP))
def test_no_page_names_it(name: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with closed_node(tmp_path) as node, plain_client(f"http://{address(node, 'http')}") as client:
            await happen(node.broker)
            for asked in HTTP[name]:
                if name not in KNOWN and asked.json is None and asked.content is None and name != "tail_records":
                    answer = await client.get(asked.path, headers=basic("nosy", PASSWORD))
                    assert "topsecret" not in answer.text + str(answer.headers), asked.path
            if name in TELLING:
                answer = await client.get(HTTP[name][0].path, headers=basic("root", PASSWORD))
                assert SECRET in answer.text, "there is nothing to be found out"

    asyncio.run(story())


def test_no_line_names_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with closed_node(tmp_path) as node, plain_client(f"http://{address(node, 'http')}") as client:
            await happen(node.broker)
            for lines in LOGD.values():
                for line in lines:
                    headers = {**basic("nosy", PASSWORD), "Content-Type": "application/logd"}
                    if not line.is_endless:
                        assert "topsecret" not in (await client.post("/log", content=line.data, headers=headers)).text

    asyncio.run(story())


def test_of_a_copy_is_told_what_is_for_the_one_who_asks() -> None:
    stats = ReplicaStats("db1", True, 9, {f"{SECRET}/0": 8, "events/0": 1}, error=f"{SECRET} is damaged", kept=[SECRET])
    found = discreet_replica(stats, "events".__eq__)
    assert found == ReplicaStats("db1", True, 9, {"events/0": 1}, error=UNSAID, kept=[])
