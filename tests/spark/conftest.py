"""One Spark and one Spark Connect server for each worker of the tests, 1 GiB each, in directories of their own. A file
runs on one worker. Neither is started before a test wants it.

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
from spark.cluster import connect_server, make_environment
from support.longest_first import put_first

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LONGEST = (
    *("test_demo", "test_docs", "test_archive", "test_cluster", "test_sink_kills", "test_session", "test_connect"),
    *("test_archive_kills", "test_sink_stream", "test_report_kills", "test_stream_kills"),
)

os.environ.setdefault("JAVA_TOOL_OPTIONS", java_options())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    put_first(items, "spark", LONGEST)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    root = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(root / "local"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(root / "warehouse"),
    }
    made = session("tests", "local[2]", config=settings)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark Connect server. Whoever dies, dies as its client."""
    with connect_server(tmp_path_factory.mktemp("connect")) as address:
        yield address


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with Logboom's wheel, for executors that have nothing. Nobody writes to it."""
    return make_environment(tmp_path_factory.mktemp("packed"))
