"""Users, tokens, roles and rules of a node: changed, kept over a restart, and counting at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Event

import pytest

from logboom.access.credential import ITERATIONS, Credential, Mechanism
from logboom.access.principal import ANONYMOUS, OPERATOR
from logboom.access.rule import Rule
from logboom.access.scram import ScramClient
from logboom.batch import build
from logboom.broker.api import (
    Filter,
    GroupJoin,
    Part,
    PublishKey,
    QueueSettings,
    ReadRequest,
    Receipt,
    RemovedUser,
    RoleInfo,
    Start,
)
from logboom.broker.caller import EVERYBODY, ITSELF, Caller
from logboom.broker.config import BrokerConfig
from logboom.broker.local import LocalBroker
from logboom.errors import (
    InvalidPassword,
    InvalidPrincipal,
    InvalidRule,
    NotAllowed,
    RuleNotFound,
    SignInFailed,
    SignInRequired,
    TokenNotFound,
    TopicNotFound,
    UserExists,
    UserNotFound,
)
from support.simulation.staged import staged_batch

CLOSED = BrokerConfig(anonymous="none")
ADDRESS = Caller(protocol="binary", address="192.0.2.1:4000")
QUICK = 4096
Story = Callable[[LocalBroker], Awaitable[None]]


def tell(path: Path, *stories: Story, config: BrokerConfig = CLOSED) -> None:
    """Each in a life of its own."""

    async def live(story: Story) -> None:
        broker = await LocalBroker.open(str(path), config)
        try:
            await story(broker)
        finally:
            await broker.close()

    for story in stories:
        asyncio.run(live(story))


def credential(password: str = "pencil-box") -> Credential:
    return Credential.derive(password, os.urandom(16), iterations=QUICK)


def allow(who: str, *rights: str, kind: str = "topic", name: str = "*") -> Rule:
    return Rule("allow", who, rights, kind, name)


async def signed_in(broker: LocalBroker, name: str = "ann", password: str = "pencil-box") -> Caller:
    return await broker.sign_in.with_password(ADDRESS, name, password)


def test_what_was_changed_is_there_after_a_restart(tmp_path: Path) -> None:
    async def change(broker: LocalBroker) -> None:
        await broker.add_user("ann", [credential()], ["ops"], ["admin"], caller=ITSELF)
        await broker.add_user("bob", caller=ITSELF)
        await broker.remove_user("bob", caller=ITSELF)
        assert (await broker.add_rule(allow("ann", "read"), caller=ITSELF)).number == 1
        assert (await broker.add_rule(allow("eve", "read"), caller=ITSELF)).number == 2
        assert (await broker.add_rule(allow("ann", "read"), caller=ITSELF)).number == 1
        await broker.remove_rule(1, caller=ITSELF)
        await broker.set_role("audit", ["group:ops", "eve"], caller=ITSELF)
        await broker.create_token("ann", None, "for the tests", ["read"], ["orders*"], caller=ITSELF)

    async def look(broker: LocalBroker) -> None:
        (ann,) = await broker.list_users(caller=ITSELF)
        assert (ann.name, ann.groups, ann.roles, ann.enabled) == ("ann", ["ops"], ["admin"], True)
        assert ann.mechanisms == ["SCRAM-SHA-256"]
        assert [info.number for info in await broker.list_rules(caller=ITSELF)] == [2]
        (role,) = await broker.list_roles(caller=ITSELF)
        assert (role.name, role.members) == ("audit", ["group:ops", "eve"])
        (token,) = await broker.list_tokens(caller=ITSELF)
        assert (token.user, token.note, token.rights, token.topics) == ("ann", "for the tests", ["read"], ["orders*"])
        assert (await signed_in(broker)).principal == "ann"

    tell(tmp_path, change, look)


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.add_user("ann", caller=ITSELF)
        with pytest.raises(UserExists):
            await broker.add_user("ann", caller=ITSELF)
        for name in ("", "_node", ANONYMOUS, "a b"):
            with pytest.raises(InvalidPrincipal):
                await broker.add_user(name, caller=ITSELF)
        weak = Credential("SCRAM-SHA-256", b"12345678", 1, b"x" * 32, b"x" * 32)
        short = Credential("SCRAM-SHA-256", b"12345678", QUICK, b"x", b"x")
        for wrong in ([weak], [short], [credential(), credential()]):
            with pytest.raises(InvalidPassword):
                await broker.change_user("ann", wrong, caller=ITSELF)
        for call in (broker.change_user("eve", caller=ITSELF), broker.remove_user("eve", caller=ITSELF)):
            with pytest.raises(UserNotFound):
                await call
        with pytest.raises(UserNotFound):
            await broker.create_token("eve", caller=ITSELF)
        with pytest.raises(TokenNotFound):
            await broker.revoke_token("123", caller=ITSELF)
        with pytest.raises(RuleNotFound):
            await broker.remove_rule(7, caller=ITSELF)
        with pytest.raises(InvalidRule):
            await broker.create_token("ann", rights=["eat"], caller=ITSELF)
        with pytest.raises(InvalidRule):
            await broker.create_token("ann", lasts_ms=0, caller=ITSELF)
        with pytest.raises(InvalidRule):
            await broker.set_role("all", [f"user{number}" for number in range(101)], caller=ITSELF)
        with pytest.raises(InvalidRule):
            await broker.explain_access("ann", "eat", "topic", caller=ITSELF)

    tell(tmp_path, story)


def test_passwords_and_tokens_say_who_somebody_is_and_all_failures_are_alike(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.add_user("ann", [credential()], ["ops"], caller=ITSELF)
        await broker.add_user("off", [credential()], caller=ITSELF)
        await broker.change_user("off", enabled=False, caller=ITSELF)
        await broker.add_user("robot", caller=ITSELF)
        caller = await signed_in(broker)
        assert (caller.principal, caller.by, caller.address) == ("ann", "password", ADDRESS.address)
        assert await signed_in(broker) == caller
        words = set()
        for number, (name, password) in enumerate(
            [("ann", "pencil"), ("ann", ""), ("nobody", "x"), ("off", "pencil-box"), ("robot", ""), ("\x07", "x")]
        ):
            elsewhere = Caller(address=f"192.0.2.{number}:1")
            with pytest.raises(SignInFailed) as failed:
                await broker.sign_in.with_password(elsewhere, name, password)
            words.add(str(failed.value))
        made = await broker.create_token("robot", caller=ITSELF)
        robot = await broker.sign_in.with_token(ADDRESS, made.token)
        assert (robot.principal, robot.by) == ("robot", f"token:{made.info.id}")
        (info,) = await broker.list_tokens("robot", caller=ITSELF)
        assert info.last_used is not None
        for text in ("", "lbt_", made.token[:-1], made.token + "0", f"lbt_{made.info.id}_{'0' * 64}"):
            with pytest.raises(SignInFailed) as failed:
                await broker.sign_in.with_token(Caller(address=f"[2001:db8::{len(text)}]:1"), text)
            words.add(str(failed.value))
        assert len(words) == 1
        assert made.token not in repr(made)

    tell(tmp_path, story)


def test_a_user_that_is_gone_a_token_that_is_revoked_and_a_rule_that_is_changed_count_at_once(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("orders", caller=ITSELF)
        await broker.add_user("ann", [credential()], caller=ITSELF)
        rule = await broker.add_rule(allow("ann", "read", name="orders"), caller=ITSELF)
        ann = await signed_in(broker)
        subscription = await broker.subscribe(ReadRequest("orders"), caller=ann)
        feed = await broker.feed("orders", 0, 0, caller=ann)
        waiting = asyncio.create_task(subscription.next())
        await asyncio.sleep(0)
        await broker.remove_rule(rule.number, caller=ITSELF)
        await broker.append([Part("orders", [build([b"secret"])])], caller=ITSELF)
        with pytest.raises(TopicNotFound):
            await waiting
        with pytest.raises(TopicNotFound):
            await feed.next()
        with pytest.raises(TopicNotFound):
            await broker.read(ReadRequest("orders"), caller=ann)
        await broker.add_rule(allow("ann", "read", name="orders"), caller=ITSELF)
        assert (await broker.read(ReadRequest("orders"), caller=ann)).record_count == 1
        robot = await broker.sign_in.with_token(ADDRESS, (await broker.create_token("ann", caller=ITSELF)).token)
        assert (await broker.read(ReadRequest("orders"), caller=robot)).record_count == 1
        await broker.revoke_token(robot.by.removeprefix("token:"), caller=ITSELF)
        with pytest.raises(TopicNotFound):
            await broker.read(ReadRequest("orders"), caller=robot)
        await broker.change_user("ann", enabled=False, caller=ITSELF)
        with pytest.raises(TopicNotFound):
            await broker.read(ReadRequest("orders"), caller=ann)
        with pytest.raises(SignInFailed):
            await signed_in(broker)
        await broker.change_user("ann", enabled=True, caller=ITSELF)
        assert (await broker.read(ReadRequest("orders"), caller=ann)).record_count == 1
        await broker.remove_user("ann", caller=ITSELF)
        with pytest.raises(TopicNotFound):
            await broker.read(ReadRequest("orders"), caller=ann)

    tell(tmp_path, story)


def test_a_token_reaches_no_further_than_it_says_and_ends(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        for topic in ("orders", "payments"):
            await broker.create_topic(topic, caller=ITSELF)
        await broker.add_user("ann", [credential()], roles=["admin"], caller=ITSELF)
        made = await broker.create_token("ann", None, "", ["read"], ["orders*"], caller=ITSELF)
        robot = await broker.sign_in.with_token(ADDRESS, made.token)
        await broker.read(ReadRequest("orders"), caller=robot)
        with pytest.raises(TopicNotFound):
            await broker.read(ReadRequest("payments"), caller=robot)
        (answer,) = await broker.append([Part("orders", [build([b"x"])])], caller=robot)
        assert isinstance(answer, NotAllowed)
        with pytest.raises(NotAllowed):
            await broker.create_token("ann", caller=robot)
        with pytest.raises(NotAllowed):
            await broker.change_user("ann", [credential("another-one")], caller=robot)
        assert [info.name for info in await broker.list_topics(caller=robot)] == ["orders"]
        wide = await broker.create_token("ann", topics=["orders*"], caller=ITSELF)
        robot = await broker.sign_in.with_token(ADDRESS, wide.token)
        await broker.append([Part("orders", [build([b"x"])])], caller=robot)
        for call in (
            broker.add_rule(allow("eve", "all", kind="all"), caller=robot),
            broker.add_user("eve", roles=["admin"], caller=robot),
            broker.refuse(caller=robot),
            broker.incidents(caller=robot),
            broker.read(ReadRequest("_pipeline"), caller=robot),
        ):
            with pytest.raises((NotAllowed, TopicNotFound)):
                await call
        short = await broker.create_token("ann", 1, caller=ITSELF)
        await asyncio.sleep(0.01)
        with pytest.raises(SignInFailed):
            await broker.sign_in.with_token(Caller(), short.token)

    tell(tmp_path, story)


def test_what_one_may_not_read_one_cannot_find_out_to_exist(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        for topic in ("orders", "secrets", "orderz"):
            await broker.create_topic(topic, caller=ITSELF)
        await broker.add_user("ann", [credential()], caller=ITSELF)
        await broker.add_rule(allow("ann", "read", "write", name="orders"), caller=ITSELF)
        await broker.add_rule(allow("ann", "read", name="order?"), caller=ITSELF)
        await broker.add_rule(allow("ann", "describe", kind="cursor"), caller=ITSELF)
        ann = await signed_in(broker)
        for name in ("secrets", "nothing"):
            with pytest.raises(TopicNotFound) as missing:
                await broker.read(ReadRequest(name), caller=ann)
            assert str(missing.value) == f"there is no topic {name!r} in this node"
            with pytest.raises(NotAllowed) as refused:
                await broker.create_topic(name, caller=ann)
            assert str(refused.value) == f"ann may not create topic {name!r}"
            (answer,) = await broker.append([Part(name, [build([b"x"])])], caller=ann)
            assert str(answer) == f"there is no topic {name!r} in this node"
        with pytest.raises(TopicNotFound, match="did you mean 'orders' or 'orderz'") as near:
            await broker.describe_topic("ordery", caller=ann)
        assert "secrets" not in str(near.value)
        assert [info.name for info in await broker.list_topics(internal=True, caller=ann)] == ["orders", "orderz"]
        assert set((await broker.measures(caller=ann)).topics) == {"orders", "orderz"}
        bookmark = (await broker.read(ReadRequest("secrets"), caller=ITSELF)).bookmark
        await broker.commit_cursor("billing", "secrets", 0, bookmark, caller=ITSELF)
        assert await broker.list_cursors(caller=ann) == []
        assert len(await broker.list_cursors(caller=ITSELF)) == 1

    tell(tmp_path, story)


def test_the_places_of_groups_are_listed_for_those_who_may_know_of_the_group(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("orders", caller=ITSELF)
        for group in ("billing", "secret"):
            await broker.reset_group(group, "orders", Start(), caller=ITSELF)
        await broker.add_user("ann", [credential()], caller=ITSELF)
        for kind, name in (("topic", "orders"), ("cursor", "*"), ("group", "bill*")):
            await broker.add_rule(allow("ann", "describe", kind=kind, name=name), caller=ITSELF)
        ann = await signed_in(broker)
        assert [info.cursor for info in await broker.list_cursors(caller=ann)] == ["@billing"]
        assert [info.group for info in await broker.list_groups(caller=ann)] == ["billing"]
        assert len(await broker.list_cursors(caller=ITSELF)) == 2

    tell(tmp_path, story)


def test_who_looks_at_a_group_learns_no_names_of_topics_from_what_its_members_want(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        for name in ("orders", "secrets", "graves"):
            await broker.create_topic(name, caller=ITSELF)
        wish, queue = "orders,secrets/0,secret.*", QueueSettings(dead_letter="graves")
        for group, mode in (("billing", "logs"), ("work", "queue")):
            join = GroupJoin(group, "member-of-0123456789", wish, mode=mode, queue=queue)  # type: ignore[arg-type]
            await broker.join_group(join, caller=ITSELF)
        await broker.add_user("ann", [credential()], caller=ITSELF)
        for kind, name in (("topic", "orders"), ("group", "*")):
            await broker.add_rule(allow("ann", "describe", kind=kind, name=name), caller=ITSELF)
        ann = await signed_in(broker)
        for group in ("billing", "work"):
            found = await broker.describe_group(group, caller=ann)
            assert [member.topics for member in found.members] == ["orders"]
            assert not any(name in repr(found) for name in ("secret", "graves"))
            assert wish in repr(await broker.describe_group(group, caller=ITSELF))

    tell(tmp_path, story)


def test_anonymous_callers_are_asked_to_sign_in_unless_rules_speak_of_them(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("public", caller=ITSELF)
        with pytest.raises(SignInRequired):
            await broker.read(ReadRequest("public"), caller=EVERYBODY)
        await broker.add_rule(allow(ANONYMOUS, "read", name="public"), caller=ITSELF)
        await broker.read(ReadRequest("public", filter=Filter(channel="x")), caller=EVERYBODY)
        with pytest.raises(NotAllowed):
            await broker.delete_topic("public", caller=EVERYBODY)
        await broker.add_rule(allow("*", "delete", name="public"), caller=ITSELF)
        with pytest.raises(NotAllowed):
            await broker.delete_topic("public", caller=EVERYBODY)

    tell(tmp_path, story)


def test_nobody_but_the_node_reads_what_is_kept_of_passwords(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.add_user("ann", [credential()], roles=["admin"], caller=ITSELF)
        ann = await signed_in(broker)
        for caller in (ann, EVERYBODY):
            with pytest.raises((TopicNotFound, SignInRequired)):
                await broker.read(ReadRequest("_access"), caller=caller)
        assert "_access" not in [info.name for info in await broker.list_topics(internal=True, caller=ann)]

    tell(tmp_path, story)
    tell(tmp_path / "open", story, config=BrokerConfig())


def test_everybody_may_change_his_own_password_and_nothing_else_of_himself(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.add_user("ann", [credential()], caller=ITSELF)
        await broker.add_user("bob", [credential()], caller=ITSELF)
        ann = await signed_in(broker)
        await broker.change_user("ann", [credential("another-one")], caller=ann)
        with pytest.raises(SignInFailed):
            await signed_in(broker)
        with pytest.raises(NotAllowed):  # whoever had the old password and is still here
            await broker.create_token("ann", caller=ann)
        with pytest.raises(NotAllowed):
            await broker.change_user("ann", [credential()], caller=ann)
        ann = await signed_in(broker, password="another-one")
        with pytest.raises(NotAllowed):
            await broker.change_user("ann", roles=["admin"], caller=ann)
        with pytest.raises(NotAllowed):
            await broker.change_user("bob", [credential("another-one")], caller=ann)
        assert [info.name for info in await broker.list_users(caller=ann)] == ["ann"]
        made = await broker.create_token("ann", caller=ann)
        assert [info.id for info in await broker.list_tokens(caller=ann)] == [made.info.id]
        with pytest.raises(NotAllowed):
            await broker.create_token("bob", caller=ann)
        await broker.revoke_token(made.info.id, caller=ann)

    tell(tmp_path, story)


def test_who_manages_some_users_gives_nobody_groups_or_roles(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.add_user("ann", [credential()], caller=ITSELF)
        await broker.add_rule(allow("ann", "manage", kind="user", name="team-*"), caller=ITSELF)
        ann = await signed_in(broker)
        await broker.add_user("team-1", [credential()], caller=ann)
        await broker.change_user("team-1", [credential("another-one")], enabled=False, caller=ann)
        for call in (
            broker.add_user("team-2", roles=["admin"], caller=ann),
            broker.add_user("team-2", groups=["ops"], caller=ann),
            broker.change_user("team-1", roles=["admin"], caller=ann),
            broker.change_user("ann", roles=["admin"], caller=ann),
            broker.add_rule(allow("ann", "all", kind="all"), caller=ann),
            broker.set_role("admin", ["ann"], caller=ann),
            broker.add_user("other", caller=ann),
        ):
            with pytest.raises(NotAllowed):
                await call

    tell(tmp_path, story)


def test_a_user_who_was_removed_is_not_the_next_one_of_his_name(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("orders", caller=ITSELF)
        await broker.add_rule(allow("ann", "read", name="orders"), caller=ITSELF)
        await broker.add_user("ann", [credential()], caller=ITSELF)
        old = await signed_in(broker)
        subscription = await broker.subscribe(ReadRequest("orders"), caller=old)
        await broker.remove_user("ann", caller=ITSELF)
        await broker.add_user("ann", [credential("another-one")], caller=ITSELF)
        await broker.append([Part("orders", [build([b"secret"])])], caller=ITSELF)
        with pytest.raises(TopicNotFound):
            await subscription.next()
        with pytest.raises(TopicNotFound):
            await broker.read(ReadRequest("orders"), caller=old)
        for call in (
            broker.create_token("ann", caller=old),
            broker.change_user("ann", [credential()], caller=old),
            broker.list_tokens(caller=old),
        ):
            with pytest.raises(NotAllowed):
                await call

    tell(tmp_path, story)


def test_who_writes_to_a_topic_that_is_there_need_not_be_allowed_to_make_it(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.add_user("ann", [credential()], caller=ITSELF)
        await broker.add_rule(allow("ann", "write", name="orders*"), caller=ITSELF)
        await broker.create_topic("orders", 2, caller=ITSELF)
        ann = await signed_in(broker)
        assert len((await broker.describe_topic("orders", create=True, caller=ann)).partitions) == 2
        with pytest.raises(NotAllowed, match=r"ann may not create topic 'orders\.new'"):
            await broker.describe_topic("orders.new", create=True, caller=ann)
        with pytest.raises(TopicNotFound):
            await broker.describe_topic("secrets", create=True, caller=ann)

    tell(tmp_path, story)


def test_a_removed_user_takes_along_what_names_him(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        for name in ("ann", "bob", "eve"):
            await broker.add_user(name, [credential()], caller=ITSELF)
        await broker.add_rule(allow("eve", "manage", kind="user", name="b*"), caller=ITSELF)
        stays = [await broker.add_rule(allow(who, "read"), caller=ITSELF) for who in ("ann", "group:bob", "role:bob")]
        await broker.add_rule(allow("bob", "read"), caller=ITSELF)
        await broker.add_rule(Rule("deny", "bob", ("write",), "topic", "x"), caller=ITSELF)
        await broker.set_role("audit", ["bob", "ann"], caller=ITSELF)
        await broker.set_role("alone", ["bob"], caller=ITSELF)
        await broker.create_token("bob", caller=ITSELF)
        eve = await signed_in(broker, "eve")
        assert await broker.remove_user("bob", caller=eve) == RemovedUser(1, 0, 0, 4)
        await broker.add_user("bob", [credential()], caller=eve)
        assert len(await broker.list_rules(caller=ITSELF)) == 6
        assert await broker.remove_user("bob", caller=ITSELF) == RemovedUser(0, 2, 2)
        assert [info.number for info in await broker.list_rules(caller=ITSELF)][1:] == [info.number for info in stays]
        assert await broker.list_roles(caller=ITSELF) == [RoleInfo("audit", ["ann"])]
        await broker.add_user("bob", [credential()], caller=ITSELF)
        bob = await signed_in(broker, "bob")
        with pytest.raises(NotAllowed):
            await broker.list_topics(caller=bob)

    tell(tmp_path, story)


def test_a_name_that_no_user_has_is_challenged_like_one_that_a_user_has(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        def iterations(user: str, mechanism: Mechanism = "SCRAM-SHA-256") -> str:
            scram = broker.sign_in.with_scram(ADDRESS, mechanism)
            return scram.begin(f"n,,n={user},r=nonce".encode()).decode().rpartition(",i=")[2]

        assert iterations("nobody") == str(ITERATIONS)
        for name in ("ann", "bob"):
            await broker.add_user(name, [credential()], caller=ITSELF)
        await broker.add_user("eve", [Credential.derive("pencil-box", os.urandom(16))], caller=ITSELF)
        assert iterations("nobody") == iterations("ann") == str(QUICK)
        assert iterations("nobody", "SCRAM-SHA-512") == iterations("ann", "SCRAM-SHA-512") == str(ITERATIONS)

    tell(tmp_path, story)


def test_who_is_disabled_or_removed_cannot_take_it_back_while_that_is_written(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.add_user("ann", [credential()], roles=["admin"], caller=ITSELF)
        await broker.add_user("bob", [credential()], roles=["admin"], caller=ITSELF)
        ann, bob = await signed_in(broker), await signed_in(broker, "bob")
        fresh = credential("another-one")
        found = await asyncio.gather(
            broker.change_user("ann", enabled=False, caller=ITSELF),
            broker.change_user("ann", [fresh], caller=ann),
            broker.change_user("ann", enabled=True, caller=ann),
            broker.create_token("ann", caller=ann),
            broker.remove_user("bob", caller=ITSELF),
            broker.change_user("bob", [fresh], caller=bob),
            broker.create_token("bob", caller=bob),
            broker.add_rule(allow("bob", "read"), caller=bob),
            return_exceptions=True,
        )
        assert [isinstance(each, NotAllowed) for each in found] == [False, True, True, True, False, True, True, True]
        assert [(info.name, info.enabled) for info in await broker.list_users(caller=ITSELF)] == [("ann", False)]
        assert await broker.list_tokens(caller=ITSELF) == []

    tell(tmp_path, story)


def test_no_rule_is_lost_where_several_come_at_once(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        wanted = [Rule("deny", "ann", ("read",), "topic", f"secret{number}") for number in range(20)]
        await asyncio.gather(*(broker.add_rule(rule, caller=ITSELF) for rule in wanted))
        assert [info.rule for info in await broker.list_rules(caller=ITSELF)] == wanted

    tell(tmp_path, story)


def test_what_is_changed_counts_also_where_whoever_asked_has_gone_away(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.add_user("ann", [credential()], caller=ITSELF)
        leaving = asyncio.create_task(broker.remove_user("ann", caller=ITSELF))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
        await broker.set_role("audit", ["bob"], caller=ITSELF)  # behind it
        assert await broker.list_users(caller=ITSELF) == []

    tell(tmp_path, story)


def test_a_password_that_is_changed_while_it_is_looked_at_is_wrong(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.add_user("ann", [credential()], caller=ITSELF)
        held = Event()
        broker.sign_in._threads.submit(held.wait)  # which looks at one after the other
        scram = broker.sign_in.with_scram(ADDRESS, "SCRAM-SHA-256")
        client = ScramClient("SCRAM-SHA-256", "ann", "pencil-box", b"nonce")
        answer = client.answer(scram.begin(client.begin()))
        looking = asyncio.create_task(signed_in(broker))
        await asyncio.sleep(0)
        await broker.change_user("ann", [credential("another-one")], caller=ITSELF)
        held.set()
        for old in (looking, signed_in(broker), scram.finish(answer)):
            with pytest.raises(SignInFailed):
                await old

    tell(tmp_path, story)


def test_what_others_have_staged_nobody_publishes_throws_away_or_learns_of(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("secrets", caller=ITSELF)
        await broker.add_user("ann", [credential()], caller=ITSELF)
        await broker.add_user("bob", [credential()], caller=ITSELF)
        writes = await broker.add_rule(allow("ann", "write", name="secrets"), caller=ITSELF)
        await broker.add_rule(allow("ann", "all", kind="transaction"), caller=ITSELF)
        of_bob = await broker.add_rule(allow("bob", "write", "create", kind="transaction", name="bob*"), caller=ITSELF)
        ann, bob = await signed_in(broker), await signed_in(broker, "bob")
        opened = await broker.open_stage("of ann", caller=ann)
        stage = opened.id
        await broker.stage(stage, [Part("secrets", [staged_batch(opened, [b"x"], 0)])], caller=ann)
        (shown,) = await broker.list_stages(caller=ann)
        assert (shown.id, shown.logs) == (stage, ["secrets/0"])
        assert await broker.list_stages(caller=bob) == []
        await broker.publish(PublishKey("bob", 1), [], caller=bob)
        for number in (1, 2):  # as a repeat, whose stages are thrown away; and as another
            with pytest.raises(NotAllowed) as refused:
                await broker.publish(PublishKey("bob", number), [Receipt(stage)], caller=bob)
            assert "secrets" not in str(refused.value)
        await broker.remove_rule(of_bob.number, caller=ITSELF)
        await broker.add_rule(allow("bob", "describe", kind="transaction"), caller=ITSELF)
        (shown,) = await broker.list_stages(caller=bob)
        assert shown.logs == []
        await broker.remove_rule(writes.number, caller=ITSELF)
        with pytest.raises(NotAllowed):
            await broker.publish(PublishKey("ann", 1), [Receipt(stage)], caller=ann)
        await broker.add_rule(writes.rule, caller=ITSELF)
        assert not (await broker.publish(PublishKey("ann", 1), [Receipt(stage)], caller=ann)).repeat

    tell(tmp_path, story)


def test_what_was_published_says_nothing_of_topics_that_are_not_for_the_one_who_asks(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        for topic in ("orders", "secrets"):
            await broker.create_topic(topic, caller=ITSELF)
        for name in ("ann", "bob"):
            await broker.add_user(name, [credential()], caller=ITSELF)
        await broker.add_rule(allow("bob", "write", kind="transaction"), caller=ITSELF)
        await broker.add_rule(allow("bob", "write", name="orders"), caller=ITSELF)
        bob = await signed_in(broker, "bob")
        parts = [Part(topic, [build([b"x"])]) for topic in ("orders", "secrets")]
        done = await broker.publish_batches(PublishKey("import", 1), parts, caller=ITSELF)
        assert [part.topic for part in done.parts or ()] == ["orders", "secrets"]
        (key,) = await broker.list_keys(caller=bob)
        assert list(key.topics) == ["orders"]
        for again in (
            await broker.publish(PublishKey("import", 1), [], caller=bob),
            await broker.publish_batches(PublishKey("import", 1), parts[:1], caller=bob),
        ):
            assert again.repeat
            assert [part.topic for part in again.parts or ()] == ["orders"]

    tell(tmp_path, story)


def test_nobody_is_called_like_a_role_or_a_group(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.add_user("ann", [credential()], caller=ITSELF)
        await broker.add_rule(allow("ann", "manage", kind="user", name="r*"), caller=ITSELF)
        await broker.add_rule(allow("ann", "manage", kind="user", name="?"), caller=ITSELF)
        ann = await signed_in(broker)
        with pytest.raises(InvalidPrincipal):
            await broker.add_user("role:admin", [credential()], caller=ann)
        with pytest.raises(NotAllowed):
            await broker.add_rule(allow("ann", "all", kind="all"), caller=ann)
        with pytest.raises(InvalidPrincipal):
            await broker.add_rule(allow("group:role:admin", "all", kind="all"), caller=ITSELF)

    tell(tmp_path, story)


def test_only_those_who_may_read_everything_are_sent_to_the_files(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.add_user("ann", [credential()], caller=ITSELF)
        await broker.add_rule(allow("ann", "read"), caller=ITSELF)
        ann = await signed_in(broker)
        assert broker.shows_files(ann)
        assert not broker.shows_files(EVERYBODY)
        made = await broker.create_token("ann", topics=["orders*"], caller=ITSELF)
        assert not broker.shows_files(await broker.sign_in.with_token(ADDRESS, made.token))
        await broker.add_rule(Rule("deny", "ann", ("read",), "topic", "secret"), caller=ITSELF)
        assert not broker.shows_files(ann)

    tell(tmp_path, story)


def test_an_explanation_names_the_rule_that_decides(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.add_user("ann", roles=["admin"], caller=ITSELF)
        await broker.add_user("bob", groups=["ops"], caller=ITSELF)
        await broker.add_rule(Rule("deny", "group:ops", ("write",), "topic", "closed*"), caller=ITSELF)
        await broker.add_rule(allow("bob", "all"), caller=ITSELF)

        async def explain(user: str, right: str, name: str) -> tuple[bool, str, int | None]:
            found = await broker.explain_access(user, right, "topic", name, caller=ITSELF)
            return found.allowed, found.reason, found.number

        assert await explain("bob", "write", "closed.1") == (False, "rule 1: deny group:ops write topic closed*", 1)
        assert await explain("bob", "write", "open") == (True, "rule 2: allow bob all topic *", 2)
        assert await explain("ann", "read", "x") == (True, "the built-in rule: allow role:admin all all *", None)
        assert await explain("bob", "read", "_audit") == (False, "no rule speaks of it", None)
        assert await explain("eve", "read", "x") == (False, "there is no user eve, or he is disabled", None)

    tell(tmp_path, story)


def test_whoami_says_how_the_node_knows_somebody(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.add_user("ann", [credential()], ["ops"], ["admin"], caller=ITSELF)
        found = await broker.whoami(caller=await signed_in(broker))
        assert (found.principal, found.groups, found.roles, found.by) == ("ann", ["ops"], ["admin"], "password")
        assert (await broker.whoami(caller=EVERYBODY)).principal == ANONYMOUS
        assert (await broker.whoami(caller=Caller(OPERATOR, by="system"))).by == "system"

    tell(tmp_path, story)
