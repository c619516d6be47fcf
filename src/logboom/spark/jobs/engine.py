"""The Spark of a runner: started when a job first asks for it, and started again where it has died.

What the JVM says on standard error goes to a file that nobody sees, but for its end where Spark does not start.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from logboom.errors import PipelineError, SparkMissing
from logboom.spark.jobs.config import SparkConfig
from logboom.spark.runtime.sessions import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET: Final = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
TOLD_BYTES: Final = 4000


class Engine:
    """To be stopped. For one thread at a time."""

    def __init__(self, config: SparkConfig, verbose: bool = False) -> None:
        self._config = config
        self._verbose = verbose
        self._spark: SparkSession | None = None

    def __call__(self) -> SparkSession:
        """A session that answers."""
        if self._spark is not None and not _is_alive(self._spark):
            self.stop()
        if self._spark is None:
            self._spark = self._start()
        return self._spark

    def _start(self) -> SparkSession:
        config = self._config
        settings = config.config if self._verbose else {**QUIET, **config.config}
        with _silenced(not self._verbose), _still_ignored(signal.SIGINT):
            return session("logboom pipeline", config.master, remote=config.remote, config=settings)

    def stop(self) -> None:
        """Also what is left of one that has died."""
        if self._spark is None:
            return
        spark, self._spark = self._spark, None
        with suppress(Exception):
            spark.stop()
        if not _is_remote(spark):
            _forget_java()


@contextmanager
def _still_ignored(number: signal.Signals) -> Iterator[None]:
    """Spark handles Ctrl-C, also in a process that was started to ignore it."""
    was_ignored = signal.getsignal(number) == signal.SIG_IGN
    yield
    if was_ignored and threading.current_thread() is threading.main_thread():
        signal.signal(number, signal.SIG_IGN)


def _is_remote(spark: SparkSession) -> bool:
    return getattr(spark, "_sc", None) is None


def _is_alive(spark: Any) -> bool:
    try:
        if _is_remote(spark):
            return not spark.is_stopped and bool(spark.version)
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:  # whatever py4j makes of a JVM that is gone
        return False


def _forget_java() -> None:
    """What pyspark keeps for the next session leads to a JVM that may be gone."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    if gateway is not None:
        with suppress(Exception):
            gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
            with suppress(Exception):
                process.stdin.close()
            with suppress(Exception):
                process.wait(10)
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


@contextmanager
def _silenced(wanted: bool) -> Iterator[None]:
    """While Spark is started. Its JVM keeps the standard error that it was started with."""
    if not wanted:
        yield
        return
    sys.stderr.flush()
    with tempfile.TemporaryFile() as said:
        before = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            yield
        except SparkMissing:
            raise
        except Exception as error:
            said.seek(max(0, said.seek(0, os.SEEK_END) - TOLD_BYTES))
            told = said.read().decode(errors="replace").strip()
            raise PipelineError(f"Spark did not start: {error}\n{told}") from error
        finally:
            os.dup2(before, 2)
            os.close(before)
