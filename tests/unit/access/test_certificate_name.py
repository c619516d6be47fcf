"""Which principal a client's certificate stands for."""

from __future__ import annotations

from typing import Any

import pytest

from logboom.access.certificate_name import PrincipalFrom, principal_of_certificate

CERTIFICATE = {
    "subject": ((("organizationName", "Example"),), (("commonName", "alice"),)),
    "subjectAltName": (
        ("DNS", "alice.example.org"),
        ("email", "alice@example.org"),
        ("URI", "spiffe://example.org/alice"),
        ("IP Address", "10.0.0.7"),
    ),
}


@pytest.mark.parametrize(
    ("source", "principal"),
    [
        ("common_name", "alice"),
        ("dns", "alice.example.org"),
        ("email", "alice@example.org"),
        ("uri", "spiffe://example.org/alice"),
    ],
)
def test_the_name_that_the_configuration_trusts_is_the_principal(source: PrincipalFrom, principal: str) -> None:
    assert principal_of_certificate(CERTIFICATE, source) == principal


@pytest.mark.parametrize("source", ["common_name", "dns", "email", "uri"])
def test_a_certificate_without_such_a_name_stands_for_nobody(source: PrincipalFrom) -> None:
    assert principal_of_certificate({}, source) is None
    assert principal_of_certificate({"subject": (), "subjectAltName": ()}, source) is None


def test_of_two_names_of_one_sort_nobody_knows_which_is_meant() -> None:
    two: dict[str, Any] = {
        "subject": ((("commonName", "alice"),), (("commonName", "root"),)),
        "subjectAltName": (("DNS", "a"), ("DNS", "b")),
    }
    assert principal_of_certificate(two, "common_name") is None
    assert principal_of_certificate(two, "dns") is None


@pytest.mark.parametrize("name", ["_operator", "_node", "anonymous", "Anonymous", "a b", "alice\0", "", "*", "x" * 129])
def test_a_name_that_no_user_can_have_is_no_principal(name: str) -> None:
    assert principal_of_certificate({"subject": ((("commonName", name),),)}, "common_name") is None
