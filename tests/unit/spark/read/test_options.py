"""Options as a user writes them."""

from __future__ import annotations

import json
import logging
import os

import pytest

from logboom.batch import Selection
from logboom.errors import ConfigError
from logboom.spark.read.options import NAMES, SPLIT_BYTES, Points, ReadOptions, options_to_keep, overlay

PLACE = {"path": "/data", "topic": "events"}
SECOND = 1_000_000


def parse(**options: str) -> ReadOptions:
    return ReadOptions.parse({**PLACE, **options})


def test_little_has_to_be_said() -> None:
    options = ReadOptions.parse(PLACE)
    assert (options.directory, options.servers, options.topics) == ("/data", (), ("events",))
    assert (options.starting, options.ending) == (Points(), Points())
    assert (options.fail_on_loss, options.skip_damage, options.access, options.pushdown) == (True, False, "auto", False)
    assert (options.min_splits, options.split_bytes, options.split_records) == (1, SPLIT_BYTES, None)
    assert options.wanted == Selection()


def test_a_path_is_a_directory_or_a_node() -> None:
    def place(path: str, **more: str) -> tuple[str | None, tuple[str, ...]]:
        found = ReadOptions.parse({"path": path, "topic": "t", **more})
        return found.directory, found.servers

    assert place("data") == (os.path.abspath("data"), ())
    assert place("~/data") == (os.path.expanduser("~/data"), ())
    assert place("file:/srv/a%20b") == ("/srv/a b", ())
    assert place("file:///srv/data") == ("/srv/data", ())
    assert place("logboom://host:1") == (None, ("host:1",))
    assert place("logboom://one:1,two:2")[1] == ("one:1", "two:2")
    assert place("/data", servers="host:1") == ("/data", ("host:1",)), "the node's files, found here"
    with pytest.raises(ConfigError, match="path: 'hdfs://x/y' is neither a directory"):
        place("hdfs://x/y")
    with pytest.raises(ConfigError, match="servers: is another place than the path"):
        place("logboom://host:1", servers="host:2")


def test_names_are_taken_in_any_case_and_by_those_of_kafkas_source() -> None:
    assert parse(STARTINGSEQNO="5").starting == Points(5)
    kafka = {
        "kafka.bootstrap.servers": "host:1",
        "subscribe": "a, b",
        "startingOffsets": '{"a": {"0": 5, "1": -2, "2": -1}}',
        "endingOffsets": "latest",
        "maxOffsetsPerTrigger": "10",
        "minPartitions": "3",
        "failOnDataLoss": "false",
    }
    options = ReadOptions.parse(kafka)
    assert (options.servers, options.topics, options.max_records) == (("host:1",), ("a", "b"), 10)
    assert [options.starting.of("a", number) for number in range(4)] == [5, "earliest", "latest", None]
    assert (options.ending, options.min_splits, options.fail_on_loss) == (Points("latest"), 3, False)
    assert ReadOptions.parse({"path": "/d", "subscribePattern": "a.*"}).pattern == "a.*"
    assigned = ReadOptions.parse({"path": "/d", "assign": '{"a": [2, 0]}'})
    assert (assigned.topics, assigned.partitions) == (("a",), {"a": (0, 2)})


def test_what_tunes_kafkas_client_is_named_and_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "logboom.spark"):
        ReadOptions.parse({**PLACE, "kafka.fetch.min.bytes": "5", "includeHeaders": "true"})
    assert "kafka.fetch.min.bytes" in caplog.text
    assert "includeHeaders" in caplog.text


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1970-01-01T00:00:01Z", SECOND),
        ("1970-01-01T01:00:00.000001+01:00", 1),
        ("1969-12-31T23:59:59Z", -SECOND),
        ("1500", 1500 * 1000),
        ("0", 0),
    ],
)
def test_times_are_iso_or_milliseconds(text: str, moment: int) -> None:
    assert parse(startingTimestamp=text).starting_times == Points(moment)
    by_log = parse(endingTimestamp=json.dumps({"events": {"1": text}})).ending_times
    assert (by_log.of("events", 1), by_log.of("events", 0)) == (moment, None)


def test_a_place_may_be_given_for_a_topic_or_for_each_partition() -> None:
    points = ReadOptions.parse({**PLACE, "topic": "a,b,c", "startingSeqno": '{"a": 7, "b": {"1": "latest"}}'}).starting
    assert (points.of("a", 0), points.of("a", 9)) == (7, 7)
    assert (points.of("b", 0), points.of("b", 1), points.of("c", 0)) == (None, "latest", None)


@pytest.mark.parametrize(("text", "size"), [("1", 1), ("64k", 65536), ("64 MB", 64 << 20), ("2GiB", 2 << 30)])
def test_sizes_are_written_as_spark_writes_them(text: str, size: int) -> None:
    assert parse(splitBytes=text).split_bytes == size


def test_what_is_wanted_of_records() -> None:
    assert parse(tag="a, b", tagsAll="c").wanted == Selection(tags_any=("a", "b"), tags_all=("c",))
    assert parse(channel="site/+/temp").wanted == Selection(channel="site/+/temp")
    assert parse(key="ü").wanted == Selection(key="ü".encode())
    assert parse(keyBase64="AP8=").wanted == Selection(key=b"\0\xff")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("topic", " , ", "topic: is empty"),
        ("topicPattern", "(", "topicPattern: '\\(' is no regular expression"),
        ("partitions", "[1]", 'partitions: .* is not as in {"events"'),
        ("partitions", "{}", "partitions: names no topic"),
        ("partitions", '{"events": [-1]}', "partitions: .*is not as in"),
        ("partitions", '{"events": [true]}', "partitions: .*is not as in"),
        ("startingSeqno", "soon", "startingSeqno: is 'soon', allowed are earliest, latest, a seqno"),
        ("startingSeqno", "-3", "startingSeqno: is -3, allowed"),
        ("startingSeqno", "9223372036854775808", "startingSeqno: is 9223372036854775808, allowed"),
        ("endingSeqno", "1.5", "endingSeqno: is '1.5', allowed"),
        ("endingSeqno", '{"events": {"x": 1}}', "endingSeqno: is 'x', allowed are whole numbers"),
        ("endingSeqno", '{"events": true}', "endingSeqno: is True, allowed"),
        ("endingSeqno", '{"events": ', "endingSeqno: .* is not as in"),
        ("startingTimestamp", "yesterday", "startingTimestamp: 'yesterday' is no time"),
        ("startingTimestamp", "2026-01-31T12:00:00", "startingTimestamp: .* has no time zone"),
        ("endingTimestamp", '{"events": 1.5}', "endingTimestamp: is 1.5, allowed"),
        ("endingTimestamp", "9223372036854775807", "endingTimestamp: is 9223372036854775807, allowed"),
        ("startingTimestampStrategy", "guess", "startingTimestampStrategy: is 'guess', allowed are latest, error"),
        ("maxRecordsPerTrigger", "0", "maxRecordsPerTrigger: is '0', allowed are numbers from 1 on"),
        ("maxBytesPerTrigger", "much", "maxBytesPerTrigger: is 'much', allowed are bytes"),
        ("minPartitions", "two", "minPartitions: is 'two', allowed are whole numbers"),
        ("splitBytes", "0", "splitBytes: is '0', allowed are bytes"),
        ("maxRecordsPerPartition", "-1", "maxRecordsPerPartition: is '-1'"),
        ("failOnDataLoss", "yes", "failOnDataLoss: is 'yes', allowed are true and false"),
        ("onDamage", "ignore", "onDamage: is 'ignore', allowed are fail, skip"),
        ("tag", "", "tag: is empty"),
        ("channel", "a/#/b", "channel: .*# stands alone as the last level"),
        ("channel", "", "channel: a channel pattern has 1 to"),
        ("keyBase64", "?", "keyBase64: '\\?' is no base64"),
        ("access", "magic", "access: is 'magic', allowed are auto, files, server"),
        ("access", "server", "access: is 'server', but no server is named"),
        ("cursor", "mine", "cursor: is kept by a running node"),
        ("pushdown", "maybe", "pushdown: is 'maybe', allowed are true and false"),
        ("startingOffsets", "soon", "startingOffsets: is 'soon'"),
        ("minOffsetsPerTrigger", "5", "minOffsetsPerTrigger: is not supported: a trigger takes what there is"),
    ],
)
def test_a_bad_value_is_an_error_that_names_the_option_and_what_is_allowed(name: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ReadOptions.parse({**PLACE, name: value})


@pytest.mark.parametrize(
    ("name", "near"),
    [("startingSeqn", "startingSeqno"), ("topik", "topic"), ("failOnDatalos", "failOnDataLoss"), ("tagAll", "tagsAll")],
)
def test_an_unknown_option_is_an_error_that_names_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: is no option of the logboom source: did you mean {near}\\?"):
        ReadOptions.parse({**PLACE, name: "1"})


def test_an_option_like_no_other_is_an_error_with_all_there_are() -> None:
    with pytest.raises(ConfigError) as caught:
        ReadOptions.parse({**PLACE, "zzz": "1"})
    assert all(name in str(caught.value) for name in NAMES)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topic": "events"}, "path: say what to read"),
        ({"path": "/data"}, "topic: name one"),
        (
            {**PLACE, "startingSeqno": "1", "startingTimestamp": "1"},
            "startingTimestamp: cannot be given with startingS",
        ),
        ({**PLACE, "endingSeqno": "1", "endingTimestamp": "1"}, "endingTimestamp: cannot be given with endingSeqno"),
        ({**PLACE, "startingSeqno": "1", "startingOffsets": "1"}, "startingOffsets: says the same as startingSeqno"),
        ({**PLACE, "key": "a", "keyBase64": "YQ=="}, "keyBase64: says the same as key"),
        ({**PLACE, "startingSeqno": '{"evnts": 1}'}, "names topic evnts, which is not read: did you mean events"),
        (
            {**PLACE, "endingTimestamp": '{"x": 1}'},
            "endingTimestamp: names topic x, which is not read: read are events",
        ),
        ({**PLACE, "partitions": '{"event": [0]}'}, "partitions: names topic event, .*: did you mean events"),
        ({"path": "/data", "topic": "a,b", "partitions": '{"b": [0]}'}, "partitions: names none of topic a"),
    ],
)
def test_options_that_make_no_sense_together_are_an_error(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ReadOptions.parse(options)


def test_of_a_table_the_options_of_its_user_count_and_not_those_of_spark() -> None:
    of_spark = {"provider": "logboom", "owner": "me", "topic": "events", "location": "file:/srv/data"}
    mixed = {**of_spark, "option.topic": "events", "option.startingSeqno": "5"}
    options = ReadOptions.parse(mixed)
    assert (options.directory, options.topics, options.starting) == ("/srv/data", ("events",), Points(5))
    assert options_to_keep(mixed) == {"path": "/srv/data", "topic": "events", "startingSeqno": "5"}
    relative = {**of_spark, "option.topic": "events", "path": "data", "location": "data"}
    assert options_to_keep(relative)["path"] == os.path.abspath("data")
    assert options_to_keep({**relative, "path": "logboom://host:1"})["path"] == "logboom://host:1"


def test_a_query_may_say_otherwise_than_its_table_by_whatever_name() -> None:
    kept = {"path": "/data", "topic": "events", "startingSeqno": "5", "includeHeaders": "true"}
    assert overlay(kept, {"SUBSCRIBE": "other", "tag": "a"}) == {
        "path": "/data",
        "startingSeqno": "5",
        "includeHeaders": "true",
        "SUBSCRIBE": "other",
        "tag": "a",
    }
    assert overlay(kept, {"startingTimestamp": "7"}) == {
        "path": "/data",
        "topic": "events",
        "includeHeaders": "true",
        "startingTimestamp": "7",
    }
    assert "topic" not in overlay(kept, {"subscribePattern": "o.*"})
