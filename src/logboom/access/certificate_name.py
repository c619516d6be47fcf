"""Who a certificate is of: the one name in it that the configuration trusts to say so.

A certificate may have several names of several sorts. Only one sort counts, and only where there is exactly one of it:
with two of them nobody could say which is meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from logboom.access.principal import check_principal
from logboom.errors import InvalidPrincipal

PrincipalFrom = Literal["common_name", "dns", "email", "uri"]
_ALTERNATIVES: Final[dict[str, str]] = {"dns": "DNS", "email": "email", "uri": "URI"}


def principal_of_certificate(certificate: Mapping[str, Any], source: PrincipalFrom) -> str | None:
    """None where it has no such name, several, or one that no user can have. It is as `ssl` gives it, once checked.

    >>> principal_of_certificate({"subject": ((("commonName", "alice"),),)}, "common_name")
    'alice'
    >>> principal_of_certificate({"subjectAltName": (("URI", "spiffe://a/b"), ("DNS", "b"))}, "uri")
    'spiffe://a/b'
    """
    if source == "common_name":
        parts = (part for group in certificate.get("subject", ()) for part in group)
        found = [value for name, value in parts if name == "commonName"]
    else:
        kind = _ALTERNATIVES[source]
        found = [value for name, value in certificate.get("subjectAltName", ()) if name == kind]
    if len(found) != 1:
        return None
    try:
        return check_principal(found[0])
    except InvalidPrincipal:
        return None
