"""Is the volume of a data directory fit for it, and has the system room for a server: space, mount, limits.

Judges values and looks at nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from logboom.storage.files.disk import is_network
from logboom.storage.health.findings import Finding
from logboom.storage.health.surroundings import Surroundings

LOW_BYTES: Final = 1 << 30
LOW_SHARE: Final = 0.1
FREE_FILES_MIN: Final = 1_000
OPEN_FILES_MIN: Final = 1_024
INOTIFY_MIN: Final = 128


def judge_space(root: str, free: int, reserve_bytes: int, around: Surroundings | None) -> Iterator[Finding]:
    total = around.total_bytes if around else None
    files = around.free_files if around else None
    if free < reserve_bytes:
        reason = f"{free:,} bytes are free, the reserve is {reserve_bytes:,}: the server refuses writes"
    elif free < LOW_BYTES or (total and free < LOW_SHARE * total):
        share = f" ({free * 100 // total} % of the volume)" if total else ""
        reason = f"{free:,} bytes are free{share}; the server refuses writes below {reserve_bytes:,}"
    elif files is not None and files < FREE_FILES_MIN:
        reason = f"the volume takes only {files:,} more files (df -i)"
    else:
        return
    advice = "lower the retention of topics, delete topics, or move to a larger volume"
    yield Finding(kind="low space", severity="warning", file=root, reason=reason, advice=advice)


def judge_system(root: str, around: Surroundings) -> Iterator[Finding]:
    if around.read_only:
        yield Finding(
            kind="read-only",
            severity="warning",
            file=root,
            reason="the volume is mounted read-only: a server cannot write here",
            advice="see in dmesg whether the kernel did that after an error of the device; then mount it for writing",
        )
    if is_network(around.file_system):
        yield Finding(
            kind="network file system",
            severity="warning",
            file=root,
            reason=f"{around.file_system}: nobody can read beside the server, and its lock may not keep others out",
            advice="move the directory to a local file system (ext4, xfs): logboom dump, logboom load",
        )
    if around.files_max is not None and around.files_max < OPEN_FILES_MIN:
        yield Finding(
            kind="low limit",
            severity="info",
            file=root,
            reason=f"a process started from here may open {around.files_max} files: a node takes fewer connections, "
            "and writes fewer logs at a time",
            advice=f"ulimit -n {OPEN_FILES_MIN * 64}, or LimitNOFILE= in the server's unit",
        )
    if around.inotify_max is not None and around.inotify_max < INOTIFY_MIN:
        yield Finding(
            kind="low limit",
            severity="info",
            file=root,
            reason=f"only {around.inotify_max} readers of one user can wait for news at once",
            advice=f"sysctl fs.inotify.max_user_instances={INOTIFY_MIN * 8}",
        )
