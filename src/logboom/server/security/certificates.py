"""TLS on the node's side: one context for each way of asking for client certificates, kept up to date with its files.

A certificate that was replaced is read again, at the next look or on SIGHUP, into another context: connections that
are open go on, new ones get the new one, and nobody of an authority that was taken out of `client_ca` gets in. One that
cannot be read, or does not fit its key, changes nothing and is told.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from typing import Final, Literal

import msgspec

from logboom.access.certificate_name import PrincipalFrom
from logboom.errors import ConfigError
from logboom.protocols.peer_caller import ListenerContext
from logboom.server.security.certificate_expiry import expiry_of

LOOK_S: Final = 5.0
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2: forward secret and authenticated. Those of 1.3 are all so."""
CURVE: Final = "prime256v1"
"""For the keys of a connection: every client has it, and it costs a millisecond. OpenSSL would also take ffdhe8192,
with which a stranger's handshake takes a hundred (CVE-2002-20001); Python can name one group, and not several."""
ClientCertificates = Literal["none", "optional", "required"]
logger = logging.getLogger("logboom.server")


class TlsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    certificate: str | None = None
    key: str | None = None
    client_ca: str | None = None
    client_certificates: ClientCertificates = "none"
    principal_from: PrincipalFrom = "common_name"

    def check(self) -> None:
        """Raises ConfigError."""
        if self.key is not None and self.certificate is None:
            raise ConfigError("tls.certificate", "there is a key, and no certificate: name its file")
        if self.client_certificates != "none" and self.client_ca is None:
            raise ConfigError("tls.client_ca", "is needed to check certificates of clients: name a file")
        if self.client_certificates == "none" and self.client_ca is not None:
            raise ConfigError("tls.client_certificates", "is none, and there is a client_ca: say optional or required")


class Certificates:
    """Raises ConfigError where the files are of no use."""

    def __init__(self, settings: TlsSettings) -> None:
        if settings.certificate is None:
            raise ConfigError("tls.certificate", "is not set: name a certificate, which `logboom cert` can make")
        self._settings = settings
        self._seen = self._look()
        self._context = self._make()
        self.expires = expiry_of(settings.certificate)
        """When, microseconds; None where nobody can say."""

    def context(self) -> ListenerContext:
        """For the next connection."""
        return self._context

    def _make(self) -> ListenerContext:
        settings = self._settings
        context = ListenerContext(ssl.PROTOCOL_TLS_SERVER)
        context.principal_from = settings.principal_from
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        context.set_ecdh_curve(CURVE)
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_COMPRESSION
        if settings.client_ca is not None:
            is_required = settings.client_certificates == "required"
            context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        settings = self._settings
        assert settings.certificate is not None
        try:
            context.load_cert_chain(settings.certificate, settings.key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError("tls.certificate", _explain(settings.certificate, settings.key, error)) from None
        if settings.client_ca is not None:
            try:
                context.load_verify_locations(settings.client_ca)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError("tls.client_ca", _explain(settings.client_ca, None, error)) from None

    def _look(self) -> list[tuple[int, int, int] | None]:
        settings = self._settings
        return [_version(path) for path in (settings.certificate, settings.key, settings.client_ca) if path is not None]

    def refresh(self) -> bool:
        """Read the files again, where they are others than before. Whether they were."""
        seen = self._look()
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            self._context = self._make()
        except ConfigError as error:
            logger.error("the old certificate is used on: %s", error)
            return False
        assert self._settings.certificate is not None
        self.expires = expiry_of(self._settings.certificate)
        logger.info("the certificate was read again: %s", self._settings.certificate)
        return True

    async def follow(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.refresh()


def _version(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _explain(path: str, key: str | None, error: OSError) -> str:
    reason = getattr(error, "reason", None) or error.strerror or str(error)
    if reason == "KEY_VALUES_MISMATCH":
        return f"{path} and {key or path} do not belong together: name the key of this certificate"
    return f"{path}{f' with {key}' if key else ''}: {reason}: name files in PEM that this user may read"
