"""Who is bound by which quota, how long he is to rest, and what is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from logboom.access.principal import OPERATOR
from logboom.access.quota import OUT_OF, Quota
from logboom.batch import build
from logboom.broker.access.access_state import AccessState, User
from logboom.broker.access.quotas import CHUNK_BYTES_LEAST, OWNERS_MOST, Quotas
from logboom.broker.api import Part
from logboom.broker.caller import ITSELF, Caller
from logboom.errors import QuotaExceeded

BOB, EVE, STRANGER = Caller("bob"), Caller("eve"), Caller()


class Desk:
    """Quotas, users and a clock that stand still unless somebody moves them."""

    def __init__(self, **quotas: Quota) -> None:
        self.now = 100.0
        self.state = AccessState()
        self.quotas = Quotas(self.state, lambda: self.now)
        self.set(quotas)

    def set(self, quotas: Mapping[str, Quota | None]) -> None:
        for who, quota in quotas.items():
            self.state.quotas.pop(who, None)
            if quota is not None:
                self.state.quotas[who] = quota
        for call in self.state.on_change:
            call()

    def join(self, user: str, *groups: str) -> None:
        self.state.users[user] = User(groups=groups)
        self.set({})

    def rest_s(self, caller: Caller, *kinds: str) -> float:
        rest = self.quotas.rest_of(caller, kinds) if kinds else self.quotas.rest_of(caller)
        return 0.0 if rest is None else rest.seconds


def test_without_any_quota_nothing_is_on() -> None:
    desk = Desk()
    assert not desk.quotas.is_on
    assert desk.quotas.rest_of(BOB) is None
    desk.set({"bob": Quota(requests=1)})
    assert desk.quotas.is_on
    desk.set({"bob": None})
    assert not desk.quotas.is_on


def test_a_user_rests_for_what_he_has_taken_and_nobody_else_does() -> None:
    desk = Desk(bob=Quota(requests=10))
    desk.quotas.charge(BOB, requests=30)
    desk.quotas.charge(EVE, requests=30)
    assert desk.rest_s(BOB) == 2
    assert desk.rest_s(EVE) == 0
    desk.now += 2
    assert desk.rest_s(BOB) == 0


def test_a_group_shares_one_allotment() -> None:
    desk = Desk(**{"group:analysts": Quota(bytes_in=100)})
    desk.join("bob", "analysts")
    vouched = Caller("carol", frozenset(("analysts",)), by="bearer")
    desk.quotas.charge(BOB, bytes_in=150)
    desk.quotas.charge(vouched, bytes_in=150)
    assert desk.rest_s(BOB) == desk.rest_s(vouched) == 2
    assert desk.rest_s(EVE) == 0
    desk.join("bob")
    assert desk.rest_s(BOB) == 0


def test_everybody_has_an_allotment_of_his_own_who_has_no_quota_of_his_own() -> None:
    desk = Desk(**{"*": Quota(requests=10), "eve": Quota()})
    for caller in (BOB, EVE, STRANGER):
        desk.quotas.charge(caller, requests=20)
    assert desk.rest_s(BOB) == 1
    assert desk.rest_s(Caller("carol")) == 0
    assert desk.rest_s(EVE) == 0
    assert desk.rest_s(STRANGER) == 0


def test_strangers_share_one_allotment() -> None:
    desk = Desk(anonymous=Quota(requests=10))
    desk.quotas.charge(Caller(address="1.2.3.4:5"), requests=20)
    assert desk.rest_s(Caller(address="6.7.8.9:0")) == 1
    assert desk.rest_s(BOB) == 0


def test_the_longest_of_all_rests_counts() -> None:
    desk = Desk(**{"bob": Quota(bytes_in=1000, requests=1), "group:g": Quota(bytes_in=10)})
    desk.join("bob", "g")
    desk.quotas.charge(BOB, bytes_in=100, requests=3)
    rest = desk.quotas.rest_of(BOB)
    assert rest is not None
    assert (rest.seconds, rest.kind, rest.allotment.who) == (9, "bytes_in", "group:g")


@pytest.mark.parametrize("principal", [ITSELF.principal, OPERATOR])
def test_the_node_and_its_operator_are_bound_by_none(principal: str) -> None:
    desk = Desk(**{"*": Quota(requests=1, connections=0, topics=0)})
    caller = Caller(principal)
    desk.quotas.charge(caller, requests=1000)
    assert desk.rest_s(caller) == 0
    assert desk.quotas.enter(caller) == []
    desk.quotas.check_topics(caller)


def test_what_goes_out_holds_back_nothing_that_comes_in() -> None:
    desk = Desk(bob=Quota(bytes_out=10))
    desk.quotas.charge(BOB, bytes_out=20)
    assert desk.rest_s(BOB) == 0
    assert desk.rest_s(BOB, *OUT_OF) == 1


def test_batches_are_charged_with_their_bytes_and_records() -> None:
    desk = Desk(bob=Quota(bytes_in=2**40, records_in=1))
    batch = build([b"x", b"y", b"z"])
    desk.quotas.charge_parts(BOB, [Part("a", [batch]), Part("b", [batch, batch])])
    assert desk.rest_s(BOB) == 8
    (usage,) = desk.quotas.usage_of(BOB)
    assert usage.used["bytes_in"] == pytest.approx(3 * len(batch.data) / 10)


def test_a_read_is_cut_to_about_a_second_but_not_to_nothing() -> None:
    desk = Desk(bob=Quota(bytes_out=1_000_000), eve=Quota(bytes_out=1))
    assert desk.quotas.read_bytes(BOB, 2**24) == 1_000_000
    assert desk.quotas.read_bytes(BOB, 4096) == 4096
    assert desk.quotas.read_bytes(EVE, 2**24) == CHUNK_BYTES_LEAST
    assert desk.quotas.read_bytes(STRANGER, 2**24) == 2**24


def test_one_connection_too_many_is_refused_and_there_is_room_when_one_ends() -> None:
    desk = Desk(**{"bob": Quota(connections=2), "group:g": Quota(connections=3)})
    desk.join("bob", "g")
    desk.join("eve", "g")
    first, _ = desk.quotas.enter(BOB), desk.quotas.enter(BOB)
    with pytest.raises(QuotaExceeded, match=r"quota of bob gives 2 connections.*logboom quota set"):
        desk.quotas.enter(BOB)
    desk.quotas.enter(EVE)
    with pytest.raises(QuotaExceeded, match="group:g"):
        desk.quotas.enter(EVE)
    desk.quotas.leave(first)
    desk.quotas.enter(EVE)


def test_connections_from_before_a_quota_count_for_it() -> None:
    desk = Desk()
    names = desk.quotas.enter(BOB)
    desk.set({"bob": Quota(connections=1)})
    with pytest.raises(QuotaExceeded):
        desk.quotas.enter(BOB)
    desk.quotas.leave(names)
    desk.quotas.leave(desk.quotas.enter(BOB))
    assert not desk.quotas._present


def test_topics_are_counted_by_who_has_made_them() -> None:
    desk = Desk(**{"bob": Quota(topics=3), "group:g": Quota(topics=4), "*": Quota(topics=0)})
    desk.quotas.makers = {"bob": 2, "eve": 2}
    desk.quotas.check_topics(BOB)
    desk.join("eve", "g")
    desk.join("bob", "g")
    with pytest.raises(QuotaExceeded, match=r"group:g gives 4 topics.*delete one"):
        desk.quotas.check_topics(BOB)
    with pytest.raises(QuotaExceeded, match="quota of \\* gives 0 topics"):
        desk.quotas.check_topics(Caller("carol"))


def test_ever_new_users_cost_no_more_memory_and_debts_are_forgotten_last() -> None:
    desk = Desk(**{"*": Quota(requests=10), "group:g": Quota(requests=10)})
    desk.quotas.charge(BOB, requests=1000)
    for number in range(2 * OWNERS_MOST):
        desk.quotas.charge(Caller(f"u{number}"), bytes_in=1)
    assert len(desk.quotas._allotments) <= OWNERS_MOST + 2
    assert len(desk.quotas._of_callers) <= OWNERS_MOST
    assert desk.rest_s(BOB) == 99


def test_where_everybody_owes_something_the_oldest_are_forgotten() -> None:
    desk = Desk(**{"*": Quota(requests=1)})
    for number in range(OWNERS_MOST + 2):
        desk.quotas.charge(Caller(f"u{number}"), requests=100)
    assert len(desk.quotas._allotments) <= OWNERS_MOST + 1
    assert desk.rest_s(Caller(f"u{OWNERS_MOST + 1}")) > 0


def test_a_raised_or_removed_quota_frees_those_who_rest() -> None:
    async def story() -> None:
        desk = Desk(bob=Quota(requests=1), eve=Quota(requests=1))
        asked: list[float] = []
        desk.quotas.on_change.append(lambda: asked.append(desk.rest_s(BOB)))
        desk.quotas.charge(BOB, requests=1001)
        desk.quotas.charge(EVE, requests=1001)
        resting = [asyncio.create_task(desk.quotas.rest(caller, ("requests",))) for caller in (BOB, EVE)]
        await asyncio.sleep(0)
        desk.now += 3
        desk.set({"bob": Quota(requests=10_000), "eve": None})
        desk.now += 1
        await asyncio.gather(*resting)
        assert asked
        assert asked[0] < 1
        assert desk.quotas.throttled["requests"] == 2
        assert desk.quotas.throttled_s["requests"] >= 8

    asyncio.run(story())


def test_when_the_node_closes_nobody_rests() -> None:
    async def story() -> None:
        desk = Desk(bob=Quota(requests=1))
        desk.quotas.charge(BOB, requests=1001)
        resting = asyncio.create_task(desk.quotas.rest(BOB, ("requests",)))
        await asyncio.sleep(0)
        desk.quotas.close()
        await resting
        assert desk.quotas.rest_of(BOB) is None
        desk.set({"bob": Quota(requests=2)})
        assert not desk.quotas.is_on

    asyncio.run(story())


def test_usage_is_shown_of_what_binds_somebody_and_of_everybodys_quota_who_waits_longest() -> None:
    desk = Desk(**{"*": Quota(requests=10, connections=5), "group:g": Quota(topics=3)})
    desk.join("bob", "g")
    desk.quotas.makers = {"bob": 2}
    desk.quotas.enter(BOB)
    desk.quotas.charge(BOB, requests=100)
    desk.quotas.charge(EVE, requests=1)
    rest = desk.quotas.rest_of(BOB)
    assert rest is not None
    desk.quotas.note(rest, 4.5)
    shared, own = desk.quotas.usage_of(BOB)
    assert (shared.who, shared.owner, shared.used) == ("group:g", "group:g", {"topics": 2})
    assert (own.who, own.owner, own.used) == ("*", "bob", {"requests": 10.0, "connections": 1})
    assert (own.rest_s, own.throttled_s) == (9, 4.5)
    assert [usage.owner for usage in desk.quotas.usage_under("*")] == ["bob", "eve"]
    assert desk.quotas.usage_under("group:g") == [shared] == [desk.quotas.usage_as_set("group:g")]
    everybodys = desk.quotas.usage_as_set("*")
    assert (everybodys.owner, everybodys.used, everybodys.throttled_s) == ("*", {}, 4.5)
