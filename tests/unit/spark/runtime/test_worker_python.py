from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from logboom.spark.runtime.sessions import _name_python
from logboom.spark.runtime.worker_python import worker_python

SPARK_HOME = Path(pyspark.__file__).parent
ZIPS = os.pathsep.join(map(str, sorted((SPARK_HOME / "python" / "lib").glob("*.zip"))))
ASK = """
import json, sys, pyspark, py4j
print(json.dumps([sys.executable, pyspark.__file__, py4j.__file__, sys.argv[1:]]))
"""
NAMES = "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    for name in (*NAMES, "SPARK_HOME", "MASTER", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return tmp_path / "a cache"


def test_it_is_this_python_and_takes_pyspark_from_files_before_the_zip_of_spark(cache: Path) -> None:
    python = worker_python()
    assert Path(python).is_relative_to(cache)
    assert worker_python() == python, "made once"
    asked = [python, "-c", ASK, "a b", ""]
    done = subprocess.run(asked, env={"PYTHONPATH": ZIPS}, capture_output=True, text=True, check=True)
    executable, *modules, arguments = json.loads(done.stdout)
    assert executable == sys.executable
    assert arguments == ["a b", ""]
    assert [os.path.realpath(module) for module in modules] == [
        os.path.realpath(SPARK_HOME / "__init__.py"),
        os.path.realpath(SPARK_HOME.parent / "py4j" / "__init__.py"),
    ]


def test_of_another_spark_nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert worker_python() == sys.executable
    assert not cache.exists()


def test_where_nothing_can_be_kept_it_is_python_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert worker_python() == sys.executable


def test_a_cluster_that_comes_after_a_local_session_is_told_of_python_itself() -> None:
    for master, python in ((None, worker_python()), ("local[2]", worker_python()), ("spark://h:7077", sys.executable)):
        _name_python(master)
        assert [os.environ[name] for name in NAMES] == [python, python]


def test_what_the_user_has_named_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    for master in ("local[2]", "spark://h:7077"):
        _name_python(master)
        assert [os.environ[name] for name in NAMES] == ["./environment/bin/python"] * 2
