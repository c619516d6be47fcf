"""The pipeline as an operator runs it: `logboom pipeline` in processes of its own, with a Spark of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logboom import Writer
from support.nodes.process import NodeProcess
from support.waiting import wait_until

END_S = 240.0
CONFIG = """
directory = "results"
lease_ms = "5s"

[spark]
master = "local[2]"
config = {"spark.driver.memory" = "1g", "spark.driver.host" = "127.0.0.1", "spark.ui.enabled" = false}

[jobs.state]
kind = "checkpoint"
topic = "orders"
every = "1s"

[jobs.by-hand]
kind = "archive"
topic = "orders"
"""


class Operator:
    def __init__(self, root: Path, node: NodeProcess) -> None:
        self.root = root
        self.node = node
        self.topic = f"orders-{uuid.uuid4().hex}"
        self.job = f"checkpoint/{self.topic}/key"
        (root / "pipeline.toml").write_text(CONFIG.replace("orders", self.topic))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "logboom", "pipeline", *arguments, "--server", self.node.address]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.root, stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        try:
            said, told = process.communicate(timeout=END_S)
        finally:
            process.kill()
        return process.returncode, said, told

    def list(self) -> dict[str, Any]:
        code, said, told = self.run("list", "--json")
        assert code == 0, told
        return {job["job"]: job for job in json.loads(said) if self.topic in job["topics"]}

    def write(self, first: int, count: int) -> None:
        with Writer(self.topic, servers=self.node.address) as writer:
            for number in range(first, first + count):
                writer.write(b"%d" % number, key=b"%d" % (number % 10))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as found:
        yield found


@pytest.fixture
def operator(tmp_path: Path, node: NodeProcess) -> Operator:
    return Operator(tmp_path, node)


def test_a_job_is_run_by_its_name_or_by_its_kind_and_says_what_it_has_made(operator: Operator) -> None:
    operator.write(0, 100)
    code, said, told = operator.run("run", "state", "--json")
    assert (code, told) == (0, "")
    report = json.loads(said)
    assert (report["job"], report["result"]["records"]) == (operator.job, 10)
    assert report["result"]["place"].startswith(str(operator.root / "results" / "checkpoint"))
    jobs = operator.list()
    assert {job["job"]: (job["state"], job["name"], job["lag"]) for job in jobs.values()} == {
        operator.job: ("idle", "state", 0),
        f"archive/{operator.topic}": ("new", "by-hand", None),
    }
    operator.topic = "nothing"
    code, said, told = operator.run("run", "checkpoint", "--topic", "nothing", "--by", "channel")
    assert (code, said) == (1, "")
    assert "nothing" in told
    assert operator.list()["checkpoint/nothing/channel"]["state"] == "failed"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "nothing"], "there is no such job in the configuration, and no such kind"),
        (["run", "state", "--bye", "key"], "--bye: a job of kind checkpoint has no such option"),
        (["run", "checkpoint"], "--topic: is missing"),
        (["run", "state", "--topic", "a", "--topic", "b"], "--topic: is given twice"),
        (["run", "state", "--config", "none.toml"], "none.toml: No such file"),
        (["serve", "--only", "other"], "--only: there is no job 'other'; there are state, by-hand"),
        (["serve", "--only", "by-hand"], "jobs: there is none with an interval"),
        (["show", "archive/none"], "archive/none: there is no such job"),
    ],
)
def test_wrong_usage_is_told_and_nothing_is_run(operator: Operator, arguments: list[str], told: str) -> None:
    code, said, error = operator.run(*arguments)
    assert (code, said) == (2, "")
    assert told in error
    assert not (operator.root / "results").exists()


def test_serve_outlives_its_spark_and_ends_clean(operator: Operator) -> None:
    operator.write(0, 50)
    serving = operator.start("serve")
    try:
        wait_for_records(operator, 10, 50)
        os.kill(java_of(serving.pid), signal.SIGKILL)
        operator.write(50, 50)
        wait_for_records(operator, 10, 100)
        serving.send_signal(signal.SIGTERM)
        _, told = serving.communicate(timeout=END_S)
    finally:
        if serving.poll() is None:
            os.killpg(serving.pid, signal.SIGKILL)
            serving.communicate()
    assert serving.returncode == 0, told
    assert "state: done in" in told
    assert told.rstrip().endswith("ended")
    job = operator.list()[operator.job]
    assert job["running"] is None, told


def wait_for_records(operator: Operator, records: int, until: int) -> None:
    """Until there is a result of so many records that covers the log up to there."""

    def covering() -> dict[str, Any] | None:
        result: dict[str, Any] | None = operator.list().get(operator.job, {}).get("result")
        return result if result is not None and result["covers"][operator.topic]["spans"]["0"][1] == until else None

    found = wait_until(covering, f"a result that covers the log up to {until}", every_s=0.2)
    assert found is not None
    assert found["records"] == records


def java_of(pid: int) -> int:
    """The JVM that a process has started."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and (entry / "comm").read_text().strip() == "java":
                return int(entry.name)
        except OSError:
            continue
    raise AssertionError(f"{pid} has no JVM")
