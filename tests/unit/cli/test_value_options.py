"""What `logboom write` makes records of, and what `logboom read` says of them: delimiters, files, formats, values."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom import Client, Reader, Writer
from logboom.batch import BATCH_SIZE_MAX
from logboom.cli import run
from logboom.cli.records import record_source
from logboom.cli.show.output_format import OutputFormat
from logboom.cli.show.shown_values import ShownValues
from logboom.errors import ConfigError
from logboom.storage.data.topic import Settings
from support.nodes.process import NodeProcess

Out = pytest.CaptureFixture[bytes]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as process:
        yield process


@pytest.fixture
def topic(node: NodeProcess, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("LOGBOOM_SERVERS", node.address)
    return "t" + str(abs(hash(request.node.name)))


def give(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """On standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def stored(topic: str) -> list[tuple[bytes | None, bytes | None]]:
    with Reader(topic) as reader:
        return [(record.key, record.value) for record in reader]


def test_a_delimiter_ends_records_and_another_parts_key_and_value(
    topic: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: Out
) -> None:
    give(monkeypatch, b"a=1=2\n\0b=\0none\0=empty\0\0rest")
    assert run(["write", topic, "-D", r"\0", "-K", "=", "--key", "same"]) == 0
    assert b"wrote 6 records" in capfdbinary.readouterr().out
    assert stored(topic) == [
        (b"a", b"1=2\n"),
        (b"b", b""),
        (b"same", b"none"),
        (b"", b"empty"),
        (b"same", b""),
        (b"same", b"rest"),
    ]
    assert run(["write", topic, "k:v", "-K", ":"]) == 0
    assert stored(topic)[-1] == (b"k", b"v")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_where_the_input_is_cut_makes_no_difference(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_source, "CHUNK_BYTES", size)
    data = b"one--two-three----four-"
    with record_source.opened_source((), None, None, None, False) as source:
        assert source.title == "line"
    give(monkeypatch, data)
    with record_source.opened_source((), None, None, "--", False) as source:
        assert list(source.entries) == data.split(b"--")


def test_a_file_is_one_record_whatever_is_in_it(topic: str, tmp_path: Path, capfdbinary: Out) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    paths[0].write_bytes(b"line\nline\n\0\xff")
    paths[1].write_bytes(b"")
    assert run(["write", topic, "--whole", str(paths[0]), "--whole", str(paths[1])]) == 0
    assert [value for _, value in stored(topic)] == [b"line\nline\n\0\xff", b""]


def test_a_file_that_is_not_there_is_named(topic: str, tmp_path: Path, capfdbinary: Out) -> None:
    (tmp_path / "there").write_bytes(b"first")
    assert run(["write", topic, "--whole", str(tmp_path / "there"), "--whole", str(tmp_path / "gone")]) == 2
    assert str(tmp_path / "gone").encode() in capfdbinary.readouterr().err
    assert [value for _, value in stored(topic)] == [b"first"]


def test_a_file_that_no_record_can_hold_is_not_read_to_its_end(topic: str, tmp_path: Path, capfdbinary: Out) -> None:
    path = tmp_path / "large"
    with open(path, "wb") as file:
        file.truncate(100 * BATCH_SIZE_MAX)
    assert run(["write", topic, "--whole", str(path)]) == 1
    assert b"file 1: batch of " in capfdbinary.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["x", "--file", "y"], b"values come from arguments or from --file, not from both"),
        (["--file", "y", "--whole", "z"], b"values come from --file or from --whole, not from both"),
        (["x", "-D", ";"], b"arguments are records already"),
        (["-D", ""], b"has 0 bytes, allowed are 1 to 1,024"),
        (["-K", r"\q"], rb"has \q, which means nothing"),
        (["--ndjson", "-K", ":"], b"has its own lines and keys"),
    ],
)
def test_options_that_do_not_go_together_are_refused_by_name(
    topic: str, options: list[str], words: bytes, capfdbinary: Out
) -> None:
    assert run(["write", topic, *options]) == 2
    assert words in capfdbinary.readouterr().err


def test_a_value_that_is_not_what_it_is_to_be_is_not_written(topic: str, capfdbinary: Out) -> None:
    assert run(["write", topic, "--value", "json", '{"a": 1}', "{"]) == 1
    assert b"value 2: value: is no json" in capfdbinary.readouterr().err
    assert run(["write", topic, "--value", "msgpack", '{"a": 1}', "--quiet"]) == 0
    assert run(["write", topic, "--value", "text", "naïve", "--quiet"]) == 0
    assert [value for _, value in stored(topic)] == [b'{"a": 1}', b"\x81\xa1a\x01", "naïve".encode()]


def test_a_format_prints_every_token_and_adds_nothing(topic: str, capfdbinary: Out) -> None:
    with Writer(topic) as writer:
        headers = [("h", b"1"), ("i", b"\xff")]
        writer.write(b"\xffv\n", key=b"k", timestamp=1_500_000, channel="c/d", tags=["a", "b"], headers=headers)
        writer.write(None, timestamp=0)
    form = r"%t/%p %o %k:%K %s:%S %T %U %I %c %g %h 100%% \\ \t\x7c\n"
    assert run(["read", topic, "--format", form]) == 0
    name = topic.encode()
    assert capfdbinary.readouterr().out == (
        name + b"/0 0 k:1 \xffv\n:3 1500 1500000 1970-01-01T00:00:01.500000Z c/d a,b h=1,i=\xff 100% \\ \t|\n"
        + name + b"/0 1 :-1 :-1 0 0 1970-01-01T00:00:00.000000Z    100% \\ \t|\n"
    )  # fmt: skip
    assert run(["read", topic, "-f", "%o,", "--limit", "1"]) == 0
    assert capfdbinary.readouterr().out == b"0,"
    assert run(["read", f"{topic},{topic}/0", "-f", r"%t\n"]) == 0
    assert capfdbinary.readouterr().out == (name + b"\n") * 2


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("%x", "%x, which means nothing: there are %s %S %k"),
        ("%", "%, which means nothing"),
        (r"%s\q", r"\\q, which means nothing"),
        ("%s\\", "which means nothing"),
    ],
)
def test_a_token_that_means_nothing_is_named(form: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        OutputFormat(form)


def test_what_is_neither_a_name_nor_a_format_is_refused(topic: str, capfdbinary: Out) -> None:
    assert run(["read", topic, "--format", "xml"]) == 2
    assert b"allowed are values, ndjson, arrow, parquet, or a format such as" in capfdbinary.readouterr().err
    assert run(["read", topic, "-n", "--format", "%s"]) == 2
    assert b"in a format %o is the seqno" in capfdbinary.readouterr().err


def test_msgpack_is_shown_as_json_where_that_is_asked_for_and_is_exact_elsewhere(topic: str, capfdbinary: Out) -> None:
    with Client() as client:
        client.create_topic(topic, 1, Settings(value="msgpack"))
        assert client.describe_topic(topic).settings.value == "msgpack"
    with Writer(topic, value="msgpack") as writer:
        writer.write({"t": 21.5, "raw": b"\0"}, key=b"k")
        writer.write(None)
    with Writer(topic) as writer:
        writer.write(b"\xc1")
    capfdbinary.readouterr()
    with Reader(topic) as reader:
        raw = [record.value or b"" for record in reader]
    assert run(["read", topic]) == 0
    assert capfdbinary.readouterr().out == b"".join(value + b"\n" for value in raw)
    assert run(["read", topic, "--value", "msgpack"]) == 0
    told = capfdbinary.readouterr()
    assert told.out == b'{"t":21.5,"raw":"AA=="}\n\n\xc1\n'
    assert b"1 values are not msgpack: they were printed as they are" in told.err
    assert run(["read", topic, "--value", "msgpack", "--format", "ndjson", "--limit", "2"]) == 0
    rows = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [row["value"] for row in rows] == [{"t": 21.5, "raw": "AA=="}, None]
    assert "topic" not in rows[0]
    assert run(["read", f"{topic},{topic}/0", "--value", "msgpack", "-f", r"%k %s\n", "--limit", "1"]) == 0
    assert capfdbinary.readouterr().out == b'k {"t":21.5,"raw":"AA=="}\n'


def test_each_topic_is_shown_as_its_own_setting_says() -> None:
    shown = ShownValues(None, {"packed": "msgpack", "plain": "json"})
    assert not shown.is_idle
    assert shown.take([b"\x01", None], "packed") == [b"1", None]
    assert shown.take([b"\x01"], "plain") == shown.take([b"\x01"], "other") == [b"\x01"]
    assert ShownValues("bytes", {"packed": "msgpack"}).take([b"\x01"], "packed") == [b"\x01"]
    assert ShownValues(None, {"plain": "json"}).is_idle
