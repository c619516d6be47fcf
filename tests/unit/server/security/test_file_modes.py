"""Only the node's user, and a group that was named, read the files."""

from __future__ import annotations

import grp
import os
from pathlib import Path

import pytest

from logboom.errors import ConfigError
from logboom.server.security.file_modes import conceal, protect, umask_of


def modes(path: Path) -> dict[str, str]:
    found = {"": f"{path.stat().st_mode & 0o7777:o}"}
    return found | {str(each.relative_to(path)): f"{each.lstat().st_mode & 0o7777:o}" for each in path.rglob("*")}


def test_a_directory_that_was_open_lets_nobody_else_in(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    (data / "topic.json").touch(mode=0o644)
    protect(str(data), None)
    assert modes(data) == {"": "700", "topic.json": "644"}
    protect(str(data), None)
    assert umask_of(None) == 0o077


def test_a_new_one_is_made_so(tmp_path: Path) -> None:
    protect(str(tmp_path / "new" / "data"), None)
    assert modes(tmp_path / "new" / "data") == {"": "700"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to any group")
def test_a_group_may_read_what_was_there_and_what_comes(tmp_path: Path) -> None:
    group = next(each for each in grp.getgrall() if each.gr_gid != os.getegid())
    data = tmp_path / "data"
    (data / "topics").mkdir(parents=True, mode=0o700)
    (data / "topics" / "1.log").touch(mode=0o600)
    (data / "link").symlink_to("/etc/passwd")
    before = os.stat("/etc/passwd")
    protect(str(data), group.gr_name)
    assert modes(data) == {"": "2750", "topics": "2750", "topics/1.log": "640", "link": "777"}
    assert {path.stat().st_gid for path in (data, data / "topics", data / "topics/1.log")} == {group.gr_gid}
    after = os.stat("/etc/passwd")
    assert (after.st_mode, after.st_gid) == (before.st_mode, before.st_gid)
    old = os.umask(umask_of(group.gr_name))
    try:
        (data / "topics" / "2.log").touch()
    finally:
        os.umask(old)
    assert (data / "topics" / "2.log").stat().st_gid == group.gr_gid
    assert modes(data)["topics/2.log"] == "640"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to any group")
def test_what_the_node_keeps_of_passwords_is_not_the_groups(tmp_path: Path) -> None:
    group = next(each for each in grp.getgrall() if each.gr_gid != os.getegid())
    data = tmp_path / "data"
    for name in ("topics/_access~12/0", "topics/orders~34/0", "internal"):
        (data / name).mkdir(parents=True, mode=0o700)
    protect(str(data), group.gr_name)
    assert [modes(data)[name] for name in ("topics/_access~12", "topics/orders~34", "internal")] == [
        "700",
        "2750",
        "700",
    ]
    for name in ("topics/_access~12", "internal"):
        os.chmod(data / name, 0o2750)
    conceal(str(data))
    assert [modes(data)[name] for name in ("topics/_access~12", "topics/orders~34", "internal")] == [
        "700",
        "2750",
        "700",
    ]


def test_a_group_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no group 'no-such-group'"):
        protect(str(tmp_path), "no-such-group")
