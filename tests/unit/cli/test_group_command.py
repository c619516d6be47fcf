"""`logboom group` against a real node, in this process; what a user would see."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from logboom.batch import build
from logboom.broker.api import GroupJoin, Part, TakeJobs
from logboom.cli import names, run
from logboom.client.remote import connect
from support.nodes.process import NodeProcess
from support.terminal import on_terminal

Call = Callable[..., str]
MEMBER = "member-0123456789"


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

    asyncio.run(fill())
    yield command
    asyncio.run(leave())
    for group in json.loads(command("group", "list", "--json")):
        command("group", "delete", group["group"], "--yes")


async def fill() -> None:
    async with connect() as broker:
        info = await broker.describe_topic("orders", create=True)
        if not info.partitions[0].committed:
            batches = [build([b"1", b"2", b"3"], timestamps=[10**15, 2 * 10**15, 3 * 10**15])]
            await broker.append([Part("orders", batches, 0)], "durable")


async def join(group: str = "billing") -> None:
    async with connect() as broker:
        await broker.join_group(GroupJoin(group, MEMBER, "orders", client="a program"))


async def leave(group: str = "billing") -> None:
    async with connect() as broker:
        for info in await broker.list_groups(group):
            if info.members:
                await broker.leave_group(info.group, MEMBER)


def test_groups_are_listed_and_described(call: Call) -> None:
    asyncio.run(join())
    call("group", "reset", "other", "orders", "--to", "latest", "--yes")
    heads, *rows = [line.split("\t") for line in call("group", "list").splitlines()]
    assert heads == ["group", "mode", "state", "members", "logs", "lag"]
    assert rows == [["billing", "logs", "stable", "1", "1", "3"], ["other", "logs", "empty", "0", "1", "0"]]
    assert [info["group"] for info in json.loads(call("group", "list", "oth", "--json"))] == ["other"]
    shown = call("group", "describe", "billing")
    assert "state\tstable\n" in shown
    assert f"{MEMBER}\ta program\t" in shown
    assert "\norders/0\t-\t3\t3\tmember-0123456789\t-\n" in shown
    found = json.loads(call("group", "describe", "billing", "--json"))
    assert (found["members"][0]["logs"], found["logs"][0]["lag"]) == (["orders/0"], 3)


def test_of_a_queue_it_is_told_what_is_in_flight(call: Call) -> None:
    async def join_queue() -> None:
        async with connect() as broker:
            await broker.join_group(GroupJoin("jobs", MEMBER, "orders", "queue"))
            await broker.take_jobs(TakeJobs("jobs", MEMBER, max_records=2))

    asyncio.run(join_queue())
    try:
        shown = call("group", "describe", "jobs")
    finally:
        asyncio.run(leave("jobs"))
    assert "mode\tqueue\n" in shown
    heads, row = (line.split("\t") for line in shown.splitlines()[-2:])
    assert heads == ["log", "seqno", "end", "lag", "in flight", "delayed", "moved"]
    assert (row[0], row[2], row[4:6]) == ("orders/0", "3", ["2", "0"])


@pytest.mark.parametrize(
    ("to", "seqno"), [("earliest", 0), ("latest", 3), ("2", 2), ("2033-05-19", 2), ("2001-09-09T01:46:41Z", 1)]
)
def test_a_group_is_reset_by_place_and_by_time_and_a_dry_run_moves_nothing(call: Call, to: str, seqno: int) -> None:
    assert call("group", "reset", "billing", "orders", "--to", "1", "--yes") == "log\tfrom\tto\norders/0\t-\t1\n"
    told = f"log\tfrom\tto\norders/0\t1\t{seqno}\n"
    assert call("group", "reset", "billing", "--to", to, "--dry-run") == told
    assert json.loads(call("group", "describe", "billing", "--json"))["logs"][0]["seqno"] == 1
    found = json.loads(call("group", "reset", "billing", "--to", to, "--yes", "--json"))
    assert [(place["seqno_from"], place["seqno"]) for place in found] == [(1, seqno)]
    assert json.loads(call("group", "describe", "billing", "--json"))["logs"][0]["seqno"] == seqno


def test_a_group_with_members_is_neither_reset_nor_deleted(call: Call) -> None:
    asyncio.run(join())
    assert "has members (1): stop them first" in call("group", "delete", "billing", "--yes", code=2)
    complaint = call("group", "reset", "billing", "orders", "--to", "latest", "--yes", code=2)
    assert "has members (1): stop them first" in complaint


def test_what_is_not_there_and_what_is_no_place_is_said(call: Call) -> None:
    assert "there is no group 'nobody'" in call("group", "describe", "nobody", code=2)
    assert "there is no group 'nobody'" in call("group", "delete", "nobody", code=2)
    assert "there is no group 'nobody'" in call("group", "reset", "nobody", "--to", "latest", "--yes", code=2)
    assert "is no place" in call("group", "reset", "nobody", "orders", "--to", "there", code=2)


def test_without_a_terminal_somebody_has_to_say_yes(call: Call) -> None:
    call("group", "reset", "billing", "orders", "--to", "1", "--yes")
    assert "pass --yes" in call("group", "reset", "billing", "--to", "latest", code=2)
    assert "pass --yes" in call("group", "delete", "billing", code=2)
    assert json.loads(call("group", "describe", "billing", "--json"))["logs"][0]["seqno"] == 1


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"\n", 2)])
def test_on_a_terminal_it_is_asked_before_a_group_goes(call: Call, node: NodeProcess, answer: bytes, code: int) -> None:
    call("group", "reset", "billing", "orders", "--to", "1", "--yes")
    done = on_terminal("group", "delete", "billing", typed=answer, LOGBOOM_SERVERS=node.address)
    assert done.code == code
    assert "Delete group billing with its places in 1 log? [y/N]" in done.text
    assert bool(json.loads(call("group", "list", "billing", "--json"))) == bool(code)


def test_a_shell_completes_the_names_of_groups(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "PATIENCE_S", 60.0)
    call("group", "reset", "billing", "orders", "--to", "1", "--yes")
    offered = call("__complete", "group", "describe", "bil").partition("\x1fbegin\n")[2]
    assert [line.split("\t")[0] for line in offered.splitlines()] == ["billing"]


def test_who_reads_as_a_member_goes_on_where_the_group_was_and_is_gone_afterwards(call: Call) -> None:
    assert call("read", "orders", "--group", "billing", "--limit", "2") == "1\n2\n"
    found = json.loads(call("group", "describe", "billing", "--json"))
    assert (found["members"], [log["seqno"] for log in found["logs"]]) == ([], [2])
    assert call("read", "orders", "--group", "billing", "-n") == "orders/0\t2\t3\n"
    assert call("read", "orders", "--group", "billing", "--from", "earliest") == ""
    assert call("read", "orders", "--group", "late", "--from", "2001-09-09T01:46:41Z") == "2\n3\n"
    assert json.loads(call("group", "list", "late", "--json"))[0]["lag"] == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--from", "2"), "`logboom group reset` puts it elsewhere"),
        (("--cursor", "billing"), "leave out --cursor"),
        (("--until", "2"), "name a time"),
        (("--from", "checkpoint"), "is no place"),
    ],
)
def test_what_a_member_cannot_be_asked_for_is_said(call: Call, options: tuple[str, ...], words: str) -> None:
    assert words in call("read", "orders", "--group", "billing", *options, code=2)
    assert call("group", "list", "billing", "--json") == "[]\n"


def test_ctrl_c_ends_a_member_that_follows_behind_what_it_has_printed(call: Call, node: NodeProcess) -> None:
    command = [sys.executable, "-m", "logboom", "read", "orders", "--group", "billing", "--follow"]
    environment = {**os.environ, "LOGBOOM_SERVERS": node.address}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as reading:
        assert reading.stdout is not None
        assert [reading.stdout.readline() for _ in range(3)] == [b"1\n", b"2\n", b"3\n"]
        reading.send_signal(signal.SIGINT)
        assert reading.wait(300) == 130
    found = json.loads(call("group", "describe", "billing", "--json"))
    assert (found["members"], [log["seqno"] for log in found["logs"]]) == ([], [3])
