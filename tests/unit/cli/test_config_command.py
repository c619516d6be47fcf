"""`logboom config`."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from logboom.cli import run


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOGBOOM_CONFIG", raising=False)


def test_every_value_is_shown_with_its_source(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("logboom.toml").write_text("[limits]\ntopics = 5\n")
    monkeypatch.setenv("LOGBOOM_LIMITS__IDLE_MS", "5m")
    assert run(["config", "--set", "threads=8"]) == 0
    lines = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert lines["limits.topics"] == ["5", str(Path("logboom.toml").absolute())]
    assert lines["limits.idle_ms"] == ["5m", "LOGBOOM_LIMITS__IDLE_MS"]
    assert lines["threads"] == ["8", "--set"]
    assert lines["limits.batch_bytes"] == ["16MiB", "default"]
    assert run(["config", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["file"] == str(Path("logboom.toml").absolute())
    assert found["settings"]["limits.idle_ms"] == {"value": 300_000, "source": "LOGBOOM_LIMITS__IDLE_MS"}


def test_a_wrong_value_is_an_error_of_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "--set", "threads=none"]) == 2
    assert "threads: is 'none', allowed is a whole number, 1 to 256 (--set)" in capsys.readouterr().err


def test_a_file_is_checked_whole(capsys: pytest.CaptureFixture[str]) -> None:
    Path("right.toml").write_text("threads = 2\n")
    assert run(["config", "check", "right.toml"]) == 0
    Path("wrong.toml").write_text("threads = 0\n[limit]\nx = 1\n")
    assert run(["config", "check", "--json", "wrong.toml"]) == 1
    out = capsys.readouterr().out
    assert [fault["key"] for fault in json.loads(out[out.index("{") :])["faults"]] == ["threads", "limit"]
    assert run(["config", "check", "nowhere.toml"]) == 2
    assert "nowhere.toml" in capsys.readouterr().err


def test_the_example_is_toml(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "example"]) == 0
    assert "limits" in tomllib.loads(capsys.readouterr().out)


def test_no_directory_is_not_this_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["serve", "--data", "", "--listen", "127.0.0.1:0"]) == 2
    assert "--data" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
