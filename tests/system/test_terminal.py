"""What others wrote never steers the terminal of whoever looks at it, whatever command shows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom import Client, Settings, Writer
from logboom.cli.connection import ask
from support.nodes.process import NodeProcess
from support.terminal import on_terminal

OSC_LINK = "\x1b]8;;http://evil.example\x1b\\here\x1b]8;;\x1b\\"
OSC_CLIPBOARD = "\x1b]52;c;cm0gLXJmIH4=\x07"
C1, BIDI, DEL = "\x9b31m\x9d0;title\x9c", "\u202etxt.exe\u2066", "\x7f"
MARKUP = "[red]markup[/red][link=http://evil.example]x[/link]:bomb:"
HOSTILE = f"\x1b[2J{OSC_LINK}{OSC_CLIPBOARD}{C1}{BIDI}{DEL}\r\b{MARKUP}"
SHOWN = ("\\x1b[2J", "\\x1b]52;c;", "\\x07", "\\x9b31m", "\\u202etxt.exe", "\\x7f", "\\r\\x08[red]markup[/red]")

PRINTS = """
import sys
from logboom.cli.show.output import show_json_line
from logboom.cli.show.terminal import guard
guard()
print(sys.argv[1])
show_json_line({"name": sys.argv[1][-5:]})
"""
JSON_OF_NAME = b'{"name": "\\udcff\\u001b[2J"}\n'


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    options = ("--logd", "127.0.0.1:0", "--http", "127.0.0.1:0")
    with NodeProcess(tmp_path_factory.mktemp("node"), *options) as process:
        with Writer("events", process.address) as writer:
            writer.write(
                HOSTILE.encode(),
                key=HOSTILE.encode(),
                channel=HOSTILE,
                tags=(HOSTILE,),
                headers=((HOSTILE, HOSTILE.encode()),),
            )
            writer.write(b"bytes \xff\x1b[31m \xc2\x9b31m")
        ask(process.address, lambda broker: broker.refuse("events", HOSTILE))
        yield process


def shown_by(node: NodeProcess, *arguments: str, code: int = 0) -> str:
    done = on_terminal(*arguments, LOGBOOM_SERVERS=node.address)
    assert done.code == code, done.text
    text = done.text
    assert text.replace("\n", "").replace("\t", "").isprintable(), ascii(text)
    return text


@pytest.mark.parametrize(
    "arguments", [("read", "events"), ("read", "events", "-n"), ("read", "events", "-f", "%k %c %g %h %s\\n\\x1b[0m")]
)
def test_a_value_is_shown_with_its_escapes_visible(node: NodeProcess, arguments: tuple[str, ...]) -> None:
    text = shown_by(node, *arguments)
    for words in SHOWN:
        assert words in text
    assert "bytes \\xff\\x1b[31m \\x9b31m\n" in text


def test_msgpack_is_shown_as_json_where_the_topic_says_that_it_is_that(node: NodeProcess) -> None:
    with Client(node.address) as client:
        client.create_topic("packed", 1, Settings(value="msgpack"))
    with Writer("packed", node.address, value="msgpack") as writer:
        writer.write({"celsius": 21.5, "name": HOSTILE})
    for arguments in (("read", "packed"), ("read", "packed,packed/0"), ("read", "pack*", "-f", "%s\\n")):
        found = json.loads(shown_by(node, *arguments))
        assert found == {"celsius": 21.5, "name": HOSTILE}
    assert shown_by(node, "read", "packed", "--value", "bytes").startswith("\\x82")


@pytest.mark.parametrize(
    "arguments",
    [
        ("read", "events", "--format", "ndjson"),
        ("topic", "list", "--json"),
        ("top", "--json"),
        ("sql", "SELECT * FROM events", "--json"),
    ],
)
def test_json_on_a_terminal_is_the_same_json(node: NodeProcess, arguments: tuple[str, ...]) -> None:
    text = shown_by(node, *arguments)
    found = json.loads(text.splitlines()[0] if arguments[0] in ("read", "sql") else text)
    assert MARKUP in str(found)
    assert "\\u009b31m" in text
    if arguments[0] == "read":
        assert found["value"] == found["key"] == found["channel"] == found["tags"][0] == HOSTILE


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("topic", "list"), 0),
        (("top", "--once"), 0),
        (("doctor", "--quick"), 1),
        (("write", "events", "hello"), 1),
        (("sql", "SELECT * FROM events"), 0),
        (("read", "events", "--from", HOSTILE), 2),
        (("read", "events", f"--{HOSTILE}"), 2),
        ((HOSTILE,), 2),
        (("check", HOSTILE), 2),
        (("stats", "--server", HOSTILE), 2),
    ],
)
def test_no_command_hands_on_what_a_terminal_obeys(node: NodeProcess, arguments: tuple[str, ...], code: int) -> None:
    text = shown_by(node, *arguments, code=code)
    assert "\\x1b[2J" in text


def test_what_is_piped_is_exact(node: NodeProcess) -> None:
    environment = {**os.environ, "LOGBOOM_SERVERS": node.address}
    command = [sys.executable, "-m", "logboom", "read", "events"]
    done = subprocess.run(command, capture_output=True, check=True, env=environment)
    assert done.stdout == HOSTILE.encode() + b"\n" + b"bytes \xff\x1b[31m \xc2\x9b31m\n"


def test_a_file_name_that_is_no_text_is_shown_and_no_traceback(tmp_path: Path) -> None:
    directory = bytes(tmp_path) + b"/\xff\x1b[2J"
    os.mkdir(directory)
    done = on_terminal("check", directory)
    assert "/\\udcff\\x1b[2J is not a Logboom directory" in done.text
    assert done.code == 2
    command: list[str | bytes] = [sys.executable, "-c", PRINTS, directory]
    assert subprocess.run(command, capture_output=True, check=True).stdout == directory + b"\n" + JSON_OF_NAME
