"""What a member may wish for: names, ids and times, checked before anything is done."""

from __future__ import annotations

import re
from typing import Final

from logboom.broker.admission import check_not_internal
from logboom.broker.api.groups import GroupJoin, QueueSettings
from logboom.broker.state.cursors import OF_GROUP
from logboom.errors import InvalidGroup, InvalidTopicName, TopicNotAllowed
from logboom.storage.data.topic import check_name as check_topic_name

SESSION_MS: Final = 500, 3_600_000
GIVE_BACK_MS: Final = 100, 86_400_000
LEASE_MS: Final = 100, 86_400_000
TRIES: Final = 1, 100
DELAY_MS: Final = 0, 7 * 86_400_000
_NAME: Final = re.compile(r"[A-Za-z0-9._/:-]{1,248}", re.ASCII)
_MEMBER: Final = re.compile(r"[A-Za-z0-9_-]{16,64}", re.ASCII)
_TEXT: Final = re.compile(r"[ -~]{0,100}", re.ASCII)


def mark(group: str) -> str:
    """The cursor that is a group's place: clients have no such names."""
    return OF_GROUP + group


def check_name(group: str) -> None:
    if _NAME.fullmatch(group) is None:
        raise InvalidGroup(group[:300], f"{group[:300]!r} is no group name: use 1 to 248 letters, digits, or . - _ / :")


def check_join(join: GroupJoin) -> None:
    check_name(join.group)
    if _MEMBER.fullmatch(join.member) is None:
        raise InvalidGroup(join.group, "a member's id has 16 to 64 letters, digits, - or _")
    for what, text in (("instance", join.instance), ("client", join.client)):
        if _TEXT.fullmatch(text) is None:
            raise InvalidGroup(join.group, f"{what} is {text[:100]!r}: use up to 100 ASCII characters")
    _check_range(join.group, "session_ms", join.session_ms, SESSION_MS)
    _check_range(join.group, "give_back_ms", join.give_back_ms, GIVE_BACK_MS)
    if join.queue is not None:
        _check_queue(join.group, join.queue)
    start = join.start
    if start.seqno is not None or start.bookmark is not None or start.cursor is not None:
        raise InvalidGroup(join.group, "a group starts at a time, at the earliest or latest record: else reset it")


def _check_queue(group: str, queue: QueueSettings) -> None:
    _check_range(group, "lease_ms", queue.lease_ms, LEASE_MS)
    _check_range(group, "tries", queue.tries, TRIES)
    _check_range(group, "retry_delay_ms", queue.retry_delay_ms, DELAY_MS)
    if queue.dead_letter:
        try:
            check_topic_name(queue.dead_letter)
            check_not_internal(queue.dead_letter)
        except (InvalidTopicName, TopicNotAllowed) as error:
            raise InvalidGroup(group, f"dead_letter: {error}") from None


def _check_range(group: str, what: str, value: int, allowed: tuple[int, int]) -> None:
    low, high = allowed
    if not low <= value <= high:
        raise InvalidGroup(group, f"{what} is {value:,}, allowed are {low:,} to {high:,}")
