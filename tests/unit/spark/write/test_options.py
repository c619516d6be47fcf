"""Options of a sink, as a user writes them, and the columns it takes."""

from __future__ import annotations

import logging

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from logboom.errors import ConfigError, InvalidColumn
from logboom.spark.write.layout import ColumnLayout, plan_layout
from logboom.spark.write.options import NAMES, Order, WriteOptions, options_of_table, overlay

PLACE = {"path": "logboom://host:1", "topic": "events"}


def parse(**options: str) -> WriteOptions:
    return WriteOptions.parse({**PLACE, **options})


KINDS = {
    kind.simpleString(): kind
    for kind in (
        *(BinaryType(), BooleanType(), IntegerType(), LongType(), StringType(), VariantType()),
        *(TimestampType(), TimestampNTZType()),
        *(ArrayType(StringType()), ArrayType(IntegerType()), StructType().add("a", IntegerType())),
        *(MapType(StringType(), IntegerType()), MapType(StringType(), BinaryType())),
        ArrayType(StructType().add("key", StringType()).add("value", BinaryType())),
    )
}


def plan(columns: str, **options: str) -> ColumnLayout:
    schema = StructType()
    for column in columns.split(", "):
        name, kind = column.split()
        schema = schema.add(name, KINDS[kind])
    return plan_layout(schema, WriteOptions.parse({"path": "logboom://host:1", **options}))


def test_little_has_to_be_said() -> None:
    assert parse() == WriteOptions(("host:1",), "events")
    assert WriteOptions.parse({"servers": "one,two:2"}).servers == ("one:1773", "two:2")


def test_who_may_make_a_topic_is_said_in_words_or_as_a_flag() -> None:
    said = [parse(createTopic=word).create for word in ("first", "Always", "true", "never", "FALSE")]
    assert said == ["first", "always", "always", "never", "never"]
    assert parse().create == "first"
    with pytest.raises(ConfigError, match=r"createTopic: is 'perhaps', allowed are first, always .*, never"):
        parse(createTopic="perhaps")


def test_names_are_taken_in_any_case_and_by_those_of_kafkas_sink(caplog: pytest.LogCaptureFixture) -> None:
    kafka = {"kafka.bootstrap.servers": "host:1", "topic": "a", "kafka.linger.ms": "5", "includeHeaders": "true"}
    with caplog.at_level(logging.WARNING):
        assert WriteOptions.parse(kafka) == WriteOptions(("host:1",), "a")
    assert "kafka.linger.ms is for Kafka's client" in caplog.text
    assert parse(BATCHBYTES="64k", TimeOut="2m", CODEC="LZ4") == WriteOptions(
        ("host:1",), "events", "lz4", 65536, timeout_s=120.0
    )
    streams = {**PLACE, "checkpointLocation": "/c", "queryName": "q", "serialization.format": "1"}
    assert WriteOptions.parse(streams) == WriteOptions(("host:1",), "events", checkpoint="/c", query_name="q")


def test_an_order_has_columns_and_ways() -> None:
    assert parse(orderBy="a, b desc,`c d` ASC").order == (Order("a"), Order("b", True), Order("c d"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "/data"}, "path: /data is a directory, and writing goes through its server: save"),
        ({"path": "hdfs://x"}, "path: 'hdfs://x' is neither"),
        ({"topic": "a,b"}, "topic: 'a,b' names several"),
        ({"topic": "a b"}, "topic: 'a b' is no topic name"),
        ({"topc": "a"}, "topc: is no option of the logboom sink: did you mean topic"),
        ({"zzzzzz": "a"}, f"there are {', '.join(NAMES)}"),
        ({"startingSeqno": "1"}, "startingSeqno: is not supported: it is for reading"),
        ({"asyncProgressTrackingEnabled": "true"}, "is not supported: Spark then forgets"),
        ({"txnAppId": "a"}, "txnVersion: belongs to txnAppId: give both, or none"),
        ({"txnVersion": "1"}, "txnAppId: belongs to txnVersion: give both, or none"),
        ({"txnAppId": " ", "txnVersion": "1"}, "txnAppId: key '': a name is 1 to 249 printable ASCII characters"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "txnVersion: is '-1', allowed are whole numbers"),
        ({"txnAppId": "a", "txnVersion": str(2**63)}, "below 2^63"),
        ({"codec": "gzip"}, "codec: is 'gzip', allowed are none, lz4, zstd"),
        ({"batchBytes": "1g"}, "batchBytes: is '1g', allowed are 1k to 16m"),
        ({"timeout": "soon"}, "timeout: is 'soon', allowed are seconds"),
        ({"servers": "other:1"}, "servers: is another place than the path"),
    ],
)
def test_mistakes_are_named_with_what_is_allowed(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(**options)
    assert said in str(caught.value)


def test_a_place_has_to_be_said() -> None:
    with pytest.raises(ConfigError, match="path: say where to write"):
        WriteOptions.parse({"topic": "a"})


def test_of_a_tables_options_those_count_that_say_where_it_is() -> None:
    kept = {"path": "logboom://host:1", "Subscribe": "a", "tag": "red", "startingSeqno": "5"}
    assert options_of_table(kept) == {"path": "logboom://host:1", "topic": "a"}
    assert options_of_table({"servers": "host:1", "topic": "a,b"}) == {"servers": "host:1"}
    assert overlay(options_of_table(kept), {"TOPIC": "b"}) == {"path": "logboom://host:1", "TOPIC": "b"}


def test_the_option_goes_before_the_column_and_a_seqno_is_left_out() -> None:
    whole = (
        "topic string, partition int, seqno bigint, timestamp timestamp, key binary, value binary, channel string, "
        "tags array<string>, headers array<struct<key:string,value:binary>>"
    )
    parts = ("value", "key", "timestamp", "channel", "tags", "headers")
    assert plan(whole).columns == (*parts, "topic", "partition")
    assert plan(whole, topic="a") == ColumnLayout((*parts, "partition"), "a", False, ())
    assert plan("value string, key string", topic="a") == ColumnLayout(("value", "key"), "a", False, ())
    for nested in ("struct<a:int>", "map<string,int>", "array<int>"):
        assert plan(f"value {nested}", topic="a").is_json
    sorted_by = plan("value string, at timestamp, seqno bigint", topic="a", orderBy="at desc, seqno")
    assert sorted_by.columns == ("value",)


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        (
            "value int",
            {},
            "value: is int, allowed is binary, string, or a struct, map or array, which become JSON: cast",
        ),
        ("value timestamp", {}, "value: is timestamp, allowed is"),
        ("value boolean", {}, "to_json(struct(…))"),
        ("value variant", {}, "value: is variant, allowed is"),
        ("value string, key int", {}, "key: is int, allowed is binary or string: cast it"),
        ("value string, tags string", {}, "tags: is string, allowed is array<string>"),
        ("value string, channel binary", {}, "channel: is binary, allowed is string"),
        ("value string, timestamp bigint", {}, "timestamp: is bigint, allowed is timestamp"),
        ("value string, timestamp timestamp_ntz", {}, "timestamp: is timestamp_ntz, allowed is timestamp"),
        ("value string, partition bigint", {}, "partition: is bigint, allowed is int"),
        ("value string, headers map<string,binary>", {}, "allowed is array<struct<key:string,value:binary>>"),
        ("value string, vlaue int", {}, "vlaue: no part of a record; there are value, key, timestamp, channel, tags"),
        ("value string, chanel string", {}, "did you mean channel?"),
        ("value string, room string", {}, "put what belongs to the value into a struct"),
        ("value string, value string", {}, "value: two columns have this name"),
        ("key string", {}, "value: a record needs one, and there is none; there are key"),
        ("value string", {"orderBy": "at"}, "at: orderBy names it, and there is none; there are value"),
        ("value string, at array<int>", {"orderBy": "at"}, "at: rows cannot be sorted by array<int>"),
    ],
)
def test_columns_that_cannot_be_written_are_named(schema: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidColumn) as caught:
        plan(schema, topic="a", **options)
    assert said in str(caught.value)


def test_a_topic_has_to_be_said() -> None:
    with pytest.raises(InvalidColumn, match="topic: where to write is not said"):
        plan("value string")
