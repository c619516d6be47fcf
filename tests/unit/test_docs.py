"""The code in README, tutorial and how-tos runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.nodes.process import NodeProcess, free_port

ROOT = Path(__file__).parents[2]


BY_THEMSELVES = ["docs/howto/read-files.md", "docs/howto/retention.md"]
WITH_A_NODE = [
    "README.md",
    "docs/tutorial.md",
    "docs/howto/groups.md",
    "docs/howto/queues.md",
    "docs/howto/read.md",
    "docs/howto/validate.md",
    "docs/howto/values.md",
    "docs/howto/write.md",
]


def run_blocks(page: str, directory: Path, port: int = 0, **environment: str) -> None:
    """The port takes the place of the one that a page has for a server of its own."""
    text = (ROOT / page).read_text().replace("8000", str(port))
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", BY_THEMSELVES)
def test_the_python_on_a_page_runs_in_its_order(page: str, tmp_path: Path) -> None:
    run_blocks(page, tmp_path)


@pytest.mark.parametrize("page", WITH_A_NODE)
def test_the_python_on_a_page_runs_in_its_order_against_a_node(page: str, tmp_path: Path) -> None:
    here, node = tmp_path / "here", tmp_path / "node"
    here.mkdir()
    node.mkdir()
    port = free_port()
    with NodeProcess(node, "--set", f"validators.allow=http://127.0.0.1:{port}/") as running:
        run_blocks(page, here, port, LOGBOOM_SERVERS=running.address)


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md"], ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target
