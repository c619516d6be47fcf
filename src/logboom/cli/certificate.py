"""Certificates for a node, its clients, and an authority of one's own that vouches for both.

ECDSA on P-256, as every TLS library takes it. Keys are files of mode 0600; nothing that is there is written over unless
somebody says so.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from logboom.errors import ConfigError, PackageMissing

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

CA_DAYS: Final = 3650
SERVER_DAYS: Final = 397
"""What browsers take at most."""
CLIENT_DAYS: Final = 397
DAYS_MOST: Final = 36_500
BACKDATED: Final = datetime.timedelta(minutes=5)
"""For machines whose clocks are a little behind."""
FILE_BYTES_MOST: Final = 1024 * 1024
CA: Final = "ca"


class Issued(NamedTuple):
    """What was written."""

    certificate: str
    key: str
    expires: datetime.datetime


def check_installed() -> None:
    """Raises PackageMissing."""
    try:
        import cryptography.x509  # noqa: F401
    except ImportError:
        raise PackageMissing("cryptography", "logboom cert") from None


def make_ca(directory: str, name: str, days: int, force: bool) -> Issued:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    _check_free(directory, CA, force)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(name)
    builder = (
        _begun(subject, subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return _write(directory, CA, _sign(builder, key, key), key, force)


def make_server(directory: str, hosts: Sequence[str], days: int, force: bool) -> Issued:
    """`hosts` are names and addresses that clients call it by; the first is its name."""
    from cryptography.x509.oid import ExtendedKeyUsageOID

    alternatives = [_alternative(host) for host in hosts]
    name = hosts[0][:64]
    return _make(directory, "server", name, alternatives, ExtendedKeyUsageOID.SERVER_AUTH, days, force)


def make_client(directory: str, name: str, alternatives: Sequence[Any], days: int, force: bool) -> Issued:
    from cryptography.x509.oid import ExtendedKeyUsageOID

    file = "".join(letter if letter.isalnum() or letter in ".-_@+" else "_" for letter in name)
    if file in (CA, "server"):
        file = f"client-{file}"
    return _make(directory, file, name, alternatives, ExtendedKeyUsageOID.CLIENT_AUTH, days, force)


def _make(
    directory: str, file: str, name: str, alternatives: Sequence[Any], usage: Any, days: int, force: bool
) -> Issued:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    _check_free(directory, file, force)
    ca, ca_key = _load_ca(directory)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _begun(_named(name), ca.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return _write(directory, file, _sign(builder, key, ca_key, ca), key, force)


def _begun(subject: Any, issuer: Any, public_key: Any, days: int) -> Any:
    from cryptography import x509

    if not 1 <= days <= DAYS_MOST:
        raise ConfigError("--days", f"is {days}, allowed are 1 to {DAYS_MOST:,}")
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _usage(signs_certificates: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _sign(
    builder: Any, key: EllipticCurvePrivateKey, ca_key: EllipticCurvePrivateKey, ca: x509.Certificate | None = None
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    if ca is not None:
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
    signed: x509.Certificate = builder.sign(ca_key, hashes.SHA256())
    return signed


def _named(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    if not 1 <= len(name) <= 64 or not name.isprintable():
        raise ConfigError(
            "name", f"{name[:80]!r} has more than 64 characters, or none: a certificate's name has 1 to 64"
        )
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    """A name or an address, as a certificate says it. Raises ConfigError."""
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]").partition("%")[0]))
    except ValueError:
        pass
    labels = host.removeprefix("*.").split(".")
    is_name = all(
        label and len(label) <= 63 and label.replace("-", "a").replace("_", "a").isalnum() for label in labels
    )
    if not is_name or not host.isascii() or len(host) > 253:
        raise ConfigError("--host", f"{host[:100]!r} is no name of a host and no address: write it without a port")
    return x509.DNSName(host)


def name_alternatives(uri: str | None, dns: str | None, email: str | None) -> list[x509.GeneralName]:
    """Other names of a client. Raises ConfigError."""
    from cryptography import x509

    found: list[x509.GeneralName] = []
    try:
        if uri is not None:
            found.append(x509.UniformResourceIdentifier(uri))
        if email is not None:
            found.append(x509.RFC822Name(email))
    except ValueError as error:
        raise ConfigError("name", f"cannot stand in a certificate: {error}") from None
    return found if dns is None else [*found, _alternative(dns)]


def own_hosts() -> list[str]:
    """By what this machine is called: its names, and its addresses."""
    names = [socket.gethostname(), socket.getfqdn(), "localhost"]
    found: list[str] = []
    for name in names:
        try:
            _alternative(name)
        except ConfigError:
            continue
        found.append(name)
    return list(dict.fromkeys([*found, *_own_addresses(), "127.0.0.1", "::1"]))


def _own_addresses() -> list[str]:
    """Those that others reach: of the way out, and of the machine's own name. Nothing is sent."""
    found = []
    for family, elsewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, 9))
                found.append(str(probe.getsockname()[0]).partition("%")[0])
        except OSError:
            continue
    try:
        named = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
        found += [str(each[4][0]).partition("%")[0] for each in named]
    except (OSError, UnicodeError):
        pass
    return found


def _load_ca(directory: str) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    files = _paths(directory, CA)
    try:
        certificate = x509.load_pem_x509_certificate(_read(files[0]))
        key = load_pem_private_key(_read(files[1]), None)
    except FileNotFoundError as error:
        advice = f"{error.filename} is not there: make one with `logboom cert ca --directory {directory}`"
        raise ConfigError("ca", advice) from None
    except (ValueError, TypeError) as error:
        raise ConfigError("ca", f"{files[0]} and {files[1]} cannot be used: {error}") from None
    if not isinstance(key, EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ConfigError("ca", f"{files[1]} is not the key of {files[0]}")
    return certificate, key


def load_all(path: str) -> list[x509.Certificate]:
    """Raises ConfigError, OSError."""
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(_read(path))
    except ValueError:
        raise ConfigError(path, "has no certificate in PEM") from None


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(FILE_BYTES_MOST)


def _paths(directory: str, name: str) -> tuple[str, str]:
    return os.path.join(directory, f"{name}.pem"), os.path.join(directory, f"{name}.key")


def _check_free(directory: str, name: str, force: bool) -> None:
    """Before any work: whoever writes over the key of a CA cannot have it back. Raises ConfigError."""
    for path in _paths(directory, name):
        if os.path.lexists(path) and not force:
            raise ConfigError(path, "is there already: name another --directory, or say --force to replace it")


def _write(directory: str, name: str, certificate: Any, key: Any, force: bool) -> Issued:
    from cryptography.hazmat.primitives import serialization

    os.makedirs(directory, mode=0o700, exist_ok=True)
    certificate_file, key_file = _paths(directory, name)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _place(key_file, pem, 0o600, force)
    _place(certificate_file, certificate.public_bytes(serialization.Encoding.PEM), 0o644, force)
    return Issued(certificate_file, key_file, certificate.not_valid_after_utc)


def _place(path: str, data: bytes, mode: int, force: bool) -> None:
    """Whole or not there; nobody else can read a key even for a moment."""
    temporary = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if force:
            os.replace(temporary, path)
        else:
            try:
                os.link(temporary, path)
            except FileExistsError:
                raise ConfigError(path, "is there already: say --force to replace it") from None
            os.unlink(temporary)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
