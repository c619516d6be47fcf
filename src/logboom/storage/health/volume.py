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
        reason = f"{free:,} bytes are free, less than the reserve of {reserve_bytes:,}: the server refuses writes"
    elif free < LOW_BYTES or (total and free < LOW_SHARE * total):
        share = f" ({free * 100 // total} % of the volume)" if total else ""
        reason = f"{free:,} bytes are free{share}; the server refuses writes below {reserve_bytes:,}"
    elif files is not None and files < FREE_FILES_MIN:
        reason = f"the volume has only {files:,} free inodes (df -i)"
    else:
        return
    advice = "lower the retention of topics, delete topics, or use a larger volume"
    yield Finding(kind="low space", severity="warning", file=root, reason=reason, advice=advice)


def judge_system(root: str, around: Surroundings) -> Iterator[Finding]:
    if around.read_only:
        yield Finding(
            kind="read-only",
            severity="warning",
            file=root,
            reason="the volume is mounted read-only: a server cannot write here",
            advice="look in dmesg whether the kernel remounted it after an I/O error; then mount it read-write",
        )
    if is_network(around.file_system):
        yield Finding(
            kind="network file system",
            severity="warning",
            file=root,
            reason=f"{around.file_system}: direct file readers do not work, and the lock may not stop a second server",
            advice="move the directory to a local file system (ext4, xfs) with logboom dump and logboom load",
        )
    if around.files_max is not None and around.files_max < OPEN_FILES_MIN:
        yield Finding(
            kind="low limit",
            severity="info",
            file=root,
            reason=f"a process started here may open only {around.files_max} files: a node takes fewer connections, "
            "and writes fewer logs at a time",
            advice=f"ulimit -n {OPEN_FILES_MIN * 64}, or LimitNOFILE= in the server's unit",
        )
    if around.inotify_max is not None and around.inotify_max < INOTIFY_MIN:
        yield Finding(
            kind="low limit",
            severity="info",
            file=root,
            reason=f"only {around.inotify_max} readers of one user can wait for new records at once",
            advice=f"sysctl fs.inotify.max_user_instances={INOTIFY_MIN * 8}",
        )
