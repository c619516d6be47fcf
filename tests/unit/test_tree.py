"""The shape of the source tree itself: where clocks, sockets and event loops may be, and what modules are called."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from support.budget import TESTS, folder_of, read_budget

SOURCE = Path(__file__).parents[2] / "src" / "logboom"
PURE = ("batch", "storage", "raft")
FORBIDDEN = {"asyncio", "socket", "ssl", "selectors", "select", "time", "sched", "uvloop", "threading"}
DRAWERS = {"util", "utils", "helper", "helpers", "common", "base", "misc", "manager", "managers", "tools"}
WORKERS = 2
CI_S = 20 * 60
MODULES = sorted(SOURCE.rglob("*.py"))


@cache
def parsed(module: Path) -> ast.Module:
    return ast.parse(module.read_text())


def imported(module: Path) -> Iterator[str]:
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


@pytest.mark.parametrize(
    "module",
    [module for module in MODULES if module.relative_to(SOURCE).parts[0] in PURE],
    ids=lambda path: str(path.relative_to(SOURCE)),
)
def test_the_core_knows_no_event_loop_no_network_and_no_clock(module: Path) -> None:
    assert not FORBIDDEN & set(imported(module))
    called = [node.attr for node in ast.walk(parsed(module)) if isinstance(node, ast.Attribute)]
    assert not {"now", "utcnow", "today", "monotonic", "perf_counter"} & set(called)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_is_a_drawer(module: Path) -> None:
    assert not DRAWERS & {part.removesuffix(".py") for part in module.relative_to(SOURCE).parts}


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_module_says_what_it_is(module: Path) -> None:
    assert ast.get_docstring(parsed(module))


def test_every_error_is_in_the_drawn_tree() -> None:
    from logboom import errors

    drawn = errors.__doc__ or ""
    named = [name for name, value in vars(errors).items() if isinstance(value, type)]
    assert [name for name in named if name not in drawn] == []


def test_every_folder_with_tests_has_a_budget_and_every_budget_a_folder() -> None:
    budget = read_budget()
    files = [path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")]
    found = {file: folder_of(file, budget) for file in files}
    assert [file for file, folder in found.items() if folder is None] == []
    areas = {
        "/".join(file.split("/")[: 2 if file.startswith("unit/") and file.count("/") > 1 else 1]) for file in files
    }
    assert areas == budget.keys()


def test_all_budgets_together_are_twenty_minutes_of_two_workers_at_most() -> None:
    assert sum(read_budget().values()) / WORKERS <= CI_S
