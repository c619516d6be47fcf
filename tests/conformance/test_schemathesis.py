"""Schemathesis makes requests of the document, right and wrong ones, and finds nothing that contradicts it.

What it must know besides is in schemathesis.toml and schemathesis_hooks.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from logboom.broker.config import BrokerConfig, UpkeepSettings
from logboom.broker.limits import Limits
from support.nodes.http import http_node

HERE = Path(__file__).parent
ENDLESS = ["tail_records"]
REFUSING = ["refuse_node", "refuse_topic"]
"""They would leave little to do for all the others."""


CONFIG = BrokerConfig(limits=Limits(read_wait_ms=20), upkeep=UpkeepSettings(retention_every_ms=2**40))
"""Nothing waits for long, and no hook of a topic ever runs."""


def explore(directory: Path, examples: int, seed: int) -> None:
    with http_node(directory / "data", config=CONFIG) as node:
        fill(f"http://{node.address}")
        for choice in (
            [f"--exclude-operation-id={name}" for name in (*ENDLESS, *REFUSING)],
            [f"--include-operation-id={name}" for name in REFUSING],
        ):
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "schemathesis.toml")),
                    *("run", f"http://{node.address}/openapi.json", *choice, "--no-color", "--continue-on-failure"),
                    *("--max-examples", str(examples), "--seed", str(seed), "--generation-database", "none"),
                    *("--suppress-health-check", "all", "--request-timeout", "60"),
                ],
                cwd=directory,
                env={
                    **os.environ,
                    "PYTHONPATH": str(HERE.parent),
                    "SCHEMATHESIS_HOOKS": "conformance.schemathesis_hooks",
                },
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    assert node.failures == []


def fill(address: str) -> None:
    """Something to be found."""
    for method, path, body in (
        ("POST", "/topics", b'{"name": "readings", "partitions": 2}'),
        ("POST", "/topics/readings/records", b"[1, 2, 3]"),
        ("POST", "/topics/events/records", b'[{"value": 1, "key": "a", "tags": ["b"], "headers": {"c": "d"}}, "text"]'),
        ("PUT", "/topics/events/cursors/billing", b'{"seqno": 1}'),
        ("POST", "/groups/billing/members", b'{"topics": "events", "member": "member-0123456789"}'),
        ("POST", "/changes", b'{"data": 1, "tags": ["b"]}'),
    ):
        with urlopen(Request(address + path, body, {"Content-Type": "application/json"}, method=method)) as answer:
            assert answer.status < 300


def test_answers_are_what_the_document_says(tmp_path: Path) -> None:
    explore(tmp_path, examples=5, seed=1773)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(3))
def test_answers_are_what_the_document_says_in_the_long_run(seed: int, tmp_path: Path) -> None:
    explore(tmp_path, examples=300, seed=seed)
