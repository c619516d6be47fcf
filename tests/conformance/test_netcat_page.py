"""docs/howto/netcat.md and docs/protocols/logd.md say what a node does."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import pytest

from logboom.broker.limits import Rejections
from logboom.broker.local import LocalBroker
from logboom.protocols.logd import errors
from logboom.protocols.logd.front_end import LogdFrontEnd
from logboom.protocols.logd.requests import WORDS
from logboom.protocols.logd.settings import LogdSettings
from support.packages import need

DOCS = Path(__file__).parents[2] / "docs"
TUTORIAL = (DOCS / "howto" / "netcat.md").read_text()
REFERENCE = (DOCS / "protocols" / "logd.md").read_text()
CONFIG = {"limits": {"batch_bytes": "16MiB"}}
PATIENCE_S = 300.0


def blocks() -> list[tuple[str, str]]:
    """Commands, and what they print."""
    return re.findall(r"```sh\n(.*?)```\n```text\n(.*?)```", TUTORIAL, re.DOTALL)


async def run_shell(script: str, directory: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *("sh", "-eu", "-c", script), cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    return output.decode()


def test_every_block_of_the_tutorial_is_checked() -> None:
    assert len(blocks()) == TUTORIAL.count("```sh\n") > 10


@pytest.mark.skipif(sys.byteorder != "little", reason="od reads the bytes of the machine's own order")
def test_the_shell_on_the_page_prints_what_the_page_says(tmp_path: Path) -> None:
    need("nc", "netcat-openbsd")
    marks = "".join(f"{script}\necho =====\n" for script, _ in blocks())

    async def story() -> str:
        broker = await LocalBroker.open(str(tmp_path / "node"))
        front_end = LogdFrontEnd(broker, broker.limits, Rejections(), LogdSettings(), lambda: CONFIG)
        server = await asyncio.get_running_loop().create_server(front_end.factory, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            return await run_shell(marks.replace("1774", str(port)), tmp_path)
        finally:
            server.close()
            await front_end.close(1.0)
            await broker.close()

    printed = asyncio.run(story()).replace("\r\n", "\n").split("=====\n")
    assert printed[:-1] == [expected for _, expected in blocks()]


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.decode())
def test_every_command_is_in_the_table(word: bytes) -> None:
    assert re.search(rf"^\|.*`{word.decode()}[ `].*\|.*\|$", REFERENCE, re.MULTILINE)


def test_the_errors_of_the_page_are_those_there_are() -> None:
    table = REFERENCE[REFERENCE.index("| reason | means |") :]
    named = re.findall(r"^\| `([a-z -]+)` \|", table, re.MULTILINE)
    reasons = [value.decode() for name, value in vars(errors).items() if name.isupper() and isinstance(value, bytes)]
    assert sorted(named) == sorted(reasons)


def test_the_batches_of_the_pages_are_sound() -> None:
    lines = (REFERENCE + TUTORIAL).replace("\n", "\r\n")
    found = re.findall(r"^BATCH (\d+) \w+ (\d+) (\d+)\r\n((?:MSG \d+\r\n.*\r\n)+)", lines, re.MULTILINE)
    assert len(found) > 4
    for size, checksum, count, data in found:
        assert (len(data), crc32(data.encode()), data.count("MSG ")) == (int(size), int(checksum), int(count))
