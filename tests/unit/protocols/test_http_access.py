"""Users, tokens, roles, rules and quotas over HTTP; and that nobody is shown what is not for him."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from logboom.access.credential import Credential
from logboom.access.rule import Rule
from logboom.broker.caller import ITSELF
from logboom.protocols.http import connection
from logboom.results.pipeline_state import Ended, Event, Leased, Result
from logboom.results.places import ResultPlace
from support.nodes.guarded import OWN, PASSWORD, basic, closed, signed_in
from support.nodes.web import WebNode, plain_client, tell

ROOT = basic("root")


def test_a_user_is_added_changed_and_removed(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        client = node.client
        new = {"name": "team/bob@example", "password": PASSWORD, "groups": ["staff"]}
        added = await client.post("/access/users", json=new, headers=ROOT)
        assert (added.status_code, added.headers["location"]) == (201, "/access/users/team/bob@example")
        assert added.json()["mechanisms"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert (await client.post("/access/users", json=new, headers=ROOT)).status_code == 409
        bob = basic("team/bob@example")
        assert (await client.get("/access/whoami", headers=bob)).json()["caller"]["groups"] == ["staff"]
        path = "/access/users/team%2Fbob@example"
        assert (await client.get(path, headers=bob)).json()["name"] == "team/bob@example"
        changed = await client.patch(path, json={"roles": ["audit"], "enabled": False}, headers=ROOT)
        assert (changed.json()["roles"], changed.json()["groups"]) == (["audit"], ["staff"])
        assert (await client.get("/access/whoami", headers=bob)).status_code == 401
        assert (await client.delete(path, headers=ROOT)).json() == {"tokens": 0, "rules": 0, "roles": 0, "kept": 0}
        assert (await client.delete(path, headers=ROOT)).status_code == 404
        assert (await client.get(path, headers=ROOT)).json()["code"] == "user-not-found"

    assert closed(tmp_path, story) == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": ""},
        {"name": "anonymous"},
        {"name": "_node"},
        {"name": "a" * 129},
        {"name": "a\nb"},
        {"name": "bob", "password": ""},
        {"name": "bob", "password": "short"},
        {"name": "bob", "password": "x" * 2000},
        {"name": "bob", "password": "zero\x00zero\x00"},
        {"name": "bob", "groups": ["x"] * 101},
        {"name": "bob", "roles": ["no role\n"]},
        {"name": "bob", "credentials": []},
        {"name": 5},
        [],
    ],
)
def test_what_no_user_can_be_is_refused(tmp_path: Path, body: Any) -> None:
    async def story(node: WebNode) -> None:
        answer = await node.client.post("/access/users", json=body, headers=ROOT)
        assert answer.status_code == 400, answer.text

    assert closed(tmp_path, story) == []


def test_everybody_changes_his_own_password_and_nothing_of_others(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        client, new = node.client, "a better password"
        assert [each["name"] for each in (await client.get("/access/users", headers=basic())).json()["users"]] == [
            "alice"
        ]
        for path, change in (
            ("/access/users/root", {"password": new}),
            ("/access/users/nobody", {"password": new}),
            ("/access/users/alice", {"roles": ["admin"]}),
            ("/access/users/alice", {"password": new, "roles": ["admin"]}),
            ("/access/users/alice", {"enabled": True}),
        ):
            assert (await client.patch(path, json=change, headers=basic())).status_code == 403, (path, change)
        assert (await client.post("/access/users", json={"name": "eve"}, headers=basic())).status_code == 403
        assert (await client.post("/access/tokens", json={"user": "root"}, headers=basic())).status_code == 403
        for path in ("/access/rules", "/access/roles", "/access/explain?user=root&right=read"):
            assert (await client.get(path, headers=basic())).status_code == 403, path
        assert (await client.patch("/access/users/alice", json={"password": new}, headers=basic())).status_code == 200
        assert (await client.get("/topics", headers=basic())).status_code == 401
        assert (await client.get("/topics", headers=basic("alice", new))).status_code == 200

    assert closed(tmp_path, story) == []


def test_rules_and_roles_decide_at_once_and_are_explained(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        client = node.client
        rule = {"effect": "allow", "who": "role:audit", "rights": ["read", "read"], "kind": "topic", "name": "sec*"}
        added = (await client.post("/access/rules", json=rule, headers=ROOT)).json()
        assert added["rule"]["rights"] == ["read"]
        assert (await client.post("/access/rules", json=rule, headers=ROOT)).json()["number"] == added["number"]
        assert (await client.get("/topics/secret/records", headers=basic())).status_code == 404
        set_role = await client.put("/access/roles/audit", json={"members": ["alice"]}, headers=ROOT)
        assert set_role.status_code == 204
        assert (await client.get("/topics/secret/records", headers=basic())).status_code == 200
        asked = {"user": "alice", "right": "read", "kind": "topic", "name": "secret"}
        why = (await client.get("/access/explain", params=asked, headers=ROOT)).json()
        assert (why["allowed"], why["number"]) == (True, added["number"])
        assert (await client.get("/access/roles", headers=ROOT)).json() == {
            "roles": [{"name": "audit", "members": ["alice"]}]
        }
        assert (await client.delete(f"/access/rules/{added['number']}", headers=ROOT)).status_code == 204
        assert (await client.delete(f"/access/rules/{added['number']}", headers=ROOT)).status_code == 404
        assert (await client.get("/topics/secret/records", headers=basic())).status_code == 404
        bad: list[dict[str, Any]] = [
            {"effect": "maybe"},
            {"rights": []},
            {"rights": ["read"] * 11},
            {"kind": "house"},
            {"who": "a b"},
        ]
        for wrong in bad:
            assert (await client.post("/access/rules", json={**rule, **wrong}, headers=ROOT)).status_code == 400, wrong

    assert closed(tmp_path, story) == []


def test_a_new_password_or_token_does_not_travel_where_others_can_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(node: WebNode) -> None:
        monkeypatch.setattr(connection, "is_private", lambda transport: False)
        async with plain_client(str(node.client.base_url)) as client:
            for method, path, body in (
                ("POST", "/access/users", {"name": "bob", "password": PASSWORD}),
                ("PATCH", "/access/users/alice", {"password": PASSWORD}),
                ("POST", "/access/tokens", {"user": "alice"}),
            ):
                answer = await client.request(method, path, json=body)
                assert (answer.status_code, answer.json()["code"]) == (403, "not-private"), path

    async def prepared(node: WebNode) -> None:
        await node.broker.add_user("alice")
        await story(node)

    assert tell(tmp_path, prepared) == []  # a node that lets everybody do everything


def test_a_session_manages_users_as_its_user_does(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        async with signed_in(node, "root") as client:
            assert (await client.post("/access/users", json={"name": "bob"})).status_code == 201
            made = await client.post("/access/tokens", json={"user": "bob", "lasts_ms": 60_000})
            assert made.json()["info"]["expires"] is not None
        async with signed_in(node) as client:
            assert (await client.post("/access/users", json={"name": "eve"})).status_code == 403

    assert closed(tmp_path, story) == []


async def know_jobs(node: WebNode, place: ResultPlace) -> None:
    """Two jobs of the pipeline, each of another topic, and with a page that says what is in it."""
    for topic in ("orders", "secret"):
        job, page = f"report/{topic}", place.write(f"{topic}.html", topic.encode())
        result = Result("one", place.uri, {}, None, 3, 4, {"page": msgspec.to_builtins(page)})
        events: list[Event] = [
            Leased(job, "report", 1, "one", "here:1", 30_000, (topic,)),
            Ended(job, 1, "one", result),
        ]
        for event in events:
            await node.front_end.pipeline.put(lambda _, event=event: event)  # type: ignore[misc]


def test_nobody_sees_findings_jobs_and_metrics_of_topics_that_are_not_for_him(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        client = node.client
        for rule in (
            Rule("allow", "alice", ("describe",), "node"),
            Rule("allow", "alice", ("read",), "pipeline", "*"),
        ):
            await node.broker.add_rule(rule, caller=ITSELF)
        for topic in ("orders", "secret"):
            await node.broker.refuse(topic, "being moved", caller=ITSELF)
        await know_jobs(node, ResultPlace(str(tmp_path / "results")))
        for headers, seen in ((ROOT, True), (basic(), False), (ROOT, True)):
            findings = (await client.get("/checkup", headers=headers)).json()["findings"]
            assert any(found["where"] == "orders" for found in findings)
            assert any(found["where"] == "secret" for found in findings) is seen
            jobs = {job["job"] for job in (await client.get("/pipeline", headers=headers)).json()["jobs"]}
            assert jobs == ({"report/orders", "report/secret"} if seen else {"report/orders"})
            metrics = (await client.get("/metrics", headers=headers)).text
            assert 'topic="orders"' in metrics
            assert ("secret" in metrics) is seen
            for job, status in (("report/orders", 200), ("report/secret", 200 if seen else 404)):
                page = await client.get("/pipeline/report", params={"job": job}, headers=headers)
                assert page.status_code == status, job

    assert closed(tmp_path, story) == []


def test_who_may_not_know_of_the_pipeline_is_told_so(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        answer = await node.client.get("/pipeline", headers=basic())
        assert (answer.status_code, answer.json()["detail"]) == (403, "alice may not describe every pipeline")
        assert (await node.client.get("/pipeline", headers=ROOT)).status_code == 200
        assert (await node.client.get("/pipeline", headers=OWN)).status_code == 401

    assert closed(tmp_path, story) == []


def test_quotas_are_set_shown_and_removed_by_those_who_manage_users(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        root, alice, client = ROOT, basic(), node.client
        for who in ("bob", "group:analysts", "*", "a/b"):
            set_it = await client.put(f"/access/quotas/{who}", json={"requests": 100, "topics": 2}, headers=root)
            assert set_it.status_code == 204, set_it.text
        found = (await client.get("/access/quotas", headers=root)).json()["quotas"]
        assert [quota["who"] for quota in found] == ["*", "a/b", "bob", "group:analysts"]
        assert found[2] == {
            "who": "bob",
            "owner": "bob",
            "quota": {"requests": 100, "topics": 2},
            "used": {"requests": 0.0, "topics": 0},
            "rest_s": 0.0,
            "throttled_s": 0.0,
        }
        shown = (await client.get("/access/quotas/alice", headers=root)).json()["quotas"]
        assert [(quota["who"], quota["owner"]) for quota in shown] == [("*", "alice")]
        own = (await client.get("/access/whoami", headers=alice)).json()["caller"]["quotas"]
        assert own[0]["used"]["requests"] > 0
        for method, body in (("GET", None), ("PUT", {"requests": 1}), ("DELETE", None)):
            refused = await client.request(method, "/access/quotas/bob", json=body, headers=alice)
            assert refused.status_code == 403
        assert (await client.delete("/access/quotas/bob", headers=root)).status_code == 204
        assert (await client.delete("/access/quotas/bob", headers=root)).json()["code"] == "quota-not-found"
        for body in ({"requests": 0}, {"speed": 1}, {"topics": -1}):
            assert (await client.put("/access/quotas/bob", json=body, headers=root)).status_code == 400
        assert (await client.put("/access/quotas/bob", headers=root)).json()["code"] == "no-body"
        assert (await client.put("/access/quotas/role:x", json={}, headers=root)).json()["code"] == "invalid-quota"
        for topic in ("orders.1", "orders.2"):
            assert (await client.post("/topics", json={"name": topic}, headers=alice)).status_code == 201
        full = await client.post("/topics", json={"name": "orders.3"}, headers=alice)
        assert (full.status_code, full.json()["data"]["limit"]) == (429, "quota.topics")
        metrics = (await client.get("/metrics", headers=root)).text
        assert "logboom_quotas 3" in metrics
        assert 'logboom_quota_throttled_seconds_total{quota="requests"} 0' in metrics
        assert 'logboom_rejections_total{reason="quota.topics"} 1' in metrics
        assert "alice" not in metrics

    closed(tmp_path, story)


def test_the_page_of_a_report_is_for_those_who_may_read_what_it_is_made_of(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await know_jobs(node, ResultPlace(str(tmp_path / "results")))
        await node.broker.add_user("bob", [Credential.derive(PASSWORD, b"salt" * 4)], caller=ITSELF)
        await node.broker.add_rule(Rule("allow", "bob", ("read",), "pipeline", "*"), caller=ITSELF)
        await node.broker.add_rule(Rule("allow", "bob", ("describe",), "topic", "orders"), caller=ITSELF)
        jobs = (await node.client.get("/pipeline", headers=basic("bob"))).json()["jobs"]
        assert [job["job"] for job in jobs] == ["report/orders"]
        path = "/pipeline/report?job=report/orders"
        assert (await node.client.get(path, headers=basic("bob"))).json()["code"] == "report-not-found"
        await node.broker.add_rule(Rule("allow", "bob", ("read",), "topic", "orders"), caller=ITSELF)
        assert (await node.client.get(path, headers=basic("bob"))).text == "orders"

    assert closed(tmp_path, story) == []


def test_metrics_tell_of_no_jobs_where_the_pipeline_is_not_for_the_one_who_asks(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await know_jobs(node, ResultPlace(str(tmp_path / "results")))
        await node.broker.add_rule(Rule("allow", "alice", ("describe",), "node"), caller=ITSELF)
        assert "logboom_job_running" not in (await node.client.get("/metrics", headers=basic())).text
        assert "logboom_job_running" in (await node.client.get("/metrics", headers=ROOT)).text

    assert closed(tmp_path, story) == []
