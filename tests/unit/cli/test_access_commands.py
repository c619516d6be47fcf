"""`logboom user`, `token`, `acl`, `role` and `whoami`: on a node that asks callers to sign in, and on its directory."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logboom.cli import connection, run
from support.nodes.process import NodeProcess
from support.terminal import on_terminal

PASSWORD = "correct horse"
Call = Callable[..., str]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node"), "--set", "access.anonymous=none") as process:
        yield process


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LOGBOOM_")]:
        monkeypatch.delenv(name)
    connection._ask_password.cache_clear()


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command with something on standard input; gives what it printed, or where it fails its complaint."""

    def command(*arguments: str, code: int = 0, typed: str = "") -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        capsys.readouterr()
        found = run(list(arguments))
        captured = capsys.readouterr()
        assert found == code, captured
        assert PASSWORD not in captured.out + captured.err
        return captured.err if code == 2 else captured.out

    return command


@pytest.fixture
def alice(node: NodeProcess, call: Call, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An administrator, as whom the commands sign in."""
    data = str(node.directory)
    call("user", "add", "alice", "--role", "admin", "--data", data, typed=f"{PASSWORD}\n")
    monkeypatch.setenv("LOGBOOM_SERVERS", node.address)
    monkeypatch.setenv("LOGBOOM_USER", "alice")
    monkeypatch.setenv("LOGBOOM_PASSWORD", PASSWORD)
    yield "alice"
    call("user", "remove", "alice", "--data", data)


def test_whoever_has_not_signed_in_is_told_how(node: NodeProcess, call: Call) -> None:
    said = call("whoami", "--server", node.address, code=2)
    assert "set LOGBOOM_USER and LOGBOOM_PASSWORD" in said
    assert "--profile" in said


def test_a_user_signs_in_with_his_password_and_no_other(
    call: Call, alice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = json.loads(call("whoami", "--json"))
    assert (found["principal"], found["roles"], found["by"]) == ("alice", ["admin"], "password")
    monkeypatch.setenv("LOGBOOM_PASSWORD", "something else")
    assert "the sign-in failed" in call("whoami", code=2)


def test_a_password_that_is_not_said_is_asked_for_where_there_is_a_terminal(
    node: NodeProcess, call: Call, alice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ((b"Password of alice: ", PASSWORD.encode() + b"\n"),)
    monkeypatch.delenv("LOGBOOM_PASSWORD")
    done = on_terminal("whoami", "--server", node.address, answers=asked, LOGBOOM_USER="alice")
    assert done.code == 0, done.text
    assert "principal  alice" in done.text
    assert PASSWORD not in done.text
    assert "LOGBOOM_PASSWORD: is not set" in call("whoami", code=2)


def test_a_new_password_is_asked_for_twice_and_not_shown(node: NodeProcess, call: Call) -> None:
    data = str(node.directory)
    twice = ((b"New password of carol: ", b"battery staple\n"), (b"again: ", b"battery staple\n"))
    done = on_terminal("user", "add", "carol", "--data", data, answers=twice)
    assert done.code == 0, done.text
    assert "battery" not in done.text
    other = ((b"New password of carol: ", b"battery staple\n"), (b"again: ", b"battery stable\n"))
    done = on_terminal("user", "set-password", "carol", "--data", data, answers=other)
    assert (done.code, "the two are not the same" in done.text) == (2, True)
    call("user", "remove", "carol", "--data", data)


@pytest.mark.parametrize(("typed", "words"), [("", "there is no password"), ("short\n", "shorter than 8 bytes")])
def test_a_password_that_is_none_makes_no_user(node: NodeProcess, call: Call, typed: str, words: str) -> None:
    assert words in call("user", "add", "bob", "--data", str(node.directory), typed=typed, code=2)
    listed = json.loads(call("user", "list", "--data", str(node.directory), "--json"))
    assert "bob" not in [user["name"] for user in listed]


def test_a_user_is_added_listed_changed_and_removed(call: Call, alice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("user", "add", "bob", "--group", "a", "--group", "b", typed="battery staple\n") == "added bob\n"
    assert "there is a user 'bob' already" in call("user", "add", "bob", typed="battery staple\n", code=2)
    assert "say what to change" in call("user", "change", "bob", code=2)
    assert "say one of them" in call("user", "change", "bob", "--enable", "--disable", code=2)
    assert call("user", "change", "bob", "--group", "c", "--role", "r") == "changed bob\n"
    names, *rows = [line.split("\t") for line in call("user", "list").splitlines()]
    assert names == ["user", "groups", "roles", "password", "enabled", "created"]
    assert [row[:3] for row in rows] == [["alice", "-", "admin"], ["bob", "c", "r"]]
    call("user", "change", "bob", "--no-groups", "--no-roles", "--disable")
    found = json.loads(call("user", "list", "--json"))[1]
    assert (found["groups"], found["roles"], found["enabled"]) == ([], [], False)
    assert found["mechanisms"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    with monkeypatch.context() as other:
        other.setenv("LOGBOOM_USER", "bob")
        other.setenv("LOGBOOM_PASSWORD", "battery staple")
        assert "the sign-in failed" in call("whoami", code=2)
        call("user", "change", "bob", "--enable", "--data", "nowhere", code=2)
    call("user", "change", "bob", "--enable")
    with monkeypatch.context() as other:
        other.setenv("LOGBOOM_USER", "bob")
        other.setenv("LOGBOOM_PASSWORD", "battery staple")
        assert "principal\tbob" in call("whoami")
        assert [user["name"] for user in json.loads(call("user", "list", "--json"))] == ["bob"]
        assert "bob may not manage" in call("user", "remove", "alice", code=2)
        call("user", "set-password", "bob", typed="another staple\n")
        assert "the sign-in failed" in call("whoami", code=2)
    assert call("user", "remove", "bob") == "removed bob\n"
    assert "there is no user 'bob'" in call("user", "remove", "bob", code=2)


def test_a_token_is_printed_alone_and_reaches_no_further_than_it_says(
    call: Call, alice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("user", "add", "robot", "--no-password")
    call("acl", "allow", "robot", "read,write,create", "topic", "*")
    made = call("token", "create", "robot", "--lasts", "30d", "--note", "nightly", "--topic", "orders*")
    token = made.strip()
    assert made == f"{token}\n"
    assert token.startswith("lbt_")
    for name in ("LOGBOOM_USER", "LOGBOOM_PASSWORD"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("LOGBOOM_TOKEN", token)
    found = json.loads(call("whoami", "--json"))
    assert (found["principal"], found["by"]) == ("robot", "token")
    call("write", "orders", "hello")
    assert call("read", "orders") == "hello\n"
    refused = call("write", "others", "hello", code=2)
    assert "others" in refused
    monkeypatch.delenv("LOGBOOM_TOKEN")
    monkeypatch.setenv("LOGBOOM_USER", "alice")
    monkeypatch.setenv("LOGBOOM_PASSWORD", PASSWORD)
    listed = call("token", "list", "robot")
    assert token.split("_")[1] in listed
    assert token.split("_")[2] not in listed
    assert "orders*" in listed
    assert call("token", "revoke", token) == f"revoked {token.split('_')[1]}\n", "the whole token names it too"
    assert "there is no token" in call("token", "revoke", "0f3a5b7c9d1e", code=2)
    monkeypatch.delenv("LOGBOOM_USER")
    monkeypatch.delenv("LOGBOOM_PASSWORD")
    monkeypatch.setenv("LOGBOOM_TOKEN", token)
    said = call("whoami", code=2)
    assert "the sign-in failed" in said
    assert token not in said


@pytest.mark.parametrize("lasts", ["soon", "30", "0d", "-1d"])
def test_how_long_a_token_lasts_is_a_duration(call: Call, lasts: str) -> None:
    assert "is no duration" in call("token", "create", "robot", f"--lasts={lasts}", code=2)


def test_rules_are_added_explained_and_removed(call: Call, alice: str) -> None:
    call("user", "add", "dave", "--group", "ops", "--no-password")
    assert call("acl", "explain", "dave", "write", "topic", "a", code=1) == (
        "dave may not write topic a: no rule speaks of it\n"
    )
    number = json.loads(call("acl", "allow", "group:ops", "read, write", "topic", "a*", "--json"))["number"]
    assert call("acl", "explain", "dave", "write", "topic", "ab") == (
        f"dave may write topic ab: rule {number}: allow group:ops read,write topic a*\n"
    )
    denied = json.loads(call("acl", "deny", "dave", "write", "topic", "ab", "--json"))["number"]
    assert f"rule {denied}: deny dave" in call("acl", "explain", "dave", "write", "topic", "ab", code=1)
    call("acl", "allow", "dave", "describe", "node")
    assert [line.split("\t")[1:] for line in call("acl", "list").splitlines() if "dave" in line] == [
        ["deny", "dave", "write", "topic", "ab"],
        ["allow", "dave", "describe", "node", "*"],
    ]
    assert call("acl", "remove", str(number), str(denied)) == f"removed rule {number}\nremoved rule {denied}\n"
    assert call("acl", "explain", "dave", "read", "topic", "ab", code=1)
    assert "there is no rule" in call("acl", "remove", "999", code=2)


def test_rules_for_channels_and_tags_are_made_and_explained(call: Call, alice: str) -> None:
    call("user", "add", "frank", "--no-password")
    for words in (("allow", "topic", "orders"), ("allow", "channel", "in/%u/#"), ("deny", "tag", "secret")):
        effect, kind, name = words
        assert f"{effect} frank read {kind} {name}" in call("acl", effect, "frank", "read", kind, name)
    asked = "acl", "explain", "frank", "read"
    assert "; which records, rules " in call(*asked, "topic", "orders")
    told = call(*asked, "topic", "orders", "--channel", "in/frank/x", "--tag", "red")
    assert told.startswith("frank may read topic orders with channel in/frank/x with tag red: rule ")
    assert "allow frank read channel in/%u/#" in told
    assert "and not channel in/bob" in call(*asked, "topic", "orders", "--channel", "in/bob", code=1)
    denied = call(*asked, "topic", "orders", "--channel", "in/frank", "--tag", "red", "--tag", "secret", code=1)
    assert "deny frank read tag secret" in denied
    assert "may not read tag secret" in call(*asked, "tag", "secret", code=1)
    assert "# stands alone" in call("acl", "allow", "frank", "read", "channel", "a/#/b", code=2)
    assert "about read and write" in call("acl", "allow", "frank", "manage", "tag", "a", code=2)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("dave", "read", "topic"), "say which topic"),
        (("dave", "fly", "topic", "*"), "'fly' is no right"),
        (("dave", "read", "moon", "*"), "Choose from"),
        (("_operator", "read", "topic", "*"), "no name of a user"),
    ],
)
def test_a_rule_that_means_nothing_is_refused_before_anybody_is_asked(
    call: Call, words: tuple[str, ...], complaint: str
) -> None:
    assert complaint in call("acl", "allow", *words, "--server", "localhost:1", code=2)


def test_a_role_is_set_and_counts(call: Call, alice: str) -> None:
    call("user", "add", "erin", "--no-password", "--group", "revision")
    assert call("role", "set", "auditor", "group:revision") == "auditor: group:revision\n"
    call("acl", "allow", "role:auditor", "read", "topic", "*")
    assert "role:auditor" in call("acl", "explain", "erin", "read", "topic", "x")
    assert "auditor\tgroup:revision" in call("role", "list")
    assert call("role", "set", "auditor") == "auditor: nobody\n"
    assert call("acl", "explain", "erin", "read", "topic", "x", code=1)


def test_a_profile_says_where_the_node_is_and_who_calls(
    node: NodeProcess, call: Call, alice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(f'[prod]\nservers = "{node.address}"\nuser = "alice"\npassword = "{PASSWORD}"\n')
    file.chmod(0o600)
    for name in ("LOGBOOM_USER", "LOGBOOM_PASSWORD", "LOGBOOM_SERVERS"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("LOGBOOM_PROFILES", str(file))
    for said in (("--profile", "prod"), ("--server", "@prod"), ("-s", "@prod")):
        assert "principal\talice" in call("whoami", *said)
    monkeypatch.setenv("LOGBOOM_PROFILE", "prod")
    call("topic", "create", "profiled")
    call("write", "profiled", "a", "b")
    assert call("read", "profiled") == "a\nb\n"
    assert "profiled\t0" in call("sql", "select topic, seqno from profiled")
    assert call("head", "profiled")
    assert call("cursor", "list") == "cursor\tlog\tseqno\tlag\tupdated\n"
    assert call("stage", "list")
    assert call("ping", "--count", "1")
    assert json.loads(call("stats", "--json"))["access"]["anonymous"] == "none"
    assert json.loads(call("top", "--json"))
    assert json.loads(call("bench", "produce", "--topic", "profiled", "--count", "100", "--writers", "2", "--json"))
    assert call("bench", "consume", "--topic", "profiled", "--count", "50")
    assert call("pipeline", "list").startswith("job\t")
    call("refuse", "profiled")
    call("accept", "profiled")
    call("doctor", "--quick", "--json")
    file.chmod(0o644)
    assert f"chmod 600 {file}" in call("whoami", code=2)


def test_the_directory_of_a_stopped_node_is_changed_itself(tmp_path: Path, call: Call) -> None:
    data = str(tmp_path / "data")
    assert "is no data directory" in call("user", "list", "--data", data, code=2)
    assert not os.path.exists(data)
    assert call("user", "add", "alice", "--role", "admin", "--data", data, typed=f"{PASSWORD}\n") == "added alice\n"
    assert call("acl", "allow", "*", "read", "topic", "*", "--data", data) == "rule 1: allow * read topic *\n"
    assert "name a directory or a node" in call("user", "list", "--data", data, "--server", "x", code=2)
    token = call("token", "create", "alice", "--data", data).strip()
    assert token.split("_")[1] in call("token", "list", "--data", data)
    assert call("doctor", data)
    with NodeProcess(tmp_path, "--set", "access.anonymous=none") as node:
        found = json.loads(on_terminal("whoami", "--json", LOGBOOM_TOKEN=token, LOGBOOM_SERVERS=node.address).text)
        assert found["principal"] == "alice"
        assert call("user", "list", "--data", data).splitlines()[1].startswith("alice\t")
        trail = [
            json.loads(line) for line in call("read", "_audit", "--server", f"unix:{data}/logboom.sock").splitlines()
        ]
        assert [(record["who"], record["by"], record["act"]) for record in trail] == [
            ("_operator", "system", "add user"),
            ("_operator", "system", "add rule"),
            ("_operator", "system", "create token"),
        ]
        node.kill()
        assert (tmp_path / "data/logboom.sock").exists(), "a killed node leaves it behind"
        assert call("user", "list", "--data", data).splitlines()[1].startswith("alice\t")
        node.start()
        assert call("user", "list", "--data", data).splitlines()[1].startswith("alice\t")
        assert node.stop() == 0
        assert not (tmp_path / "data/logboom.sock").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_root_leaves_no_files_of_its_own_in_the_directory_of_another_user(tmp_path: Path, call: Call) -> None:
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, 65_534, -1)
    said = call("user", "add", "a", "--no-password", "--data", str(data), code=2)
    assert "run this as" in said
    assert os.listdir(data) == []


def test_what_the_commands_write_is_closed_to_others(tmp_path: Path, call: Call) -> None:
    call("user", "add", "a", "--no-password", "--data", str(tmp_path / "data"))
    modes = {path: path.stat().st_mode & 0o077 for path in (tmp_path / "data").rglob("*")}
    assert {path: mode for path, mode in modes.items() if mode} == {}


def test_a_directory_that_is_no_nodes_is_left_alone(tmp_path: Path, call: Call) -> None:
    (tmp_path / "letters.txt").write_text("dear reader")
    assert "no data directory" in call("user", "add", "a", "--no-password", "--data", str(tmp_path), code=2)
    assert os.listdir(tmp_path) == ["letters.txt"]


def test_an_open_node_has_no_socket_and_says_so_to_whoever_names_its_directory(tmp_path: Path, call: Call) -> None:
    with NodeProcess(tmp_path) as node:
        assert not (node.directory / "logboom.sock").exists()
        said = call("user", "list", "--data", str(node.directory), code=2)
        assert "has no Unix socket there: name its socket or its address with --server" in said
        assert call("user", "add", "a", "--no-password", "--server", node.address) == "added a\n"


def test_whoever_runs_the_node_may_do_everything_over_its_socket(node: NodeProcess, call: Call) -> None:
    found = json.loads(call("whoami", "--json", "--server", f"unix:{node.directory}/logboom.sock"))
    assert (found["principal"], found["by"]) == ("_operator", "system")


def test_quotas_are_set_shown_and_removed(call: Call, alice: str) -> None:
    said = call("quota", "set", "bob", "--bytes-in", "10MB/s", "--requests", "100/s", "--connections", "5")
    assert said == "bob: bytes_in 10MB/s, requests 100/s, connections 5\n"
    assert call("quota", "set", "*", "--bytes-out", "64MiB").startswith("*: bytes_out 64MiB/s")
    assert call("quota", "set", "replica", "--unlimited") == "replica: unlimited\n"
    listed = call("quota", "list").splitlines()
    assert listed[0].split("\t") == ["who", "limit", "allowed", "used", "waits", "waited"]
    assert listed[1].split("\t") == ["*", "bytes_out", "64MiB/s", "-", "0.0s", "0.0s"]
    assert listed[4].split("\t") == ["bob", "connections", "5", "0", "", ""]
    assert listed[5].split("\t")[:3] == ["replica", "unlimited", "-"]
    shown = json.loads(call("quota", "show", "bob", "--json"))
    assert [(usage["who"], usage["quota"]["requests"]) for usage in shown] == [("bob", 100)]
    own = json.loads(call("whoami", "--json"))["quotas"]
    assert [(usage["who"], usage["owner"]) for usage in own] == [("*", "alice")]
    assert "quota of *\tbytes_out 0 of 67,108,864" in call("whoami")
    for who in ("bob", "*", "replica"):
        assert call("quota", "remove", who) == f"removed the quota of {who}\n"
    assert call("quota", "list").splitlines()[1:] == []


def test_a_quota_that_means_nothing_is_refused_with_what_to_do(call: Call, alice: str) -> None:
    assert "--requests 100/s" in call("quota", "set", "bob", code=2)
    assert "--unlimited and no other" in call("quota", "set", "bob", "--topics", "1", "--unlimited", code=2)
    assert "10MB/s" in call("quota", "set", "bob", "--bytes-in", "fast", code=2)
    assert "allowed are 1 to" in call("quota", "set", "bob", "--requests", "0", code=2)
    assert "a role has none" in call("quota", "set", "role:admin", "--requests", "1", code=2)
    assert "there is no quota for 'nobody'" in call("quota", "show", "nobody", code=2)
