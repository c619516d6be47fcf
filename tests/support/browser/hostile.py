"""Records and names that would do harm on a page that took them for anything but text."""

from __future__ import annotations

import json
from typing import Final

from logboom.batch import Record

INJECTED: Final = "injected"
"""What the texts would set on `window` if anything of them ran."""

LONG_TOPIC: Final = "x" * 249
DOTTED_TOPIC: Final = "..-._"
PARENT_TOPIC: Final = ".."
"""What a browser makes a step upward of, wherever it stands in an address."""
MARKUP_TOPIC: Final = "markup"
LARGE_TOPIC: Final = "large"
CURSORS: Final = ("../../x", "a:b/c", "c" * 249, "-._")

SCRIPTS: Final = (
    "<script>window.injected = 1; alert(1)</script>",
    "<img src=x onerror='window.injected = 2; alert(2)'>",
    '"><svg onload="window.injected = 3; alert(3)">',
    "javascript:window.injected=4",
    "</pre></td></table><iframe src='https://example.invalid/'></iframe>",
    "${window.injected = 5}{{constructor.constructor('alert(5)')()}}",
    "<a href='https://example.invalid/' target=_top>click</a>",
    "<style>* { display: none !important }</style>",
)
ODD: Final = (
    "quotes \" ' ` and \\ and &amp; &lt;b&gt;",
    "two\nlines\r\nand\ttabs",
    "nul \x00 bell \x07 escape \x1b[31mred\x1b[0m delete \x7f",
    "bidi \u202egnp.exe\u202c \u2066isolated\u2069 \u200fright",
    "emoji 👩‍👩‍👧‍👦 🏳️‍🌈 e\u0301 \ufeff zero\u200bwidth",
    "zalgo " + "a" + "\u0335\u0321\u0315" * 40,
    "long-" + "word" * 500,
    "line \u2028 separator \u2029 paragraph",
)
NOT_TEXT: Final = (b"\xff\xfe\xfd", b"\xc3(", b"\xed\xa0\x80", bytes(range(256)), b"\x00" * 64, b"")
NUMBERS: Final = (
    b'{"huge": 12345678901234567890123456789012345678901234567890, "tiny": 1e-999, "large": 1e999}',
    b'{"exact": 9007199254740993, "negative": -0.0, "seqno": 9223372036854775807}',
    b'{"__proto__": {"polluted": true}, "constructor": 1, "toString": 2, "hasOwnProperty": 3}',
    b'{"same": 1, "same": 2}',
    b'"only text"',
    b"null",
    b"[]",
    b'{"": {"": []}}',
)
DEEP: Final = b"[" * 5_000 + b"]" * 5_000
DEEP_OBJECT: Final = b'{"a":' * 2_000 + b"1" + b"}" * 2_000


def records() -> list[Record]:
    """Every text in every place that takes one."""
    texts = [*SCRIPTS, *ODD]
    made = [_everywhere(text) for text in texts]
    made += [Record(json.dumps({text: [text, {text: text}]}).encode(), channel=text) for text in texts]
    made += [Record(value, key=value) for value in NOT_TEXT]
    made += [Record(value) for value in (*NUMBERS, DEEP, DEEP_OBJECT)]
    return [*made, Record(None), Record(None, key=b"only a key"), Record(b"tagged", tags=tuple(texts))]


def large() -> list[Record]:
    """A megabyte each: of text without a space, of lines, of JSON, of bytes; and one with many headers and tags."""
    lines = "\n".join(f"line {number}: {'<b>bold</b> ' * 8}" for number in range(9_000)).encode()
    wide = json.dumps([{"number": number, "text": "<i>" + "y" * 60} for number in range(11_000)]).encode()
    return [
        Record(b"w" * 1_000_000, key=b"k" * 10_000),
        Record(lines),
        Record(wide),
        Record(bytes(range(256)) * 4_000),
        Record(
            b"many",
            tags=tuple(f"tag-{number}" for number in range(500)),
            headers=tuple((f"header-{number}", b"value " * 20) for number in range(500)),
        ),
    ]


def _everywhere(text: str) -> Record:
    data = text.encode()
    return Record(data, key=data, channel=text, tags=(text,), headers=((text, data), ("second", data)))
