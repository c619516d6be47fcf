from __future__ import annotations

import re
from pathlib import Path

import pytest

from logboom.cli.pipeline_file import find_file, load
from logboom.errors import ConfigError

ROOT = Path(__file__).parents[3]
WHOLE = """
server = "10.0.0.7:1773"
directory = "results"
lease_ms = "10s"

[spark]
master = "local[2]"
config = {"spark.driver.memory" = "1g", "spark.ui.enabled" = false, "spark.task.maxFailures" = 4}

[jobs.state]
kind = "checkpoint"
topic = "orders"
by = "channel"
every = "5m"

[jobs.by-hand]
kind = "archive"
topic = "orders"
"""


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "pipeline.toml"
    path.write_text(text)
    return str(path)


def test_a_file_says_where_what_and_how_often(tmp_path: Path) -> None:
    config = load(write(tmp_path, WHOLE))
    assert (config.server, config.directory, config.lease_ms) == ("10.0.0.7:1773", str(tmp_path / "results"), 10_000)
    assert config.spark.config == {
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.task.maxFailures": "4",
    }
    assert [(job.work.id, job.every_ms) for job in config.jobs.values()] == [
        ("checkpoint/orders/channel", 300_000),
        ("archive/orders", None),
    ]


def test_what_the_command_says_goes_before_what_the_file_says(tmp_path: Path) -> None:
    config = load(write(tmp_path, WHOLE), "s3://bucket/logs", "localhost")
    assert (config.server, config.directory) == ("localhost", "s3://bucket/logs")


def test_without_a_file_a_directory_is_enough() -> None:
    assert load(None, "/results").jobs == {}
    with pytest.raises(ConfigError, match="directory: is missing"):
        load(None)


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("directori = 'x'", "directori", "the nearest is directory"),
        ("directory = 7", "directory", "allowed is text"),
        ("directory = 'x'\nserver = 'a b'", "server", "no address"),
        ("directory = 'x'\nlease_ms = 'soon'", "lease_ms", "allowed is a duration"),
        ("directory = 'x'\nlease_ms = '1ms'", "lease_ms", "1s to 1h"),
        ("directory = 'x'\nlease_ms = true", "lease_ms", "allowed is a duration"),
        ("directory = 'x'\njobs = 7", "jobs", "is a section"),
        ("directory = 'x'\n[spark]\nmastr = 'x'", "spark.mastr", "the nearest is spark.master"),
        ("directory = 'x'\n[spark]\nmaster = 'x'\nremote = 'y'", "spark.remote", "one of them"),
        ("directory = 'x'\n[spark.config]\nspark.x = 1", "spark.config.spark", "in quotes"),
        ("directory = 'x'\n[jobs.a]\ntopic = 'x'", "jobs.a.kind", "is missing"),
        ("directory = 'x'\n[jobs.a]\nkind = 'achive'", "jobs.a.kind", "allowed is one of"),
        ("directory = 'x'\n[jobs.a]\nkind = 'archive'", "jobs.a.topic", "is missing"),
        ("directory = 'x'\n[jobs.a]\nkind = 'archive'\ntopic = 7", "jobs.a.topic", "expected `str`"),
        ("directory = 'x'\n[jobs.a]\nkind = 'archive'\ntopik = 'x'", "jobs.a.topik", "the nearest is topic"),
        ("directory = 'x'\n[jobs.a]\nkind = 'archive'\ntopic = 'x'\nevery = 0", "jobs.a.every", "1s to 366d"),
        ("directory = 'x'\n[jobs.a]\nkind = 'archive'\ntopic = 'x'\nlevel = 99", "jobs.a.level", "allowed"),
        ("directory = ", "pipeline.toml", "is not TOML"),
    ],
)
def test_what_is_wrong_is_told_with_the_name_of_its_key(tmp_path: Path, text: str, key: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)) as found:
        load(write(tmp_path, text))
    assert found.value.key.endswith(key)


def test_two_jobs_that_would_make_the_same_are_an_error(tmp_path: Path) -> None:
    jobs = "".join(f"[jobs.{name}]\nkind = 'archive'\ntopic = 'x'\n" for name in "ab")
    with pytest.raises(ConfigError, match=r"jobs\.b: makes the same as jobs\.a: archive/x"):
        load(write(tmp_path, f"directory = 'x'\n{jobs}"))


def test_the_example_is_right(tmp_path: Path) -> None:
    config = load(str(ROOT / "examples/pipeline.toml"))
    assert config.directory == str(ROOT / "examples/results")
    assert sorted(job.work.kind for job in config.jobs.values()) == ["archive", "checkpoint", "report", "verify"]


def test_a_file_is_found_by_name_by_the_environment_or_because_it_lies_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOGBOOM_PIPELINE", raising=False)
    assert find_file(None) is None
    path = write(tmp_path, WHOLE)
    assert find_file(None) == path
    monkeypatch.setenv("LOGBOOM_PIPELINE", "/etc/other.toml")
    assert find_file(None) == "/etc/other.toml"
    assert find_file("here.toml") == str(tmp_path / "here.toml")
