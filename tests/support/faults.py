"""Commands that give another one a small volume, or a disk that fails. A test ends where they cannot be had."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from support.packages import need

VOLUME = 'mount -t tmpfs -o size=4m none "$0" && exec "$@"'
WRITES = "pwritev,pwritev2"
"""Which of the two os.pwritev becomes depends on the C library."""


@cache
def works(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0


def own_volume(path: Path) -> list[str]:
    """A command that gives another one a small volume of its own, in a mount namespace; or none, and the test ends."""
    path.mkdir(exist_ok=True)
    command = ["unshare", "-Urm", "sh", "-c", VOLUME, str(path)]
    if not works(*command):
        pytest.skip("no mount namespaces here")
    return command


def failing(*faults: str) -> list[str]:
    """A command that lets system calls of another one fail."""
    need("strace", "strace")
    calls = ",".join(fault.partition(":")[0] for fault in faults)
    command = ["strace", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", f"trace={calls}"]
    for fault in faults:
        command += ["-e", f"inject={fault}"]
    if not works(*command):
        pytest.skip("strace does not work here")
    return command
