"""One Spark for each worker of the tests: `local[2]`, 1 GiB, in directories of its own. A file runs on one worker.

What starts, stops or configures Spark itself runs in processes of its own (cluster.py): in one process there is one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from logboom.spark import session
from spark.classes import java_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


os.environ.setdefault("JAVA_TOOL_OPTIONS", java_options())


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
