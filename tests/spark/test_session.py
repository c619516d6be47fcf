"""Sessions, in processes of their own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from logboom.batch import build
from logboom.storage import DataDirectory
from spark.cluster import run_client
from support.effort import some_of
from support.nodes.process import NodeProcess
from support.spark.queries import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = """
import json, os, sys
QUIET = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "1g"}
"""
LIVES = """
import threading
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from logboom.spark import session

address, checkpoints = sys.argv[1:]


def follow(spark, cursor):
    options = {"topic": "events", "startingSeqno": "earliest", "cursor": cursor}
    stream = spark.readStream.format("logboom").options(**options).load(address).writeStream.format("noop")
    stream.option("checkpointLocation", f"{checkpoints}/{cursor}").trigger(availableNow=True).start().awaitTermination()


said = {}
spark = session("mine", "local[2]", config={**QUIET, "spark.sql.shuffle.partitions": "3"})
said["executable"] = spark.range(1).select(udf(lambda _: __import__("sys").executable)("id")).first()[0]
names = [
    "spark.app.name", "spark.master", "spark.driver.memory", "spark.sql.shuffle.partitions",
    "spark.sql.python.filterPushdown.enabled", "spark.sql.execution.arrow.pyspark.enabled",
    "spark.python.unix.domain.socket.enabled", "spark.sql.execution.arrow.maxBytesPerBatch",
]
said["settings"] = [spark.conf.get(name) for name in names]
said["same"] = session(config={"spark.sql.shuffle.partitions": "5", "spark.driver.memory": "9g"}) is spark
said["changed"] = [spark.conf.get("spark.sql.shuffle.partitions"), spark.conf.get("spark.driver.memory")]
said["scans"], said["scans are there"] = os.environ["LOGBOOM_SCANS"], os.path.isdir(os.environ["LOGBOOM_SCANS"])
follow(spark, "first")
spark.stop()

spark = session("again", "local[2]", config=QUIET)
follow(spark, "second")
spark.stop()

builder = SparkSession.builder.master("local[1]").appName("theirs")
theirs = {"spark.sql.python.filterPushdown.enabled": "false", "spark.sql.shuffle.partitions": "200"}
for key, value in {**QUIET, **theirs}.items():
    builder = builder.config(key, value)
theirs = builder.getOrCreate()
before = theirs.conf.get("spark.sql.python.filterPushdown.enabled")
spark = session("mine", "local[7]")
elsewhere = threading.Thread(target=session)
elsewhere.start()
elsewhere.join()
said["theirs"] = {
    "shuffle": spark.conf.get("spark.sql.shuffle.partitions"),
    "same": spark is theirs, "master": spark.sparkContext.master, "before": before,
    "after": spark.conf.get("spark.sql.python.filterPushdown.enabled"),
}
print(json.dumps(said))
"""
"""Three sessions, one after the other, of one process and one Java: ours, another of ours, and somebody else's."""
NEARBY = """
from logboom.spark import session
from pyspark.sql.functions import udf
here = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.sql.warehouse.dir": sys.argv[1]}
spark = session("mine", remote=sys.argv[2] or None, config={**QUIET, **here})
other = spark.range(1).select(udf(lambda _: __import__("os").environ.get("OTHER_PYTHON", "no"))("id")).first()[0]
again = session()
print(json.dumps({"other": other, "same": again is spark, "memory": spark.conf.get("spark.driver.memory")}))
spark.stop()
"""


def test_the_source_is_found_without_being_registered(spark: SparkSession, tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path / "data")) as directory:
        directory.create_topic("events")
        (log,) = directory.open_topic("events")
        log.append_one(build([b"one", b"two"]), 1)
        directory.sync()
        read = spark.read.format("logboom").option("topic", "events").load(str(tmp_path / "data"))
        assert [bytes(row.value) for row in read.orderBy("seqno").collect()] == [b"one", b"two"]


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("lives")
    with NodeProcess(root) as node:
        topics = Topics(node)
        topics.create("events")
        topics.write("events", [b"one", b"two"])
        said = run_client(SETTINGS + LIVES, topics.path, str(root), directory=root)
        return {**said, "cursors": [topics.cursor(name, "events") for name in ("first", "second")]}


def test_a_new_session_has_our_settings_the_callers_and_our_python(lives: dict[str, Any]) -> None:
    assert lives["settings"] == ["mine", "local[2]", "1g", "3", "true", "true", "true", "4194304"]
    assert lives["executable"] == sys.executable
    assert lives["scans are there"]
    assert not os.path.exists(lives["scans"]), "removed at exit"
    assert lives["same"], "the session there is is taken"
    assert lives["changed"] == ["5", "1g"], "with what can be changed on it"


def test_a_session_made_again_in_a_process_lets_cursors_follow_too(lives: dict[str, Any]) -> None:
    assert lives["cursors"] == [{0: 2}, {0: 2}]


def test_a_session_of_somebody_else_is_taken_as_it_is_with_push_down_on(lives: dict[str, Any]) -> None:
    expected = {"same": True, "master": "local[1]", "before": "false", "after": "true"}
    assert lives["theirs"] == {**expected, "shuffle": "200"}, "by whatever thread"


@pytest.mark.parametrize("way", some_of(["argument", "environment"], "argument"))
def test_a_connect_server_that_is_started_here_has_our_python(tmp_path: Path, way: str) -> None:
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text(f'#!/bin/sh\nOTHER_PYTHON=yes exec {sys.executable} "$@"\n')
    other.chmod(0o755)
    named = {"SPARK_REMOTE": "local[2]"} if way == "environment" else {}
    said = run_client(
        SETTINGS + NEARBY,
        *(str(tmp_path / "warehouse"), "" if named else "local[2]"),
        directory=tmp_path,
        PATH=f"{other.parent}:{os.environ['PATH']}",
        SPARK_TESTING="1",  # a port that is free
        **named,
    )
    assert said == {"other": "no", "same": True, "memory": "1g"}
