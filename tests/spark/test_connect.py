"""Spark Connect: Logboom is installed where the server's Python is, and the client has only pyspark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from logboom import Writer
from logboom.cli import run
from spark.cluster import run_client
from support.nodes.process import NodeProcess

RECORDS = 3000
READ = """
import importlib.util, json, sys
from pyspark.sql import SparkSession

remote, address, directory = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
events = spark.read.format("logboom").option("topic", "events").load(address)
said = {"has logboom": importlib.util.find_spec("logboom") is not None, "records": events.count()}
few = events.where("partition = 0 AND seqno BETWEEN 10 AND 12").orderBy("seqno")
said["few"] = [row.seqno for row in few.collect()]
spark.sql(f"CREATE TEMPORARY VIEW log USING logboom OPTIONS (path '{address}', topic 'events', access 'server')")
said["sum"] = spark.sql("SELECT sum(CAST(CAST(value AS STRING) AS LONG)) FROM log").first()[0]
stream = spark.readStream.format("logboom").option("topic", "events").option("startingSeqno", "earliest")
stream = stream.option("maxRecordsPerTrigger", 1000).load(address)
query = (
    stream.select("partition", "seqno").writeStream.format("parquet").option("path", f"{directory}/out")
    .option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination(300)
said["several batches"] = query.lastProgress["batchId"] > 0
said["streamed"] = spark.read.parquet(f"{directory}/out").distinct().count()
spark.stop()
print(json.dumps(said))
"""
WRITE = """
import importlib.util, json, sys
from pyspark.sql import SparkSession, functions as F

remote, address, directory = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
said = {"has logboom": importlib.util.find_spec("logboom") is not None}

def count(topic):
    return spark.read.format("logboom").option("topic", topic).load(address).count()

rows = spark.range(1000).select(F.col("id").cast("string").alias("key"), F.struct("id").alias("value"))
for _ in range(2):
    writer = rows.write.format("logboom").mode("append").options(topic="table", txnAppId="nightly", txnVersion=1)
    writer.save(address)
said["table"] = count("table")

def copy(records):
    stream = spark.readStream.format("logboom").options(topic="table", startingSeqno="earliest")
    query = (
        stream.option("maxRecordsPerTrigger", records).load(address).select("key", "value").writeStream
        .format("logboom").option("topic", "copy").option("checkpointLocation", f"{directory}/copy")
        .trigger(availableNow=True).start(address)
    )
    query.awaitTermination(300)

copy(400)
rows.write.format("logboom").mode("append").option("topic", "table").save(address)
copy(4000)
said["copy"] = count("copy")
said["keys"] = spark.read.format("logboom").option("topic", "copy").load(address).select("key").distinct().count()
try:
    wrong = rows.withColumn("weight", F.lit(1))
    wrong.write.format("logboom").mode("append").option("topic", "table").save(address)
except Exception as error:
    said["names the column"] = "weight" in str(error)
said["still"] = count("table")
spark.stop()
print(json.dumps(said))
"""
EACH = """
import json, sys
from pyspark.sql import SparkSession

remote, address, directory = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
FAILS = 1

def split(batch, number):
    for topic, rest in (("even", 0), ("odd", 1)):
        rows = batch.where(f"CAST(CAST(value AS STRING) AS LONG) % 2 = {rest}").select("key", "value")
        writer = rows.write.format("logboom").mode("append")
        writer.options(topic=topic, txnAppId=f"split-{topic}", txnVersion=number).save(address)
        if number == FAILS:
            raise RuntimeError("between the two")

def run():
    stream = spark.readStream.format("logboom").options(topic="events", startingSeqno="earliest")
    stream = stream.option("maxRecordsPerTrigger", 1000).load(address).writeStream.foreachBatch(split)
    stream = stream.option("checkpointLocation", f"{directory}/each").trigger(availableNow=True)
    while True:
        try:
            stream.start().awaitTermination()
            return ""
        except Exception as error:
            if "connect back" not in str(error):  # a Python of Spark's that has not started in ten seconds
                return str(error)

said = {"first": "between the two" in run()}
FAILS = None
said["second"] = run()
for topic in ("even", "odd"):
    found = spark.read.format("logboom").option("topic", topic).load(address).select("value")
    said[topic] = [found.count(), found.distinct().count()]
spark.stop()
print(json.dumps(said))
"""
SESSION = """
import json, subprocess, sys, time
from logboom.spark import session, start

spark = session(remote=sys.argv[1])
events = spark.read.format("logboom").option("topic", "events").load(sys.argv[2])
pushed = spark.conf.get("spark.sql.python.filterPushdown.enabled")
stream = spark.readStream.format("logboom").options(topic="events", startingSeqno="earliest", cursor="far")
writer = stream.load(sys.argv[2]).writeStream.format("noop").option("checkpointLocation", sys.argv[3])
start(writer.trigger(availableNow=True)).awaitTermination(300)
give_up = time.monotonic() + 300
while time.monotonic() < give_up:
    listed = [sys.executable, "-m", "logboom", "cursor", "list", "events", "-s", sys.argv[2], "--json"]
    lags = [each["lag"] for each in json.loads(subprocess.run(listed, capture_output=True, check=True).stdout)]
    if lags == [0, 0]:
        break
    time.sleep(0.2)
print(json.dumps({"records": events.count(), "push-down": pushed, "lags": lags}))
spark.stop()
"""
STOPPED = """
import json, os, sys, threading, time
from contextlib import closing
from pathlib import Path
from logboom.spark import session
from logboom.spark.jobs.tasks import Stoppable, run_tasks

spark, mark, over = session(remote=sys.argv[1]), Path(sys.argv[2]), threading.Event()

def work(piece):
    mark.with_suffix(".new").write_text(str(os.getpid()))
    mark.with_suffix(".new").rename(mark)
    while True:
        time.sleep(0.1)

def lose():
    while not mark.exists():
        time.sleep(0.1)
    over.set()

threading.Thread(target=lose).start()
said = {}
with closing(Stoppable(lambda: spark, over.is_set)) as stoppable:
    try:
        run_tasks(stoppable(), work, [b""])
    except Exception as error:
        said["canceled"] = "OPERATION_CANCELED" in str(error)
while Path("/proc", mark.read_text()).exists():
    time.sleep(0.1)
said["later"] = spark.range(3).count()
print(json.dumps(said))
spark.stop()
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as running:
        assert run(["topic", "create", "events", "--partitions", "2", "--server", running.address]) == 0
        with Writer("events", running.address) as writer:
            for number in range(RECORDS):
                writer.write(b"%d" % number, key=b"%d" % number)
        yield running


def test_a_client_without_logboom_reads_queries_and_streams(node: NodeProcess, remote: str, tmp_path: Path) -> None:
    # Without `site` an editable installation is not seen, and plain packages are.
    packages = Path(pyspark.__file__).parents[1]
    said = run_client(
        READ,
        *(remote, f"logboom://{node.address}", str(tmp_path)),
        directory=tmp_path,
        python=(sys.executable, "-S"),
        PYTHONPATH=str(packages),
    )
    assert said == {
        "has logboom": False,
        "records": RECORDS,
        "few": [10, 11, 12],
        "sum": RECORDS * (RECORDS - 1) // 2,
        "several batches": True,
        "streamed": RECORDS,
    }


def test_a_client_without_logboom_writes_tables_and_streams_once(
    node: NodeProcess, remote: str, tmp_path: Path
) -> None:
    packages = Path(pyspark.__file__).parents[1]
    said = run_client(
        WRITE,
        *(remote, f"logboom://{node.address}", str(tmp_path)),
        directory=tmp_path,
        python=(sys.executable, "-S"),
        PYTHONPATH=str(packages),
    )
    assert said == {
        "has logboom": False,
        "table": 1000,
        "copy": 2000,
        "keys": 1000,
        "names the column": True,
        "still": 2000,
    }


def test_for_each_batch_writes_to_several_topics_once_where_it_is_repeated(
    node: NodeProcess, remote: str, tmp_path: Path
) -> None:
    packages, half = Path(pyspark.__file__).parents[1], RECORDS // 2
    said = run_client(
        EACH,
        *(remote, f"logboom://{node.address}", str(tmp_path)),
        directory=tmp_path,
        python=(sys.executable, "-S"),
        PYTHONPATH=str(packages),
    )
    assert said == {"first": True, "second": "", "even": [half, half], "odd": [half, half]}


def test_our_session_takes_a_remote_needs_no_java_and_lets_cursors_follow(
    node: NodeProcess, remote: str, tmp_path: Path
) -> None:
    arguments = remote, f"logboom://{node.address}", str(tmp_path / "checkpoint")
    said = run_client(SESSION, *arguments, directory=tmp_path, JAVA_HOME="/nonexistent")
    assert said == {"records": RECORDS, "push-down": "true", "lags": [0, 0]}


def test_what_spark_does_for_a_run_that_has_lost_its_lease_is_stopped(remote: str, tmp_path: Path) -> None:
    said = run_client(STOPPED, remote, str(tmp_path / "mark"), directory=tmp_path)
    assert said == {"canceled": True, "later": 3}
