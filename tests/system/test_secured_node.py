"""A real node with TLS and users, real commands and clients against it: what certificates open, and what not."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom import Reader, Writer, connect
from logboom.access.rule import Rule
from logboom.cli import run
from logboom.client.link.profile import Profile
from logboom.errors import ConnectionLost, LogboomError, NotAllowed, SignInFailed, SignInRequired
from support.expired_certificate import make_expired
from support.howto_page import HOWTO, Block, blocks
from support.nodes.process import NodeProcess, free_port
from support.waiting import wait_until

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of one CA: a server, alice, and bob who is another by his URI; of another one: mallory, as alice."""
    path = tmp_path_factory.mktemp("certs")
    for command in (
        ("ca",),
        ("server", "--host", "127.0.0.1", "--host", "localhost"),
        ("client", "alice"),
        ("client", "bob", "--uri", "spiffe://example.org/importer"),
    ):
        assert run(["cert", *command, "--directory", str(path)]) == 0
    for command in (("ca",), ("client", "alice")):
        assert run(["cert", *command, "--directory", str(path / "other")]) == 0
    make_expired(path, "late")
    return path


def secured(root: Path, certs: Path, *settings: str) -> NodeProcess:
    options = [f"tls.certificate={certs}/server.pem", f"tls.key={certs}/server.key", "access.anonymous=none", *settings]
    node = NodeProcess(root, *(part for each in options for part in ("--set", each)))
    node.address = f"tls://127.0.0.1:{free_port()}"
    return node


def client(node: NodeProcess, certs: Path, name: str = "", **identity: str) -> Profile:
    shown = {"certificate": f"{certs}/{name}.pem", "key": f"{certs}/{name}.key"} if name else {}
    return Profile(node.address, ca=f"{certs}/ca.pem", **shown, **identity)


def who(profile: Profile) -> tuple[str, str]:
    async def ask() -> tuple[str, str]:
        async with connect(profile, retry=False) as broker:
            found = await broker.whoami()
            return found.principal, found.by

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def optional(tmp_path_factory: pytest.TempPathFactory, certs: Path) -> Iterator[NodeProcess]:
    """A certificate may be shown; alice has a password too, and may do everything."""
    settings = f"tls.client_ca={certs}/ca.pem", "tls.client_certificates=optional"
    with secured(tmp_path_factory.mktemp("node"), certs, *settings) as node:
        command = [sys.executable, "-m", "logboom", "user", "add", "alice", "--role", "admin", "--data", node.directory]
        subprocess.run([str(part) for part in command], input=f"{PASSWORD}\n", text=True, check=True)
        yield node


def test_a_certificate_says_who_its_owner_is(optional: NodeProcess, certs: Path) -> None:
    assert who(client(optional, certs, "alice")) == ("alice", "certificate")
    with pytest.raises(SignInRequired):
        who(client(optional, certs))
    assert who(client(optional, certs, user="alice", password=PASSWORD)) == ("alice", "password")
    with pytest.raises(SignInFailed):
        who(client(optional, certs, "bob", user="alice", password="something else"))


def test_a_password_goes_before_the_certificate_that_was_shown(optional: NodeProcess, certs: Path) -> None:
    assert who(client(optional, certs, "bob", user="alice", password=PASSWORD)) == ("alice", "password")


@pytest.mark.parametrize("name", ["other/alice", "late", "server"])
def test_a_certificate_of_another_ca_an_old_one_and_a_servers_open_nothing(
    optional: NodeProcess, certs: Path, name: str
) -> None:
    with pytest.raises(ConnectionLost, match="it may not trust the certificate in"):
        who(client(optional, certs, name))


def test_a_node_that_is_not_ours_is_not_told_anything(optional: NodeProcess, certs: Path) -> None:
    with pytest.raises(ConnectionLost, match="name the file of its CA with LOGBOOM_CA"):
        who(Profile(optional.address, ca=f"{certs}/other/ca.pem", user="alice", password=PASSWORD))
    with pytest.raises(ConnectionLost, match="not trusted by the system's authorities"):
        who(Profile(optional.address, user="alice", password=PASSWORD))
    with pytest.raises(ConnectionLost, match="is for another host"):
        who(Profile(optional.address, ca=f"{certs}/ca.pem", server_name="elsewhere"))


def test_whoever_speaks_plainly_to_tls_is_told_what_to_write(optional: NodeProcess) -> None:
    plain = optional.address.removeprefix("tls://")
    advice = f"if this port speaks TLS, write tls://{plain}"
    with pytest.raises(LogboomError, match=advice):
        Reader("t", plain, connect_timeout_s=0)
    with pytest.raises(LogboomError, match=advice):
        who(Profile(plain))
    with pytest.raises(LogboomError, match=advice), Writer("t", plain, connect_timeout_s=0.5) as writer:
        writer.send(b"x")


def test_rules_for_a_certificate_without_a_user_count_and_end_at_once(optional: NodeProcess, certs: Path) -> None:
    """Whoever is revoked by taking his rule away is refused on a connection that is open."""

    async def story() -> None:
        async with (
            connect(client(optional, certs, "alice")) as admin,
            connect(client(optional, certs, "bob")) as bob,
        ):
            with pytest.raises(NotAllowed):
                await bob.create_topic("bobs")
            rule = await admin.add_rule(Rule("allow", "bob", ("all",), "topic", "bob*"))
            await bob.create_topic("bobs")
            await admin.remove_rule(rule.number)
            with pytest.raises(LogboomError, match="bobs"):
                await bob.describe_topic("bobs")
            with pytest.raises(NotAllowed):
                await bob.create_topic("bobs2")

    asyncio.run(story())


def test_records_are_written_and_read_with_a_certificate(optional: NodeProcess, certs: Path) -> None:
    profile = client(optional, certs, "alice")
    with Writer("records", profile) as writer:
        for number in range(1000):
            writer.send(b"%d" % number)
    with Reader("records", profile) as reader:
        assert [int(record.value or b"") for record in reader] == list(range(1000))


def test_the_commands_take_it_all_from_the_environment(optional: NodeProcess, certs: Path) -> None:
    environment = os.environ | {
        "LOGBOOM_SERVERS": optional.address,
        "LOGBOOM_CA": f"{certs}/ca.pem",
        "LOGBOOM_CERTIFICATE": f"{certs}/alice.pem",
        "LOGBOOM_KEY": f"{certs}/alice.key",
    }
    for words, expected in (
        (("topic", "create", "commands"), "created commands"),
        (("write", "commands", "hello"), "wrote 1 record"),
        (("read", "commands"), "hello"),
        (("whoami",), "by\tcertificate"),
        (("doctor", "--quick"), "nothing is wrong"),
    ):
        command = [sys.executable, "-m", "logboom", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout


def test_where_a_certificate_is_required_nobody_gets_in_without(tmp_path: Path, certs: Path) -> None:
    settings = f"tls.client_ca={certs}/ca.pem", "tls.client_certificates=required", "tls.principal_from=uri"
    with secured(tmp_path, certs, *settings) as node:
        with pytest.raises(ConnectionLost, match="it may want a certificate"):
            who(client(node, certs))
        assert who(client(node, certs, "bob")) == ("spiffe://example.org/importer", "certificate")
        assert who(client(node, certs, "alice")) == ("logboom:alice", "certificate")
        with pytest.raises(ConnectionLost):
            who(client(node, certs, "late"))


def test_where_none_is_asked_for_a_certificate_says_nothing(tmp_path: Path, certs: Path) -> None:
    with secured(tmp_path, certs) as node, pytest.raises(SignInRequired):
        who(client(node, certs, "alice"))


def test_openssl_shakes_hands_by_the_rules(optional: NodeProcess, certs: Path) -> None:
    place = optional.address.removeprefix("tls://")

    def shake(*options: str) -> str:
        command = ["openssl", "s_client", "-connect", place, "-CAfile", f"{certs}/ca.pem", *options]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
        )
        return done.stdout + done.stderr

    assert "Verification: OK" in shake("-verify_return_error")
    assert "TLSv1.2" in shake("-tls1_2")
    assert "Cipher is (NONE)" in shake("-tls1_1")


def test_a_certificate_about_to_expire_is_a_finding_and_a_new_one_is_taken_without_a_restart(
    tmp_path: Path, certs: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    for name in ("ca.pem", "ca.key"):
        (own / name).write_bytes((certs / name).read_bytes())
    made = ["cert", "server", "--host", "127.0.0.1", "--directory", str(own), "--force", "--days"]
    assert run([*made, "20"]) == 0
    with secured(tmp_path, own) as node:
        socket_place = f"unix:{node.directory}/logboom.sock"
        command = [sys.executable, "-m", "logboom", "doctor", "--quick", "--json", "--server", socket_place]
        first = subprocess.run(command, capture_output=True, text=True, check=False)
        assert first.returncode == 1
        findings = json.loads(first.stdout)["node"]["findings"]
        assert [(found["kind"], found["severity"]) for found in findings] == [("certificate", "warning")]
        wait_until(lambda: "the certificate expires in" in node.log.read_text())
        assert run([*made, "300"]) == 0

        def expires() -> int:
            async def ask() -> int:
                async with connect(socket_place) as broker:
                    found = (await broker.stats()).access
                    assert found is not None
                    return found.certificate_expires or 0

            return asyncio.run(ask())

        wait_until(lambda: expires() > (time.time() + 200 * 86_400) * 1e6)
        assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_an_insecure_node_says_so_on_its_screen_and_to_the_doctor(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path, "--insecure")
    port = free_port()
    node.address = f"0.0.0.0:{port}"
    with node:
        wait_until(lambda: "INSECURE: everybody who reaches it may do everything" in node.log.read_text())
        command = [sys.executable, "-m", "logboom", "doctor", "--quick", "--server", f"127.0.0.1:{port}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "it runs with --insecure" in done.stdout


def test_a_path_too_long_for_a_socket_is_told_and_stops_nothing(tmp_path: Path, certs: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    with secured(deep, certs) as node:
        assert "works only while the node is stopped" in node.log.read_text()
        assert not (node.directory / "logboom.sock").exists()
        host, _, port = node.address.removeprefix("tls://").rpartition(":")
        socket.create_connection((host, int(port)), 60).close()


def page(name: str, others: dict[str, str]) -> Iterator[Block]:
    text = (HOWTO / name).read_text()
    for word, other in others.items():
        text = text.replace(word, other)
    return blocks(text)


def test_the_page_about_securing_a_node_runs_as_it_stands(tmp_path: Path) -> None:
    """And those about rules and quotas behind it, on the same node. Ports, the host and what is typed are others."""
    others = {"logs.example.org:": "localhost:", **{f":{port}": f":{free_port()}" for port in (1773, 1775)}}
    program = tmp_path / "bin/logboom"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m logboom "$@"\n')
    program.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOGBOOM_", "XDG_"))}
    environment = kept | {"HOME": str(tmp_path), "PATH": f"{program.parent}:{os.environ['PATH']}"}
    serving: subprocess.Popen[str] | None = None
    try:
        for block in [block for name in ("secure.md", "access.md", "quotas.md") for block in page(name, others)]:
            if block.text.startswith("logboom whoami"):  # the second page: it says to name the profile once
                environment["LOGBOOM_PROFILE"] = "prod"
            if block.language == "shell" and block.text.startswith("logboom serve"):
                command = ["bash", "-c", f"exec {block.text.strip()} --json"]
                with open(tmp_path / "err", "w") as err:
                    serving = subprocess.Popen(
                        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=err, text=True
                    )
                assert serving.stdout is not None
                assert serving.stdout.readline(), (tmp_path / "err").read_text()
            elif block.language in ("shell", "python"):
                command = ["bash", "-e", "-o", "pipefail", "-c", block.text]
                if block.language == "python":
                    command = [sys.executable, "-c", block.text]
                done = subprocess.run(
                    command,
                    cwd=tmp_path,
                    env=environment,
                    input="correct horse battery staple\n" * 2,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=300,
                )
                assert done.returncode == 0, (block, done.stdout, done.stderr)
    finally:
        if serving is not None:
            serving.kill()
            serving.wait()
            assert serving.stdout is not None
            serving.stdout.close()
