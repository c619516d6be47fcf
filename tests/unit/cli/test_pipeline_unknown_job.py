"""A job that nobody knows is told before anything else that is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from logboom.cli.pipeline_file import load
from logboom.errors import ConfigError


def test_an_unknown_job_is_named_before_a_missing_directory_with_the_jobs_there_are(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text("[jobs.state]\nkind = 'checkpoint'\ntopic = 'a'\n\n[jobs.by-hand]\nkind = 'archive'\ntopic = 'a'\n")
    with pytest.raises(ConfigError, match=r"^nothing: there is no such job.*; jobs: state, by-hand; kinds: archive, "):
        load(str(path), only="nothing")
    with pytest.raises(ConfigError, match=r"^directory: is missing"):
        load(str(path), only="state")


def test_without_a_configuration_kinds_are_known_and_nothing_else() -> None:
    with pytest.raises(ConfigError, match=r"^nothing: .*; jobs: none; kinds: archive, checkpoint, report, verify$"):
        load(None, only="nothing")
    with pytest.raises(ConfigError, match=r"^directory: is missing"):
        load(None, only="archive")


def test_the_command_says_so_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "logboom", "pipeline", "run", "nothing"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing: there is no such job in the configuration, and no such kind" in done.stderr
    assert "directory" not in done.stderr
