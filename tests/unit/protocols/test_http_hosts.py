"""Under which names the node answers: a page whose name was made to lead here must read nothing."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from logboom.errors import ConfigError
from logboom.protocols.endpoint import Endpoint
from logboom.protocols.http.api.operations import ALL
from logboom.protocols.http.hosts import Hosts, check_allowed, names_of
from logboom.protocols.http.settings import HttpSettings
from support.nodes.web import WebNode, tell

OURS = ["127.0.0.1", "10.1.2.3:80", "[::1]", "[::1]:1775", "[fe80::1%25eth0]:1775", "[::ffff:127.0.0.1]"]
OURS += ["localhost", "localhost:1775", "LOCALHOST:8080", "localhost.", "localhost.:1775"]
LISTED = ["node1", "NODE1:9", "logs.example.org", "logs.example.org.:1775", "a.svc.example", "b.a.svc.example:80"]
FOREIGN = ["evil.example", "evil.example:1775", "logboom", "logboom:1775", "node1.evil.example", "svc.example"]
FOREIGN += ["evilsvc.example", "xlogs.example.org", "127.0.0.1.evil.example", "evil.localhost", "0x7f.1"]
FOREIGN += ["localhost.evil.example", "localhost.."]
MALFORMED = ["", " ", ":1775", "a b", "user@localhost", "localhost/x", "localhost:x", "[::1", "[evil.example]", "::1"]
MALFORMED += ["localhost:1775:1775", "localhost,evil.example", "localhost:123456", "[::1]x", "é.example"]


@pytest.mark.parametrize("host", [*OURS, *LISTED, *FOREIGN])
def test_addresses_localhost_and_listed_names_are_the_nodes_and_no_others(host: str) -> None:
    hosts = Hosts(names=("node1",), allowed=("Logs.Example.org", "*.svc.example"))
    assert hosts.knows(host) is (host not in FOREIGN)


@pytest.mark.parametrize("host", FOREIGN)
def test_a_star_allows_every_name(host: str) -> None:
    assert Hosts((), ("*",)).knows(host)


@pytest.mark.parametrize("host", MALFORMED)
def test_what_is_no_host_is_a_bad_request(tmp_path: Path, host: str) -> None:
    async def story(node: WebNode) -> None:
        line = f"GET /topics HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode("latin-1")
        found = await node.talk(line)
        assert found.startswith(b"HTTP/1.1 400 ")
        assert b'"bad-host"' in found or b'"bad-http"' in found

    tell(tmp_path, story, settings=HttpSettings(allowed_hosts=("*",)))


@pytest.mark.parametrize("wrong", ["http://a.example", "a.example:1775", "a b", "", "*.", "a.*", "é.example"])
def test_what_can_be_no_name_is_not_allowed_in_the_list(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"http\.allowed_hosts: .*name"):
        check_allowed((wrong,))
    check_allowed(("a.example", "node1", "*.svc.example", "*", "10.0.0.1", "::1", "[::1]"))


def test_every_operation_and_every_other_path_refuses_a_foreign_name(tmp_path: Path) -> None:
    """As a browser asks after the name was made to lead here: without Origin, without Sec-Fetch-Site."""

    async def story(node: WebNode) -> None:
        headers = {"host": "evil.example:1775"}
        await node.client.post("/topics/a/records", json=1)
        asked: list[tuple[str, str]] = [(operation.method, operation.path.replace("{topic}", "a")) for operation in ALL]
        asked += [("OPTIONS", "/topics"), ("HEAD", "/topics"), ("GET", "/nothing"), ("PUT", "/topics")]
        for method, path in asked:
            answer = await node.client.request(method, path, headers=headers, content=b"1")
            assert answer.status_code == 421, (method, path)
            if method != "HEAD":
                problem = answer.json()
                assert problem["code"] == "host-not-allowed"
                assert problem["fix"] == "add evil.example to http.allowed_hosts, or use the node's address"
        assert (await node.client.get("/topics/a/records")).json()["committed"] == 1

    assert tell(tmp_path, story) == []


def test_a_name_of_the_list_is_answered_and_a_dotless_one_is_none_by_itself(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        for host, status in (("node.example:9", 200), ("logboom:1775", 421), ("localhost", 200)):
            assert (await node.client.get("/topics", headers={"host": host})).status_code == status
            answer = await node.client.post("/topics/a/records", json=1, headers={"host": host})
            assert answer.status_code == status

    tell(tmp_path, story, settings=HttpSettings(allowed_hosts=("node.example",)))


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /topics HTTP/1.1", 400),
        (b"POST /topics/a/records HTTP/1.1\r\ncontent-length: 1", 400),
        (b"GET /topics HTTP/1.1\r\nhost: localhost\r\nhost: localhost", 400),
        (b"GET /topics HTTP/1.1\r\nhost: localhost\r\nhost: evil.example", 400),
        (b"POST /topics/a/records HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\ncontent-length: 1", 400),
        (b"GET /topics HTTP/1.0", 200),
        (b"GET /topics HTTP/1.0\r\nhost: evil.example", 421),
        (b"GET /topics HTTP/1.0\r\nhost: localhost\r\nhost: localhost", 400),
        (b"GET http://localhost:1775/topics HTTP/1.1\r\nhost: localhost", 200),
        (b"GET http://evil.example/topics HTTP/1.1\r\nhost: localhost", 421),
        (b"GET http://localhost/topics HTTP/1.1\r\nhost: evil.example", 200),
        (b"GET http://[::1]:1775/topics HTTP/1.1\r\nhost: localhost", 200),
        (b"GET http://evil.example/topics HTTP/1.0", 421),
        (b"GET http://localhost/topics HTTP/1.1", 400),
        (b"OPTIONS * HTTP/1.1\r\nhost: evil.example", 421),
    ],
)
def test_there_is_one_host_or_in_an_old_request_none(tmp_path: Path, head: bytes, status: int) -> None:
    async def story(node: WebNode) -> None:
        found = await node.talk(head + b"\r\nconnection: close\r\n\r\n" + (b"1" if b"POST" in head else b""))
        assert found.startswith(b"HTTP/1.1 %d " % status)

    assert tell(tmp_path, story) == []


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_what_another_site_sends_without_an_origin_changes_nothing(tmp_path: Path, method: str) -> None:
    async def story(node: WebNode) -> None:
        path = "/topics/a/records" if method == "POST" else "/topics/a/cursors/c" if method == "PUT" else "/topics/a"
        for site in ("cross-site", "same-site", "Cross-Site"):
            answer = await node.client.request(method, path, content=b"1", headers={"sec-fetch-site": site})
            assert (answer.status_code, answer.json()["code"]) == (403, "origin-not-allowed")
        assert (await node.client.get("/topics")).json()["topics"] == []
        for site in ("same-origin", "none"):
            answer = await node.client.post("/topics/a/records", content=b"1", headers={"sec-fetch-site": site})
            assert answer.status_code == 200
        assert (await node.client.get("/topics", headers={"sec-fetch-site": "cross-site"})).status_code == 200

    tell(tmp_path, story)


def test_two_origins_are_refused(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        own = f"http://127.0.0.1:{node.port}"
        for first, second in ((own, own), (own, "http://evil.example"), ("http://good.example", own)):
            for method, path in (("POST", "/topics/a/records"), ("GET", "/topics"), ("OPTIONS", "/topics")):
                headers = [("origin", first), ("origin", second)]
                answer = await node.client.request(method, path, content=b"1", headers=headers)
                assert (answer.status_code, answer.json()["code"]) == (400, "bad-origin")
                assert "access-control-allow-origin" not in answer.headers

    tell(tmp_path, story, settings=HttpSettings(cors_origins=("http://good.example",)))


def test_every_answer_forbids_a_browser_to_guess_what_it_is(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.client.post("/topics/a/records", json=1)
        tag = (await node.client.get("/")).headers["etag"]
        for method, path, headers in (
            ("GET", "/topics", {}),
            ("HEAD", "/topics", {}),
            ("OPTIONS", "/topics", {}),
            ("GET", "/nothing", {}),
            ("PUT", "/topics", {}),
            ("GET", "/", {}),
            ("GET", "/", {"if-none-match": tag}),
            ("GET", "/console/main.js", {}),
            ("GET", "/docs", {}),
            ("GET", "/metrics", {}),
            ("GET", "/topics/a/records/0/value", {}),
            ("POST", "/topics/a/records", {}),
            ("GET", "/topics", {"host": "evil.example"}),
        ):
            answer = await node.client.request(method, path, headers=headers, content=b"1" if method == "POST" else b"")
            assert answer.headers.get_list("x-content-type-options") == ["nosniff"], (method, path)
        async with node.client.stream("GET", "/topics/a/tail?from=0") as answer:
            assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
        for sent in (b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000, b"GET / HTTP/1.1\r\n\r\n"):
            peer = await node.connect()
            await peer.send(sent)
            assert b"x-content-type-options: nosniff\r\n" in (await peer.reader.readuntil(b"\r\n\r\n")).lower()
        assert b"x-content-type-options: nosniff\r\n" in node.front_end.refusal

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("addresses", "names"),
    [
        (["127.0.0.1:0", "[::1]:0"], {"127.0.0.1", "::1"}),
        (["localhost"], {"localhost"}),
        (["*:0"], {socket.gethostname()}),
        (["0.0.0.0", "node1.example.org"], {"0.0.0.0", "node1.example.org", socket.gethostname()}),
        ([], set()),
    ],
)
def test_a_nodes_names_are_those_it_listens_on_and_the_machines_where_others_reach_it(
    addresses: list[str], names: set[str]
) -> None:
    assert set(names_of([Endpoint.parse(address) for address in addresses])) == names
