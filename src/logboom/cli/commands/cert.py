"""`logboom cert ...`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from logboom.cli.certificate import CA_DAYS, CLIENT_DAYS, SERVER_DAYS
from logboom.cli.options import Flag, Json
from logboom.cli.show.output import show_json, show_pairs

if TYPE_CHECKING:
    from cryptography import x509

    from logboom.cli.certificate import Issued

VALID, INVALID = 0, 1
DETAILS = """\
First an authority of your own (ca), then a certificate for each node (server),
and, where clients show who they are by one, for each client. Keys are ECDSA
P-256, in files that only you can read. Give ca.pem to every client; ca.key is
what others could make certificates with: keep it where no node runs.

Examples:
  logboom cert ca --directory certs
  logboom cert server --directory certs --host logs.example.org --host 10.0.0.7
  logboom cert client alice --directory certs
  logboom cert client importer --uri spiffe://example.org/importer
  logboom cert show certs/server.pem
  logboom serve --listen 0.0.0.0:1773 --set tls.certificate=certs/server.pem --set tls.key=certs/server.key
"""
app = App(name="cert", help="Make certificates for TLS, and show them.", help_epilogue=DETAILS)
Directory = Annotated[
    Path, Parameter(name=["--directory", "-d"], help="Where the files are; created if it does not exist.")
]
Days = Annotated[int, Parameter(help="How long it is valid.")]
Force = Annotated[bool, Parameter(negative="", show_default=False, help="Replace files that are there.")]
HERE = Path()


@app.command
def ca(
    *,
    name: str = "Logboom CA",
    directory: Directory = HERE,
    days: Days = CA_DAYS,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make an authority: ca.pem, which everybody may have, and ca.key, which nobody else may.

    Parameters
    ----------
    name
        What it is called in certificates.
    """
    from logboom.cli.certificate import check_installed, make_ca

    check_installed()
    _tell(make_ca(str(directory), name, days, force), as_json)


@app.command
def server(
    *,
    host: Annotated[list[str] | None, Parameter(name="--host", negative="")] = None,
    directory: Directory = HERE,
    days: Days = SERVER_DAYS,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make a node's certificate: server.pem and server.key.

    Parameters
    ----------
    host
        A name or an address that clients call the node by; may be given more than once. Default: the names and
        addresses of this machine, and localhost.
    """
    from logboom.cli.certificate import check_installed, make_server, own_hosts

    check_installed()
    hosts = list(dict.fromkeys(host or own_hosts()))
    made = make_server(str(directory), hosts, days, force)
    if not as_json:
        print(f"for {', '.join(hosts)}", file=sys.stderr)
    _tell(made, as_json, hosts=hosts)


@app.command
def client(
    name: str,
    /,
    *,
    uri: str | None = None,
    dns: str | None = None,
    email: str | None = None,
    directory: Directory = HERE,
    days: Days = CLIENT_DAYS,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make a client's certificate: NAME.pem and NAME.key.

    To a node whose tls.principal_from is common_name, the client is the user NAME.

    Parameters
    ----------
    name
        The common name.
    uri
        Its URI, such as a SPIFFE id. Default: logboom:NAME.
    dns
        Its DNS name, if it has one.
    email
        Its address for mail, if it has one.
    """
    from logboom.access.principal import check_principal
    from logboom.cli.certificate import check_installed, make_client, name_alternatives

    check_principal(name)
    check_installed()
    alternatives = name_alternatives(uri or f"logboom:{name}", dns, email)
    _tell(make_client(str(directory), name, alternatives, days, force), as_json)


@app.command
def show(file: Path, /, *, quiet: Flag = False, as_json: Json = False) -> int:
    """Show the certificates in a file.

    Exit code 0: all of them are valid now. 1: one is not.

    Parameters
    ----------
    file
        With certificates in PEM.
    quiet
        Only the exit code.
    """
    from logboom.cli.certificate import check_installed, load_all

    check_installed()
    found = [dict(_facts(certificate)) for certificate in load_all(str(file))]
    if as_json:
        show_json(found)
    elif not quiet:
        for number, facts in enumerate(found):
            if number:
                print()
            show_pairs((name, ", ".join(value) if isinstance(value, list) else value) for name, value in facts.items())
    return VALID if all(facts["state"].startswith("valid") for facts in found) else INVALID


def _facts(certificate: x509.Certificate) -> Iterator[tuple[str, Any]]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    before, after = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    left_s = after.timestamp() - time.time()
    yield "subject", certificate.subject.rfc4514_string()
    yield "issuer", certificate.issuer.rfc4514_string()
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        yield "for", [str(name.value) for name in names]
    except (x509.ExtensionNotFound, ValueError):
        yield "for", []
    yield "from", before.isoformat()
    yield "until", after.isoformat()
    if left_s <= 0:
        yield "state", "expired"
    elif before.timestamp() > time.time():
        yield "state", "not valid yet"
    else:
        yield "state", f"valid for {left_s / 86_400:.0f} days"
    yield "sha256", certificate.fingerprint(hashes.SHA256()).hex()


def _tell(made: Issued, as_json: bool, **more: Any) -> None:
    if as_json:
        facts = {"certificate": made.certificate, "key": made.key, "expires": made.expires.isoformat(), **more}
        show_json(facts)
        return
    for path in (made.certificate, made.key):
        print(os.path.normpath(path))
