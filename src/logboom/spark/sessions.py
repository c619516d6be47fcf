"""A Spark session with the settings that Logboom's source likes.

Whoever has a session already keeps it: of what is set here, only what can be set on a running session reaches it. What
is set for a new one gives way to `config`, and Spark's own names (PYSPARK_PYTHON, SPARK_REMOTE, MASTER,
spark-defaults.conf) keep their meaning: without a master Spark takes theirs, and `local[*]` where they name none.

The workers' Python is the driver's. Spark plans a read of a Python source with the same path that it gives its
executors, and takes PYSPARK_DRIVER_PYTHON for it before PYSPARK_PYTHON; so the first follows the second where it is not
set. docs/howto/spark-cluster.md.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from logboom.errors import SparkMissing
from logboom.spark.environment import PACKAGES, installed
from logboom.spark.java import heap_bytes, prepare_java
from logboom.spark.scan import VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT_ANY_TIME: Final = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


def session(
    app: str = "logboom",
    master: str | None = None,
    *,
    remote: str | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session there is, else a new one: in this process, on a cluster (`master`), or at `remote`, `sc://host:port`."""
    _require_pyspark()
    from pyspark.sql import SparkSession

    from logboom.spark.cursors import follow

    wanted = {**AT_ANY_TIME, **(config or {})}
    spark = SparkSession.getActiveSession()
    if spark is not None:
        for key, value in wanted.items():
            if spark.conf.isModifiable(key):
                spark.conf.set(key, value)
    else:
        builder = SparkSession.builder.appName(app)
        if remote is not None:
            builder = builder.remote(remote)
        elif master is not None or "SPARK_REMOTE" not in os.environ:
            wanted = {**_prepare_process(), **_local_settings(master), **wanted}
            builder = builder if master is None else builder.master(master)
        for key, value in wanted.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    follow(spark)
    return spark


def _require_pyspark() -> None:
    needed, found = PACKAGES["pyspark"], installed("pyspark")
    if found is None or not needed.allows(found):
        here = "there is none" if found is None else f"here is {found}"
        raise SparkMissing(f"Spark needs pyspark {needed}, {here}", "pip install 'logboom[spark]'")


def _prepare_process() -> dict[str, str]:
    """The environment that the JVM and its Python workers inherit, and what cannot be set later."""
    prepare_java()
    python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = directory = tempfile.mkdtemp(prefix="logboom-scans-")
        atexit.register(_remove, directory, os.getpid())
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"spark.driver.memory": f"{heap_bytes(machine_bytes) >> 20}m", "spark.log.level": "WARN"}


def _local_settings(master: str | None) -> dict[str, str]:
    """Spark makes 200 partitions of every shuffle, which is for clusters: on one machine a trigger would drag along."""
    if not (master or "local").startswith("local") or {"MASTER", "PYSPARK_GATEWAY_PORT"} & os.environ.keys():
        return {}
    return {"spark.sql.shuffle.partitions": str(max(4, os.cpu_count() or 1))}


def _remove(directory: str, owner: int) -> None:
    """By the process that made it; one forked from it leaves it alone."""
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)
