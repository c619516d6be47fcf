"""The demo ends by itself where nobody looks on, and says that nothing was lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def run_demo(**environment: str) -> str:
    done = subprocess.run(
        [sys.executable, str(DEMO), "--records", "10000"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9" in done.stdout
    assert "clean: nothing lost, nothing twice" in done.stdout
    return done.stdout


def test_the_demo_loses_nothing_and_ends_by_itself() -> None:
    said = run_demo()
    assert "counted 9,999 records, across the restart" in said
    assert "each once; lag 0" in said
    assert "Spark wrote 9,999 records to parsed" in said


def test_where_spark_cannot_be_had_the_demo_says_so_and_goes_on() -> None:
    said = run_demo(PYSPARK_PYTHON="/nowhere/python")
    assert "is left out: " in said
    assert "micro-batches" not in said
