"""Where the keys of an identity provider come from: a file, or a URL; kept, and read again when that is due.

A URL is that of the configuration and no other: nothing that a token says leads anywhere. It is read over https (plain
http on this machine only), without redirects, bounded in size and time. A token with a key that is not known makes us
look again, at most once in a while, so that a provider may change its keys at any time, and a stranger cannot make us
ask for ever.
"""

from __future__ import annotations

import asyncio
import logging
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from logboom.access.bearer import Bearer, BearerSettings, KeySet, check_jwt_installed, key_id, verify
from logboom.errors import ConfigError, SignInFailed

BYTES_MOST: Final = 1024 * 1024
TIMEOUT_S: Final = 10.0
AGAIN_S: Final = 3600.0
"""After so long the keys are read again."""
AT_SOONEST_S: Final = 30.0
"""However many tokens name a key that is not known."""
_HTTPS: Final = "https"
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
logger = logging.getLogger("logboom.server")


class BearerChecker:
    """Implements broker.access.sign_in.Bearers. Raises ConfigError where the configuration is of no use."""

    def __init__(self, settings: BearerSettings, monotonic_s: Callable[[], float]) -> None:
        check_settings(settings)
        check_jwt_installed()
        assert settings.jwks is not None
        self._settings = settings
        self._source = settings.jwks
        self._now = monotonic_s
        self._keys: KeySet | None = None
        self._read_at = self._tried_at = -AGAIN_S
        self._reading = asyncio.Lock()

    async def check(self, text: str) -> Bearer:
        """Raises SignInFailed."""
        kid = key_id(text)
        if kid is None:
            raise SignInFailed
        now = self._now()
        if self._keys is None or self._keys.find(kid) is None or now - self._read_at > AGAIN_S:
            await self._refresh()
        if self._keys is None:
            raise SignInFailed("bearer tokens cannot be checked now: the keys of their provider could not be read")
        return verify(text, self._keys, self._settings)

    async def _refresh(self) -> None:
        async with self._reading:
            if self._now() - self._tried_at < AT_SOONEST_S:
                return
            self._tried_at = self._now()
            try:
                self._keys = KeySet(await asyncio.to_thread(_read, self._source))
                self._read_at = self._now()
            except (OSError, ValueError) as error:
                logger.error("the keys that bearer tokens are signed with: %s: %s", self._source, error)


def check_settings(settings: BearerSettings) -> None:
    """All of it, or nothing. Raises ConfigError."""
    given = {"issuer": settings.issuer, "audience": settings.audience, "jwks": settings.jwks}
    missing = [name for name, value in given.items() if value is None]
    if missing:
        raise ConfigError(f"oidc.{missing[0]}", "is needed where bearer tokens are checked: name it, or leave out oidc")
    url = urlsplit(settings.jwks or "")
    if url.scheme in ("http", "https"):
        if url.scheme != _HTTPS and url.hostname not in _LOCAL:
            raise ConfigError("oidc.jwks", "is read over https, for who can change it could sign in as anybody")
    elif "://" in (settings.jwks or ""):
        raise ConfigError("oidc.jwks", "is a file, or a URL that begins with https://")


def _read(source: str) -> bytes:
    """On a thread. Raises OSError."""
    if not source.startswith(("http://", "https://")):
        with open(source, "rb") as file:
            return _bounded(file.read(BYTES_MOST + 1))
    opener = urllib.request.build_opener(_NoRedirects, urllib.request.ProxyHandler({}))
    with opener.open(source, timeout=TIMEOUT_S) as response:
        return _bounded(response.read(BYTES_MOST + 1))


def _bounded(data: bytes) -> bytes:
    if len(data) > BYTES_MOST:
        raise OSError(f"has more than {BYTES_MOST:,} bytes")
    return data


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any, **named: Any) -> None:
        return None


def is_configured(settings: BearerSettings) -> bool:
    return any(value is not None for value in (settings.issuer, settings.audience, settings.jwks))
