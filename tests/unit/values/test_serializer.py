"""Values of programs as bytes, and back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from logboom import Record
from logboom.errors import ConfigError, InvalidColumn, ValueUnreadable
from logboom.values.encoded_column import encoded_column
from logboom.values.serializer import REASON_MAX, ValueCoder, ValueFormat, coder_of

VALUES: dict[ValueFormat, list[Any]] = {
    "json": [{"t": 21.5, "tags": ["a", None]}, [], "text", 2**70, True, ""],
    "text": ["", "naïve ✓", "a\nb\0"],
    "msgpack": [{"raw": b"\0\xff", 1: [2, 3]}, b"", "text", datetime(2026, 1, 1, tzinfo=UTC)],
}


class Reversed:
    """A serializer of somebody's own."""

    def encode(self, value: Any) -> Any:
        return value[::-1]

    def decode(self, data: bytes) -> Any:
        return data[::-1]


def coder(value: Any) -> ValueCoder:
    found = coder_of(value)
    assert found is not None
    return found


@pytest.mark.parametrize("form", VALUES)
def test_what_is_encoded_is_decoded_to_the_same(form: ValueFormat) -> None:
    for value in VALUES[form]:
        data = coder(form).encode(value)
        assert type(data) is bytes
        assert coder(form).decode(Record(data)).value == value


@pytest.mark.parametrize("form", [*VALUES, Reversed()])
def test_a_tombstone_is_one_in_both_directions(form: Any) -> None:
    assert coder(form).encode(None) is None
    assert coder(form).decode(Record(None)).value is None
    assert coder(form).decode_list([None, None]) == ([None, None], None)


def test_a_record_keeps_everything_but_its_value() -> None:
    record = Record(b"[1]", b"[2]", 3, "c", ("t",), (("h", b"[4]"),), 5, "events", 6)
    assert coder("json").decode(record) == Record([1], b"[2]", 3, "c", ("t",), (("h", b"[4]"),), 5, "events", 6)


def test_bytes_and_nothing_leave_values_alone() -> None:
    assert coder_of(None) is coder_of("bytes") is None


@pytest.mark.parametrize(
    ("form", "data"),
    [
        ("json", b"{"),
        ("json", b""),
        ("json", b"[" * 100_000),
        ("json", b'"\xff"'),
        ("text", b"\xff"),
        ("msgpack", b"\x91" * 100_000),
        ("msgpack", b"\xc1"),
    ],
)
def test_what_cannot_be_decoded_is_an_error_that_says_where_and_has_the_bytes(form: ValueFormat, data: bytes) -> None:
    record = Record(data, seqno=17, topic="rooms", partition=3)
    with pytest.raises(ValueUnreadable, match=f"rooms/3: the value of seqno 17 is not what {form} reads") as caught:
        coder(form).decode(record)
    error = caught.value
    assert (error.topic, error.partition, error.seqno, error.serializer) == ("rooms", 3, 17, form)
    assert error.value == data == record.value, "the record is as it was"
    assert len(error.reason) <= REASON_MAX


@pytest.mark.parametrize(
    ("form", "value", "words"),
    [
        ("json", object(), "json cannot hold this object"),
        ("json", "\ud800", "json cannot hold this str"),
        ("json", {(1, 2): 3}, "json cannot hold this dict"),
        ("text", b"bytes", "text cannot hold this bytes: it is not text"),
        ("text", "\ud800", "text cannot hold this str"),
        ("msgpack", 2**70, "msgpack cannot hold this int"),
        (Reversed(), 5, "Reversed cannot hold this int"),
        (Reversed(), "text", "Reversed made str of it, which is not bytes"),
    ],
)
def test_what_cannot_be_encoded_is_an_invalid_column(form: Any, value: Any, words: str) -> None:
    with pytest.raises(InvalidColumn, match=f"^value: {words}"):
        coder(form).encode(value)


def test_a_list_is_decoded_up_to_the_first_value_that_cannot_be() -> None:
    assert coder("json").decode_list([b"1", None, b'"a"']) == ([1, None, "a"], None)
    values, error = coder("json").decode_list([b"1", None, b"{", b"2"])
    assert (values, type(error).__name__) == ([1, None], "DecodeError")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("yaml", "is 'yaml', allowed are json, text, msgpack, bytes, or a serializer"),
        (Reversed, "is the class Reversed: give an object of it"),
        (5, r"int is no serializer: it has no encode\(\)"),
        (pytest, r"module is no serializer: it has no encode\(\)"),
    ],
)
def test_what_is_no_serializer_is_refused_by_name(value: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        coder_of(value)


@pytest.mark.parametrize(
    "values",
    [
        [1, None, 3],
        (1, None, 3),
        pa.array([1, None, 3]),
        pa.chunked_array([[1], [None, 3]]),
        np.array([1, None, 3], dtype=object),
        pd.Series([1, None, 3], dtype=object),
    ],
)
def test_columns_of_every_kind_are_encoded_and_keep_their_length(values: Any) -> None:
    column = encoded_column(values, coder("json"))
    assert (len(column), list(column)) == (3, [b"1", None, b"3"])


def test_a_column_without_a_length_is_gone_through_once() -> None:
    column = encoded_column(({"n": n} for n in range(3)), coder("json"))
    assert not hasattr(column, "__len__")
    assert list(column) == [b'{"n":0}', b'{"n":1}', b'{"n":2}']


@pytest.mark.parametrize("values", ["text", b"bytes", {"one": "object"}])
def test_one_value_is_no_column(values: Any) -> None:
    with pytest.raises(InvalidColumn, match="put it in a list"):
        encoded_column(values, coder("json"))


def test_what_cannot_be_gone_through_is_no_column() -> None:
    with pytest.raises(InvalidColumn, match="not iterable"):
        list(encoded_column(5, coder("json")))
