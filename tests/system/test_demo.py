"""The demo ends by itself where nobody looks on, and says that nothing was lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_the_demo_loses_nothing_and_ends_by_itself() -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO), "--records", "10000"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9" in done.stdout
    assert "clean: nothing lost, nothing twice" in done.stdout
