"""Keys of an identity provider: from a file or a URL, read again when that is due, never because a token says so."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from logboom.access.bearer import BearerSettings
from logboom.errors import ConfigError, SignInFailed
from logboom.server.security.key_sets import AGAIN_S, AT_SOONEST_S, BearerChecker, check_settings, is_configured


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Provider:
    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.kid = "1"

    def keys(self) -> bytes:
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key()))
        return json.dumps({"keys": [{**public, "kid": self.kid}]}).encode()

    def token(self, subject: str = "ann") -> str:
        said = {"iss": "https://id.example", "aud": "logboom", "sub": subject, "exp": int(time.time()) + 600}
        return jwt.encode(said, self.key, "ES256", headers={"kid": self.kid})

    def rotate(self) -> None:
        self.key, self.kid = ec.generate_private_key(ec.SECP256R1()), str(int(self.kid) + 1)


def settings(jwks: str) -> BearerSettings:
    return BearerSettings("https://id.example", "logboom", jwks)


def test_keys_of_a_file_are_read_again_when_a_token_names_another_and_not_for_ever(tmp_path: Path) -> None:
    async def story() -> None:
        provider, clock, path = Provider(), Clock(), tmp_path / "keys.json"
        path.write_bytes(provider.keys())
        checker = BearerChecker(settings(str(path)), clock)
        assert (await checker.check(provider.token())).principal == "ann"
        old = provider.token()
        provider.rotate()
        path.write_bytes(provider.keys())
        with pytest.raises(SignInFailed):
            await checker.check(provider.token())
        clock.now += AT_SOONEST_S + 1
        assert (await checker.check(provider.token("bob"))).principal == "bob"
        with pytest.raises(SignInFailed):
            await checker.check(old)
        path.write_text("broken")
        clock.now += AGAIN_S + 1
        assert (await checker.check(provider.token())).principal == "ann"

    asyncio.run(story())


@contextmanager
def serving(provider: Provider, asked: list[str]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if self.path == "/moved":
                self.send_response(302)
                self.send_header("Location", "/keys")
                self.end_headers()
                return
            body = provider.keys() if self.path == "/keys" else b"x" * (2 << 20)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_keys_of_a_url_are_asked_for_once_and_redirects_and_floods_are_not_followed() -> None:
    async def story() -> None:
        provider, asked = Provider(), list[str]()
        with serving(provider, asked) as url:
            checker = BearerChecker(settings(f"{url}/keys"), Clock())
            for _ in range(3):
                assert (await checker.check(provider.token())).principal == "ann"
            assert asked == ["/keys"]
            for path in ("/moved", "/flood"):
                asked.clear()
                with pytest.raises(SignInFailed, match="could not be read"):
                    await BearerChecker(settings(url + path), Clock()).check(provider.token())
                assert asked == [path]

    asyncio.run(story())


def test_what_is_no_token_asks_nobody(tmp_path: Path) -> None:
    checker = BearerChecker(settings(str(tmp_path / "missing")), Clock())
    with pytest.raises(SignInFailed, match="name or the secret"):
        asyncio.run(checker.check("no token"))


@pytest.mark.parametrize(
    ("given", "key"),
    [
        (BearerSettings(issuer="x"), "oidc.audience"),
        (BearerSettings(audience="x"), "oidc.issuer"),
        (BearerSettings("x", "y"), "oidc.jwks"),
        (settings("http://id.example/keys"), "oidc.jwks"),
        (settings("ftp://id.example/keys"), "oidc.jwks"),
    ],
)
def test_a_configuration_that_is_not_whole_or_not_safe_is_an_error(given: BearerSettings, key: str) -> None:
    assert is_configured(given)
    assert not is_configured(BearerSettings())
    with pytest.raises(ConfigError) as wrong:
        check_settings(given)
    assert wrong.value.key == key
