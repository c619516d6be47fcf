"""One Spark for each worker of the tests, in directories of its own, which is a Spark Connect server as well: a Java
less to start. A file runs on one worker. It is not started before a test wants it.

What starts, stops or configures Spark itself runs in processes of its own (cluster.py): in one process there is one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logboom.spark import session
from spark.classes import java_options
from spark.cluster import build_wheel, make_environment
from support.longest_first import put_first
from support.nodes.process import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LONGEST = (
    *("test_demo", "test_docs", "test_archive", "test_cluster", "test_sink_kills", "test_session", "test_connect"),
    *("test_archive_kills", "test_sink_stream", "test_report_kills", "test_stream_kills"),
)

PORT = "spark.connect.grpc.binding.port"

os.environ.setdefault("JAVA_TOOL_OPTIONS", java_options())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    put_first(items, "spark", LONGEST)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    root = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.memory": "1500m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        PORT: str(free_port()),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(root / "local"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(root / "warehouse"),
    }
    os.environ["LOGBOOM_PROFILES"] = str(root / "profiles.toml")  # Spark's own Pythons have the environment of now
    made = session("tests", "local[2]", config=settings)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def remote(spark: SparkSession) -> str:
    """The address of a Spark Connect server. Whoever dies, dies as its client."""
    return f"sc://127.0.0.1:{spark.conf.get(PORT)}"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def home(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with Logboom's wheel, for executors that have nothing. Nobody writes to it."""
    return make_environment(tmp_path_factory.mktemp("packed"), wheel)
