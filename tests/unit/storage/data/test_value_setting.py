"""What a topic's settings say of values, and what a topic's file says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from logboom.cli.setting import apply_settings, list_settings
from logboom.errors import ConfigError
from logboom.protocols.http.api.topics import merge_settings
from logboom.protocols.http.problem import RequestError
from logboom.server.sources import Setting, load
from logboom.storage.data.directory import DataDirectory
from logboom.storage.data.topic import Settings, Topic


def topic_file(path: Path) -> bytes:
    return next(path.glob("topics/*/topic.json")).read_bytes()


def test_the_file_has_it_only_where_it_is_set(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path)) as data:
        topic = data.create_topic("events")
        assert b'"value"' not in topic_file(tmp_path)
        assert topic.settings.value is msgspec.UNSET
        data.configure_topic("events", msgspec.structs.replace(topic.settings, value="json"))
        assert b'"value": "json"' in topic_file(tmp_path)
    with DataDirectory.open(str(tmp_path)) as data:
        assert [topic.settings.value for topic in data.topics()] == ["json"]
        data.configure_topic("events", Settings())
        assert b'"value"' not in topic_file(tmp_path)


@pytest.mark.parametrize("value", [None, "yaml", "", 5])
def test_anything_else_is_refused_before_it_is_written(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"value: is .*, allowed are json, text, msgpack, bytes"):
        Topic.make("events", settings=Settings(value=value))


def test_the_command_line_sets_it_and_takes_it_back() -> None:
    said = apply_settings(Settings(), ["value=MSGPACK", "retention.age=7d"])
    assert (said.value, said.retention.age_ms) == ("msgpack", 604_800_000)
    assert {key: shown for key, shown, _ in list_settings(said)}["value"] == "msgpack"
    assert apply_settings(said, ["value="]).value is apply_settings(said, ["value=none"]).value is msgspec.UNSET
    with pytest.raises(ConfigError, match="allowed is one of bytes, json, msgpack, text, or none"):
        apply_settings(Settings(), ["value=yaml"])


def test_http_changes_set_it_and_null_takes_it_back() -> None:
    said = merge_settings(Settings(), {"value": "text"})
    assert said.value == "text"
    assert merge_settings(said, {"retention": {"bytes": 5}}).value == "text"
    assert merge_settings(said, {"value": None}) == Settings()
    assert merge_settings(said, {"retention": {"bytes": None}}).value == "text"
    with pytest.raises(RequestError, match=r"settings\.value"):
        merge_settings(said, {"value": {"form": "json"}})


@pytest.mark.parametrize(("given", "value"), [("json", "json"), ("none", msgspec.UNSET)])
def test_a_node_gives_new_topics_what_its_configuration_says(given: str, value: Any) -> None:
    loaded = load([Setting("topics.settings.value", given, "a flag")], environment={})
    assert loaded.config.topics.settings.value == value
    assert loaded.values()["topics.settings.value"] == (None if value is msgspec.UNSET else value)
