"""Spark against a node with TLS and users: it reads and writes, and shows no secret to anybody."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from logboom import Writer
from logboom.access.rule import Rule
from logboom.client.remote import connect
from logboom.errors import ConfigError
from support.nodes.secured import PASSWORD, SecuredNode, secured_node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with secured_node(tmp_path_factory.mktemp("secured")) as node:
        asyncio.run(node.add("bob", ("read,write,create", "topic", "bob.*"), ("all", "transaction", "*")))
        with Writer("bob.events", node.profile("bob")) as writer:
            writer.write_many([b"%d" % number for number in range(1000)])
        yield node


@pytest.fixture
def profile(spark: SparkSession, node: SecuredNode) -> str:
    """In a file that is read where queries are planned: tasks get what they need from there."""
    path = Path(os.environ["LOGBOOM_PROFILES"])
    path.write_text(
        f'[bob]\nservers = "tls://{node.address}"\nca = "{node.ca}"\nuser = "bob"\npassword = "{PASSWORD}"\n'
    )
    path.chmod(0o600)
    return "@bob"


def told(frame: Any) -> str:
    """Everything that Spark says of a query to those who look."""
    inner = frame._jdf.queryExecution()
    return "\n".join([inner.toString(), inner.logical().toJSON(), inner.executedPlan().treeString(), str(frame)])


def test_a_table_is_read_and_written_by_a_profile_and_no_plan_shows_the_password(
    spark: SparkSession, node: SecuredNode, profile: str
) -> None:
    frame = spark.read.format("logboom").option("topic", "bob.events").load(profile)
    assert frame.count() == 1000
    by_option = spark.read.format("logboom").option("profile", "bob").option("topic", "bob.events").load()
    assert by_option.where("seqno < 10").count() == 10
    for each in (frame, by_option):
        assert PASSWORD not in told(each)
    frame.select("value").write.format("logboom").option("topic", "bob.copy").mode("append").save(profile)
    copied = spark.read.format("logboom").option("topic", "bob.copy").load(profile)
    assert copied.count() == 1000
    spark.sql("CREATE TEMPORARY VIEW secured USING logboom OPTIONS (profile 'bob', topic 'bob.events')")
    assert spark.sql("SELECT count(*) FROM secured").first()[0] == 1000  # type: ignore[index]


def test_a_stream_reads_writes_and_keeps_its_cursor(
    spark: SparkSession, node: SecuredNode, profile: str, tmp_path: Path
) -> None:
    asyncio.run(_allow_cursors(node))
    reader = spark.readStream.format("logboom").option("topic", "bob.events").option("startingSeqno", "earliest")
    frame = reader.option("cursor", "spark").load(profile)
    query = (
        frame.select("value")
        .writeStream.format("logboom")
        .option("topic", "bob.streamed")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(profile)
    )
    query.awaitTermination(300)
    assert query.exception() is None
    assert PASSWORD not in str(query.recentProgress)
    for path in (tmp_path / "checkpoint").rglob("*"):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes()
    assert spark.read.format("logboom").option("topic", "bob.streamed").load(profile).count() == 1000


async def _allow_cursors(node: SecuredNode) -> None:
    async with connect(f"unix:{node.unix}") as broker:
        await broker.add_rule(Rule("allow", "bob", ("all",), "cursor", "spark"))


@pytest.mark.parametrize("option", ["password", "token"])
def test_a_secret_is_no_option(spark: SparkSession, node: SecuredNode, option: str) -> None:
    reader = spark.read.format("logboom").option("topic", "bob.events").option(option, "x")
    with pytest.raises(Exception, match="LOGBOOM_PASSWORD") as refused:
        reader.load(f"tls://{node.address}").count()
    assert isinstance(refused.value, ConfigError) or "ConfigError" in str(refused.value)


def test_who_is_not_known_is_told_so(spark: SparkSession, node: SecuredNode) -> None:
    reader = spark.read.format("logboom").option("topic", "bob.events").option("ca", node.ca)
    with pytest.raises(Exception, match="sign in"):
        reader.load(f"tls://{node.address}").count()


def test_who_may_read_some_records_only_is_sent_to_the_node_and_gets_those(
    spark: SparkSession, node: SecuredNode, profile: str
) -> None:
    asyncio.run(node.add("sam", ("read", "topic", "*")))
    with Writer("marked", node.profile("ann")) as writer:
        for number in range(100):
            writer.write(b"%d" % number, channel="open" if number % 4 else "closed")
    path = Path(os.environ["LOGBOOM_PROFILES"])
    path.write_text(path.read_text().replace("[bob]", "[sam]").replace('"bob"', '"sam"'))

    def read() -> tuple[int, set[str], int]:
        frame = spark.read.format("logboom").option("topic", "marked").load("@sam")
        rows = frame.select("seqno", "channel").collect()
        return frame.count(), {row.channel for row in rows}, frame.where("channel = 'closed'").count()

    assert read() == (100, {"open", "closed"}, 25)
    asyncio.run(_deny_closed(node))
    assert read() == (75, {"open"}, 0)


async def _deny_closed(node: SecuredNode) -> None:
    async with connect(f"unix:{node.unix}") as broker:
        await broker.add_rule(Rule("deny", "sam", ("read",), "channel", "closed"))
