"""docs/raft.md says what is so: the drawing is that of the table, tests and planted bugs are those that there are."""

from __future__ import annotations

import re
from pathlib import Path

from logboom.raft.transitions import draw
from support.raft.planted import BUGS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "raft.md").read_text()


def test_the_drawing_is_made_of_the_table() -> None:
    assert PAGE.split("```mermaid\n")[1].split("\n```")[0] == draw()


def test_every_test_that_the_page_names_is_there() -> None:
    there = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", PAGE)
    assert len(named) > 40
    assert [name for name in named if f"def {name}(" not in there] == []


def test_every_planted_bug_is_listed_with_its_seeds() -> None:
    listed = re.findall(r"^\| (.+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert listed == [(bug.name, str(bug.seeds)) for bug in BUGS]
    assert len(BUGS) >= 20


def test_every_file_of_the_core_is_in_the_order_to_read_them() -> None:
    files = {path.name for path in (ROOT / "src/logboom/raft").glob("[a-z]*.py")}
    assert set(re.findall(r"`([a-z_]+\.py)`", PAGE)) == files
