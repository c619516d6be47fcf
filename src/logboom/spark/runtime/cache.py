"""Scripts that stand in front of programs, kept in the user's cache under names made of their content.

Each gets there by a rename, so processes that keep the same one at once do not meet; none is ever changed.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path


def keep_script(name: str, script: str) -> Path:
    """`bin/NAME` in a directory of its own, which is returned. OSError or RuntimeError: there is no cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute()
    home = cache / "logboom" / name / hashlib.sha256(script.encode()).hexdigest()[:16]
    put_script(home / "bin" / name, script)
    return home


def put_script(path: Path, script: str) -> None:
    if path.is_file() and path.read_text() == script and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, written = tempfile.mkstemp(dir=path.parent)
    try:
        with open(descriptor, "w") as file:
            file.write(script)
        os.chmod(written, 0o755)
        os.replace(written, path)
    except OSError:
        os.unlink(written)
        raise
