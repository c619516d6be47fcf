"""`logboom cert`: what it writes is what OpenSSL and Python take, and nothing that is there is lost."""

from __future__ import annotations

import json
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from logboom.cli import run
from logboom.server.security.certificate_expiry import expiry_of
from support.expired_certificate import make_expired
from support.packages import need

Call = Callable[..., str]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs `cert` in a directory of its own; gives what it printed, or where it fails its complaint."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        found = run(["cert", *arguments])
        captured = capsys.readouterr()
        assert found == code, captured
        return captured.err if code == 2 else captured.out

    return command


def test_a_ca_vouches_for_a_server_and_a_client(call: Call, tmp_path: Path) -> None:
    assert call("ca", "-d", "certs").split() == ["certs/ca.pem", "certs/ca.key"]
    call("server", "-d", "certs", "--host", "logs.example.org", "--host", "10.0.0.7", "--host", "[::1]")
    call("client", "alice", "-d", "certs")
    certs = tmp_path / "certs"
    need("openssl", "openssl")
    checked = subprocess.run(
        [
            "openssl",
            "verify",
            "-x509_strict",
            "-CAfile",
            *(f"{certs}/{name}.pem" for name in ("ca", "server", "alice")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    for purpose, name in (("sslserver", "server"), ("sslclient", "alice")):
        command = ["openssl", "verify", "-purpose", purpose, "-CAfile", f"{certs}/ca.pem", f"{certs}/{name}.pem"]
        assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs / "server.pem", certs / "server.key")
    shown = json.loads(call("show", "certs/server.pem", "--json"))
    assert shown[0]["for"] == ["logs.example.org", "10.0.0.7", "::1"]
    assert shown[0]["state"].startswith("valid for 39")
    assert json.loads(call("show", "certs/alice.pem", "--json"))[0]["subject"] == "CN=alice"


def test_a_key_is_for_its_owner_alone(call: Call, tmp_path: Path) -> None:
    call("ca")
    call("server", "--host", "a")
    for name in ("ca.key", "server.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert not list(tmp_path.glob("*.tmp"))


def test_nothing_is_replaced_unless_somebody_says_so(call: Call, tmp_path: Path) -> None:
    call("ca")
    before = (tmp_path / "ca.key").read_bytes()
    assert "ca.pem: is there already" in call("ca", code=2)
    (tmp_path / "ca.pem").unlink()
    assert "ca.key: is there already" in call("ca", code=2)
    assert (tmp_path / "ca.key").read_bytes() == before
    call("ca", "--force")
    assert (tmp_path / "ca.key").read_bytes() != before


def test_without_a_host_a_server_is_called_as_this_machine_is(call: Call) -> None:
    call("ca")
    call("server")
    named = json.loads(call("show", "server.pem", "--json"))[0]["for"]
    assert {"localhost", "127.0.0.1", "::1"} <= set(named)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("server", "--host", "a:1773"), "without a port"),
        (("server", "--host", "not a host"), "no name of a host"),
        (("server", "--host", "a", "--days", "0"), "allowed are 1 to"),
        (("client", "_operator"), "no name of a user"),
        (("client", "alice", "--uri", "späte"), "cannot stand in a certificate"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(call: Call, arguments: tuple[str, ...], words: str) -> None:
    call("ca")
    assert words in call(*arguments, code=2)


def test_without_a_ca_one_is_told_how_to_make_it(call: Call) -> None:
    assert "make one with `logboom cert ca" in call("server", "--host", "a", code=2)


def test_a_key_of_another_ca_signs_nothing(call: Call, tmp_path: Path) -> None:
    call("ca")
    call("ca", "-d", "other")
    (tmp_path / "ca.key").write_bytes((tmp_path / "other/ca.key").read_bytes())
    assert "is not the key of" in call("server", "--host", "a", code=2)


def test_an_expired_certificate_is_shown_as_such(call: Call, tmp_path: Path) -> None:
    call("ca")
    make_expired(tmp_path, "old")
    assert "state\texpired" in call("show", "old.pem", code=1)
    assert (expiry_of(str(tmp_path / "old.pem")) or 0) < time.time() * 1e6


def test_a_file_without_certificates_is_said_to_have_none(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a.pem").write_text("nothing")
    assert "has no certificate in PEM" in call("show", "a.pem", code=2)
    assert expiry_of(str(tmp_path / "a.pem")) is None
    assert expiry_of(str(tmp_path / "none.pem")) is None


def test_the_first_of_several_that_expires_is_what_counts(call: Call, tmp_path: Path) -> None:
    call("ca")
    call("server", "--host", "a", "--days", "20")
    chain = tmp_path / "chain.pem"
    chain.write_bytes((tmp_path / "ca.pem").read_bytes() + (tmp_path / "server.pem").read_bytes())
    expires = expiry_of(str(chain))
    assert expires is not None
    assert expires == expiry_of(str(tmp_path / "server.pem"))
    assert 19 < (expires / 1e6 - time.time()) / 86_400 < 20.1


@pytest.mark.parametrize("cut", [0, 1, 2, 30, 100, 200, 300])
def test_a_certificate_that_is_cut_short_has_no_expiry(call: Call, tmp_path: Path, cut: int) -> None:
    call("ca")
    whole = ssl.PEM_cert_to_DER_cert((tmp_path / "ca.pem").read_text())
    (tmp_path / "cut.pem").write_text(ssl.DER_cert_to_PEM_cert(whole[:cut]))
    assert expiry_of(str(tmp_path / "cut.pem")) is None


def test_without_the_package_one_is_told_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['cryptography'] = None; from logboom.cli import run; sys.exit(run(['cert', 'ca']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "logboom cert needs cryptography: pip install cryptography" in done.stderr
