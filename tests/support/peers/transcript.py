"""Conversations as people read them.

# what this is about
% limits.topics_per_connection = 1     a setting, before anything is said
@ create news 2                        somebody else does something
> MSG news 5                           sent, with CRLF behind it
>| MSG news 5\\nhello\\n                 sent as it stands, with escapes
< OK 0 1                               received, with CRLF behind it
<| MSG 1\\r\\n\\x00\\r\\n                   received as it stands, with escapes
<~ MOK [0-9]+                          received: something like this, with CRLF behind it
<~| STORED .*\\r\\n(?s:.{128})           received: something like this, as it stands
= open                                 or `closed`: how it ends
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Step:
    """Some things happen, some are said, and then this is the answer."""

    actions: list[list[str]] = field(default_factory=list)
    sent: bytes = b""
    pattern: bytes = b""


@dataclass
class Transcript:
    steps: list[Step]
    settings: dict[str, int]
    is_closed: bool


def load(path: Path) -> Transcript:
    steps, settings, ending = [Step()], {}, ""
    for line in path.read_text().splitlines():
        mark, _, text = line.partition(" ")
        if mark in (">", ">|", "@") and steps[-1].pattern:
            steps.append(Step())
        if mark == "%":
            name, _, value = text.partition(" = ")
            settings[name] = int(value)
        elif mark == "@":
            assert not steps[-1].sent, "actions come first in a step"
            steps[-1].actions.append(text.split(" "))
        elif mark in (">", ">|"):
            steps[-1].sent += _bytes(mark, text)
        elif mark in ("<", "<|"):
            steps[-1].pattern += re.escape(_bytes(mark, text))
        elif mark in ("<~", "<~|"):
            steps[-1].pattern += text.encode() + (b"" if mark == "<~|" else b"\r\n")
        elif mark == "=":
            ending = text
        else:
            assert mark in ("#", ""), line
    assert ending in ("open", "closed"), path
    return Transcript(steps, settings, ending == "closed")


def _bytes(mark: str, text: str) -> bytes:
    if mark.endswith("|"):
        return text.encode("latin-1").decode("unicode_escape").encode("latin-1")
    return text.encode() + b"\r\n"
