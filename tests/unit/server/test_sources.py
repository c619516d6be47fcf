"""The configuration from its sources: which value counts, where it came from, and what is said of a wrong one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from logboom.errors import ConfigError
from logboom.server.config import default_directory
from logboom.server.keys import KEYS
from logboom.server.sources import DEFAULT, Setting, faults_of, load, read_flag

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_without_any_source_everything_is_default() -> None:
    loaded = load(environment={})
    assert set(loaded.sources.values()) == {DEFAULT}
    assert loaded.values() == {name: key.default for name, key in KEYS.items()}
    assert loaded.config.listen.binary == ("127.0.0.1:1773",)


def test_flags_win_over_the_environment_and_that_over_the_file() -> None:
    Path("logboom.toml").write_text("[limits]\nconnections = 1\ntopics = 1\nbatch_bytes = '1MiB'\n")
    environment = {"LOGBOOM_LIMITS__CONNECTIONS": "2", "LOGBOOM_LIMITS__TOPICS": "2"}
    loaded = load([read_flag("limits.connections=3")], environment=environment)
    limits = loaded.config.limits
    assert (limits.connections, limits.topics, limits.batch_bytes) == (3, 2, 1 << 20)
    assert loaded.sources["limits.connections"] == "--set"
    assert loaded.sources["limits.topics"] == "LOGBOOM_LIMITS__TOPICS"
    assert loaded.sources["limits.batch_bytes"] == str(Path("logboom.toml").absolute())
    assert loaded.sources["limits.cursors"] == DEFAULT


def test_the_file_is_the_one_named_else_that_of_the_environment_else_the_one_here(tmp_path: Path) -> None:
    for number, name in enumerate(("flag.toml", "variable.toml", "logboom.toml")):
        Path(name).write_text(f"threads = {number + 1}\n")
    variable = {"LOGBOOM_CONFIG": f"{tmp_path}/variable.toml"}
    assert load(file="flag.toml", environment=variable).config.threads == 1
    assert load(environment=variable).config.threads == 2
    assert load(environment={}).config.threads == 3
    Path("logboom.toml").unlink()
    assert load(environment={}).file is None
    with pytest.raises(FileNotFoundError):
        load(file="nowhere.toml", environment={})


def test_sizes_durations_flags_lists_and_nothing_are_the_same_in_every_source(tmp_path: Path) -> None:
    Path("logboom.toml").write_text(
        """
        shutdown_deadline_ms = "5s"
        [limits]
        read_bytes = "32MiB"
        idle_ms = 60000
        [topics]
        auto_create = false
        denied = ["secret.*", "x"]
        [topics.settings.retention]
        age_ms = "7d"
        [topics.settings.hook]
        delete = "none"
        [upkeep]
        scrub_bytes_per_second = "none"
        """
    )
    from_file = load(environment={}).config
    Path("logboom.toml").unlink()
    texts = {
        "SHUTDOWN_DEADLINE_MS": "5000",
        "LIMITS__READ_BYTES": "33554432",
        "LIMITS__IDLE_MS": "1m",
        "TOPICS__AUTO_CREATE": "off",
        "TOPICS__DENIED": "secret.*, x",
        "TOPICS__SETTINGS__RETENTION__AGE_MS": "168h",
        "TOPICS__SETTINGS__HOOK__DELETE": "",
        "UPKEEP__SCRUB_BYTES_PER_SECOND": "none",
    }
    from_variables = load(environment={f"LOGBOOM_{name}": text for name, text in texts.items()}).config
    names = {name.lower().replace("__", "."): text for name, text in texts.items()}
    from_flags = load([read_flag(f"{name}={text}") for name, text in names.items()], environment={}).config
    assert from_file == from_variables == from_flags
    assert from_file.upkeep.scrub_bytes_per_second is None
    assert from_file.topics.settings.retention.age_ms == 7 * 86_400_000


def test_paths_in_a_file_are_relative_to_it_and_others_to_where_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "node.toml").write_text('data = "../data"\n[listen]\nunix = "node.sock"\n')
    config = load(file="etc/node.toml", environment={}).config
    assert (config.data, config.listen.unix) == (f"{tmp_path}/data", f"{tmp_path}/etc/node.sock")
    assert load([Setting("data", "here", "--data")], environment={}).config.data == f"{tmp_path}/here"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load([Setting("data", "~/there", "--data")], environment={}).config.data == f"{tmp_path}/there"


def test_the_default_directory_is_the_one_for_data_of_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")
    assert default_directory() == "/somewhere/logboom"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert default_directory() == "/home/me/.local/share/logboom"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert default_directory() == "/var/lib/logboom"


@pytest.mark.parametrize(
    ("written", "key", "words"),
    [
        ("[limits]\nbatch_bites = 1", "limits.batch_bites", ["no such key", "FILE", "nearest is limits.batch_bytes"]),
        ("batch_bytes = 1", "batch_bytes", ["nearest is limits.batch_bytes"]),
        ("[limmits]\nconnections = 1", "limmits", ["no such key"]),
        ("[limits]\nbatch_bytes = '128MiB'", "limits.batch_bytes", ["'128MiB'", "4KiB to 64MiB", "FILE"]),
        ("[limits]\nconnections = 'many'", "limits.connections", ["'many'", "1 to 1,000,000"]),
        ("[limits]\nconnections = true", "limits.connections", ["whole number"]),
        ("[limits]\nidle_ms = 1.5", "limits.idle_ms", ["a duration such as"]),
        ("limits = 5", "limits", ["is a section", "[limits]"]),
        ("log_level = 'loud'", "log_level", ["debug, error, info, warning"]),
        ("data = ''", "data", ["not empty"]),
        ("[topics]\nallowed = [1]", "topics.allowed", ["list of texts"]),
        ("[topics]\nauto_create = 'maybe'", "topics.auto_create", ["true or false"]),
        ("[topics.settings.flush]\npolicy = 'never'", "topics.settings.flush.policy", ["each, interval, os"]),
        ("[listen]\nbinary = ['nonsense:99999']", "listen.binary", ["'nonsense:99999'", "127.0.0.1:1773"]),
        ("[listen]\nbinary = []\nlogd = []\nhttp = []", "listen", ["nothing to listen on"]),
        ("data = \n", "FILE", ["is not TOML", "line 1"]),
    ],
)
def test_a_wrong_key_or_value_is_told_with_its_name_its_source_and_what_is_allowed(
    written: str, key: str, words: list[str], tmp_path: Path
) -> None:
    path = f"{tmp_path}/node.toml"
    Path(path).write_text(written)
    with pytest.raises(ConfigError) as refused:
        load(file=path, environment={})
    assert refused.value.key == key.replace("FILE", path)
    for word in words:
        assert word.replace("FILE", path) in str(refused.value)
    assert [str(fault) for fault in faults_of(path)] == [str(refused.value)]


def test_all_that_is_wrong_with_a_file_is_told_at_once(tmp_path: Path) -> None:
    Path("node.toml").write_text("thread = 1\nthreads = 0\n[limits]\nconnections = 0\ntopics = 5\n")
    assert [fault.key for fault in faults_of("node.toml")] == ["thread", "threads", "limits.connections"]


@pytest.mark.parametrize(
    "variable",
    [
        "LOGBOOM_LIMITS__BATCH_BITES",
        "LOGBOOM_LIMITS_BATCH_BYTES",
        "LOGBOOM_BATCH_BYTES",
        "LOGBOOM_THREAD",
        "LOGBOOM_LIMIT__TOPICS",
    ],
)
def test_a_variable_that_resembles_a_key_is_refused(variable: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(variable)):
        load(environment={variable: "1"})


def test_variables_of_others_are_named_and_left_alone() -> None:
    others = {
        "LOGBOOM_SERVERS": "elsewhere:1773",
        "LOGBOOM_SERVICE_HOST": "10.0.0.1",
        "LOGBOOM_PORT_1773_TCP": "tcp://10.0.0.1:1773",
        "LOGBOOM_TOPIC": "events",
        "PATH": "/bin",
    }
    loaded = load(environment=others)
    assert loaded.ignored == ("LOGBOOM_PORT_1773_TCP", "LOGBOOM_SERVICE_HOST", "LOGBOOM_TOPIC")
    assert set(loaded.sources.values()) == {DEFAULT}


@pytest.mark.parametrize(("flag", "words"), [("limits.topics", "key=value"), ("limits.topic=5", "limits.topics")])
def test_a_wrong_flag_is_refused(flag: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_flag(flag)


def test_every_key_reads_what_it_writes() -> None:
    for key in (key for key in KEYS.values() if key.kind != "table"):
        assert key.parse(key.write(key.default)) == key.default, key.name


def test_hooks_are_named_one_by_one_by_every_source_and_the_later_wins(tmp_path: Path) -> None:
    Path("logboom.toml").write_text('[hooks]\narchive = "cp it, there"\nnote = "echo"\n')
    environment = {"LOGBOOM_HOOKS__NOTE": "echo louder", "LOGBOOM_HOOKS__MORE": "true"}
    loaded = load([read_flag("hooks.flag=a = b")], environment=environment)
    assert loaded.config.hooks == {"archive": "cp it, there", "note": "echo louder", "more": "true", "flag": "a = b"}
    assert loaded.config.broker().allowed.hooks == loaded.config.hooks
    assert "LOGBOOM_HOOKS__NOTE" in loaded.sources["hooks"]
    assert "--set" in loaded.sources["hooks"]
    assert KEYS["hooks"].write(loaded.values()["hooks"]) == "archive, note, more, flag"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[hooks]\nUpper = 'x'", r"hooks\.Upper: a name is 1 to 64"),
        ("[hooks]\n'a b' = 'x'", r"hooks\.a b: a name"),
        ("[hooks]\n'a.b' = 'x'", r"hooks\.a\.b: there is no such key"),
        ("[hooks.a]\nb = 'x'", r"hooks\.a: is "),
        ("[hooks]\na = ' '", r"hooks\.a: is ' ', allowed is"),
        ("[hooks]\na = 1", r"hooks\.a: is 1"),
        ("hooks = 'x'", "hooks: is a section"),
        ("[topics.settings.hook]\ndelete = 'rm -r /'", r"topics\.settings\.hook\.delete: 'rm -r /' is no hook"),
        (
            "[topics.settings.validators]\nurls = ['http://a/']",
            r"topics\.settings\.validators\.urls: 'http://a/' is not",
        ),
        ("[validators]\nallow = ['ftp://a/']", r"validators\.allow: 'ftp://a/' is no URL"),
        ("[validators]\nallow = ['http://a/?b']", r"validators\.allow: .* has a query"),
        ("[validators]\nnetworks = ['10.0.0.1/8']", r"validators\.networks: 10\.0\.0\.1/8 has host bits"),
    ],
)
def test_a_wrong_hook_or_validator_stops_the_start(text: str, words: str, tmp_path: Path) -> None:
    Path("logboom.toml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        load(environment={})


def test_the_example_is_a_file_of_all_keys_that_changes_nothing(tmp_path: Path) -> None:
    from logboom.server.reference import example

    text = example()
    Path("as-it-is.toml").write_text(text)
    assert set(load(file="as-it-is.toml", environment={}).sources.values()) == {DEFAULT}
    uncommented = re.sub(r"^#(?! )", "", text, flags=re.MULTILINE).replace(
        "~/.local/share/logboom", default_directory()
    )
    assert tomllib.loads(uncommented)
    Path("all.toml").write_text(uncommented)
    loaded = load(file="all.toml", environment={})
    assert loaded.config == load(environment={}).config
    assert [name for name, source in loaded.sources.items() if source == DEFAULT] == ["hooks"]


def test_the_reference_is_what_the_code_says() -> None:
    from logboom.server.reference import page

    assert (ROOT / "docs" / "reference" / "config.md").read_text() == page()
