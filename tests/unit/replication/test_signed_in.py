"""A replica of a node that wants to know who copies it: over TLS, with a token or a password, and with its users."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from logboom.access.credential import Credential
from logboom.access.quota import Quota
from logboom.access.rule import Rule
from logboom.access.rule_book import REPLICA
from logboom.batch import build
from logboom.broker.access.audit_trail import TOPIC, AuditSettings
from logboom.broker.api import Part, ReadRequest, Start
from logboom.broker.caller import ITSELF, Caller
from logboom.broker.config import BrokerConfig
from logboom.errors import (
    ConfigError,
    ConnectionLost,
    LogboomError,
    NotAllowed,
    QuotaExceeded,
    ReadOnlyReplica,
    RemoteProtocolError,
    SignInFailed,
    SignInRequired,
    Unavailable,
)
from logboom.replication import access_copier
from logboom.replication.source_access import ReplicateSettings, parse_source
from logboom.replication.source_link import SourceLink
from support.nodes.certificates import make_certificate
from support.replicas.pair import OFTEN, Pair, paired
from support.waiting import until

GUARDED = BrokerConfig(anonymous="none")
SECRET = "two  words ü"
SOMEBODY = Caller(protocol="binary", address="127.0.0.1:9")


def secret_file(root: Path, text: str, mode: int = 0o600) -> str:
    path = root / f"secret{len(os.listdir(root))}"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


async def add_users(pair: Pair) -> None:
    """`copier` may copy everything but users, `twin` those too, and `alice` is anybody."""
    credential = Credential.derive(SECRET, b"salt" * 4, iterations=4096)
    await pair.source.add_user("copier", [credential], roles=[REPLICA], caller=ITSELF)
    await pair.source.add_user("twin", [credential], roles=[REPLICA], caller=ITSELF)
    await pair.source.add_rule(Rule("allow", "twin", ("manage",), "user"), caller=ITSELF)
    await pair.source.add_user("alice", [credential], caller=ITSELF)
    await pair.source.add_rule(Rule("allow", "alice", ("read", "write"), "topic", "orders"), caller=ITSELF)
    await pair.source.create_topic("orders", caller=ITSELF)


async def write(pair: Pair, *values: bytes) -> None:
    answers = await pair.source.append([Part("orders", [build(list(values))], 0)], caller=ITSELF)
    assert not any(isinstance(answer, LogboomError) for answer in answers), answers


async def is_copied(pair: Pair, count: int) -> None:
    """Until the replica has so many records."""
    while True:
        try:
            info = await pair.replica.describe_topic("orders", caller=ITSELF)
            if info.partitions[0].committed >= count:
                return
        except LogboomError:
            pass
        await asyncio.sleep(0.02)


async def access(pair: Pair) -> str | None:
    found = (await pair.replica.stats(caller=ITSELF)).replica
    assert found is not None
    return found.access


async def until_access(pair: Pair, holds: Callable[[str], bool]) -> str:
    while True:
        found = await access(pair)
        if found is not None and holds(found):
            return found
        await asyncio.sleep(0.02)


def tell(root: Path, story: Callable[[Pair], Awaitable[None]], is_secured: bool = False) -> None:
    async def run() -> None:
        pair = Pair(root, GUARDED)
        if is_secured:
            made = make_certificate(root)
            pair.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            pair.tls.load_cert_chain(made.certificate, made.key)
            pair.address = f"tls://{pair.address}"
        async with asyncio.timeout(300):
            await pair.start_source()
            try:
                await add_users(pair)
                await story(pair)
            finally:
                await pair.stop_replica()
                await pair.stop_source()

    asyncio.run(run())


def test_a_replica_with_a_token_copies_over_tls_what_its_role_shows_it(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        made = await pair.source.create_token("copier", caller=ITSELF)
        ca = str(tmp_path / "node.pem")
        pair.settings = ReplicateSettings(token_file=secret_file(tmp_path, f"{made.token}\n"), ca=ca)
        await write(pair, b"a", b"b")
        await pair.start_replica()
        await is_copied(pair, 2)
        await write(pair, b"c")
        await is_copied(pair, 3)
        stats = (await pair.replica.stats(caller=ITSELF)).replica
        assert stats is not None
        assert stats.source == pair.address
        assert stats.source.startswith("tls://")
        said = await until_access(pair, lambda state: "right to manage users" in state)
        assert said == (
            f"not copied: {pair.address} answers ACCESS with: not allowed; "
            "the user of this replica needs the right to manage users there"
        )
        assert await pair.replica.list_users(caller=ITSELF) == []
        await pair.replica.add_user("local", caller=ITSELF)  # what is not copied is the replica's own

    tell(tmp_path, story, is_secured=True)


def test_users_tokens_and_rules_of_the_source_are_there_when_the_replica_takes_over(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        source = pair.source
        settings = ReplicateSettings(user="twin", password_file=secret_file(tmp_path, SECRET))
        pair.settings = settings
        await pair.start_replica(name="replica")
        await until_access(pair, lambda state: state == access_copier.COPIED)
        replica = pair.replica
        alice = await replica.sign_in.with_password(SOMEBODY, "alice", SECRET)
        await write(pair, b"a")
        await is_copied(pair, 1)
        assert (await replica.read(ReadRequest("orders"), caller=alice)).next_seqno == 1
        with pytest.raises(ReadOnlyReplica):
            await replica.add_user("bob", caller=ITSELF)
        token = await source.create_token("alice", caller=ITSELF)
        await source.add_user("bob", caller=ITSELF)
        await until(lambda: "bob" in replica._access.users)
        assert (await replica.sign_in.with_token(SOMEBODY, token.token)).principal == "alice"
        await source.remove_user("bob", caller=ITSELF)
        await until(lambda: "bob" not in replica._access.users)
        assert replica._access.version == source._access.version
        await pair.stop_source()
        await replica.promote(caller=ITSELF)
        alice = await replica.sign_in.with_password(SOMEBODY, "alice", SECRET)
        (answer,) = await replica.append([Part("orders", [build([b"b"])], 0)], caller=alice)
        assert not isinstance(answer, LogboomError)
        await replica.add_user("bob", caller=ITSELF)
        await pair.stop_replica()
        await pair.start_replica(address=None)
        assert sorted(pair.replica._access.users) == ["alice", "bob", "copier", "twin"]

    tell(tmp_path, story)


def test_quotas_and_who_made_a_topic_are_there_when_the_replica_takes_over(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        alice = Caller("alice", by="certificate")
        await pair.source.add_rule(Rule("allow", "alice", ("create",), "topic"), caller=ITSELF)
        await pair.source.create_topic("hers", caller=alice)
        await pair.source.set_quota("alice", Quota(topics=1), caller=ITSELF)
        pair.settings = ReplicateSettings(user="twin", password_file=secret_file(tmp_path, SECRET))
        await pair.start_replica(name="replica")
        await until_access(pair, lambda state: state == access_copier.COPIED)
        await until(lambda: pair.replica._catalog.get("hers") is not None)
        with pytest.raises(ReadOnlyReplica):
            await pair.replica.set_quota("alice", Quota(), caller=ITSELF)
        await pair.source.set_quota("group:g", Quota(requests=5), caller=ITSELF)
        await until(lambda: "group:g" in pair.replica._access.quotas)
        await pair.stop_source()
        await pair.replica.promote(caller=ITSELF)
        with pytest.raises(QuotaExceeded, match="quota of alice gives 1 topics"):
            await pair.replica.create_topic("more", caller=alice)
        await pair.replica.delete_topic("hers", caller=ITSELF)
        await pair.replica.create_topic("more", caller=alice)

    tell(tmp_path, story)


def test_a_replica_whose_quota_is_small_is_held_back_and_goes_on(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.set_quota("copier", Quota(records_out=1), caller=ITSELF)
        pair.settings = ReplicateSettings(user="copier", password_file=secret_file(tmp_path, SECRET))
        await pair.start_replica(name="replica")
        await write(pair, *[b"x"] * 1000)
        await is_copied(pair, 1000)
        await write(pair, b"y")
        await until(lambda: pair.source.quotas.throttled["records_out"] > 0)
        assert (await pair.replica.describe_topic("orders", caller=ITSELF)).partitions[0].committed == 1000
        await pair.source.remove_quota("copier", caller=ITSELF)
        await is_copied(pair, 1001)

    tell(tmp_path, story)


def test_users_of_the_replica_give_way_to_those_of_the_source(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        pair.settings = ReplicateSettings(user="copier", password_file=secret_file(tmp_path, SECRET))
        await pair.start_replica()
        await until_access(pair, lambda state: state.startswith("not copied: 127"))
        await pair.replica.add_user("local", caller=ITSELF)
        await pair.stop_replica()
        pair.settings = ReplicateSettings(user="twin", password_file=secret_file(tmp_path, SECRET))
        await pair.start_replica()
        await until_access(pair, lambda state: state == access_copier.COPIED)
        assert sorted(pair.replica._access.users) == ["alice", "copier", "twin"]

    tell(tmp_path, story)


def test_a_right_that_is_taken_away_ends_the_copying_until_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_copier, "RETRY_S", 0.05)

    async def story(pair: Pair) -> None:
        pair.settings = ReplicateSettings(user="twin", password_file=secret_file(tmp_path, SECRET))
        await pair.start_replica()
        await until_access(pair, lambda state: state == access_copier.COPIED)
        await write(pair, b"a")
        await is_copied(pair, 1)
        denied = await pair.source.add_rule(Rule("deny", "twin", ("all",), "all"), caller=ITSELF)
        while (error := (await pair.replica.stats(caller=ITSELF)).replica) is None or not error.error:
            await asyncio.sleep(0.02)
        await write(pair, b"b")
        await asyncio.sleep(0.2)
        info = await pair.replica.describe_topic("orders", caller=ITSELF)
        assert info.partitions[0].committed == 1
        await pair.source.remove_rule(denied.number, caller=ITSELF)
        await is_copied(pair, 2)
        await until_access(pair, lambda state: state == access_copier.COPIED)

    tell(tmp_path, story)


def test_a_secret_that_was_changed_is_read_again(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        first = await pair.source.create_token("copier", caller=ITSELF)
        path = secret_file(tmp_path, first.token)
        pair.settings = ReplicateSettings(token_file=path)
        await pair.start_replica()
        await write(pair, b"a")
        await is_copied(pair, 1)
        second = await pair.source.create_token("copier", caller=ITSELF)
        await pair.source.revoke_token(first.info.id, caller=ITSELF)
        await pair.hang_up()
        await pair.listen()
        Path(path).write_text(second.token)
        await write(pair, b"b")
        await is_copied(pair, 2)

    tell(tmp_path, story)


def test_the_first_start_says_what_is_missing(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        with pytest.raises(SignInRequired, match=r"set replicate\.token_file"):
            await pair.start_replica()
        pair.settings = ReplicateSettings(user="copier", password_file=secret_file(tmp_path, "a wrong one"))
        with pytest.raises(SignInFailed, match="answers the sign-in of this replica with: sign-in failed") as caught:
            await pair.start_replica()
        assert "a wrong one" not in str(caught.value)
        pair.settings = ReplicateSettings(user="alice", password_file=secret_file(tmp_path, SECRET))
        with pytest.raises(Unavailable, match="needs the role replica there"):
            await pair.start_replica()

    tell(tmp_path, story)


def test_a_certificate_that_nobody_trusts_is_not_spoken_to(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        token = secret_file(tmp_path, "lbt_0123456789ab_" + "0" * 64)
        with pytest.raises(ConnectionLost, match="certificate"):
            await SourceLink.connect(parse_source(pair.address), settings=ReplicateSettings(token_file=token))
        elsewhere = ReplicateSettings(token_file=token, ca=str(tmp_path / "node.pem"), server_name="db2")
        with pytest.raises(ConnectionLost, match="certificate"):
            await SourceLink.connect(parse_source(pair.address), settings=elsewhere)

    tell(tmp_path, story, is_secured=True)


def test_an_open_source_is_copied_without_a_name_and_gives_no_users(tmp_path: Path) -> None:
    async def story() -> None:
        pair = Pair(tmp_path)
        async with asyncio.timeout(300):
            await pair.start_source()
            await add_users(pair)
            await write(pair, b"a")
            await pair.start_replica()
            await is_copied(pair, 1)
            assert await access(pair) == access_copier.NAMELESS
            with pytest.raises(SignInRequired):
                pair.source.access("", caller=Caller())
            with pytest.raises(NotAllowed):
                pair.source.access("", caller=Caller("alice", by="certificate"))
            await pair.stop_replica()
            await pair.stop_source()

    asyncio.run(story())


def test_what_is_neither_user_nor_rule_is_not_copied(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        state = pair.source._access
        before = state.entries
        for wrong in (
            {b"user\0x": b"\xff"},
            {b"rule\0x": before[b"rule\x001"]},
            {b"\xff": b""},
            {b"token\0a": b"\x01"},
            {b"quota\0a": b"\x01"},
        ):
            with pytest.raises(RemoteProtocolError):
                await state.copy(before | wrong)
        assert state.entries == before
        later = before | {b"later\0x": b"\x01"}
        await state.copy(later)
        assert state.entries == later

    tell(tmp_path, story)


def test_who_may_not_read_any_more_is_pushed_nothing_more(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        source = pair.source
        alice = Caller("alice", by="certificate")
        subscription = await source.subscribe(ReadRequest("orders", Start(at="latest")), caller=alice)
        feed = await source.feed("orders", 0, 1, caller=alice)
        waiting = asyncio.create_task(subscription.next())
        await asyncio.sleep(0.05)
        await source.change_user("alice", enabled=False, caller=ITSELF)
        await write(pair, b"secret")
        with pytest.raises(LogboomError):
            await waiting
        with pytest.raises(LogboomError):
            await feed.next()
        await subscription.close()

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("settings", "source", "message"),
    [
        (ReplicateSettings(profile="p", user="u"), "tls://h:1", r"replicate\.user: the profile says it all"),
        (ReplicateSettings(token_file="t", user="u"), "tls://h:1", "a token says who its user is"),
        (ReplicateSettings(user="u"), "tls://h:1", r"replicate\.password_file: is needed"),
        (ReplicateSettings(password_file="p"), "tls://h:1", r"replicate\.user: is needed"),
        (ReplicateSettings(token_file="t"), "10.0.0.1:1774", "in the clear: write tls://10.0.0.1:1774"),
        (ReplicateSettings(ca="ca.pem"), "10.0.0.1:1774", r"replicate\.ca is for TLS"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: ReplicateSettings, source: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings.check(parse_source(source))


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        ("secret", 0o644, "chmod 600"),
        ("", 0o600, "one line"),
        ("a\nb\n", 0o600, "one line"),
        ("x" * 5000, 0o600, "one line"),
    ],
)
def test_a_secret_is_one_line_that_others_cannot_read(tmp_path: Path, text: str, mode: int, message: str) -> None:
    path = secret_file(tmp_path, text, mode)
    with pytest.raises(ConfigError, match=message) as caught:
        ReplicateSettings(token_file=path).load()
    assert text[:5] not in str(caught.value).replace(path, "") or not text
    with pytest.raises(ConfigError, match="No such file"):
        ReplicateSettings(token_file=f"{path}.none").load()


def test_a_profile_may_say_who_a_replica_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = secret_file(tmp_path, '[source]\ntoken = "lbt_1"\nca = "ca.pem"\n')
    monkeypatch.setenv("LOGBOOM_PROFILES", path)
    found = ReplicateSettings(profile="source").load()
    assert (found.token, found.ca) == ("lbt_1", str(tmp_path / "ca.pem"))


def test_the_audit_trail_of_a_replica_is_its_own_and_stays_as_long_as_it_is_to_be(tmp_path: Path) -> None:
    async def story() -> None:
        config = replace(OFTEN, audit=AuditSettings(True, 1 << 20))
        async with asyncio.timeout(300), paired(tmp_path, config) as pair:
            trail = pair.replica.audit
            for number in range(1500):
                trail.note_act(ITSELF, "set role", f"r{number}", detail={"members": [str(number) * 50] * 10})
            log = pair.replica._catalog.find(TOPIC).writer(0).log
            await until(lambda: log.first > 0)
            assert pair.source._catalog.find(TOPIC).writer(0).log.committed == 0

    asyncio.run(story())
