"""SCRAM: the examples of the RFCs, both sides together, and what a hostile peer may send."""

from __future__ import annotations

import base64
import os

import pytest

from logboom.access.credential import Credential, Mechanism
from logboom.access.scram import ScramClient, ScramServer
from logboom.errors import InvalidPassword, RemoteProtocolError, SignInFailed

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
ANSWER = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
"""RFC 7677, section 3."""


def server(mechanism: Mechanism = "SCRAM-SHA-256", password: str = "pencil") -> ScramServer:
    credential = Credential.derive(password, SALT, mechanism, 4096)
    return ScramServer(mechanism, lambda user: credential, b"nonce")


def with_nonces(side: ScramServer | ScramClient, nonce: str) -> None:
    side._nonce = nonce
    if isinstance(side, ScramClient):
        side._bare = f"n=user,r={nonce}"


def test_the_client_speaks_as_the_rfc_does() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", b"")
    with_nonces(client, "rOprNGfwEbeRWgbNEkqO")
    assert client.begin() == FIRST
    assert client.answer(CHALLENGE) == ANSWER
    client.verify(FINAL)


def test_the_server_speaks_as_the_rfc_does() -> None:
    found = server()
    with_nonces(found, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert found.begin(FIRST) == CHALLENGE
    assert found.finish(ANSWER) == FINAL
    assert found.user == "user"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["user", "a=b,c", "ünï"])
@pytest.mark.parametrize("password", ["pencil", "p=a,b r", "pass\u00adword", "\u2168"])
def test_both_sides_agree(mechanism: Mechanism, user: str, password: str) -> None:
    client, node = ScramClient(mechanism, user, password, os.urandom(18)), server(mechanism, password)
    last = node.finish(client.answer(node.begin(client.begin())))
    client.verify(last)
    assert node.user == user


def test_a_wrong_password_fails_on_both_sides() -> None:
    client, node = ScramClient("SCRAM-SHA-256", "user", "pencils", os.urandom(18)), server()
    answer = client.answer(node.begin(client.begin()))
    with pytest.raises(SignInFailed):
        node.finish(answer)
    for last in (FINAL, b"e=invalid-proof", b"", b"v="):
        with pytest.raises(RemoteProtocolError, match="does not know"):
            client.verify(last)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=user",
        b"n,,r=abc,n=user",
        b"n,,n=,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=\x01",
        b"n,,m=ext,n=user,r=abc",
        b"n,a=admin,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"x,,n=user,r=abc",
        b"\xff\xfe",
        b"n,,n=user,r=" + b"a" * 5000,
    ],
)
def test_a_first_message_that_makes_no_sense_fails(message: bytes) -> None:
    with pytest.raises(SignInFailed):
        server().begin(message)


@pytest.mark.parametrize(
    "change",
    [
        (b"c=biws", b"c=eSws"),
        (b"c=biws", b"c=!"),
        (b"r=rOpr", b"r=xOpr"),
        (b",p=", b",x="),
        (b"p=dHzb", b"p="),
        (b"p=dHzb", b"p=AAAA"),
        (b"p=dHzb", b"p=dHz!"),
        (ANSWER, b""),
        (ANSWER, b"\xff" * 40),
        (b"c=biws,", b""),
    ],
)
def test_a_second_message_that_is_not_the_answer_fails(change: tuple[bytes, bytes]) -> None:
    found = server()
    with_nonces(found, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    found.begin(FIRST)
    with pytest.raises(SignInFailed):
        found.finish(ANSWER.replace(*change))


def test_nothing_is_finished_that_was_not_begun() -> None:
    with pytest.raises(SignInFailed):
        server().finish(ANSWER)


@pytest.mark.parametrize(
    ("challenge", "word"),
    [
        (b"", "makes no sense"),
        (b"r=abc,s=AAAA,i=4096", "not to this"),
        (b"r=NONCE,s=AAAA,i=4096", "not to this"),
        (b"r=NONCEx,s=AAAA,i=many", "makes no sense"),
        (b"r=NONCEx,s=!,i=4096", "makes no sense"),
        (b"r=NONCEx,s=AAAA,i=1", "iterations"),
        (b"r=NONCEx,s=AAAA,i=4000000000", "iterations"),
        (b"r=NONCEx,s=AAAA", "makes no sense"),
    ],
)
def test_a_client_does_not_work_for_a_server_that_asks_too_much_or_nonsense(challenge: bytes, word: str) -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", b"1234")
    with pytest.raises(RemoteProtocolError, match=word):
        client.answer(challenge.replace(b"NONCE", base64.b64encode(b"1234")))


@pytest.mark.parametrize("password", ["", "a\u0007b", "x" * 2000, "\u0627\u0031", "\ud800"])
def test_a_password_that_cannot_be_one_is_refused_before_anything_is_sent(password: str) -> None:
    with pytest.raises(InvalidPassword):
        ScramClient("SCRAM-SHA-256", "user", password, b"1234")


def test_credentials_and_keys_do_not_show_themselves() -> None:
    credential = Credential.derive("pencil-box", SALT)
    assert repr(credential) == "<Credential SCRAM-SHA-256 20000>"
    assert credential.is_of("pencil-box")
    assert not credential.is_of("pencil-bo")
    assert not credential.is_of("")
