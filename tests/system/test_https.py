"""HTTP over TLS, and signing in there, with the clients that people have: curl, openssl, and a socket."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from logboom import connect
from logboom.access.credential import Credential
from logboom.access.rule import Rule
from support.nodes.process import NodeProcess, free_port
from support.packages import need

PASSWORD = "correct horse: battery"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class SecureNode(NamedTuple):
    process: NodeProcess
    root: Path
    url: str

    def curl(self, path: str, *options: str, url: str = "") -> Answer:
        """What curl gets; it trusts the node's certificate and no other."""
        need("curl", "curl")
        command = ["curl", "-s", "-i", "--max-time", "300", "--cacert", str(self.root / "node.pem"), *options]
        done = subprocess.run([*command, (url or self.url) + path], capture_output=True, text=True, check=True)
        head, _, body = done.stdout.replace("\r\n", "\n").partition("\n\n")
        first, *lines = head.split("\n")
        return Answer(
            int(first.split()[1]), {n.lower(): v for n, _, v in (each.partition(": ") for each in lines)}, body
        )


def own_address() -> str:
    """Of this machine, as others have it; empty where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # sends nothing
        found: str = probe.getsockname()[0]
        return "" if found.startswith("127.") else found
    return ""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    root, port = tmp_path_factory.mktemp("secure"), free_port()
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    command += [
        "-subj",
        "/CN=node",
        "-addext",
        names,
        "-keyout",
        str(root / "node.key"),
        "-out",
        str(root / "node.pem"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    options = ["--http", f"https://127.0.0.1:{port}", "--unix", str(root / "node.sock")]
    options += ["--set", f"tls.certificate={root / 'node.pem'}", "--set", f"tls.key={root / 'node.key'}"]
    with NodeProcess(root, *options, "--set", "access.anonymous=none") as process:
        asyncio.run(introduce(f"unix:{root / 'node.sock'}"))
        yield SecureNode(process, root, f"https://127.0.0.1:{port}")


async def introduce(address: str) -> None:
    async with connect(address) as broker:
        await broker.add_user("alice", [Credential.derive(PASSWORD, b"salt" * 4)])
        await broker.add_rule(Rule("allow", "alice", ("read", "write", "create"), "topic", "orders*"))
        await broker.add_user("root", [Credential.derive(PASSWORD, b"salt" * 4)], roles=["admin"])


def test_the_node_says_where_it_has_tls(node: SecureNode) -> None:
    ready = json.loads((node.root / "ready.json").read_text())
    assert ready["tls"] == ready["http"] == [node.url.removeprefix("https://")]
    assert f"{node.url}/" in node.process.log.read_text()
    assert "http://" not in node.process.log.read_text()


def test_curl_signs_in_over_tls_and_is_told_to_stay_there(node: SecureNode) -> None:
    stranger = node.curl("/topics")
    assert stranger.status == 401
    assert stranger.headers["strict-transport-security"] == "max-age=31536000"
    record = ("-X", "POST", "-H", "Content-Type: application/json", "-d", '{"value": 1}')
    assert node.curl("/topics/orders/records", "-u", f"alice:{PASSWORD}", *record).status == 200
    assert node.curl("/topics/orders/records", "-u", f"alice:{PASSWORD}").json["records"][0]["value"] == 1
    assert node.curl("/topics/orders/records", "-u", f"alice:{PASSWORD}!").status == 401
    assert node.curl("/stats", "-u", f"alice:{PASSWORD}").status == 403
    assert node.curl("/stats", "-u", f"root:{PASSWORD}").status == 200
    assert node.curl("/access/whoami", "-u", f"alice:{PASSWORD}").json["caller"]["principal"] == "alice"


def test_a_name_that_other_programs_have_too_is_not_kept_for_tls(node: SecureNode) -> None:
    answer = node.curl("/healthz", url=node.url.replace("127.0.0.1", "localhost"))
    assert answer.status == 200
    assert "strict-transport-security" not in answer.headers


def test_a_session_over_tls_is_a_secure_cookie(node: SecureNode, tmp_path: Path) -> None:
    jar, own = str(tmp_path / "jar"), ("-H", f"Origin: {node.url}")
    form = json.dumps({"user": "alice", "password": PASSWORD})
    begun = node.curl("/access/session", "-c", jar, *own, "-d", form)
    assert begun.status == 200
    cookie = begun.headers["set-cookie"]
    assert cookie.startswith("__Host-logboom-")
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict; Secure")
    assert node.curl("/topics", "-b", jar).status == 200
    assert node.curl("/topics/orders/records", "-b", jar, *own, "-d", "1").status == 200
    for origin in (node.url.replace("https", "http"), "https://evil.example", "null"):
        forged = node.curl("/topics/orders/records", "-b", jar, "-H", f"Origin: {origin}", "-d", "1")
        assert (forged.status, forged.json["code"]) == (403, "origin-not-allowed")
    assert node.curl("/access/session", "-b", jar, *own, "-X", "DELETE").status == 204
    assert node.curl("/topics", "-b", jar).status == 401


def test_what_speaks_no_tls_gets_nothing_and_hurts_nobody(node: SecureNode) -> None:
    host, _, port = node.url.removeprefix("https://").rpartition(":")
    for said in (b"GET /topics HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\xff\xff", bytes(100)):
        with closing(socket.create_connection((host, int(port)), timeout=300)) as raw:
            raw.sendall(said)
            raw.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                assert b"HTTP" not in raw.recv(4096)
    old = ["openssl", "s_client", "-connect", f"{host}:{port}", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]
    assert subprocess.run(old, capture_output=True, input=b"", check=False).returncode != 0
    assert node.curl("/healthz").status == 200


def test_what_is_no_http_within_tls_is_told_so(node: SecureNode) -> None:
    host, _, port = node.url.removeprefix("https://").rpartition(":")
    context = ssl.create_default_context(cafile=str(node.root / "node.pem"))
    for said in (b"\x00\x01\x02\r\n\r\n", b"NOT HTTP\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 50_000):
        raw = socket.create_connection((host, int(port)), timeout=300)
        with closing(context.wrap_socket(raw, server_hostname=host)) as secured:
            secured.sendall(said)
            assert secured.recv(4096).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
    assert node.curl("/healthz").status == 200


def test_a_password_without_tls_from_another_machine_is_refused(node: SecureNode, tmp_path: Path) -> None:
    address = own_address()
    if not address:
        pytest.skip("this machine has no address besides its own")
    port, unix = free_port(), tmp_path / "node.sock"
    options = ("--http", f"{address}:{port}", "--unix", str(unix), "--insecure", "--set", "access.anonymous=none")
    with NodeProcess(tmp_path, *options):
        asyncio.run(introduce(f"unix:{unix}"))
        url = f"http://{address}:{port}"
        for shown in (("-u", f"alice:{PASSWORD}"), ("-H", f"Authorization: Bearer lbt_{'0' * 12}_{'0' * 64}")):
            answer = node.curl("/topics", *shown, url=url)
            assert (answer.status, answer.json["code"]) == (403, "not-private")
        form = json.dumps({"user": "alice", "password": PASSWORD})
        answer = node.curl("/access/session", "-d", form, url=url)
        assert (answer.status, answer.json["code"]) == (403, "not-private")
        assert "set-cookie" not in answer.headers
