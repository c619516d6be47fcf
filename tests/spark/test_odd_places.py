"""Workers whose Python has no Logboom, beside a driver whose Python has: the same path, another machine."""

from __future__ import annotations

import sys
from typing import cast

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
from logboom.spark import session

address = sys.argv[1]
spark = session("bare", "local[1]", config={
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
})


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
said = {}
for name, step in steps.items():
    try:
        step()
        said[name] = ""
    except Exception as error:
        said[name] = str(error)
print(json.dumps(said))
"""
KINDS = "read", "write", "stream read", "stream write"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("bare")
    blocked, python = root / "blocked", root / "python"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text(BLOCK)
    python.write_text(PYTHON.format(blocked=blocked, python=sys.executable))
    python.chmod(0o755)
    with NodeProcess(root) as node:
        with Writer("events", node.address) as writer:
            writer.write(b"1")
        found = run_client(ASK, f"logboom://{node.address}", directory=root, PYSPARK_PYTHON=str(python))
    return cast(dict[str, str], found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_names_the_python_that_lacks_logboom_and_what_to_do(said: dict[str, str], kind: str) -> None:
    text = said[kind]
    assert f"{sys.executable} on " in text, "which Python, and where"
    assert "cannot import Logboom: No module named 'logboom" in text
    assert "Install Logboom for that Python" in text
    assert "--archives environment.tar.gz#environment" in text
    assert "docs/howto/spark-cluster.md" in text
