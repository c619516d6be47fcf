"""Whoever comes from another client, or lacks a package, is told what to write or to install."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from logboom import AsyncReader, AsyncWriter, Client, Reader, Writer
from logboom.client import FileReader
from logboom.errors import PackageMissing


@pytest.mark.parametrize(
    ("make", "given", "words"),
    [
        (Reader, {"offset": 3}, "Reader has no option 'offset': it is called seqno"),
        (AsyncReader, {"group_id": "g"}, "AsyncReader has no option 'group_id': it is called cursor"),
        (Writer, {"bootstrap_servers": "x"}, "Writer has no option 'bootstrap_servers': it is called servers"),
        (Writer, {"value_serializer": str}, "Writer has no option 'value_serializer': it is called value"),
        (FileReader, {"serializer": str}, "FileReader has no option 'serializer': it is called value"),
        (AsyncWriter, {"linger": 5}, "AsyncWriter has no option 'linger': it is called linger_ms"),
        (FileReader, {"offset": 3}, "FileReader has no option 'offset': it is called seqno"),
        (Client, {"foo": 1}, "Client has no option 'foo': there are servers, codec"),
    ],
)
def test_an_option_of_another_client_is_refused_with_the_name_it_has_here(
    make: Callable[..., Any], given: dict[str, Any], words: str
) -> None:
    with pytest.raises(TypeError, match=f"^{words}"):
        make(*(() if make is Client else ("events", "localhost:1")), **given)


def test_frames_without_pandas_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(PackageMissing, match="pip install pandas"):
        Reader.frames(Reader.__new__(Reader))

    async def read() -> None:
        async for _ in AsyncReader("events", "localhost:1").frames():
            pass

    with pytest.raises(PackageMissing, match="pip install pandas"):
        asyncio.run(read())
