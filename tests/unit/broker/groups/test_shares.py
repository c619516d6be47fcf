"""Who gets which log: evenly among those who want it, with as few moves as that takes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from logboom.broker.groups.shares import LogId, share_out

MANY = 1_000


def logs(count: int, topic: str = "rooms") -> list[LogId]:
    return [LogId(topic, topic, number) for number in range(count)]


def loads(shared: dict[LogId, str]) -> list[int]:
    return sorted(Counter(shared.values()).values())


def test_all_have_as_many_or_one_more() -> None:
    wanted = dict.fromkeys(logs(10), frozenset(("ann", "bob", "cid")))
    assert loads(share_out(wanted, {}, MANY)) == [3, 3, 4]


def test_who_comes_gets_no_more_than_his_share_and_nothing_else_moves() -> None:
    before = share_out(dict.fromkeys(logs(9), frozenset(("ann", "bob"))), {}, MANY)
    after = share_out(dict.fromkeys(logs(9), frozenset(("ann", "bob", "cid"))), before, MANY)
    assert loads(after) == [3, 3, 3]
    assert sum(after[log] != before[log] for log in before) == 3


def test_who_goes_leaves_his_logs_to_the_others_and_nothing_else_moves() -> None:
    before = share_out(dict.fromkeys(logs(9), frozenset(("ann", "bob", "cid"))), {}, MANY)
    after = share_out(dict.fromkeys(logs(9), frozenset(("ann", "bob"))), before, MANY)
    assert loads(after) == [4, 5]
    assert all(after[log] == before[log] for log in before if before[log] != "cid")


def test_a_log_goes_only_to_who_wants_it() -> None:
    wanted = dict.fromkeys(logs(3), frozenset(("ann",))) | dict.fromkeys(logs(3, "halls"), frozenset(("ann", "bob")))
    shared = share_out(wanted, {}, MANY)
    assert {shared[log] for log in logs(3)} == {"ann"}
    assert {shared[log] for log in logs(3, "halls")} == {"bob"}


def test_a_log_that_nobody_wants_is_nobodys() -> None:
    assert share_out({logs(1)[0]: frozenset()}, {logs(1)[0]: "ann"}, MANY) == {}


def test_nobody_has_more_than_so_many_and_the_rest_goes_to_who_comes_later() -> None:
    alone, both = frozenset(("ann",)), frozenset(("ann", "bob"))
    before = share_out(dict.fromkeys(logs(9), alone), {}, 4)
    assert before == dict.fromkeys(logs(4), "ann")
    after = share_out(dict.fromkeys(logs(9), both), before, 4)
    assert loads(after) == [4, 4]
    assert all(after[log] == "ann" for log in before)


MEMBERS = st.frozensets(st.sampled_from("abcdef"), max_size=6)


@given(st.dictionaries(st.sampled_from(logs(8) + logs(8, "halls")), MEMBERS), st.data())
def test_no_move_would_make_it_more_even(wanted: dict[LogId, frozenset[str]], data: st.DataObject) -> None:
    holders = {log: data.draw(st.sampled_from("abcdefz")) for log in wanted if data.draw(st.booleans())}
    shared = share_out(wanted, holders, MANY)
    assert shared.keys() == {log for log, members in wanted.items() if members}
    counts = Counter(shared.values())
    for log, member in shared.items():
        assert member in wanted[log]
        assert all(counts[member] - counts[other] < 2 for other in wanted[log])
    assert share_out(wanted, shared, MANY) == shared
