"""Real Spark on loopback, of the processes that pip's pyspark brings: a standalone master with its workers, and a Spark
Connect server. And an environment packed for executors that have nothing.

Every process is one `java`, ended by its pid. The workers run in directories of their own, and the Python they are told
of does not exist: what runs on them came with the job.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import cache_from_source
from pathlib import Path

import pyspark

from logboom.spark.runtime.java import prepare_java
from logboom.spark.runtime.worker_python import worker_python
from support.waiting import wait_until

SPARK_HOME = Path(pyspark.__file__).parent
READY_S = 300.0
CLIENT_S = 400.0
WORKERS = 2
ROOT = Path(__file__).parents[2]
LEFT_OUT = re.compile(r"\b(tests|include|__pycache__)/|libarrow_flight\b")
"""Of what Logboom requires: nobody here wants that."""
COMPILED = "import logboom.spark.source, logboom.spark.read.table, logboom.spark.write.sink"


def environment(**more: str) -> dict[str, str]:
    """For processes of Spark: this one's, without what it has set for Spark itself."""
    prepare_java()
    ours = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_", "LOGBOOM_"))}
    return {**ours, "SPARK_LOCAL_IP": "127.0.0.1", **more}


@contextmanager
def process(
    command: Sequence[str | Path], directory: Path, name: str, environment: Mapping[str, str]
) -> Iterator[Callable[[], str]]:
    """Runs until the block ends; gives what it has said so far, and fails where it has ended by itself."""
    log = directory / f"{name}.log"
    with open(log, "wb") as out:
        running = subprocess.Popen(
            command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=directory, env=environment
        )

    def said() -> str:
        text = log.read_text(errors="replace")
        assert running.poll() is None, f"{name} has ended:\n{text[-4000:]}"
        return text

    try:
        yield said
    finally:
        running.terminate()
        try:
            running.wait(READY_S)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def wait_for(said: Callable[[], str], holds: Callable[[], bool]) -> None:
    """For a process of Spark, which may end instead."""
    wait_until(holds, lambda: f"more than {said()[-4000:]}", limit_s=READY_S, every_s=0.1, check=said)


@contextmanager
def standalone(directory: Path, workers: int = WORKERS, memory: str = "700m") -> Iterator[str]:
    """A master and its workers, one core each; gives the master's URL."""
    run = SPARK_HOME / "bin" / "spark-class"
    bare = environment(SPARK_HOME=str(SPARK_HOME), PYSPARK_PYTHON="/nonexistent/python", SPARK_DAEMON_MEMORY="256m")
    with ExitStack() as stack:
        command: list[str | Path] = [run, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
        command += ["--port", "0", "--webui-port", "0"]
        said = stack.enter_context(process(command, directory, "master", bare))
        master = f"spark://127.0.0.1:{_port_of('sparkMaster', said)}"
        web = _port_of("MasterUI", said)
        for number in range(workers):
            home = directory / f"worker-{number}"
            home.mkdir()
            command = [run, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1"]
            command += ["--memory", memory, "--webui-port", "0", "--work-dir", home / "work", master]
            stack.enter_context(process(command, home, "worker", bare))
        wait_for(said, lambda: _alive(web) == workers)
        yield master


def _port_of(service: str, said: Callable[[], str]) -> int:
    """As the process says. A port that was free before it began may be another's by now, and then it takes the next."""
    announced = re.compile(rf"started service '{service}' on port (\d+)")
    wait_for(said, lambda: announced.search(said()) is not None)
    (port,) = announced.findall(said())
    return int(port)


def _alive(web: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{web}/json/", timeout=60) as answer:
            alive: int = json.load(answer)["aliveworkers"]
            return alive
    except (OSError, ValueError):  # it is not up, or not so far that it speaks JSON
        return 0


def run_client(
    script: str, *arguments: str, directory: Path, python: Sequence[str] = (sys.executable,), **more: str
) -> dict[str, object]:
    """A driver in a process of its own; gives the JSON in the last line that it has printed."""
    done = subprocess.run(
        [*python, "-c", script, *arguments],
        cwd=directory,
        env=environment(**more),
        capture_output=True,
        text=True,
        check=False,
        timeout=CLIENT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return answer


def build_wheel(directory: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--no-build-isolation", "--wheel-dir", directory, ROOT], check=True)
    (wheel,) = directory.glob("logboom-*.whl")
    return wheel


def make_environment(directory: Path, wheel: Path) -> Path:
    """A virtual environment with Logboom's wheel and what that needs, and without pyspark.

    What it needs is taken from the running environment, file by file, as it was installed there: `pip install` would do
    the same from the network. All that workers import is compiled: each unpacks an environment of its own.
    """
    home = directory / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    for name in sorted(_needed(["logboom"]) - {"logboom"}):
        _link(name, packages)
    zipfile.ZipFile(wheel).extractall(packages)
    path = {"PYTHONPATH": str(Path(worker_python()).parents[1] / "packages")}
    subprocess.run([home / "bin" / "python", "-c", COMPILED], env=path, check=True)
    return home


def pack(home: Path) -> Path:
    """As `tar -C environment -czf environment.tar.gz .` does, without making it smaller: that takes longest."""
    packed = home.with_suffix(".tar.gz")
    with tarfile.open(packed, "w:gz", compresslevel=0) as archive:
        archive.add(home, ".")
    return packed


def _needed(names: Sequence[str]) -> set[str]:
    """These distributions and all that they require, without extras."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        try:
            required = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another system or an older Python
        if name not in found:
            found.add(name)
            waiting += [re.split(r"[^\w.-]", line)[0] for line in required if "extra ==" not in line]
    return found


def _link(name: str, packages: Path) -> None:
    for file in importlib.metadata.files(name) or ():
        if file.parts[0] == ".." or LEFT_OUT.search(str(file)):
            continue
        source = str(file.locate())
        _put(source, packages / file)
        compiled = Path(cache_from_source(source))
        if file.suffix == ".py" and compiled.exists():
            _put(str(compiled), packages / file.parent / "__pycache__" / compiled.name)


def _put(source: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another volume
        shutil.copy2(source, target)
