"""How a replica gets to its source, and who it is there: TLS, and a user with a password, or a token.

The configuration names files; what is in them is read for each connection, so that a secret can be changed while the
node runs. It goes over TLS, or stays on this machine: nothing else is ever sent one.
"""

from __future__ import annotations

import os
import stat
from typing import Final

import msgspec

from logboom.client.link.profile import Profile, load_profile
from logboom.errors import ConfigError
from logboom.protocols.endpoint import LOGD_PORT, Endpoint

SECRET_BYTES_MOST: Final = 4096


class ReplicateSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    profile: str | None = None
    user: str | None = None
    password_file: str | None = None
    token_file: str | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    server_name: str | None = None

    def check(self, source: Endpoint) -> None:
        """Raises ConfigError."""
        others = [name for name in self.__struct_fields__ if name != "profile" and getattr(self, name) is not None]
        if self.profile is not None and others:
            raise ConfigError(f"replicate.{others[0]}", "the profile says it all: name one or the other")
        if self.token_file is not None and (self.user is not None or self.password_file is not None):
            raise ConfigError("replicate.token_file", "a token says who its user is: name no user beside it")
        if (self.user is None) != (self.password_file is None):
            missing = "password_file" if self.password_file is None else "user"
            raise ConfigError(f"replicate.{missing}", "is needed: a user and a password belong together")
        if not source.tls:
            for name in ("ca", "certificate", "server_name"):
                if getattr(self, name) is not None:
                    raise ConfigError("replicate_from", f"replicate.{name} is for TLS: write tls://{source}")
            if self.user is not None or self.token_file is not None:
                check_private(source)

    def load(self) -> Profile:
        """With the secrets, as they are in their files now. Raises ConfigError."""
        if self.profile is not None:
            return load_profile(self.profile, os.environ)
        return Profile(
            user=self.user,
            password=_read_secret("replicate.password_file", self.password_file),
            token=_read_secret("replicate.token_file", self.token_file),
            ca=self.ca,
            certificate=self.certificate,
            key=self.key,
            server_name=self.server_name,
        )


def parse_source(address: str) -> Endpoint:
    try:
        source = Endpoint.parse(address, LOGD_PORT)
    except ValueError as error:
        raise ConfigError("replicate_from", str(error)) from None
    if not source.host or not source.port:
        raise ConfigError("replicate_from", f"{address!r} names no node: write HOST:PORT, or tls://HOST:PORT")
    return source


def write_source(source: Endpoint) -> str:
    """
    >>> write_source(parse_source("tls://db1")), write_source(parse_source("db1:9"))
    ('tls://db1:1774', 'db1:9')
    """
    return f"tls://{source}" if source.tls else str(source)


def check_private(source: Endpoint) -> None:
    """Raises ConfigError where somebody on the way could read a secret."""
    if not source.tls and not source.is_local:
        raise ConfigError(
            "replicate_from", f"a password or a token would go to {source} in the clear: write tls://{source}"
        )


def _read_secret(key: str, path: str | None) -> str | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(SECRET_BYTES_MOST + 1).decode()
    except OSError as error:
        raise ConfigError(key, f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(key, f"{path} is no text in UTF-8") from None
    if mode & stat.S_IRWXO:
        raise ConfigError(key, f"{path} can be read by everybody: chmod 600 {path}")
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret or len(text) > SECRET_BYTES_MOST or "\n" in secret:
        raise ConfigError(key, f"{path} is to hold one line: the secret, and nothing else")
    return secret
