"""A standalone cluster whose workers have nothing: what they need comes packed with the job, records from the node."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from logboom import Writer
from logboom.cli import run
from logboom.spark import scans
from spark.cluster import SPARK_HOME, build_wheel, pack, run_client, standalone
from support.nodes.process import NodeProcess

RECORDS = 6000
READ = """
import json, sys
from pyspark.sql.functions import col, count, sum
from logboom.spark import session

master, archive, address, scans = sys.argv[1:]
spark = session("cluster", master, config={
    "spark.archives": f"{archive}#environment",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.executorEnv.LOGBOOM_SCANS": scans,
})
found = {}
for access in ("server", "auto"):
    events = spark.read.format("logboom").option("topic", "events").option("access", access).load(address)
    numbers = events.select(col("value").cast("string").cast("long").alias("number"), "partition")
    found[access] = list(numbers.agg(count("*"), sum("number")).first())
found["few"] = events.where("partition = 1 AND seqno < 5").count()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as running:
        assert run(["topic", "create", "events", "--partitions", "3", "--server", running.address]) == 0
        with Writer("events", running.address) as writer:
            for number in range(RECORDS):
                writer.write(b"%d" % number, key=b"%d" % number)
        yield running


def test_without_pyspark_a_session_says_what_to_install(home: Path) -> None:
    program = "from logboom.spark import session; session()"
    done = subprocess.run([home / "bin" / "python", "-c", program], capture_output=True, text=True, check=False)
    assert "SparkMissing: Spark needs pyspark 4.3 or newer, below 5, there is none: " in done.stderr
    assert "pip install '.[spark]'" in done.stderr


def test_a_pyspark_that_was_never_installed_is_known_by_its_files(home: Path) -> None:
    """As under `spark-submit`, which puts Spark's own on the path."""
    path = ":".join(map(str, sorted((SPARK_HOME / "python" / "lib").glob("*.zip"))))
    program = (
        "from logboom.spark.runtime.environment import installed; print(installed('pyspark'), installed('pandas'))"
    )
    done = subprocess.run(
        [home / "bin" / "python", "-c", program], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{pyspark.__version__} None\n"


def test_the_wheel_holds_the_module_by_which_spark_finds_the_source(tmp_path: Path) -> None:
    names = zipfile.ZipFile(build_wheel(tmp_path)).namelist()
    assert "pyspark_logboom/__init__.py" in names
    assert "logboom/spark/source.py" in names


def test_workers_that_have_nothing_read_a_topic_with_a_packed_environment(
    node: NodeProcess, home: Path, tmp_path: Path
) -> None:
    archive, driver, notes = pack(home), tmp_path / "driver", tmp_path / "scans"
    driver.mkdir()
    notes.mkdir()
    (driver / "environment").symlink_to(home)
    with standalone(tmp_path) as master:
        found = run_client(
            READ,
            *(master, str(archive), f"logboom://{node.address}", str(notes)),
            directory=driver,
            PYSPARK_PYTHON="./environment/bin/python",
        )
    expected = [RECORDS, RECORDS * (RECORDS - 1) // 2]
    assert found == {"server": expected, "auto": expected, "few": 5}
    noted = scans(directory=str(notes))
    assert {scan.source for scan in noted} == {"files", "server"}
    assert sum(scan.records for scan in noted if scan.source == "server") == RECORDS
    assert len({scan.pid for scan in noted}) > 1, "both workers have read"
