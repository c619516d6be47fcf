"""The Python of the workers on this machine: this one, with pyspark from its files.

Spark lets its own `pyspark.zip` go before all that its Pythons import. That has no bytecode: each of them compiles what
it imports, 0.6 s of CPU in each of the four and more that a first answer takes. A script in front of Python lets the
files go before it that the zip was made of, as they were installed and compiled, and nothing else.
"""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from logboom.spark.runtime.cache import keep_script

PACKAGES: Final = ("pyspark", "py4j")
SCRIPT: Final = """\
#!/bin/sh
# Spark's pyspark.zip has no bytecode: {files} are the same, compiled.
here=${{0%/bin/*}}
export PYTHONPATH="$here/packages${{PYTHONPATH:+:$PYTHONPATH}}"
exec {python} "$@"
"""


def worker_python() -> str:
    """A command; this Python itself where Spark is not the one that came with pyspark, or there is no cache."""
    from pyspark.find_spark_home import _find_spark_home

    files = [_files_of(name) for name in PACKAGES]
    if None in files or os.path.realpath(_find_spark_home()) != os.path.realpath(str(files[0])):
        return sys.executable
    script = SCRIPT.format(files=" and ".join(map(str, files)), python=shlex.quote(sys.executable))
    try:
        home = keep_script("python", script)
        for name, path in zip(PACKAGES, files, strict=True):
            _link(home / "packages" / name, str(path))
    except (OSError, RuntimeError):  # no place to write, or nobody's home
        return sys.executable
    python = str(home / "bin" / "python")
    return python if os.access(python, os.X_OK) else sys.executable  # a volume from which nothing may be run


def _files_of(package: str) -> str | None:
    """Its directory; None where it lies in a zip."""
    spec = find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return places[0] if places and os.path.isdir(places[0]) else None


def _link(link: Path, path: str) -> None:
    """Where it goes is part of the name of its directory: one that is there is right."""
    link.parent.mkdir(exist_ok=True)
    with suppress(FileExistsError):
        link.symlink_to(path)
