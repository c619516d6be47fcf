"""Only what the node's configuration names is run or asked: whoever sets a topic's settings, and whatever they say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from pathlib import Path

import msgspec
import pytest

from logboom.batch import build
from logboom.broker.allowances import Allowances
from logboom.broker.api import Appended, Part, Settings
from logboom.broker.append.validation import Verdict
from logboom.broker.append.validator_address import ValidatorAddress, ValidatorRules
from logboom.broker.caller import EVERYBODY
from logboom.broker.config import BrokerConfig, UpkeepSettings
from logboom.broker.local import LocalBroker
from logboom.broker.monitor.checkup import examine
from logboom.errors import ConfigError, ValidatorNotAllowed
from logboom.storage import DataDirectory
from logboom.storage.data.topic import HookSettings, RetentionSettings, SegmentSettings, ValidatorSettings

LISTED = ("http://judge.test/check", "https://judge.test", "http://judge.test:8080/a/", "http://[::1]:99")
RULES = ValidatorRules(LISTED)
CONFIG = BrokerConfig(
    upkeep=UpkeepSettings(retention_every_ms=5), allowed=Allowances({"note": "true", "other": "true"}, RULES)
)


class Yes:
    async def ask(self, url: str, body: bytes, timeout_s: float) -> Verdict:
        return Verdict(204, "")


def tell(path: Path, story: Callable[[LocalBroker], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60):
            broker = await LocalBroker.open(str(path), CONFIG, validators=Yes())
            try:
                await story(broker)
            finally:
                await broker.close()

    asyncio.run(run())


def hooked(hook: str | None) -> Settings:
    return Settings(hook=HookSettings(hook))


def judged(*urls: str) -> Settings:
    return Settings(validators=ValidatorSettings(urls, on_failure="accept"))


@pytest.mark.parametrize("hook", ["id > /tmp/owned", "Note", "note ", "no", "note\n", "../note"])
def test_a_topic_chooses_a_hook_of_the_node_or_none(hook: str, tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        with pytest.raises(ConfigError, match="has only note, other"):
            await broker.create_topic("t", 1, hooked(hook))
        info = await broker.create_topic("t", 1, hooked("note"))
        assert info.unusable == {}
        with pytest.raises(ConfigError, match=r"hook\.delete"):
            await broker.configure_topic("t", hooked(hook))
        await broker.configure_topic("t", hooked("other"))
        await broker.configure_topic("t", hooked(None))
        assert (await broker.stats()).rejections["ConfigError"] == 2

    tell(tmp_path, story)


def test_what_a_topic_has_from_before_stays_is_told_and_can_be_taken_away(tmp_path: Path) -> None:
    old = msgspec.structs.replace(hooked("rm -r /"), validators=ValidatorSettings(("http://evil.test/",)))
    with DataDirectory.open(str(tmp_path)) as data:
        data.create_topic("t", 1, old)

    async def story(broker: LocalBroker) -> None:
        assert [line for line in broker.recovered if line.startswith("topic t: hook.delete: 'rm -r /' is no hook")]
        info = await broker.describe_topic("t")
        assert (info.settings, set(info.unusable)) == (old, {"hook.delete", "validators.urls"})
        changed = msgspec.structs.replace(old, retention=RetentionSettings(records=5))
        assert (await broker.configure_topic("t", changed)).settings == changed
        found = {complaint.kind: complaint for complaint in await examine(broker, EVERYBODY)}
        assert "`logboom topic set t hook.delete=NAME`" in found["unknown hook"].advice
        assert "validators.allow" in found["validator not allowed"].advice
        (answer,) = await broker.append([Part("t", [build([b"a"])])])
        assert isinstance(answer, ValidatorNotAllowed)
        stage = await broker.open_stage()
        (answer,) = await broker.stage(stage.id, [Part("t", [build([b"a"])])])
        assert isinstance(answer, ValidatorNotAllowed)
        info = await broker.configure_topic("t", hooked("note"))
        assert info.unusable == {}
        (answer,) = await broker.append([Part("t", [build([b"a"])])])
        assert isinstance(answer, Appended)

    tell(tmp_path, story)


def test_segments_of_an_unknown_hook_are_held_until_there_is_no_room(tmp_path: Path) -> None:
    settings = Settings(
        segment=SegmentSettings(bytes=4096), retention=RetentionSettings(records=1), hook=HookSettings("gone")
    )
    with DataDirectory.open(str(tmp_path)) as data:
        data.create_topic("t", 1, settings)

    async def story(broker: LocalBroker) -> None:
        for _ in range(10):
            await broker.append([Part("t", [build([bytes(3000)])])])
        while not (await broker.stats()).upkeep["hooks"]["pending"]:
            await asyncio.sleep(0.01)
        (held,) = (await broker.stats()).upkeep["hooks"]["failing"]
        assert (held["topic"], held["first_seqno"], held["attempts"], held["next_attempt_at"]) == ("t", 0, 0, 0)
        assert (await broker.describe_topic("t")).partitions[0].first == 0
        limit = RetentionSettings(records=1, hard_bytes=10_000)
        await broker.configure_topic("t", msgspec.structs.replace(settings, retention=limit))
        while not (await broker.describe_topic("t")).partitions[0].first:
            await asyncio.sleep(0.01)
        assert (await broker.stats()).upkeep["dropped_without_hook"]["segments"]

    tell(tmp_path, story)


def test_a_topic_names_only_validators_that_are_listed(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        with pytest.raises(ConfigError, match=r"validators\.urls: 'http://127.0.0.1:22/' is not allowed"):
            await broker.create_topic("t", 1, judged("http://127.0.0.1:22/"))
        await broker.create_topic("t", 1, judged(LISTED[0]))
        with pytest.raises(ConfigError, match=r"validators\.urls"):
            await broker.configure_topic("t", judged(LISTED[0], "http://judge.test/"))
        (answer,) = await broker.append([Part("t", [build([b"a"])])])
        assert isinstance(answer, Appended)

    tell(tmp_path, story)


@pytest.mark.parametrize(
    "url",
    [
        "http://judge.test/check",
        "HTTP://Judge.Test:80/check",
        "http://judge.test/check/more?a=b&c=%20",
        "http://judge.test/check?x",
        "https://judge.test",
        "https://judge.test:443/anything/at?all",
        "http://judge.test:8080/a/",
        "http://judge.test:8080/a/b@c",
        "http://[0:0::1]:99/x",
    ],
)
def test_a_url_is_allowed_below_one_that_is_listed(url: str) -> None:
    assert RULES.refusal(url) is None
    assert ValidatorRules().refusal(url) is not None


@pytest.mark.parametrize(
    "url",
    [
        "http://judge.test/",
        "http://judge.test/checks",
        "http://judge.test/Check",
        "http://judge.test:8080/a",
        "http://judge.test:8081/a/",
        "http://judge.test:443/",
        "https://judge.test:80/",
        "http://judge.test./check",
        "http://judge.test.evil/check",
        "http://evil/http://judge.test/check",
        "http://judge.test@evil/check",
        "http://user:word@judge.test/check",
        "http://judge.test:80@evil/check",
        "http://judge.test\\@evil/check",
        "http://judge.test\\.evil/check",
        "http://evil\\judge.test/check",
        "http://evil#@judge.test/check",
        "http://evil?@judge.test/check",
        "http:judge.test/check",
        "http:///judge.test/check",
        "http://judge.test/check#x",
        "http://judge.test/check/../admin",
        "http://judge.test/check/.",
        "http://judge.test/check/%2e%2e/admin",
        "http://judge.test/check/.%2E/admin",
        "http://judge.test/check/%252e%252e/admin",
        "http://judge.test/check/..%2fadmin",
        "http://judge.test/check/..;/admin",
        "http://judge.test/check/..%5cadmin",
        "http://judge.test/check/%0d%0aX:1",
        "http://judge.test/check/%zz",
        "http://judge.test/check\r\nX: 1",
        "http://judge.test/check ",
        " http://judge.test/check",
        "http://judge.test\t/check",
        "http://judge。test/check",
        "http://\uff4audge.test/check",
        "http://judge.test/chéck",
        "http://judge.test:/check",
        "http://judge.test:0/check",
        "http://judge.test:65616/check",
        "http://judge.test:+80/check",
        "http://judge.test:८०/check",
        "http://[::1%25lo]:99/",
        "http://[::1]:99@evil/",
        "http://[::]:99/",
        "ftp://judge.test/check",
        "file:///etc/passwd",
        "",
    ],
)
def test_a_url_that_is_not_listed_or_could_be_read_differently_is_refused(url: str) -> None:
    assert RULES.refusal(url) is not None


def test_a_url_is_sent_in_the_parts_that_were_compared() -> None:
    address = ValidatorAddress.parse("HTTPS://Judge.Test:443/a%20b?c=%2F")
    assert (address.scheme, address.host, address.port) == ("https", "judge.test", 443)
    assert (address.authority, address.request) == ("judge.test", "/a%20b?c=%2F")
    assert ValidatorAddress.parse("http://[::1]:99").authority == "[::1]:99"


@pytest.mark.parametrize(
    "text", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.1.2.3", "192.168.1.1", "fd00::1", "93.184.216.34", "2606::1"]
)
def test_validators_are_anywhere_where_servers_are(text: str) -> None:
    assert RULES.admits(ip_address(text))


@pytest.mark.parametrize(
    "text",
    [
        *("169.254.169.254", "fe80::1", "fe80::1%lo", "224.0.0.1", "ff02::1", "0.0.0.0", "0.1.2.3", "::"),
        *("255.255.255.255", "240.0.0.1", "100.100.100.200", "168.63.129.16", "fd00:ec2::254"),
        *("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::ffff:0.0.0.0"),
    ],
)
def test_validators_are_not_where_secrets_or_nobody_is(text: str) -> None:
    assert not RULES.admits(ip_address(text))


def test_networks_say_where_validators_are_and_nowhere_else() -> None:
    rules = ValidatorRules(networks=("10.0.0.0/8", "169.254.7.0/24", "::1/128")).check()
    told = ["10.9.9.9", "::ffff:10.9.9.9", "169.254.7.7", "::1", "127.0.0.1", "169.254.169.254", "11.0.0.1", "::2"]
    assert [rules.admits(ip_address(text)) for text in told] == [True] * 4 + [False] * 4
