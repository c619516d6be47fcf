"""What tells a micro-batch from another one of the same number."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from logboom.spark.write.micro_batch import digest_of, local_path


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/a/b", "/a/b"),
        ("/a/b:c", "/a/b:c"),
        ("file:/a/b", "/a/b"),
        ("file:///a b%20c", "/a b%20c"),
        ("file://localhost/a", "/a"),
        ("FILE:/a/", "/a"),
        ("hdfs://name/a", None),
        ("s3a://bucket/a", None),
        ("dbfs:/a", None),
    ],
)
def test_a_location_is_read_as_hadoop_does(location: str, path: str | None) -> None:
    assert local_path(location) == path


def test_a_relative_location_is_below_the_directory_of_the_driver() -> None:
    assert local_path("checkpoints/a") == os.path.join(os.getcwd(), "checkpoints", "a")


def test_a_repeat_has_the_same_digest_and_another_micro_batch_another(tmp_path: Path) -> None:
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    for number in (3, 4):
        (offsets / str(number)).write_text(f'v1\n{{"batchTimestampMs":1}}\n{{"offset":{number}}}')
    assert digest_of(str(tmp_path), 3) == digest_of(str(tmp_path), 3)
    assert digest_of(str(tmp_path), 3) != digest_of(str(tmp_path), 4)
    with pytest.raises(FileNotFoundError):
        digest_of(str(tmp_path), 5)


def test_a_directory_is_the_checkpoint_of_the_query_it_names(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n")
    with pytest.raises(FileNotFoundError):
        digest_of(str(tmp_path), 0, "one")
    (tmp_path / "metadata").write_text('{"id":"one"}')
    assert digest_of(str(tmp_path), 0, "one") == digest_of(str(tmp_path), 0)
    with pytest.raises(OSError, match="not the checkpoint of this query"):
        digest_of(str(tmp_path), 0, "two")
    for text in ("", "[]", "7"):
        (tmp_path / "metadata").write_text(text)
        with pytest.raises(OSError, match="not the checkpoint of this query"):
            digest_of(str(tmp_path), 0, "one")


def test_a_store_that_nobody_here_reads_is_named() -> None:
    with pytest.raises(OSError, match="knows no store dbfs:"):
        digest_of("dbfs:/checkpoints/a", 0)
