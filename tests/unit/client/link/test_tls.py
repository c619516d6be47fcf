"""TLS on the client's side: what is read of files, and when."""

from __future__ import annotations

import os
from pathlib import Path

from logboom.cli.certificate import make_ca
from logboom.client.link.profile import Profile
from logboom.client.link.tls import context_of


def test_a_file_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        make_ca(str(tmp_path / name), name, 30, False)
    trusted = tmp_path / "ca.pem"
    os.link(tmp_path / "old" / "ca.pem", trusted)
    profile = Profile("tls://node", ca=str(trusted))
    first = context_of(profile)
    assert context_of(profile) is first
    os.replace(tmp_path / "new" / "ca.pem", trusted)
    second = context_of(profile)
    assert second.get_ca_certs() != first.get_ca_certs()
    assert context_of(profile) is second
