"""A checkpoint on an object store: what is published from a copy of it is noticed as in a directory."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer
from pyarrow.fs import FileSystem
from pyspark.sql.types import BinaryType, StructType

from logboom.errors import ConfigError, KeyMismatch
from logboom.spark.source import LogboomSource
from logboom.spark.write.micro_batch import digest_of
from logboom.spark.write.stored_files import read_stored, store_uri
from support.nodes.process import NodeProcess
from support.spark.content import read_rows

QUERY = "b0c5a8f2-1111-4222-8333-444455556666"
OFFSETS = b'v1\n{"batchTimestampMs":1}\n{"offset":3}'
HASTE_S = 3.0


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


def use(server: str, environment: pytest.MonkeyPatch) -> None:
    """As who runs Spark tells every client of S3."""
    environment.setenv("AWS_ENDPOINT_URL", server)
    environment.setenv("AWS_ACCESS_KEY_ID", "key")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
    environment.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    use(server, monkeypatch)
    name = f"test-{abs(hash(request.node.name))}"
    files, _ = FileSystem.from_uri("s3://any?allow_bucket_creation=true")
    files.create_dir(name)
    return name


def put(bucket: str, path: str, data: bytes) -> None:
    files, _ = FileSystem.from_uri(f"s3://{bucket}")
    with files.open_output_stream(f"{bucket}/{path}") as stream:
        stream.write(data)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A store that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        use(f"http://127.0.0.1:{listening.getsockname()[1]}", monkeypatch)
        yield


@pytest.mark.parametrize(
    ("location", "uri"),
    [
        ("s3a://bucket/a/b", "s3://bucket/a/b"),
        ("S3N://bucket", "s3://bucket"),
        ("s3://bucket/named one%20/a?b#c", "s3://bucket/named%20one%2520/a%3Fb%23c"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("abfss://box@account.dfs.core.windows.net/a", "abfss://box@account.dfs.core.windows.net/a"),
        ("hdfs://name:8020/a", "hdfs://name:8020/a"),
        ("dbfs:/a", None),
        ("wasb://box@account/a", None),
        ("s3a:/bucket/a", None),
        ("hdfs:///a", "hdfs:///a"),
    ],
)
def test_a_location_of_hadoop_becomes_a_uri_of_pyarrow(location: str, uri: str | None) -> None:
    assert store_uri(location) == uri


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_micro_batch_has_the_same_digest_there_as_in_a_directory(bucket: str, scheme: str, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_bytes(OFFSETS)
    put(bucket, "named one/metadata", f'{{"id":"{QUERY}"}}'.encode())
    put(bucket, "named one/offsets/3", OFFSETS)
    put(bucket, "named one/offsets/4", OFFSETS.replace(b"3", b"4"))
    there = f"{scheme}://{bucket}/named one"
    assert digest_of(there, 3) == digest_of(f"{there}/", 3, QUERY) == digest_of(str(tmp_path), 3)
    assert digest_of(there, 4, QUERY) != digest_of(there, 3, QUERY)
    with pytest.raises(FileNotFoundError, match="offsets/5"):
        digest_of(there, 5, QUERY)
    with pytest.raises(OSError, match="not the checkpoint of this query"):
        digest_of(there, 3, "another")


def test_a_store_that_never_answers_is_given_up(silent: None) -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="not answered within 1 seconds"):
        read_stored("s3a://bucket/checkpoint", ["offsets/3"], timeout_s=1)
    assert time.monotonic() - began < 1 + HASTE_S


class Stream:
    """One query that writes to a node, with a checkpoint somewhere."""

    def __init__(self, node: NodeProcess, checkpoint: str) -> None:
        options = {"path": f"logboom://{node.address}", "topic": "copied", "checkpointLocation": checkpoint}
        schema = StructType().add("value", BinaryType())
        self._writer: Any = LogboomSource(options).streamWriter(schema, False)

    def publish(self, number: int, value: bytes) -> None:
        message = self._writer.write(iter([pa.RecordBatch.from_pydict({"value": [value]})]))
        self._writer.commit([replace(message, query=QUERY)], number)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path) as running:
        yield running


def values_in(node: NodeProcess) -> list[bytes]:
    return [row[5] for row in read_rows(node.directory, "copied", 1)]


def test_another_micro_batch_of_a_copy_is_refused_and_a_repeat_is_not(
    node: NodeProcess, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("original", "copy"):
        put(bucket, f"{name}/metadata", f'{{"id":"{QUERY}"}}'.encode())
        put(bucket, f"{name}/offsets/3", OFFSETS + name.encode())
    original, copy = (Stream(node, f"s3a://{bucket}/{name}") for name in ("original", "copy"))
    original.publish(3, b"once")
    original.publish(3, b"once")
    with pytest.raises(KeyMismatch, match=f"micro-batch 3 of checkpoint s3a://{bucket}/copy"):
        copy.publish(3, b"lost, if nobody noticed")
    assert values_in(node) == [b"once"]
    assert "not be noticed" not in caplog.text


@pytest.mark.parametrize(
    ("checkpoint", "reason"),
    [
        ("s3a://no-such-bucket/checkpoint", "Path does not exist 'no-such-bucket/checkpoint/offsets/3'"),
        ("dbfs:/checkpoint", "pyarrow knows no store dbfs:"),
    ],
)
def test_what_cannot_be_compared_is_written_and_the_log_says_why(
    node: NodeProcess, bucket: str, checkpoint: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    Stream(node, checkpoint).publish(3, b"written")
    assert values_in(node) == [b"written"]
    (line,) = [entry for entry in caplog.records if entry.name == "logboom.spark" and entry.levelname == "WARNING"]
    said = line.getMessage()
    assert said.startswith(f"checkpoint {checkpoint} cannot be compared, so a copy of it would not be noticed: ")
    assert reason in said


def test_a_write_with_a_version_names_a_micro_batch_that_is_there(node: NodeProcess, bucket: str) -> None:
    put(bucket, "each/offsets/3", OFFSETS)
    options = {"path": f"logboom://{node.address}", "topic": "copied", "txnAppId": "each"}
    for version in ("3", "4"):
        there = {**options, "txnVersion": version, "checkpointLocation": f"s3a://{bucket}/each"}
        writer: Any = LogboomSource(there).writer(StructType().add("value", BinaryType()), False)
        message = writer.write(iter([pa.RecordBatch.from_pydict({"value": [version.encode()]})]))
        if version == "3":
            writer.commit([message])
        else:
            with pytest.raises(ConfigError, match=f"s3a://{bucket}/each has no micro-batch 4"):
                writer.commit([message])
    assert values_in(node) == [b"3"]
