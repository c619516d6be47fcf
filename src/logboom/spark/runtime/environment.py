"""What this machine lacks for Spark, and what to do about it: each finding says both.

Nothing of Spark is imported and no JVM is started for it, so it can be asked anywhere and at once. Only where
PYSPARK_PYTHON names another interpreter than this one is that started, for its version and what it can import.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from logboom.client.values import Severity
from logboom.spark.runtime.java import ADVICE as JAVA_ADVICE
from logboom.spark.runtime.java import VERSION_MIN, find_java, search_java

SOURCE: Final = "pyspark_logboom"
"""The module by which Spark finds the source."""
PYTHON_MIN: Final = (3, 11)
ANSWER_S: Final = 60.0
PROBE: Final = (
    "import sys, importlib.util as util; "
    f"print(*sys.version_info[:2], *(int(util.find_spec(name) is not None) for name in ('logboom', {SOURCE!r})))"
)


class Needed(NamedTuple):
    """A package's versions, from the first up to and not including the second."""

    first: tuple[int, ...]
    until: tuple[int, ...] | None = None
    advice: str = "pip install '.[spark]' in a checkout of Logboom"

    def allows(self, found: str) -> bool:
        numbers = tuple(int(number) for number in re.findall(r"\d+", found)[:3])
        return numbers >= self.first and (self.until is None or numbers < self.until)

    def __str__(self) -> str:
        first = f"{_dotted(self.first)} or newer"
        return first if self.until is None else f"{first}, below {_dotted(self.until)}"


PACKAGES: Final[Mapping[str, Needed]] = {
    "pyspark": Needed((4, 3), (5,)),
    "pandas": Needed((2, 2), (3,)),
    "pyarrow": Needed((20,), None, "pip install --upgrade pyarrow"),
}
"""As pyproject.toml has them."""


class Lack(msgspec.Struct, frozen=True):
    severity: Severity
    kind: str
    where: str
    reason: str
    advice: str
    """What to do."""


def examine_spark(environment: Mapping[str, str] = os.environ) -> list[Lack]:
    """What is missing, too old or too new; nothing, where `logboom.spark.session()` will do."""
    return [*_packages(), *_java(environment), *_this_python(), *_workers_python(environment)]


def describe_spark(environment: Mapping[str, str] = os.environ) -> dict[str, str | None]:
    """What there is of it, by name; None where there is none."""
    java = find_java(environment)
    python = environment.get("PYSPARK_DRIVER_PYTHON") or environment.get("PYSPARK_PYTHON") or sys.executable
    return {
        **{name: installed(name) for name in PACKAGES},
        "Java": f"{java.version} in {java.home}" if java else None,
        "Python": python,
    }


def installed(package: str) -> str | None:
    """The version of a package, without importing it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return _said_by(package)


def _said_by(package: str) -> str | None:
    """What its file version.py says: the pyspark that `spark-submit` puts on the path was never installed."""
    spec = importlib.util.find_spec(package)
    get_data = getattr(spec.loader, "get_data", None) if spec else None
    if spec is None or spec.origin is None or get_data is None:
        return None
    try:
        said: bytes = get_data(os.path.join(os.path.dirname(spec.origin), "version.py"))
    except OSError:
        return None
    found = re.search(r"""^__version__.*["'](.+)["']""", said.decode(), re.MULTILINE)
    return found[1] if found else None


def _packages() -> Iterator[Lack]:
    for package, needed in PACKAGES.items():
        found = installed(package)
        if found is None:
            yield Lack("warning", "missing package", package, f"Spark needs {package} {needed}", needed.advice)
        elif not needed.allows(found):
            reason = f"Spark needs {package} {needed}; here is {found}"
            yield Lack("warning", "wrong version", package, reason, needed.advice)


def _java(environment: Mapping[str, str]) -> Iterator[Lack]:
    if environment.get("SPARK_REMOTE", "").startswith("sc:"):
        return
    found, too_old = search_java(environment)
    if found is None and too_old:
        reason = f"Spark needs Java {VERSION_MIN} or newer; here is {' and '.join(map(str, too_old))}"
        yield Lack("warning", "wrong version", "Java", reason, JAVA_ADVICE)
    elif found is None:
        yield Lack("warning", "missing Java", "Java", f"Spark needs Java {VERSION_MIN} or newer", JAVA_ADVICE)


def _this_python() -> Iterator[Lack]:
    if sys.version_info < PYTHON_MIN:
        reason = f"Logboom needs Python {_dotted(PYTHON_MIN)} or newer; this is {_dotted(sys.version_info[:2])}"
        yield Lack("warning", "wrong version", sys.executable, reason, "use a newer Python")
    if importlib.util.find_spec(SOURCE) is None:
        reason = f"the module {SOURCE}, by which Spark finds the source, is not there"
        yield Lack("warning", "incomplete installation", sys.executable, reason, "install logboom again")


def _workers_python(environment: Mapping[str, str]) -> Iterator[Lack]:
    """Spark runs the source with PYSPARK_DRIVER_PYTHON, else PYSPARK_PYTHON, on the driver and on the executors."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        python = environment.get(name)
        if python and Path(shutil.which(python) or python) != Path(sys.executable):
            yield from _other_python(name, python)


def _other_python(name: str, python: str) -> Iterator[Lack]:
    where, mend = f"{name}={python}", f"unset {name}, or let it be {sys.executable}"
    answer = _ask(python)
    if answer is None:
        if not os.path.isabs(python) and os.sep in python:
            mend = f"unpack or link the packed environment here too, so that {python} is there; or {mend}"
        reason = "it cannot be run from here, and reads are planned here with the path that the executors get"
        yield Lack("warning", "wrong Python", where, reason, mend)
        return
    found, has_logboom, has_source = answer
    ours = sys.version_info[:2]
    if found != ours:
        reason = f"it is Python {_dotted(found)}, this is {_dotted(ours)}: Spark wants the same on both sides"
        yield Lack("warning", "wrong Python", where, reason, mend)
    if not (has_logboom and has_source):
        reason = "it has no logboom, so Spark does not find the source there"
        yield Lack(
            "warning",
            "wrong Python",
            where,
            reason,
            f"`{python} -m pip install '.[spark]'` in a checkout of Logboom, or {mend}",
        )


def _ask(python: str) -> tuple[tuple[int, ...], bool, bool] | None:
    """An interpreter's version, and whether it has logboom and its source; None where it cannot be run."""
    try:
        done = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, check=False, timeout=ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    numbers = done.stdout.split()
    if done.returncode != 0 or len(numbers) != 4:
        return None
    return (int(numbers[0]), int(numbers[1])), numbers[2] == "1", numbers[3] == "1"


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
