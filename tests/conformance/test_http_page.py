"""docs/howto/http.md: what it says to type works, in this order, and answers what it says."""

from __future__ import annotations

import re
from pathlib import Path

from logboom.protocols.http.settings import HttpSettings
from support.howto_page import HOWTO, alike, blocks, documents, lines_alike, run
from support.nodes.http import http_node
from support.packages import need

PAGE = HOWTO / "http.md"


def test_every_block_runs_and_answers_what_the_page_shows(tmp_path: Path) -> None:
    need("curl", "curl")
    need("jq", "jq")
    (tmp_path / ".curlrc").write_text("silent\nshow-error\n")
    answered, python = "", ""
    with http_node(tmp_path / "data", HttpSettings(cors_origins=("https://example.org",))) as node:
        for block in blocks(PAGE.read_text()):
            if block.language == "sh":
                answered = run(block, node.address, tmp_path)
                assert "internal-error" not in answered, (block, answered)
            elif block.language == "python":
                python += block.text
                run(block._replace(text=python), node.address, tmp_path)
            elif block.language == "json":
                assert alike(documents(block.text), documents(answered)), (block, answered)
            else:
                assert lines_alike(block.text, answered), (block, answered)
    assert node.failures == []


def test_the_page_calls_every_operation() -> None:
    from logboom.protocols.http.api.operations import ALL

    page = PAGE.read_text()
    for operation in ALL:
        pattern = re.sub(r"\\{\w+(:\w+)?\\}", r"[^\\s/?'`]+", re.escape(operation.path))
        assert re.search(rf"(localhost:1775|`){pattern}(?![\w/])", page), (operation.method, operation.path)
