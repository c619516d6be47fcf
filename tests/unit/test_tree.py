"""The shape of the source tree itself: where clocks, sockets and event loops may be, and what modules are called."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "logboom"
PURE = ("batch", "storage", "raft")
FORBIDDEN = {"asyncio", "socket", "ssl", "selectors", "select", "time", "sched", "uvloop", "threading"}
DRAWERS = {"util", "utils", "helper", "helpers", "common", "base", "misc", "manager", "managers", "tools"}
INJECTED = ("storage", "broker", "protocols")
MADE = {
    *("time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "datetime.now", "datetime.utcnow"),
    *("random", "secrets", "random.SystemRandom", "Random()", "os.urandom", "uuid.uuid1", "uuid.uuid4"),
    *("concurrent.futures.ThreadPoolExecutor", "futures.ThreadPoolExecutor", "threading.Thread", "threading.Timer"),
}
"""Made in a process, and so never the same twice; `perf_counter` only measures, and decides nothing."""
MAKERS = {
    "storage/means.py": "chance and threads of a real process",
    "broker/world.py": "and its clock",
    "broker/upkeep/hook.py": "a hook is a real process: its time is real",
}
MODULES = sorted(SOURCE.rglob("*.py"))


def imported(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text())):
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
    called = [node.attr for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Attribute)]
    assert not {"now", "utcnow", "today", "monotonic", "perf_counter"} & set(called)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_is_a_drawer(module: Path) -> None:
    assert not DRAWERS & {part.removesuffix(".py") for part in module.relative_to(SOURCE).parts}


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_module_says_what_it_is(module: Path) -> None:
    assert ast.get_docstring(ast.parse(module.read_text()))


@pytest.mark.parametrize(
    "module",
    [module for module in MODULES if module.relative_to(SOURCE).parts[0] in INJECTED],
    ids=lambda path: str(path.relative_to(SOURCE)),
)
def test_clock_chance_and_threads_come_from_outside(module: Path) -> None:
    if str(module.relative_to(SOURCE)) not in MAKERS:
        assert not MADE & set(reached(ast.parse(module.read_text())))


def reached(tree: ast.Module) -> Iterator[str]:
    """What a module takes from others, as `module.name`; and what it calls, as `name()`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield f"{node.func.id}()"
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_every_error_is_in_the_drawn_tree() -> None:
    from logboom import errors

    drawn = errors.__doc__ or ""
    named = [name for name, value in vars(errors).items() if isinstance(value, type)]
    assert [name for name in named if name not in drawn] == []
