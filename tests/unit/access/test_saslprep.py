"""SASLprep: the examples of RFC 4013, section 3."""

from __future__ import annotations

import pytest

from logboom.access.saslprep import saslprep


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("", ""),
    ],
)
def test_text_is_prepared(text: str, prepared: str) -> None:
    assert saslprep(text) == prepared


@pytest.mark.parametrize("text", ["\u0007", "\u0627\u0031", "\ue000", "\u0221", "\ud800", "\u0627a\u0627"])
def test_what_is_prohibited_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not allowed|mixed"):
        saslprep(text)
