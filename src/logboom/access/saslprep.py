"""How a password or a name becomes the same bytes everywhere: SASLprep, RFC 4013, on the tables of RFC 3454."""

from __future__ import annotations

import stringprep
import unicodedata
from typing import Final

_PROHIBITED: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def saslprep(text: str) -> str:
    """Raises ValueError for what may be in no password.

    >>> saslprep("I\\u00adX"), saslprep("\\u2168")
    ('IX', 'IX')
    """
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(
        " " if stringprep.in_table_c12(letter) else letter for letter in text if not stringprep.in_table_b1(letter)
    )
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    for letter in prepared:
        if any(is_prohibited(letter) for is_prohibited in _PROHIBITED) or stringprep.in_table_a1(letter):
            raise ValueError(f"the character {letter!r} is not allowed here")
    if any(map(stringprep.in_table_d1, prepared)):
        ends = prepared[0], prepared[-1]
        if any(map(stringprep.in_table_d2, prepared)) or not all(map(stringprep.in_table_d1, ends)):
            raise ValueError("text from right to left and from left to right is mixed")
    return prepared
