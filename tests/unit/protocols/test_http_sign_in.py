"""Who sends a request: what it shows is believed where it is right, and came where nobody else could read it."""

from __future__ import annotations

import asyncio
import base64
import logging
from pathlib import Path

import pytest

from logboom.access.credential import Credential
from logboom.batch import build
from logboom.broker.access import brake
from logboom.broker.access.brake import KEYS_MOST
from logboom.broker.api import Part
from logboom.broker.caller import ITSELF
from logboom.protocols.http import connection
from logboom.protocols.http.identity import sessions
from logboom.protocols.http.settings import HttpSettings
from support.nodes.guarded import OWN, PASSWORD, basic, closed, signed_in
from support.nodes.web import RawPeer, WebNode, plain_client


async def sign_in_once(node: WebNode) -> None:
    async with signed_in(node):
        pass


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/topics"),
        ("GET", "/topics/orders"),
        ("GET", "/topics/orders/records"),
        ("GET", "/topics/orders/tail"),
        ("GET", "/stats"),
        ("GET", "/config"),
        ("GET", "/metrics"),
        ("GET", "/checkup"),
        ("GET", "/incidents"),
        ("GET", "/activity"),
        ("GET", "/activity/topics"),
        ("GET", "/activity/topics/orders"),
        ("GET", "/pipeline"),
        ("GET", "/pipeline/report?job=report/all"),
        ("GET", "/stages"),
        ("GET", "/keys"),
        ("GET", "/cursors"),
        ("GET", "/access/users"),
        ("GET", "/access/tokens"),
        ("GET", "/access/rules"),
        ("GET", "/access/roles"),
        ("GET", "/access/explain?user=alice&right=read"),
        ("POST", "/topics/orders/records"),
        ("POST", "/changes"),
        ("DELETE", "/access/tokens/000000000000"),
        ("DELETE", "/topics/orders"),
        ("DELETE", "/access/users/alice"),
        ("DELETE", "/access/rules/1"),
    ],
)
def test_strangers_are_told_to_sign_in(tmp_path: Path, method: str, path: str) -> None:
    async def story(node: WebNode) -> None:
        answer = await node.client.request(method, path, json={"data": 1} if method == "POST" else None)
        assert answer.status_code == 401, answer.text
        assert answer.json()["code"] == "sign-in-required"
        assert answer.headers.get_list("www-authenticate") == [
            'Basic realm="logboom", charset="UTF-8"',
            'Bearer realm="logboom"',
        ]

    assert closed(tmp_path, story) == []


def test_health_is_told_to_everybody_and_the_reasons_are_not(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.broker.refuse(reason="moving to the new data centre", caller=ITSELF)
        assert (await node.client.get("/healthz")).status_code == 200
        ready = await node.client.get("/readyz")
        assert (ready.status_code, ready.json()) == (200, {"status": "ready", "reasons": [], "warnings": []})
        assert (await node.client.get("/readyz", headers=basic("root"))).json()["warnings"] != []
        assert (await node.client.get("/readyz", headers=basic("alice"))).json()["warnings"] == []
        assert node.broker.rejections["SignInRequired"] == 0
        for path in ("/", "/console/main.js", "/docs", "/openapi.json"):
            assert (await node.client.get(path)).status_code == 200, path

    assert closed(tmp_path, story) == []


def test_a_user_with_a_password_does_what_his_rules_allow_and_no_more(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        client, headers = node.client, basic()
        assert (await client.post("/topics/orders/records", json={"value": 1}, headers=headers)).status_code == 200
        assert (await client.get("/topics/orders/records", headers=headers)).status_code == 200
        assert [each["name"] for each in (await client.get("/topics", headers=headers)).json()["topics"]] == ["orders"]
        assert (await client.get("/topics/secret", headers=headers)).status_code == 404
        assert (await client.post("/topics/secret/records", json={"value": 1}, headers=headers)).status_code in (
            403,
            404,
        )
        refused = await client.get("/config", headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, "not-allowed")
        assert "www-authenticate" not in refused.headers
        assert (await client.get("/config", headers=basic("root"))).status_code == 200

    assert closed(tmp_path, story) == []


@pytest.mark.parametrize(
    "sent",
    [
        basic("alice", "wrong horse battery")["Authorization"],
        basic("nobody")["Authorization"],
        basic("")["Authorization"],
        basic("é" * 1400)["Authorization"],
        basic("_operator", "")["Authorization"],
        basic("_node", "x")["Authorization"],
        basic("anonymous", "x")["Authorization"],
        "Bearer lbt_000000000000_" + 64 * "0",
        "Bearer",
        "Bearer \xff",
        "Digest username=alice",
        "Negotiate",
    ],
)
def test_what_is_wrong_is_refused_in_the_same_words_also_on_a_plain_write(tmp_path: Path, sent: str) -> None:
    async def story(node: WebNode) -> None:
        headers = [(b"Authorization", sent.encode("latin-1"))]
        read = await node.client.get("/topics", headers=headers)
        written = await node.client.post("/topics/orders/records", json={"value": 1}, headers=headers)
        assert {read.status_code, written.status_code} == {401}
        assert read.json() == written.json()
        assert read.json()["code"] == "sign-in-failed"
        assert "www-authenticate" in written.headers

    assert closed(tmp_path, story) == []


@pytest.mark.parametrize(
    "sent",
    [
        "Basic",
        "Basic !!!!",
        "Basic YWxpY2U",
        f"Basic {base64.b64encode(b'no colon').decode()}",
        f"Basic {base64.b64encode(bytes([255, 254, 58, 255])).decode()}",
        f"Basic {base64.b64encode(b'alice:' + b'x' * 20000).decode()}",
        f"Bearer {'x' * 20000}",
    ],
)
def test_what_is_malformed_is_refused_before_anybody_looks_at_it(tmp_path: Path, sent: str) -> None:
    async def story(node: WebNode) -> None:
        for method, path in (("GET", "/topics"), ("POST", "/topics/orders/records")):
            answer = await node.client.request(
                method, path, json=1 if method == "POST" else None, headers={"Authorization": sent}
            )
            assert (answer.status_code, answer.json()["code"]) == (400, "bad-authorization"), answer.text
            assert "xxxx" not in answer.text

    assert closed(tmp_path, story) == []


@pytest.mark.parametrize("first", [basic()["Authorization"], "", basic("mallory", "x")["Authorization"]])
def test_two_authorization_headers_are_one_too_many(tmp_path: Path, first: str) -> None:
    async def story(node: WebNode) -> None:
        lines = f"Host: localhost\r\nAuthorization: {first}\r\nAuthorization: {basic()['Authorization']}\r\n"
        body = "Content-Type: application/json\r\nContent-Length: 1\r\n\r\n1"
        for head in ("GET /topics HTTP/1.1", "POST /topics/orders/records HTTP/1.1"):
            peer = await node.connect()
            await peer.send(f"{head}\r\n{lines}{body if head.startswith('POST') else chr(13) + chr(10)}".encode())
            status, _, said = await peer.answer()
            assert (status, b"two Authorization headers" in said) == (400, True), said

    assert closed(tmp_path, story) == []


def test_secrets_are_refused_where_others_could_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(node: WebNode) -> None:
        async with signed_in(node, "root") as admin:
            token = (await admin.post("/access/tokens", json={"user": "alice"})).json()["token"]
            cookie = dict(admin.cookies)
        monkeypatch.setattr(connection, "is_private", lambda transport: False)
        async with plain_client(str(node.client.base_url)) as stranger:
            for headers in (basic(), {"Authorization": f"Bearer {token}"}):
                for method, path in (("GET", "/topics"), ("POST", "/topics/orders/records")):
                    answer = await stranger.request(method, path, headers=headers, json=1 if method == "POST" else None)
                    assert (answer.status_code, answer.json()["code"]) == (403, "not-private")
            answer = await stranger.post("/access/session", json={"user": "alice", "password": PASSWORD})
            assert (answer.status_code, answer.json()["code"]) == (403, "not-private")
            assert "set-cookie" not in answer.headers
            stranger.cookies.update(cookie)
            assert (await stranger.get("/topics", headers=OWN)).status_code == 401

    assert closed(tmp_path, story) == []


def test_a_token_is_shown_once_narrows_what_its_user_may_and_ends_when_it_is_revoked(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        client = node.client
        wanted = {"user": "alice", "note": "import", "rights": ["write"], "topics": ["orders"]}
        made = await client.post("/access/tokens", json=wanted, headers=basic())
        assert made.status_code == 201
        token, info = made.json()["token"], made.json()["info"]
        bearer = {"Authorization": f"Bearer {token}"}
        assert (await client.post("/topics/orders/records", json=1, headers=bearer)).status_code == 200
        assert (await client.get("/topics/orders/records", headers=bearer)).status_code == 403
        assert (await client.post("/access/tokens", json={"user": "alice"}, headers=bearer)).status_code == 403
        listed = await client.get("/access/tokens", headers=basic())
        assert listed.json()["tokens"][0]["id"] == info["id"]
        assert token not in listed.text
        assert (await client.delete(f"/access/tokens/{info['id']}", headers=basic())).status_code == 204
        assert (await client.post("/topics/orders/records", json=1, headers=bearer)).status_code == 401

    assert closed(tmp_path, story) == []


def test_a_connection_belongs_to_nobody_in_particular(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        peer = await node.connect()

        async def status_of(headers: dict[str, str]) -> int:
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            await peer.send(f"GET /topics HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
            return (await peer.answer())[0]

        assert await status_of(basic()) == 200
        assert await status_of({}) == 401
        assert await status_of(basic("root")) == 200

    assert closed(tmp_path, story) == []


def test_a_session_is_a_cookie_that_scripts_and_other_sites_do_not_get(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        async with signed_in(node) as client:
            again = await client.post("/access/session", json={"user": "alice", "password": PASSWORD})
            _, _, attributes = again.headers["set-cookie"].partition("; ")
            assert attributes == "Path=/; HttpOnly; SameSite=Strict"
            assert (await client.get("/topics")).status_code == 200
            who = (await client.get("/access/whoami")).json()
            assert (who["caller"]["principal"], who["caller"]["by"], who["session"]) == ("alice", "password", True)
            assert (await client.delete("/access/session")).status_code == 204
            assert not client.cookies
            assert (await client.get("/topics")).status_code == 401
            assert node.front_end.sessions is not None
            assert len(node.front_end.sessions) == 0

    assert closed(tmp_path, story) == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"},
        {},
    ],
)
def test_a_page_of_another_site_changes_nothing_by_the_cookie_of_its_visitor(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    async def story(node: WebNode) -> None:
        async with signed_in(node, "root") as client:
            for name in OWN:
                del client.headers[name]
            for method, path in (("POST", "/topics/orders/records"), ("DELETE", "/topics/orders")):
                answer = await client.request(method, path, headers=headers, json=1 if method == "POST" else None)
                assert (answer.status_code, answer.json()["code"]) == (403, "origin-not-allowed")
            own = {"Origin": str(client.base_url).rstrip("/")}
            assert (await client.post("/topics/orders/records", json=1, headers=own)).status_code == 200
            for site in ("cross-site", "same-site"):
                assert (await client.get("/topics", headers={"Sec-Fetch-Site": site})).status_code == 401
            assert (await client.get("/topics", headers={"Sec-Fetch-Site": "none"})).status_code == 200

    assert closed(tmp_path, story) == []


def test_origins_that_may_call_do_not_share_sessions(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        async with signed_in(node, "root") as client:
            foreign = {"Origin": "https://other.example", "Sec-Fetch-Site": "cross-site"}
            assert (await client.post("/topics/orders/records", json=1, headers=foreign)).status_code == 403
            answer = await client.get("/topics", headers=foreign)
            assert answer.status_code == 401
            assert "access-control-allow-credentials" not in answer.headers

    assert closed(tmp_path, story, settings=HttpSettings(cors_origins=("https://other.example",))) == []


def test_sessions_are_told_apart_and_nothing_else_is_taken_for_one(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        async with signed_in(node) as alice, signed_in(node, "root") as root:
            ((name, of_alice),), ((_, of_root),) = alice.cookies.items(), root.cookies.items()
            assert of_alice != of_root
            made_up = (
                f"{name}={'0' * 64}",
                f"{name}=",
                f"{name}={of_root[:-1]}",
                f"{name}={of_root.upper()}",
                "x" * 20_000,
            )
            slipped_in = f"{name}={of_root}; {name}={of_alice}"
            for cookie in (*made_up, slipped_in):
                answer = await node.client.get("/access/whoami", headers={**OWN, "Cookie": cookie})
                assert answer.json()["caller"]["principal"] == "anonymous", cookie[:100]
            shown = {**OWN, "Cookie": f"a=b; {name}={of_alice}; c=d"}
            assert (await node.client.get("/access/whoami", headers=shown)).json()["caller"]["principal"] == "alice"

    assert closed(tmp_path, story) == []


@pytest.mark.parametrize("change", ["removed", "disabled", "password", "made anew"])
def test_a_session_ends_with_what_it_rests_on(tmp_path: Path, change: str) -> None:
    async def story(node: WebNode) -> None:
        async with signed_in(node) as client, signed_in(node, "root") as other:
            credentials = [Credential.derive("another password", b"tlas" * 4)]
            if change in ("removed", "made anew"):
                await node.broker.remove_user("alice", caller=ITSELF)
            if change == "made anew":
                same = [Credential.derive(PASSWORD, b"salt" * 4)]
                await node.broker.add_user("alice", same, caller=ITSELF)
            if change == "disabled":
                await node.broker.change_user("alice", enabled=False, caller=ITSELF)
                assert (await client.get("/topics")).status_code == 401
                await node.broker.change_user("alice", enabled=True, caller=ITSELF)
            if change == "password":
                await node.broker.change_user("alice", credentials, caller=ITSELF)
            assert (await client.get("/topics")).status_code == 401
            assert (await client.get("/access/whoami")).json()["caller"]["principal"] == "anonymous"
            assert (await other.get("/topics")).status_code == 200

    assert closed(tmp_path, story) == []


def test_whoever_follows_a_topic_hears_no_more_of_it_when_he_may_not(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        peer = await node.connect()
        shown = basic()["Authorization"]
        await peer.send(
            f"GET /topics/orders/tail HTTP/1.1\r\nHost: localhost\r\nAuthorization: {shown}\r\n\r\n".encode()
        )
        assert b"200 OK" in await peer.reader.readuntil(b"retry:")
        await node.broker.append([Part("orders", [build([b"before"])])], "durable", caller=ITSELF)
        await peer.reader.readuntil(b"before")
        await node.broker.remove_user("alice", caller=ITSELF)
        await node.broker.append([Part("orders", [build([b"after"])])], "durable", caller=ITSELF)
        said = await peer.reader.readuntil(b"\r\n0\r\n\r\n")
        assert b"event: error" in said
        assert b"after" not in said

    assert closed(tmp_path, story) == []


def test_a_session_of_a_token_ends_with_the_token(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        made = await node.broker.create_token("alice", caller=ITSELF)
        async with plain_client(str(node.client.base_url)) as client:
            client.headers.update(OWN)
            assert (await client.post("/access/session", json={"token": made.token})).status_code == 200
            assert (await client.get("/access/whoami")).json()["caller"]["by"] == "token"
            await node.broker.revoke_token(made.info.id, caller=ITSELF)
            assert (await client.get("/topics")).status_code == 401

    assert closed(tmp_path, story) == []


def test_sessions_are_bounded_and_grow_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(node: WebNode) -> None:
        held = node.front_end.sessions
        assert held is not None
        async with signed_in(node) as first, signed_in(node, "root") as root:
            for _ in range(sessions.OF_USER_MOST):
                await sign_in_once(node)
            assert len(held) == sessions.OF_USER_MOST + 1
            assert (await first.get("/topics")).status_code == 401
            assert (await root.get("/topics")).status_code == 200
            monkeypatch.setattr(sessions, "SESSIONS_MOST", 5)
            await sign_in_once(node)
            assert len(held) == 5
            monkeypatch.setattr(sessions, "IDLE_S", -1.0)
            assert (await root.get("/topics")).status_code == 401

    assert closed(tmp_path, story) == []


def test_browsers_are_not_asked_for_a_password_that_they_would_show_for_any_page(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        typed = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "none"}
        old = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
        for headers in (OWN, typed, old, {"Logboom-Page": "console"}, {"Accept": "text/event-stream"}):
            answer = await node.client.get("/topics/orders/tail", headers=headers)
            assert answer.headers.get_list("www-authenticate") == ['Bearer realm="logboom"'], headers

    assert closed(tmp_path, story) == []


def test_a_thousand_wrong_sign_ins_cost_little_and_the_right_one_still_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("FIRST_S", 0.001), ("LONGEST_S", 0.01), ("PATIENCE_S", 0.1)):
        monkeypatch.setattr(brake, name, seconds)

    async def story(node: WebNode) -> None:
        assert (await node.client.get("/topics", headers=basic())).status_code == 200
        peers: list[RawPeer] = [await node.connect() for _ in range(100)]

        async def guess(peer: RawPeer, turn: int) -> None:
            for number in range(10):
                sent = basic(f"user-{turn}", f"guess {number}")["Authorization"]
                await peer.send(f"GET /topics HTTP/1.1\r\nHost: localhost\r\nAuthorization: {sent}\r\n\r\n".encode())
                status, _, said = await peer.answer()
                assert status == 401, said

        async with asyncio.TaskGroup() as guessing:
            for turn, peer in enumerate(peers):
                guessing.create_task(guess(peer, turn))
            assert (
                await node.client.get("/topics", headers=basic())
            ).status_code == 200  # remembered: it need not wait
        slowed = vars(node.front_end.sign_in)["_brake"]
        assert len(vars(slowed)["_failures"]) <= min(KEYS_MOST, 101)

    assert closed(tmp_path, story) == []


def test_secrets_are_in_no_log_no_incident_and_no_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = "swordfish-swordfish"

    async def story(node: WebNode) -> None:
        with caplog.at_level(logging.DEBUG):
            said = [
                await node.client.get("/topics", headers=basic("alice", secret)),
                await node.client.post("/access/session", json={"user": "alice", "password": secret}),
                await node.client.post("/access/session", json={"user": "alice", "password": secret, "more": 1}),
                await node.client.post("/access/session", json={"user": 1, "password": secret}),
                await node.client.post(
                    "/access/users", json={"name": "bob", "password": secret}, headers=basic("root")
                ),
                await node.client.post(
                    "/access/users", json={"name": "bob", "password": secret}, headers=basic("root")
                ),
                await node.client.patch("/access/users/bob", json={"password": secret}, headers=basic("root")),
                await node.client.get("/incidents", headers=basic("root")),
            ]
        assert [answer.status_code for answer in said] == [401, 401, 400, 400, 201, 409, 200, 200]
        assert all(secret not in answer.text for answer in said)

    assert closed(tmp_path, story) == []
    assert secret not in caplog.text
