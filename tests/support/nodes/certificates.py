"""Certificates for a node of a test: made by openssl, for this machine, good for two days."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

from support.packages import need


class MadeCertificate(NamedTuple):
    """Signed by itself: whoever trusts it trusts the node."""

    certificate: Path
    key: Path

    @property
    def options(self) -> list[str]:
        """For `logboom serve`."""
        return ["--set", f"tls.certificate={self.certificate}", "--set", f"tls.key={self.key}"]


def make_certificate(directory: Path, name: str = "node") -> MadeCertificate:
    made = MadeCertificate(directory / f"{name}.pem", directory / f"{name}.key")
    need("openssl", "openssl")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(made.key), "-out", str(made.certificate), "-days", "2", "-subj", f"/CN={name}"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return made
