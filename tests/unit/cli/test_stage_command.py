"""`logboom stage` against a real node, in this process; what a user would see."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logboom.broker.api import PublishKey, Receipt
from logboom.cli import run
from logboom.client.remote import connect
from support.brokers.staged import fill_stage
from support.nodes.process import NodeProcess

Call = Callable[..., str]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as process:
        yield process


@pytest.fixture
def call(node: NodeProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Call]:
    """Runs a command, which finds the node by itself; gives what it printed, or where it fails its complaint."""
    monkeypatch.setenv("LOGBOOM_SERVERS", node.address)

    def command(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        found = run(list(arguments))
        captured = capsys.readouterr()
        assert found == code, captured
        return captured.err if code else captured.out

    yield command
    for stage in json.loads(command("stage", "list", "--json")):
        command("stage", "discard", stage["id"])


def stage(count: int = 3, note: str = "") -> str:
    async def fill() -> str:
        async with connect() as broker:
            await broker.describe_topic("t", create=True)
            return (await fill_stage(broker, count=count, note=note)).id

    return asyncio.run(fill())


def publish(name: str, number: int, *stages: str) -> None:
    async def ask() -> None:
        async with connect() as broker:
            await broker.publish(PublishKey(name, number), [Receipt(each) for each in stages])

    asyncio.run(ask())


def test_stages_are_listed_with_what_is_in_them(call: Call) -> None:
    first, second = (stage(3, "import of\tMonday"), stage(5))
    names, *rows = [line.split("\t") for line in call("stage", "list").splitlines()]
    assert names == ["stage", "state", "records", "bytes", "logs", "touched", "expires", "note"]
    assert [row[:3] for row in rows] == [[first, "open", "3"], [second, "open", "5"]]
    assert (rows[0][4], rows[0][7], rows[1][7]) == ("t/0", "import of\\tMonday", "-")
    listed = json.loads(call("stage", "list", "--json"))
    assert [(info["id"], info["records"]) for info in listed] == [(first, 3), (second, 5)]


def test_stages_are_discarded_and_what_was_not_there_is_named(call: Call) -> None:
    first, second = stage(), stage()
    assert call("stage", "discard", first) == f"discarded {first}\n"
    complaint = call("stage", "discard", first, second, code=2)
    assert complaint.startswith(f"logboom: there is no stage '{first}'")
    assert json.loads(call("stage", "list", "--json")) == []


def test_keys_are_listed_by_what_their_names_begin_with(call: Call) -> None:
    publish("orders/import", 7, stage())
    publish("orders/other", 1)
    publish("else", 1)
    names, *rows = [line.split("\t") for line in call("stage", "keys", "orders/").splitlines()]
    assert names == ["name", "number", "records", "published", "expires", "state"]
    assert [row[:3] for row in rows] == [["orders/import", "7", "3"], ["orders/other", "1", "0"]]
    assert rows[0][4:] == ["-", "published"]
    assert [key["name"] for key in json.loads(call("stage", "keys", "--json"))] == [
        "else",
        "orders/import",
        "orders/other",
    ]


def test_a_key_that_is_forgotten_can_be_published_under_again(call: Call) -> None:
    publish("again", 9)
    assert call("stage", "forget", "again", "--yes") == "forgot again, which stood at number 9\n"
    assert "nothing was published under it" in call("stage", "forget", "again", "--yes", code=2)
    publish("again", 1)
    (key,) = json.loads(call("stage", "keys", "again", "--json"))
    assert key["number"] == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("\n", 2)])
def test_a_key_is_forgotten_only_by_who_agrees(
    call: Call, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    publish("asked", 3)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert "--yes" in call("stage", "forget", "asked", code=2)
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    said = call("stage", "forget", "asked", code=code)
    assert ("was not forgotten" in said) == bool(code)
    assert len(json.loads(call("stage", "keys", "asked", "--json"))) == bool(code)


def test_stats_show_what_is_staged(call: Call) -> None:
    stage()
    lines = dict(line.split("\t") for line in call("stats").splitlines())
    assert lines["staging.stages"] == "1"
    assert int(lines["staging.staged_bytes"]) > 0


def test_a_doctor_tells_when_there_are_nearly_too_many_stages_or_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ("--set", "limits.stages=2", "--set", "limits.publish_keys=2")
    with NodeProcess(tmp_path, *settings) as node:
        monkeypatch.setenv("LOGBOOM_SERVERS", node.address)
        stage()
        stage()
        publish("a", 1)
        publish("b", 1)
        run(["doctor", "--server", node.address])
        said = capsys.readouterr().out
    assert "near a limit" in said
    assert "limits.stages" in said
    assert "limits.publish_keys" in said
