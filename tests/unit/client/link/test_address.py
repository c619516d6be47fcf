from __future__ import annotations

import doctest
import pickle
from dataclasses import replace

import pytest

from logboom.client.link import address, backoff
from logboom.client.link.address import Address, list_servers, parse_servers
from logboom.client.link.profile import Profile
from logboom.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("localhost", Address("localhost", 1773)),
        ("localhost:99", Address("localhost", 99)),
        (" 10.0.0.7:1 ", Address("10.0.0.7", 1)),
        ("[::1]", Address("::1", 1773)),
        ("[fe80::1%eth0]:99", Address("fe80::1%eth0", 99)),
        ("logboom://node-1.example:99/", Address("node-1.example", 99)),
        ("unix:/run/logboom.sock", Address("", 0, "/run/logboom.sock")),
        ("unix:///run/logboom.sock", Address("", 0, "/run/logboom.sock")),
        ("unix:beside", Address("", 0, "beside")),
    ],
)
def test_an_address_is_understood(text: str, found: Address) -> None:
    assert Address.parse(text) == found
    assert Address.parse(str(found)) == found


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "localhost:1773"),
        ("unix:", "unix:/path"),
        ("::1", "brackets"),
        ("host:0", "1 to 65535"),
        ("host:65536", "1 to 65535"),
        ("host:port", "1 to 65535"),
        ("host:", "1 to 65535"),
        ("http://host:80", "brackets"),
        ("https://host", "1 to 65535"),
        ("two words", "localhost:1773"),
        ("[::1]x", "localhost:1773"),
        ("/run/logboom.sock", "unix:/path"),
    ],
)
def test_what_is_no_address_is_refused_with_what_one_looks_like(text: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Address.parse(text)


def test_several_servers_come_as_a_list_or_with_commas() -> None:
    both = [Address("one"), Address("two", 99)]
    assert parse_servers("one,two:99,") == both
    assert parse_servers(["one", "two:99"]) == both
    with pytest.raises(ValueError, match="no server"):
        parse_servers([])


def test_the_environment_stands_in_for_servers_that_are_not_given() -> None:
    assert parse_servers(None, {"LOGBOOM_SERVERS": "one, two:99"}) == [Address("one"), Address("two", 99)]
    assert parse_servers(None, {}) == parse_servers(None, {"LOGBOOM_SERVERS": " "}) == [Address("localhost")]
    assert parse_servers("three", {"LOGBOOM_SERVERS": "one"}) == [Address("three")]


def test_a_list_of_servers_is_text_to_see_and_takes_who_calls_there_along() -> None:
    profile = Profile("tls://one, two", user="ann", password="pencil-box")
    servers = list_servers(profile)
    assert servers == ("tls://one:1773", "two:1773")
    assert "pencil" not in repr((servers, profile, parse_servers(profile), list_servers(servers).profile))
    carried = pickle.loads(pickle.dumps(servers))
    assert carried.profile == replace(profile, servers=tuple(servers))
    assert [address.profile.password for address in parse_servers(carried)] == ["pencil-box"] * 2
    assert [address.tls for address in parse_servers(carried)] == [True, False]


def test_a_token_is_not_sent_in_clear() -> None:
    for servers in ("tls://one", "localhost", "127.0.0.1:99", "[::1]", "unix:/run/x"):
        assert parse_servers(Profile(servers, token="lbt_x"))
    with pytest.raises(ConfigError, match="write tls://one:1773"):
        parse_servers(Profile("one", token="lbt_x"))


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(address).failed == doctest.testmod(backoff).failed == 0


def test_waits_grow_to_a_longest_and_are_never_in_step() -> None:
    waits = backoff.Backoff()
    first, *others = [waits.next_s() for _ in range(40)]
    assert first == 0.0
    for number, wait_s in enumerate(others):
        most = min(backoff.LONGEST_S, backoff.FIRST_S * 2**number)
        assert most / 2 <= wait_s <= most
    assert len(set(others)) == len(others)
    waits.reset()
    assert waits.next_s() == 0.0


@pytest.mark.parametrize("server", ["node", "127.example.org", "127.0.0.1.example.org", "localhost.example.org"])
def test_a_token_goes_nowhere_in_clear_but_to_this_machine(server: str) -> None:
    for private in ("127.0.0.1", "localhost", "[::1]", "unix:/run/x", f"tls://{server}"):
        assert parse_servers(Profile(private, token="lbt_x"))
    with pytest.raises(ConfigError, match="in clear"):
        parse_servers(Profile(server, token="lbt_x"))
