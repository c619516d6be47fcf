"""A client that reaches the binary port and nothing else: it has no command run, and nothing asked, on a real node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from logboom.batch import build
from logboom.broker.api import Appended, Part, Settings
from logboom.client.remote import RemoteBroker, connect
from logboom.errors import ConfigError
from logboom.storage.data.topic import HookSettings, RetentionSettings, SegmentSettings, ValidatorSettings
from support.nodes.process import NodeProcess
from support.waiting import until

OFTEN = ("--set", "upkeep.retention_every_ms=5", "--logd", "127.0.0.1:0", "--http", "127.0.0.1:0")
KEEP_ONE = Settings(segment=SegmentSettings(bytes=4096), retention=RetentionSettings(records=1))


def hooked(hook: str) -> Settings:
    return msgspec.structs.replace(KEEP_ONE, hook=HookSettings(hook))


def ask(node: NodeProcess, story: Callable[[RemoteBroker], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), connect(node.address) as broker:
            await story(broker)

    asyncio.run(run())


async def write(broker: RemoteBroker, topic: str, records: int = 300) -> None:
    for number in range(records // 10):
        (answer,) = await broker.append([Part(topic, [build([b"%d" % number * 100] * 10)])])
        assert isinstance(answer, Appended)


async def pending(broker: RemoteBroker) -> int:
    """Segments that wait for their hook, once upkeep has looked."""
    while True:
        upkeep = (await broker.stats()).upkeep
        if upkeep and upkeep["hooks"]["pending"]:
            return int(upkeep["hooks"]["pending"])
        await asyncio.sleep(0.01)


async def until_dropped(broker: RemoteBroker, topic: str) -> None:
    async def first() -> int:
        return (await broker.describe_topic(topic)).partitions[0].first

    await until(first, f"a segment of {topic} to be dropped")


def test_a_client_has_no_command_of_its_own_run(tmp_path: Path) -> None:
    owned = tmp_path / "owned"

    async def attack(broker: RemoteBroker) -> None:
        with pytest.raises(ConfigError, match=r"hook\.delete"):
            await broker.create_topic("t", 1, hooked(f"id > {owned}"))
        await broker.create_topic("t", 1, KEEP_ONE)
        with pytest.raises(ConfigError, match=r"hook\.delete"):
            await broker.configure_topic("t", hooked(f"id > {owned}"))
        await write(broker, "t")
        await until_dropped(broker, "t")

    with NodeProcess(tmp_path, *OFTEN) as node:
        ask(node, attack)
    assert not owned.exists()


def test_a_client_chooses_among_the_commands_that_the_configuration_names(tmp_path: Path) -> None:
    said = tmp_path / "said"
    (tmp_path / "node.toml").write_text(f"[hooks]\nnote = 'echo $LOGBOOM_FIRST_SEQNO >> {said}'\n")

    async def story(broker: RemoteBroker) -> None:
        await broker.create_topic("t", 1, hooked("note"))
        await write(broker, "t")
        await until_dropped(broker, "t")

    with NodeProcess(tmp_path, *OFTEN, "--config", str(tmp_path / "node.toml")) as node:
        ask(node, story)
    assert said.read_text().split()[0] == "0"


def test_a_command_that_a_topic_has_from_before_is_not_run_and_holds_its_segments(tmp_path: Path) -> None:
    owned = tmp_path / "owned"

    async def begin(broker: RemoteBroker) -> None:
        await broker.create_topic("t", 1, msgspec.structs.replace(KEEP_ONE, retention=RetentionSettings()))
        await write(broker, "t")

    async def go_on(broker: RemoteBroker) -> None:
        assert await pending(broker)
        info = await broker.describe_topic("t")
        assert info.partitions[0].first == 0
        assert info.settings.hook.delete == f"id > {owned}"
        await broker.configure_topic("t", msgspec.structs.replace(info.settings, hook=HookSettings()))
        await until_dropped(broker, "t")

    with NodeProcess(tmp_path, *OFTEN) as node:
        ask(node, begin)
        node.stop()
        (file,) = tmp_path.glob("data/topics/t~*/topic.json")
        topic = json.loads(file.read_text())
        topic["settings"] |= {"hook": {"delete": f"id > {owned}"}, "retention": {"records": 1}}
        file.write_text(json.dumps(topic))
        node.start()
        ask(node, go_on)
    assert not owned.exists()


def test_a_client_has_nobody_asked_whom_the_configuration_does_not_list(tmp_path: Path) -> None:
    called: list[object] = []

    async def attack(broker: RemoteBroker) -> None:
        server = await asyncio.start_server(lambda reader, writer: called.append(writer), "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/latest/meta-data"
        for chosen in (url, url.replace("//", "//judge.test:8000@"), url.replace("//", "//judge.test:8000\\@")):
            asking = Settings(validators=ValidatorSettings((chosen,), on_failure="accept"))
            with pytest.raises(ConfigError, match=r"validators\.urls"):
                await broker.create_topic("t", 1, asking)
        await write(broker, "t", 10)
        server.close()

    with NodeProcess(tmp_path, *OFTEN, "--set", "validators.allow=http://judge.test:8000/") as node:
        ask(node, attack)
    assert called == []
