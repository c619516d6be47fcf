"""A standalone cluster whose workers have nothing but what came with the job. They read a topic; and what they write is
there once, where executors are killed, tasks fail, and Spark runs a slow task twice.

The two workers have hosts of their own, for Spark runs no second attempt of a task on the host of the first.
"""

from __future__ import annotations

import json
import random
import subprocess
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

from logboom import Writer
from logboom.spark import scans
from spark.cluster import SPARK_HOME, environment, pack, process, standalone
from spark.sink_runs import (
    KEYS,
    PARTITIONS,
    SOURCES,
    Copy,
    Fault,
    Run,
    compare,
    following,
    running,
    stages_of,
    write_some,
    writing,
)
from support.nodes.process import NodeProcess
from support.spark.queries import Topics

RECORDS = 6000
ROWS = 3000
OTHER_HOST = "127.0.0.2"
SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.sql.shuffle.partitions": "2",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
}


class Cluster:
    """Two workers with one core each, and the environment that jobs bring along."""

    def __init__(self, master: str, archive: Path, home: Path) -> None:
        self.master = master
        self.archive = archive
        self._home = home

    @contextmanager
    def run(self, root: Path, works: Sequence[dict[str, Any]], faults: Sequence[Fault] = ()) -> Iterator[Run]:
        root.mkdir(exist_ok=True)
        here = root / "environment"
        if not here.exists():
            here.symlink_to(self._home)
        settings = {**SETTINGS, "spark.archives": f"{self.archive}#environment"}
        settings["spark.executorEnv.LOGBOOM_SCANS"] = str(root)
        packed = environment(PYSPARK_PYTHON="./environment/bin/python")
        with running(root, works, faults, master=self.master, settings=settings, environment=packed) as run:
            yield run


@pytest.fixture(scope="module")
def cluster(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    root = tmp_path_factory.mktemp("cluster")
    archive, other = pack(home), root / "other"
    other.mkdir()
    with standalone(root, workers=1) as master:
        command: list[str | Path] = [SPARK_HOME / "bin" / "spark-class", "org.apache.spark.deploy.worker.Worker"]
        command += ["--host", OTHER_HOST, "--cores", "1", "--memory", "700m", "--webui-port", "0"]
        bare = environment(PYSPARK_PYTHON="/nonexistent/python", SPARK_HOME=str(SPARK_HOME), SPARK_DAEMON_MEMORY="256m")
        with process([*command, "--work-dir", other / "work", master], other, "worker", bare):
            yield Cluster(master, archive, home)


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[Topics]:
    with NodeProcess(tmp_path) as node:
        made = Topics(node)
        made.create("events", SOURCES)
        yield made


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


def test_the_wheel_holds_the_module_by_which_spark_finds_the_source(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "pyspark_logboom/__init__.py" in names
    assert "logboom/spark/source.py" in names


@pytest.mark.timeout(900)
def test_workers_that_have_nothing_read_and_write_every_row_once_whatever_happens_to_them(
    cluster: Cluster, topics: Topics, tmp_path: Path
) -> None:
    """One job, in which they read; then executors are killed, tasks fail, and Spark runs slow ones twice."""
    topics.create("numbers", 3)
    with Writer("numbers", topics.address) as writer:
        for number in range(RECORDS):
            writer.write(b"%d" % number, key=b"%d" % number)
    with Writer("events", topics.address) as writer:
        write_some(writer, 0, 400)
    copy = Copy(tmp_path, topics, "copies")
    source = {**copy.work()["source"], "maxRecordsPerTrigger": "150"}
    found = {"kind": "count", "path": topics.path, "topic": "numbers", "found": str(tmp_path / "found")}
    works = [{"kind": "table", "path": topics.path, "rows": ROWS, "topic": topic} for topic in ("killed", "slow")]
    for work in works:
        topics.create(str(work["topic"]), PARTITIONS)
    faults = [
        Fault("killed", "staged", "executor", task=1),
        Fault("slow", "staged", "wait", task=2),
        copy.at("opened", "executor"),
        copy.at("staged", "fail", 1),
        copy.at("staged", "wait", 2),
    ]
    staged = set()
    with cluster.run(tmp_path / "job", [found, *works, {**copy.work(), "source": source}], faults) as run:
        for fault in faults:
            run.wait_for(fault)
            staged |= {stage.id for stage in stages_of(topics)}
        run.finish()
    check_reads(tmp_path / "found", tmp_path / "job")
    wanted = [f"k{number % KEYS}:{number}" for number in range(ROWS)]
    for work in works:
        logs = [(str(work["topic"]), partition) for partition in range(PARTITIONS)]
        report = compare(topics, wanted, logs, in_order=True)
        assert report.clean, (work["topic"], report)
    report = copy.judge()
    assert report.clean, report
    left = {stage.id for stage in stages_of(topics)}
    assert not left & staged, "stages of attempts that are in no message are swept away"


def check_reads(found: Path, notes: Path) -> None:
    """All was read, by both workers, over the node and from its files; a slow task perhaps twice."""
    expected = [RECORDS, RECORDS * (RECORDS - 1) // 2]
    assert json.loads(found.read_text()) == {"server": expected, "auto": expected, "few": 5}
    noted = [scan for scan in scans(directory=str(notes)) if scan.topic == "numbers"]
    assert {scan.source for scan in noted} == {"files", "server"}
    served = {(scan.partition, scan.seqno_from): scan.records for scan in noted if scan.source == "server"}
    assert sum(served.values()) == RECORDS
    assert len({scan.pid for scan in noted}) > 1, "both workers have read"


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_stream_on_a_cluster_that_is_killed_many_times_writes_every_record_once(
    cluster: Cluster, topics: Topics, tmp_path: Path
) -> None:
    chance = random.Random("cluster")
    steps = ["opened", "staged", "told", "sent", "answered"]
    copy = Copy(tmp_path, topics, "copies")
    with following(topics, copy.logs) as seen:
        with writing(topics, "events"):
            for _ in range(20):
                last = copy.at(chance.choice(steps), batch=2)
                harm = [copy.at(chance.choice(steps[:2]), "executor", batch) for batch in range(2)]
                with cluster.run(tmp_path / "job", [copy.work(500)], [last, *harm]) as run:
                    run.wait_for(last)
                    if chance.random() < 0.3:
                        topics.node.kill()
                        topics.node.start()
        with cluster.run(tmp_path / "job", [copy.work()]) as run:
            run.finish()
    report = copy.judge(seen)
    assert report.clean, report
