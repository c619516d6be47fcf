"""The shape of the source tree itself: where clocks, sockets and event loops may be, and what modules are called."""

from __future__ import annotations

import ast
import importlib
import keyword
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from logboom import errors
from support.budget import TESTS, folder_of, read_budget

SOURCE = Path(__file__).parents[2] / "src" / "logboom"
PURE = ("batch", "storage", "raft")
FORBIDDEN = {"asyncio", "socket", "ssl", "selectors", "select", "time", "sched", "uvloop", "threading"}
DRAWERS = {"util", "utils", "helper", "helpers", "common", "base", "misc", "manager", "managers", "tools"}
GLOSSARY = SOURCE.parents[1] / "docs" / "GLOSSARY.md"
WORKERS = 2
CI_S = 20 * 60
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


@pytest.mark.parametrize(
    "module",
    [module for module in MODULES if module.relative_to(SOURCE).parts[0] in INJECTED],
    ids=lambda path: str(path.relative_to(SOURCE)),
)
def test_clock_chance_and_threads_come_from_outside(module: Path) -> None:
    if str(module.relative_to(SOURCE)) not in MAKERS:
        assert not MADE & set(reached(parsed(module)))


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


def drawn_parents(drawing: str) -> dict[str, str]:
    """Each error of the drawn tree, and the one that it hangs from."""
    branch: list[str] = []
    parents = {}
    for indent, name in re.findall(r"^((?:│   |    )*(?:├── |└── ))(\w+)", drawing, re.MULTILINE):
        branch[len(indent) // 4 - 1 :] = [name]
        parents[name] = branch[-2] if len(branch) > 1 else "LogboomError"
    return parents


def defined_errors() -> dict[str, type[errors.LogboomError]]:
    modules = [importlib.import_module(f"logboom.errors.{path.stem}") for path in (SOURCE / "errors").glob("[a-z]*.py")]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    return {kind.__name__: kind for kind in found if issubclass(kind, errors.LogboomError)}


def test_the_drawn_tree_is_the_tree_of_errors() -> None:
    bases = {name: kind.__bases__[0].__name__ for name, kind in defined_errors().items() if name != "LogboomError"}
    assert drawn_parents(errors.__doc__ or "") == bases


def test_every_error_is_exported_by_the_package_and_has_a_code() -> None:
    defined = defined_errors()
    assert {name: getattr(errors, name, None) for name in defined} == defined
    assert set(errors.__all__) == {*defined, "CODES", "code_of"}
    assert set(errors.CODES.values()) == set(defined.values())
    assert {kind.__module__ for kind in defined.values()} == {"logboom.errors"}


PARALLEL = ("protocols/binary", "protocols/logd", "protocols/http")
"""Front-ends have the same shape, so their classes may have the same names."""
FILES_MAX = 18
"""A folder is one idea. One file for each command, or for each part of the API, is one idea however many there are."""
LISTS = {"cli/commands", "protocols/http/api"}
NOT_GERUNDS = {"ping", "wording", "setting", "ranking"}
REPEATED_MAX = 12
"""Lines of code of the same shape, besides imports: more of them want one place."""
DIFFERENT_MIN = 4
"""Shapes of statements in such a stretch: below that it is a list, such as the fields of a class."""
REPEATS = {
    "errors/": "an error is its fields, and those of different errors look alike",
    "client/write/": "both writers take the same, and each says so for those who read its signature",
}
SCREEN_ROWS = 24
PASSED_OVER = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
VALUES = {tokenize.STRING: "text", tokenize.NUMBER: "number"}


def test_a_public_class_name_stands_for_one_idea() -> None:
    homes: dict[str, set[str]] = {}
    for module in MODULES:
        path = module.relative_to(SOURCE).as_posix()
        home = next((front for front in PARALLEL if path.startswith(f"{front}/")), None)
        for node in parsed(module).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, set()).add("a front-end" if home else path)
    shared = {name: sorted(paths) for name, paths in homes.items() if len(paths) > 1}
    assert shared == {}


def test_a_class_name_occurs_once_within_a_front_end() -> None:
    for front in PARALLEL:
        names = [
            node.name
            for module in (SOURCE / front).rglob("*.py")
            for node in parsed(module).body
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        ]
        assert len(names) == len(set(names)), front


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_is_named_for_the_thing_it_holds(module: Path) -> None:
    for part in module.relative_to(SOURCE).with_suffix("").parts:
        assert not part.endswith("ing") or part in NOT_GERUNDS | {"moving"}


def test_no_folder_holds_more_than_one_idea() -> None:
    counts: dict[str, int] = {}
    for module in MODULES:
        if module.name != "__init__.py":
            folder = module.parent.relative_to(SOURCE).as_posix()
            counts[folder] = counts.get(folder, 0) + 1
    crowded = {folder: count for folder, count in counts.items() if count > FILES_MAX and folder not in LISTS}
    assert crowded == {}


def statements(module: Path) -> Iterator[tuple[str, int, int]]:
    """The shape of each statement, without names and values; how many lines it has, and where it begins."""
    shape: list[str] = []
    lines: set[int] = set()
    with tokenize.open(module) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.NEWLINE:
                if shape[0] not in ("import", "from") and shape != ["text"]:
                    yield " ".join(shape), len(lines), min(lines)
                shape, lines = [], set()
            elif token.type not in PASSED_OVER:
                lines.add(token.start[0])
                is_name = token.type == tokenize.NAME and not keyword.iskeyword(token.string)
                shape.append("name" if is_name else VALUES.get(token.type, token.string))


def stretches(module: Path) -> Iterator[tuple[tuple[str, ...], int]]:
    """Statements that follow each other and have just more lines than may be repeated."""
    found = list(statements(module))
    for first in range(len(found)):
        size = 0
        for last in range(first, len(found)):
            size += found[last][1]
            if size > REPEATED_MAX:
                shapes = tuple(shape for shape, _, _ in found[first : last + 1])
                if len(set(shapes)) >= DIFFERENT_MIN:
                    yield shapes, found[first][2]
                break


def test_no_shape_of_code_is_repeated_over_many_lines() -> None:
    places: dict[tuple[str, ...], list[str]] = {}
    for module in MODULES:
        for shapes, line in stretches(module):
            places.setdefault(shapes, []).append(f"{module.relative_to(SOURCE).as_posix()}:{line}")
    repeated = [found for found in places.values() if len(found) > 1]
    files = [{place.partition(":")[0] for place in found} for found in repeated]
    known = [any(all(name.startswith(part) for name in names) for part in REPEATS) for names in files]
    assert [found for found, is_known in zip(repeated, known, strict=True) if not is_known] == []
    assert all(any(all(name.startswith(part) for name in names) for names in files) for part in REPEATS)


def test_the_glossary_names_files_that_are_there() -> None:
    rows = [line.split("|") for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")]
    words = [(row[1].strip(), row[3].strip().strip("`")) for row in rows if row[1].strip() != "word"]
    assert len(words) > 50
    assert [owner for _, owner in words if not (SOURCE / owner).exists()] == []
    assert len({word for word, _ in words}) == len(words)


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "GLOSSARY.md", "howto/new-front-end.md"])
def test_a_page_about_the_code_names_files_that_are_there(page: str) -> None:
    """By their paths, or the end of them where the line says the rest."""
    names = [path.as_posix() for folder in (SOURCE, TESTS) for path in folder.rglob("*") if path.is_file()]
    text = (GLOSSARY.parent / page).read_text()
    named = {name for line in text.splitlines() for name in re.findall(r"`([a-z_/]+\.(?:py|js))`", line)}
    assert named
    assert {name for name in named if not any(path.endswith(f"/{name}") for path in names)} == set()


def test_the_way_of_a_record_leaves_no_file_more_than_twice_and_fits_a_screen() -> None:
    text = (GLOSSARY.parent / "ARCHITECTURE.md").read_text()
    for title in ("## The way of a record", "## The way back"):
        part = text[text.index(title) :].split("\n## ")[0]
        rows = [row for row in part.splitlines() if re.match(r"\| \d+ \|", row)]
        assert 8 <= len(rows) <= SCREEN_ROWS
        steps = [re.findall(r"`([a-z_/]+\.py)`", row) for row in rows]
        assert all(steps)
        visits: dict[str, int] = {}
        for before, files in zip([[], *steps], steps, strict=False):
            for file in files:
                visits[file] = visits.get(file, 0) + (file not in before)
        assert {file for file, count in visits.items() if count > 2} == set()


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
