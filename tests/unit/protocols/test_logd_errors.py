"""Every error has words of the logd protocol."""

from __future__ import annotations

import pytest

from logboom import errors as e
from logboom.protocols.logd import answers, errors
from logboom.protocols.logd.errors import LIMITS, REASONS, reason_of

WORDS = {value for name, value in vars(errors).items() if name.isupper() and isinstance(value, bytes)}


@pytest.mark.parametrize("code", sorted(e.CODES))
def test_every_error_has_words_that_are_on_the_page(code: str) -> None:
    kind = e.CODES[code]
    error = kind.__new__(kind)
    if isinstance(error, e.LimitExceeded):
        error.limit = "limits.cursors"
    assert reason_of(error) in WORDS


def test_words_are_those_of_the_nearest_error_above() -> None:
    assert reason_of(e.TopicNotFound("news", "here")) == b"not found"
    assert reason_of(e.WritesRefused("news", "")) == b"read only"
    assert reason_of(e.ReadOnlyReplica("there")) == b"read only"
    assert reason_of(e.Overloaded("news", 2, 1)) == b"unavailable"
    assert reason_of(e.TopicBusy("news", "orders")) == b"unavailable"
    assert reason_of(e.BatchTooLarge(2, 1)) == b"too large"
    assert reason_of(e.LimitExceeded("limits.topics", 1)) == b"maximum topics allowed"
    assert reason_of(e.QuotaExceeded("bob", "topics", 1)) == b"maximum topics allowed"
    assert reason_of(e.QuotaExceeded("bob", "connections", 1)) == b"maximum connections allowed"
    assert reason_of(KeyError("a bug")) == b"unavailable"


def test_the_table_holds_nothing_but_fixed_words() -> None:
    assert {*REASONS.values(), *LIMITS.values()} <= WORDS


def test_a_fact_stays_on_its_line() -> None:
    assert answers.encode_fact("refused", "for\r\nnow: 1") == b'refused: "for\\r\\nnow: 1"\r\n'
    assert b"".join(answers.encode_tree({"a": {"b": 1, "c": {}}, "d": True})) == b"a.b: 1\r\na.c: {}\r\nd: true\r\n"
