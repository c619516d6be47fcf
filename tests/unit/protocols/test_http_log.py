"""logd commands by way of HTTP."""

from __future__ import annotations

from pathlib import Path

from logboom.broker.caller import Caller
from support.nodes.web import WebNode, tell

LOGD = {"content-type": "application/logd; charset=binary"}


def test_commands_go_in_and_answers_come_out(tmp_path: Path) -> None:
    said: list[bytes] = []

    async def converse(commands: bytes, caller: Caller) -> bytes:
        said.append(commands)
        return b"PONG\r\n"

    async def story(node: WebNode) -> None:
        node.front_end.converse = converse
        answer = await node.client.post("/log", content=b"PING\r\n", headers=LOGD)
        assert (answer.status_code, answer.content) == (200, b"PONG\r\n")
        assert answer.headers["content-type"] == "application/logd"
        assert said == [b"PING\r\n"]

    assert tell(tmp_path, story) == []


def test_a_body_of_another_type_is_refused(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        for headers in ({"content-type": "application/json"}, {}):
            answer = await node.client.post("/log", content=b"PING\r\n", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (415, "unsupported-media-type")

    tell(tmp_path, story)


def test_a_node_that_does_not_speak_logd_says_so(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        answer = await node.client.post("/log", content=b"PING\r\n", headers=LOGD)
        assert (answer.status_code, answer.json()["code"]) == (501, "logd-off")

    tell(tmp_path, story)
