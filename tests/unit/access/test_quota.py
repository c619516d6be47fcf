"""Which quotas mean something, and for whom there can be one."""

from __future__ import annotations

import pytest

from logboom.access.quota import MOST, Quota, check_bound
from logboom.errors import InvalidPrincipal, InvalidQuota


def test_what_is_not_limited_is_not_shown() -> None:
    assert Quota(bytes_in=10, topics=0).limits == {"bytes_in": 10, "topics": 0}
    assert Quota().check().limits == {}


@pytest.mark.parametrize(
    "quota", [Quota(bytes_in=0), Quota(requests=-1), Quota(records_out=MOST + 1), Quota(topics=-1)]
)
def test_a_rate_is_above_zero_and_every_limit_has_an_end(quota: Quota) -> None:
    with pytest.raises(InvalidQuota, match="allowed are"):
        quota.check()


@pytest.mark.parametrize("who", ["bob", "group:analysts", "*", "anonymous", "bob@example.org"])
def test_there_are_quotas_for_users_groups_everybody_and_strangers(who: str) -> None:
    check_bound(who)


@pytest.mark.parametrize("who", ["role:admin", "", "group:", "_operator", "group:group:a", "a b"])
def test_there_are_none_for_roles_the_node_and_what_is_no_name(who: str) -> None:
    with pytest.raises((InvalidQuota, InvalidPrincipal)):
        check_bound(who)
