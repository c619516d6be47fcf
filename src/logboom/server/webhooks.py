"""Validators as web hooks: a POST of JSON, and the status of its answer.

Redirects are not followed, proxies of the environment not used, compressed answers not asked for. Of an answer no more
than ANSWER_BYTES is read, and of what it says no more than REASON_CHARACTERS is told. There are at most CONNECTIONS
connections; who finds none free waits, within his own time limit.

httpx is loaded, and certificates are read, when the first validator is asked: most nodes never do.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Final

import msgspec

from logboom import __version__
from logboom.broker.validating import Verdict

if TYPE_CHECKING:
    import httpx

CONNECTIONS: Final = 256
IDLE_S: Final = 4.0
"""How long a connection is kept that nobody uses: less than servers mostly keep theirs."""
ANSWER_BYTES: Final = 64 * 1024
REASON_CHARACTERS: Final = 500
_KEYS: Final = ("reason", "detail", "error")
_HEADERS: Final = {
    "Content-Type": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": f"logboom/{__version__}",
}


class WebHooks:
    """Implements broker.validating.Validators."""

    def __init__(self) -> None:
        self._client: asyncio.Future[httpx.AsyncClient] | None = None

    async def ask(self, url: str, body: bytes, timeout_s: float) -> Verdict:
        """Raises OSError where no answer comes in time."""
        if self._client is None:
            self._client = asyncio.ensure_future(asyncio.to_thread(_make_client))
        client = await asyncio.shield(self._client)
        try:
            async with asyncio.timeout(timeout_s):
                return await _post(client, url, body)
        except TimeoutError:
            raise TimeoutError(f"no answer within {timeout_s:g} s") from None

    async def close(self) -> None:
        if self._client is not None:
            await (await self._client).aclose()


def _make_client() -> httpx.AsyncClient:
    """Trusts whom the system trusts."""
    import httpx

    for name in ("httpx", "httpcore"):  # each request would be a line of the log, with the password of its URL
        logging.getLogger(name).setLevel(logging.WARNING)
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS, keepalive_expiry=IDLE_S)
    return httpx.AsyncClient(
        headers=_HEADERS,
        limits=limits,
        timeout=None,
        follow_redirects=False,
        trust_env=False,
        verify=ssl.create_default_context(),
    )


async def _post(client: httpx.AsyncClient, url: str, body: bytes) -> Verdict:
    import httpx

    try:
        try:
            return await _post_once(client, url, body)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            return await _post_once(client, url, body)  # a connection that was kept may have been closed meanwhile
    except ExceptionGroup as group:  # what became of several addresses of one host
        raise ConnectionError(str(group.exceptions[0])) from group
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise ConnectionError(str(error) or type(error).__name__) from error


async def _post_once(client: httpx.AsyncClient, url: str, body: bytes) -> Verdict:
    async with client.stream("POST", url, content=body) as response:
        answer = bytearray()
        async for chunk in response.aiter_raw(ANSWER_BYTES):
            answer += chunk[: ANSWER_BYTES - len(answer)]
            if len(answer) >= ANSWER_BYTES:
                break
        return Verdict(response.status_code, find_reason(bytes(answer)) or response.reason_phrase or "it says no more")


def find_reason(answer: bytes) -> str:
    """What the body of an answer says, on one line."""
    text = answer.decode(errors="replace")
    try:
        found = msgspec.json.decode(answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        found = None
    if isinstance(found, dict):
        text = next((found[key] for key in _KEYS if isinstance(found.get(key), str)), text)
    printable = "".join(character if character.isprintable() else " " for character in text[: 4 * REASON_CHARACTERS])
    return " ".join(printable.split())[:REASON_CHARACTERS]
