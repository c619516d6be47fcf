"""A Spark session with the settings that Logboom's source likes.

Whoever has a session already keeps it: of what is set here, only what can be set on a running session reaches it. What
is set for a new one gives way to `config`, and Spark's own names (PYSPARK_PYTHON, SPARK_REMOTE, MASTER,
spark-defaults.conf) keep their meaning: without a master Spark takes theirs, and `local[*]` where they name none.

The workers' Python is the driver's, on this machine with a script in front of it (worker_python.py). Spark plans a read
of a Python source with the same path that it gives its executors, and takes PYSPARK_DRIVER_PYTHON for it before
PYSPARK_PYTHON; so the first follows the second where it is not set. docs/howto/spark-cluster.md.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from logboom.errors import SparkMissing
from logboom.spark.read.scan import VARIABLE
from logboom.spark.runtime.environment import PACKAGES, installed
from logboom.spark.runtime.java import heap_bytes, prepare_java
from logboom.spark.runtime.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT_ANY_TIME: Final = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

UNIX_SOCKETS: Final = "spark.python.unix.domain.socket"
"""Between Spark and its Python workers: over TCP each task waits for an acknowledgement that comes 40 ms late."""

ARROW: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(4 << 20),
}
"""What goes to Python at once: Spark has 10,000 rows, however short they are, and each time costs something."""


def session(
    app: str = "logboom",
    master: str | None = None,
    *,
    remote: str | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session there is, else a new one: in this process, on a cluster (`master`), or at `remote`, `sc://host:port`;
    with `local[2]` for that, at a Spark Connect server which this process starts. It is the active one of this thread
    then: a thread of your own that writes calls this first."""
    _require_pyspark()
    from pyspark import SparkContext
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
        server = remote if master is not None else remote or os.environ.get("SPARK_REMOTE")
        is_ours = server is None or server.startswith("local")
        is_new = is_ours and SparkContext._active_spark_context is None  # else it is active in another thread
        wanted = {**(_prepare_process(remote or master) if is_new else {}), **wanted}
        if remote is not None:
            builder = builder.remote(remote)
        elif master is not None:
            builder = builder.master(master)
        for key, value in wanted.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        if is_new and server is None:
            _suit(spark)
    _activate(spark)
    follow(spark)
    return spark


def _activate(spark: SparkSession) -> None:
    """In this thread: Spark looks there for the session that knows the source, when a DataFrame is written."""
    inner = getattr(spark, "_jsparkSession", None)
    if inner is not None:  # at a Spark Connect server there is nothing to do
        spark._get_j_spark_session_class(spark._jvm).setActiveSession(inner)


def _require_pyspark() -> None:
    needed, found = PACKAGES["pyspark"], installed("pyspark")
    if found is None or not needed.allows(found):
        here = "there is none" if found is None else f"here is {found}"
        raise SparkMissing(f"Spark needs pyspark {needed}, {here}", needed.advice)


def _prepare_process(master: str | None) -> dict[str, str]:
    """The environment that the JVM and its Python workers inherit, and what cannot be set later."""
    has_java = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started it
    if not has_java:
        prepare_java()
    _name_python(master)
    settings = {"spark.log.level": "WARN", f"{UNIX_SOCKETS}.enabled": "true"}
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = directory = tempfile.mkdtemp(prefix="logboom-scans-")
        atexit.register(_remove, directory, os.getpid())
        if _is_here(master):
            settings[f"{UNIX_SOCKETS}.dir"] = directory  # else those of workers that are killed stay in /tmp
    if not has_java and "SPARK_DRIVER_MEMORY" not in os.environ:
        machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        settings["spark.driver.memory"] = f"{heap_bytes(machine_bytes) >> 20}m"
    given = _find_defaults()
    return {key: value for key, value in settings.items() if key not in given}


def _name_python(master: str | None) -> None:
    """Unless the user has. What a session on this machine was given is not for one on a cluster that comes later."""
    ours, names = worker_python(), ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    for name in names:
        if os.environ.get(name) == ours:
            del os.environ[name]
    python = ours if _is_here(master) else sys.executable
    for name in names:
        python = os.environ.setdefault(name, python)


def _is_here(master: str | None) -> bool:
    """Whether the workers will be on this machine, for certain."""
    if master is not None:
        return master.startswith("local")
    others = ("MASTER", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT")
    return "spark.master" not in _find_defaults() and not any(name in os.environ for name in others)


def _find_defaults() -> frozenset[str]:
    """What spark-defaults.conf has: whatever a session is made with would go before it."""
    from pyspark.find_spark_home import _find_spark_home

    directory = os.environ.get("SPARK_CONF_DIR") or f"{_find_spark_home()}/conf"
    try:
        lines = Path(directory, "spark-defaults.conf").read_text(errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(re.split(r"[\s=:]", line.strip(), maxsplit=1)[0] for line in lines)


def _suit(spark: SparkSession) -> None:
    """Unless the user has said otherwise. Spark makes 200 partitions of every shuffle, which is for clusters: on one
    machine a trigger would drag along."""
    context, wanted = spark.sparkContext, dict(ARROW)
    if (context.master or "").startswith("local"):
        wanted["spark.sql.shuffle.partitions"] = str(max(4, os.cpu_count() or 1))
    given = context.getConf()
    for key, value in wanted.items():
        if not given.contains(key):
            spark.conf.set(key, value)


def _remove(directory: str, owner: int) -> None:
    """By the process that made it; one forked from it leaves it alone."""
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)
