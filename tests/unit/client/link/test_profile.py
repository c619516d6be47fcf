"""How a client gets to a node and who it is there: from what is said, a file, or the environment."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from logboom.client.link.address import list_servers, parse_servers
from logboom.client.link.profile import Profile
from logboom.errors import ConfigError

SECRET = "lbt_0f3a5b7c9d1e_" + 64 * "7"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "profiles.toml"
    file.write_text(
        f"""
        [prod]
        servers = ["tls://one:1773", "tls://two:1773"]
        ca = "ca.pem"
        user = "alice"
        password = "correct horse"

        [robot]
        servers = "tls://one"
        token = "{SECRET}"

        [open]
        servers = "localhost"

        [both]
        user = "alice"
        token = "{SECRET}"

        [strange]
        pasword = "x"
        """
    )
    file.chmod(0o600)
    return {"LOGBOOM_PROFILES": str(file)}


def test_a_profile_of_the_file_is_found_by_its_sign_or_the_environment(
    environment: dict[str, str], tmp_path: Path
) -> None:
    found = Profile.find("@prod", environment)
    assert (found.servers, found.user) == (("tls://one:1773", "tls://two:1773"), "alice")
    assert found.ca == str(tmp_path / "ca.pem"), "paths are relative to the file"
    assert Profile.find(["@prod"], environment) == found
    assert Profile.find(None, {**environment, "LOGBOOM_PROFILE": "prod"}) == found
    assert [address.profile.user for address in parse_servers("@prod", environment)] == ["alice", "alice"]


def test_servers_that_are_named_go_before_those_of_the_profile(environment: dict[str, str]) -> None:
    found = Profile.find("tls://three", {**environment, "LOGBOOM_PROFILE": "prod"})
    assert (found.servers, found.user) == ("tls://three", "alice")


def test_without_a_profile_the_environment_says_all_of_it() -> None:
    said = {
        "LOGBOOM_SERVERS": "tls://one",
        "LOGBOOM_USER": "alice",
        "LOGBOOM_PASSWORD": "secret",
        "LOGBOOM_CA": "ca.pem",
        "LOGBOOM_CERTIFICATE": "a.pem",
        "LOGBOOM_KEY": "a.key",
        "LOGBOOM_SERVER_NAME": "two",
    }
    assert Profile.find(None, said) == Profile(
        *("tls://one", "alice", "secret"), ca="ca.pem", certificate="a.pem", key="a.key", server_name="two"
    )
    assert Profile.find(None, {"LOGBOOM_TOKEN": SECRET}) == Profile(token=SECRET)
    assert Profile.find(None, {"LOGBOOM_TOKEN": "  "}) == Profile()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nobody", "is not in"),
        ("both", "a token says who its user is"),
        ("strange", "has no key 'pasword'"),
    ],
)
def test_what_is_wrong_with_a_profile_is_said(environment: dict[str, str], name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Profile.find(f"@{name}", environment)


def test_a_file_with_secrets_that_others_can_read_is_not_used(environment: dict[str, str]) -> None:
    path = Path(environment["LOGBOOM_PROFILES"])
    path.chmod(0o640)
    with pytest.raises(ConfigError, match=f"can be read by others: chmod 600 {path}"):
        Profile.find("@prod", environment)
    assert Profile.find("@open", environment).servers == "localhost", "there is no secret in this one"


def test_a_file_that_is_not_there_or_no_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        Profile.find("@prod", {"LOGBOOM_PROFILES": str(tmp_path / "none.toml")})
    (tmp_path / "bad.toml").write_text("= 1")
    with pytest.raises(ConfigError, match="is not TOML"):
        Profile.find("@prod", {"LOGBOOM_PROFILES": str(tmp_path / "bad.toml")})


def test_secrets_are_in_no_repr() -> None:
    shown = repr(Profile("one", "alice", "correct horse")) + repr(Profile("one", token=SECRET))
    assert "correct horse" not in shown
    assert SECRET not in shown
    assert "alice" in shown


def test_a_token_is_sent_nowhere_in_clear() -> None:
    with pytest.raises(ConfigError, match=r"would get it in clear: write tls://10\.0\.0\.7:1773"):
        parse_servers(Profile("10.0.0.7", token=SECRET))
    assert parse_servers(Profile("tls://10.0.0.7, localhost, unix:/run/x", token=SECRET))


def test_a_list_of_servers_shows_addresses_alone_and_keeps_who_calls() -> None:
    listed = list_servers(Profile("tls://one, tls://two:99", token=SECRET))
    assert listed == ("tls://one:1773", "tls://two:99")
    assert SECRET not in repr(listed) + json.dumps(listed)
    assert {address.profile.token for address in parse_servers(pickle.loads(pickle.dumps(listed)))} == {SECRET}


def test_a_profile_can_be_given_to_a_process_of_ones_own() -> None:
    profile = Profile("one", "alice", "secret", ca="ca.pem")
    assert pickle.loads(pickle.dumps(profile)) == profile
