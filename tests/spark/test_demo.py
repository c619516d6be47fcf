"""The demo ends by itself where nobody looks on, and says that nothing was lost."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from spark.classes import java_options
from support.nodes.process import NodeProcess

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"
LIMIT_S = 1200
"""It starts Spark twice, which takes its time on a busy machine."""


def run_demo(directory: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, str(DEMO), "--records", "10000", "--keep", "kept"],
        cwd=directory,
        env=os.environ | {"JAVA_TOOL_OPTIONS": java_options()} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S - 60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9" in done.stdout
    assert "one over HTTP, one in lines of text" in done.stdout
    assert "clean: nothing lost, nothing twice" in done.stdout
    return done.stdout


@pytest.mark.timeout(LIMIT_S)
def test_the_demo_loses_nothing_makes_results_and_ends_by_itself(tmp_path: Path) -> None:
    said = run_demo(tmp_path)
    assert "counted 10,000 records, across the restart" in said
    assert "each once; lag 0" in said
    assert "Spark wrote 10,000 records to parsed" in said
    assert "50 keys, each with the latest of 7,500 records" in said
    assert "20,000 records of 3 topics on one page" in said
    assert "read from seqno 0, nothing has changed" in said
    for name in ("state", "archive", "proof", "overview"):
        assert re.search(rf"^{name}: done in ", said, re.MULTILINE), said
    for job in ("archive/readings", "checkpoint/readings/key", "report/all", "verify/all"):
        assert re.search(rf"^{job}\s+idle\s", said, re.MULTILINE), said
    (page,) = re.findall(r"^report +(/.+)$", said, re.MULTILINE)
    assert Path(page).is_relative_to(tmp_path / "kept")
    assert "</html>" in Path(page).read_text()


def test_where_spark_cannot_be_had_it_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(DEMO.parent))
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    counting, processes, screen = (import_module(f"story.{name}") for name in ("counting", "processes", "screen"))
    node = processes.Node(str(tmp_path))
    assert counting.start_spark(node, str(tmp_path), 10_000, screen.Screen()) is None
    assert "is left out: " in capsys.readouterr().out


@pytest.mark.soak
@pytest.mark.timeout(LIMIT_S)
def test_where_spark_cannot_be_had_the_demo_says_so_and_goes_on(tmp_path: Path) -> None:
    said = run_demo(tmp_path, PYSPARK_PYTHON="/nowhere/python")
    assert "is left out: " in said
    assert "micro-batches" not in said
    assert "pipeline  http" not in said


@pytest.mark.usefixtures("spark")
def test_a_query_that_ends_too_early_says_what_spark_says_and_the_innermost_cause(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the session that is there: a process of its own would start another Java to say the same."""
    monkeypatch.syspath_prepend(str(DEMO.parent))
    with NodeProcess(tmp_path) as node:
        monkeypatch.setattr(sys, "argv", [str(DEMO), "--role", "count", node.address, str(tmp_path / "x"), "S", "100"])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(DEMO), run_name="__main__")
    assert ended.value.code == 1
    told = capfd.readouterr().err
    said = told[told.rindex("a query of Spark has ended: ") :].splitlines()
    assert "terminated with exception" in said[0]
    assert said[1].startswith("Caused by: ")
    assert "initialOffset" in said[1], "where it found no topic"
