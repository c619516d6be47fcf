"""Runs benches one after the other, then writes the page; `--list` says what there is instead.

`python bench/run.py produce consume --quick`: with `--quick` there are fewer and smaller rounds, and neither results
nor page change. A bench is quick on its own where it took at most a minute when it was last recorded.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parent
MINUTE_S = 60


def main() -> None:
    options = [word for word in sys.argv[1:] if word.startswith("--")]
    names = [word for word in sys.argv[1:] if not word.startswith("--")]
    unknown = [name for name in names if not BENCH.joinpath(f"{name}.py").exists()]
    if unknown or not names:
        sys.exit(f"no bench of this name: {', '.join(unknown)}" if unknown else "name a bench, or several")
    for name in names:
        print(_line(name), flush=True)
        if "--list" not in options:
            subprocess.run([sys.executable, BENCH / f"{name}.py", *options], check=True)
    if not options:
        subprocess.run([sys.executable, BENCH / "page.py"], check=True)


def _line(name: str) -> str:
    """Its name, how long it takes, and its question."""
    question = (ast.get_docstring(ast.parse(BENCH.joinpath(f"{name}.py").read_text())) or "").partition("\n")[0]
    return f"{name:<13} {_duration(name):<14} {question}"


def _duration(name: str) -> str:
    try:
        seconds = json.loads(BENCH.joinpath("results", f"{name}.json").read_text()).get("seconds")
    except FileNotFoundError:
        seconds = None
    if seconds is None:
        return "not timed yet"
    return f"quick, {seconds:.0f} s" if seconds <= MINUTE_S else f"{seconds / MINUTE_S:.0f} minutes"


if __name__ == "__main__":
    main()
