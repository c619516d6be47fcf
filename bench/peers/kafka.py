"""Apache Kafka, one node in KRaft mode, and Spark's own source for it, both from Maven Central.

What is resolved stays in the user's cache, by the version of Spark; nothing is asked of the network while it is there.
Spark's source is that of the installed Spark where the repository has it. Where it has not, each of its two parts is
the newest release that is not newer than Spark; every row that is measured with it says which one that is.

The node is Kafka's newest release, with its settings as they come. Its own console producer fills it from a file of
lines, uncompressed, in batches as large as ours; nobody syncs, on either side.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from logboom.spark.runtime.java import prepare_java
from peers.process import Missing, connect, find_program, free_port, running

PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
RESOLVE_S = 600.0
COMMAND_S = 60.0
BATCH_BYTES = 256 * 1024
HEAP = "-Xmx1g"
CLUSTER = "logboom-bench-cluster0"
"""Its id: 22 characters of base64."""
PRODUCER = {
    "batch.size": BATCH_BYTES,
    "linger.ms": 50,
    "acks": 1,
    "buffer.memory": 64 * 1024 * 1024,
    "max.request.size": 4 * 1024 * 1024,
}
FETCH = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(16 * 1024 * 1024),
    "kafka.receive.buffer.bytes": str(1024 * 1024),
}
"""What made Spark's source faster than it is by default, when tried."""

Artifact = tuple[str, str]
"""Group and name, as Maven has them."""
TOOLS = "org.apache.kafka.tools"


@dataclass(frozen=True, slots=True)
class Jars:
    """What was resolved: the class path of the node, and what Spark needs beside its own."""

    broker: Path
    connector: tuple[Path, ...]

    @property
    def broker_version(self) -> str:
        return next(_version_of(jar) for jar in self.broker.glob("kafka_*.jar"))

    @property
    def connector_version(self) -> str:
        return next(_version_of(jar) for jar in self.connector if jar.name.startswith("spark-sql-kafka"))


class Kafka:
    def __init__(self, port: int, jars: Jars, java: str) -> None:
        self.pid = 0
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self._jars = jars
        self._java = java

    @classmethod
    @contextmanager
    def running(cls, directory: str, jars: Jars) -> Iterator[Kafka]:
        """A node with its data below this directory, on loopback; stopped at the end."""
        java = f"{prepare_java().home}/bin/java"
        port, controller, log = free_port(), free_port(), f"{directory}/kafka.log"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": f"{directory}/kafka",
            "offsets.topic.replication.factor": 1,
        }
        configuration = Path(directory, "kafka.properties")
        configuration.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        kafka = cls(port, jars, java)
        format_data = ("format", "--standalone", "-t", CLUSTER, "-c", str(configuration))
        kafka._command("kafka.tools.StorageTool", *format_data)
        with running([java, HEAP, "-cp", f"{jars.broker}/*", "kafka.Kafka", str(configuration)], log) as kafka.pid:
            connect(port, log).close()
            yield kafka

    def create(self, topic: str, partitions: int, **settings: str) -> None:
        where = ("--bootstrap-server", self.address, "--topic", topic)
        given = [word for key, value in settings.items() for word in ("--config", f"{key.replace('_', '.')}={value}")]
        self._command(f"{TOOLS}.TopicCommand", *where, "--create", "--partitions", str(partitions), *given)

    def delete(self, topic: str) -> None:
        self._command(f"{TOOLS}.TopicCommand", "--bootstrap-server", self.address, "--topic", topic, "--delete")

    def fill(self, topic: str, partitions: int, lines: Path) -> None:
        """A new topic with one record for each line."""
        self.create(topic, partitions)
        where = ("--bootstrap-server", self.address, "--topic", topic)
        properties = [word for key, value in PRODUCER.items() for word in ("--command-property", f"{key}={value}")]
        self._command(f"{TOOLS}.ConsoleProducer", *where, "--compression-codec", "none", *properties, lines=lines)

    def options(self, topic: str) -> dict[str, str]:
        """Of Spark's source, to read all that this topic has."""
        return {"kafka.bootstrap.servers": self.address, "subscribe": topic, "startingOffsets": "earliest", **FETCH}

    def _command(self, name: str, *arguments: str, lines: Path | None = None) -> None:
        command = [self._java, HEAP, "-cp", f"{self._jars.broker}/*", name, *arguments]
        with open(lines or os.devnull, "rb") as source:
            seconds = COMMAND_S + source.seek(0, os.SEEK_END) / 1e6
            source.seek(0)
            done = subprocess.run(command, stdin=source, capture_output=True, text=True, check=False, timeout=seconds)
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stdout[-1000:]}{done.stderr[-1000:]}")


def resolve_kafka() -> Jars:
    """From the cache, else from the repository by Maven; Missing says what there is not."""
    spark = version("pyspark")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "logboom-bench" / f"kafka-spark-{spark}"
    if not cache.exists():
        cache.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache.parent) as directory:
            _resolve(Path(directory), spark)
            os.replace(Path(directory, "jars"), cache)
    own = {_name_of(jar) for jar in _spark_jars()}
    return Jars(
        cache / "broker", tuple(jar for jar in sorted((cache / "connector").iterdir()) if _name_of(jar) not in own)
    )


def _resolve(directory: Path, spark: str) -> None:
    scala = next(_version_of(jar) for jar in _spark_jars() if jar.name.startswith("scala-library-")).rpartition(".")[0]
    node = ("org.apache.kafka", f"kafka_{scala}")
    newest = _newest(_releases(directory, node))
    _copy(directory, "broker", {node: newest, ("org.apache.kafka", "kafka-tools"): newest})
    parts = [("org.apache.spark", f"{name}-0-10_{scala}") for name in ("spark-sql-kafka", "spark-token-provider-kafka")]
    _copy(directory, "connector", {part: _newest(_releases(directory, part), spark) for part in parts})


def _copy(directory: Path, name: str, artifacts: Mapping[Artifact, str]) -> None:
    """These and all they need, into a directory of this name. What is listed is not asked for in another version."""
    excluded = "".join(f"<exclusion>{_coordinates(artifact)}</exclusion>" for artifact in artifacts)
    dependencies = "".join(
        f"<dependency>{_coordinates(artifact)}<version>{number}</version><exclusions>{excluded}</exclusions></dependency>"
        for artifact, number in artifacts.items()
    )
    project = directory / name
    project.mkdir()
    (project / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>bench</groupId>'
        f"<artifactId>{name}</artifactId><version>1</version><dependencies>{dependencies}</dependencies></project>\n"
    )
    _maven(
        directory, project, "copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={directory}/jars/{name}"
    )


def _maven(directory: Path, project: Path, goal: str, *options: str) -> None:
    """One goal of its dependency plugin, with a repository of its own; where the network's is, is Maven's affair."""
    prepare_java()
    command = [find_program("mvn"), "--quiet", "--batch-mode", f"-Dmaven.repo.local={directory}/repository"]
    command += [f"{PLUGIN}:{goal}", *options]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=RESOLVE_S)
    if done.returncode:
        raise Missing(f"Maven cannot {goal} {options[-1]}: {done.stdout[-500:]}")


def _coordinates(artifact: Artifact) -> str:
    return "<groupId>{}</groupId><artifactId>{}</artifactId>".format(*artifact)


def _releases(directory: Path, artifact: Artifact) -> list[str]:
    """Every release there is: who asks Maven for the last one gets the list of all with it."""
    group, name = artifact
    _maven(directory, directory, "get", "-Dtransitive=false", f"-Dartifact={group}:{name}:RELEASE:pom")
    lists = Path(directory, "repository", *group.split("."), name).glob("maven-metadata-*.xml")
    return [
        release for file in lists for release in re.findall(r"<version>(\d+\.\d+\.\d+)</version>", file.read_text())
    ]


def _newest(releases: Sequence[str], at_most: str | None = None) -> str:
    allowed = [release for release in releases if at_most is None or _order(release) <= _order(at_most)]
    if not allowed:
        raise Missing(f"Maven Central has no release up to {at_most}")
    return max(allowed, key=_order)


def _order(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", release)))


def _spark_jars() -> list[Path]:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise Missing("pyspark is not installed")
    return sorted(Path(found.origin).parent.joinpath("jars").glob("*.jar"))


def _name_of(jar: Path) -> str:
    return re.sub(r"-\d[\d.]*(-[\w.]+)?\.jar$", "", jar.name)


def _version_of(jar: Path) -> str:
    return jar.name.removeprefix(_name_of(jar) + "-").removesuffix(".jar")
