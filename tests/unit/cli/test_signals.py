"""What tests start ends by the signals that end it in a terminal, however the tests themselves were started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
ENDING = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM)
IGNORED = (
    f"import signal; print([n for n in {[int(number) for number in ENDING]} if signal.getsignal(n) == signal.SIG_IGN])"
)


def ignore() -> None:
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def test_a_process_that_a_test_starts_ignores_no_signal_that_ends_it() -> None:
    done = subprocess.run([sys.executable, "-S", "-c", IGNORED], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_that_holds_where_the_tests_run_in_the_background(tmp_path: Path) -> None:
    name = test_a_process_that_a_test_starts_ignores_no_signal_that_ends_it.__name__
    options = ["-p", "xdist", "-p", "pytest_timeout", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "inner")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", f"{__file__}::{name}", "-n", "1", *options],
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        preexec_fn=ignore,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
