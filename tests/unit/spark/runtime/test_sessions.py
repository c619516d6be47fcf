from __future__ import annotations

import os
from pathlib import Path

import pytest

from logboom.spark.runtime.sessions import _find_defaults, _is_here, _prepare_process

SOCKETS = "spark.python.unix.domain.socket.enabled"


def test_what_the_defaults_of_spark_say_is_left_to_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("LOGBOOM_SCANS", str(tmp_path))
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(0o755)
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "/nonexistent")
    for name in ("SPARK_DRIVER_MEMORY", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert _find_defaults() == frozenset()
    assert _prepare_process(None).keys() == {"spark.driver.memory", "spark.log.level", SOCKETS}
    (tmp_path / "spark-defaults.conf").write_text("# ours\n spark.driver.memory   3g\nspark.master=local[7]\n\n")
    assert {"spark.driver.memory", "spark.master"} < _find_defaults()
    assert _prepare_process(None) == {"spark.log.level": "WARN", SOCKETS: "true"}


def test_under_spark_submit_no_java_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOGBOOM_SCANS", str(tmp_path))
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    assert "spark.driver.memory" not in _prepare_process(None)
    assert os.environ["JAVA_HOME"] == "/nonexistent"


def test_only_workers_on_this_machine_are_given_a_directory_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    for name in ("MASTER", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert [_is_here(master) for master in (None, "local", "local[2]", "spark://h:7077", "yarn")] == [True] * 3 + [
        False
    ] * 2
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell")
    assert not _is_here(None)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    (tmp_path / "spark-defaults.conf").write_text("spark.master spark://h:7077\n")
    assert not _is_here(None)
