"""Validators as web hooks: a POST of JSON, and the status of its answer.

A URL is taken apart once, as it was when it was compared with the configuration, and no address is connected to that
the configuration does not admit. Redirects are not followed, proxies of the environment not used, compressed answers
not asked for. Of an answer no more than ANSWER_BYTES is read, and of what it says no more than REASON_CHARACTERS is
told. There are at most CONNECTIONS connections; who finds none free waits, within his own time limit.

httpcore is loaded, and certificates are read, when the first validator is asked: most nodes never do.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Final

import msgspec

from logboom import __version__
from logboom.broker.append.validation import Verdict
from logboom.broker.append.validator_address import ValidatorAddress, ValidatorRules

if TYPE_CHECKING:
    import httpcore

CONNECTIONS: Final = 256
IDLE_S: Final = 4.0
"""How long a connection is kept that nobody uses: less than servers mostly keep theirs."""
ANSWER_BYTES: Final = 64 * 1024
REASON_CHARACTERS: Final = 500
_KEYS: Final = ("reason", "detail", "error")
_HEADERS: Final = {
    "Content-Type": "application/json",
    "Accept": "*/*",
    "Accept-Encoding": "identity",
    "User-Agent": f"logboom/{__version__}",
}


class WebHooks:
    """Implements broker.validating.Validators."""

    def __init__(self, rules: ValidatorRules) -> None:
        self._rules = rules
        self._pool: asyncio.Future[httpcore.AsyncConnectionPool] | None = None

    async def ask(self, url: str, body: bytes, timeout_s: float) -> Verdict:
        """Raises OSError where no answer comes in time, PermissionError where none may be asked for."""
        refusal = self._rules.refusal(url)
        if refusal is not None:
            raise PermissionError(refusal)
        if self._pool is None:
            self._pool = asyncio.ensure_future(asyncio.to_thread(_make_pool, self._rules))
        pool = await asyncio.shield(self._pool)
        try:
            async with asyncio.timeout(timeout_s):
                return await _post(pool, ValidatorAddress.parse(url), body)
        except TimeoutError:
            raise TimeoutError(f"no answer within {timeout_s:g} s") from None

    async def close(self) -> None:
        if self._pool is not None:
            await (await self._pool).aclose()


def _make_pool(rules: ValidatorRules) -> httpcore.AsyncConnectionPool:
    """Trusts whom the system trusts."""
    import httpcore

    from logboom.server.checked_network import CheckedNetwork

    logging.getLogger("httpcore").setLevel(logging.WARNING)  # each request would be lines of the log
    return httpcore.AsyncConnectionPool(
        ssl_context=ssl.create_default_context(),
        max_connections=CONNECTIONS,
        max_keepalive_connections=CONNECTIONS,
        keepalive_expiry=IDLE_S,
        network_backend=CheckedNetwork(rules.admits),
    )


async def _post(pool: httpcore.AsyncConnectionPool, address: ValidatorAddress, body: bytes) -> Verdict:
    import httpcore

    try:
        try:
            return await _post_once(pool, address, body)
        except (httpcore.RemoteProtocolError, httpcore.ReadError, httpcore.WriteError):
            return await _post_once(pool, address, body)  # a connection that was kept may have been closed meanwhile
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, ValueError) as error:
        raise ConnectionError(str(error) or type(error).__name__) from error


async def _post_once(pool: httpcore.AsyncConnectionPool, address: ValidatorAddress, body: bytes) -> Verdict:
    import httpcore

    url = httpcore.URL(scheme=address.scheme, host=address.host, port=address.port, target=address.request)
    headers: list[tuple[bytes | str, bytes | str]] = [("Host", address.authority), ("Content-Length", str(len(body)))]
    headers += _HEADERS.items()
    async with pool.stream("POST", url, headers=headers, content=body) as response:
        answer = bytearray()
        async for chunk in response.aiter_stream():
            answer += chunk[: ANSWER_BYTES - len(answer)]
            if len(answer) >= ANSWER_BYTES:
                break
        phrase = bytes(response.extensions.get("reason_phrase", b"")).decode(errors="replace")
        return Verdict(response.status, find_reason(bytes(answer)) or phrase or "it gave no reason")


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
