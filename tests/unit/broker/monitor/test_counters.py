"""What the system says of the process: how much memory there is for it, and how many files."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest

from logboom.broker.local import LocalBroker
from logboom.broker.monitor.counters import memory_bytes, memory_limit_bytes, open_files, open_files_limit

MACHINE = 8 * 2**30
CASES = {
    "no groups": ("", {}, MACHINE),
    "second version": ("0::/user/app\n", {"user/app/memory.max": "1000000"}, 1_000_000),
    "second version, no limit": ("0::/app\n", {"app/memory.max": "max"}, MACHINE),
    "the group above is narrower": ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "5000"}, 5_000),
    "a container that sees only itself": ("0::/docker/123\n", {"memory.max": "7000"}, 7_000),
    "more than there is": ("0::/app\n", {"app/memory.max": str(2 * MACHINE)}, MACHINE),
    "first version": (
        "5:cpu:/app\n4:memory,hugetlb:/app\n0::/\n",
        {"memory/app/memory.limit_in_bytes": "3000"},
        3_000,
    ),
    "first version, no limit": (
        "4:memory:/app\n",
        {"memory/app/memory.limit_in_bytes": "9223372036854771712"},
        MACHINE,
    ),
    "nonsense": ("what\n::\n", {"memory.max": "much"}, MACHINE),
}


@pytest.mark.parametrize("case", CASES)
def test_memory_is_the_machines_or_what_a_control_group_leaves_of_it(case: str, tmp_path: Path) -> None:
    group, limits, expected = CASES[case]
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(f"MemTotal:       {MACHINE // 1024} kB\nMemFree: 1 kB\n")
    (tmp_path / "proc/self/cgroup").write_text(group)
    for name, text in limits.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text + "\n")
    assert memory_limit_bytes(f"{tmp_path}/proc", f"{tmp_path}/groups") == expected


def test_where_the_system_says_nothing_the_limit_is_0(tmp_path: Path) -> None:
    assert memory_limit_bytes(f"{tmp_path}/proc", f"{tmp_path}/groups") == 0


def test_a_node_says_what_it_uses_beside_what_it_may_use(tmp_path: Path) -> None:
    async def story() -> None:
        broker = await LocalBroker.open(str(tmp_path / "data"))
        while (stats := await broker.stats()).disk is None:
            await asyncio.sleep(0.001)
        await broker.close()
        assert 1_000_000 < stats.memory_bytes < stats.memory_limit_bytes
        assert 3 < stats.open_files <= stats.open_files_limit == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert 0 < stats.disk.free_bytes <= stats.disk.total_bytes
        assert stats.disk.reserve_bytes == broker.config.reserve_bytes

    asyncio.run(story())


def test_files_that_are_opened_are_counted(tmp_path: Path) -> None:
    before = open_files()
    with open(tmp_path / "one", "w"), open(tmp_path / "two", "w"):
        assert open_files() == before + 2
    assert open_files_limit() > 0
    assert memory_bytes() > 0
