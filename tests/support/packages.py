"""Commands of other people that tests need: installed where that can be, else the test is skipped with the reason."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

import pytest

INSTALL_S = 120
WAIT_FOR_OTHERS = ("-o", "DPkg::Lock::Timeout=120")


def need(command: str, package: str, seconds: int = INSTALL_S) -> None:
    """Ends the test where there is no such command and none can be had, by a step of at most so many seconds."""
    reason = why_not(command, package, seconds)
    if reason is not None:
        pytest.skip(reason)


@cache
def why_not(command: str, package: str, seconds: int = INSTALL_S) -> str | None:
    if shutil.which(command) is not None:
        return None
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return f"{command} is not installed, and only root can install {package}, with apt"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step in (("update",), ("install", "--yes", "--no-install-recommends", package)):
        try:
            done = subprocess.run(
                ["apt-get", "--quiet", *WAIT_FOR_OTHERS, *step],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return f"{package} could not be installed in {seconds} s"
    return None if shutil.which(command) else f"{package} could not be installed: {done.stderr.strip()[-300:]}"
