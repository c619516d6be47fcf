"""What the scanners that auditors use say of every port of a real node: sslscan in seconds, testssl.sh in minutes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from logboom import Writer
from logboom.cli.certificate import make_server
from support.nodes.process import free_port
from support.nodes.secured import SecuredNode, secured_node
from support.packages import need

PORTS = ("binary", "logd", "http")
SCAN_S = 3000
GROUPS = {("TLSv1.2", "secp256r1 (NIST P-256)"), ("TLSv1.3", "secp256r1 (NIST P-256)")}
CIPHERS = {
    *("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"),
    *("ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES128-GCM-SHA256"),
}
FAULTS = ("LOW", "MEDIUM", "HIGH", "CRITICAL", "FATAL")
ASIDE = {
    "cert_revocation": "no lists of revocation: docs/decisions/access.md",
    "DNS_CAArecord": "loopback has no domain",
    "BREACH": "what is compressed are the console's own files: the same for everybody, without a secret",
}
ASIDE_WITHOUT_HTTP = {
    "HSTS": "who speaks HTTP to this port is told in HTTP that he is wrong here",
    "security_headers": "the same",
}
SAID = {
    "SSLv2": "not offered",
    "SSLv3": "not offered",
    "TLS1": "not offered",
    "TLS1_1": "not offered",
    "TLS1_2": "offered",
    "TLS1_3": "offered with final",
    "cert_chain_of_trust": "passed.",
    "cipher_order": "server",
}
"""Besides that nothing is amiss: what must have been looked at."""


class ScannedNode:
    def __init__(self, node: SecuredNode, addresses: dict[str, str]) -> None:
        self.node = node
        self.addresses = addresses

    def serve_somebody(self) -> None:
        with Writer("events", self.node.profile()) as writer:
            writer.write(b"still here")


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScannedNode]:
    root = tmp_path_factory.mktemp("scanned")
    logd, http = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with secured_node(root, "--logd", f"tls://{logd}", "--http", f"tls://{http}") as node:
        make_server(str(root), ["localhost", "127.0.0.1"], 365, True)  # one that does not end soon
        node.process.stop()
        node.process.start()
        yield ScannedNode(node, {"binary": node.address, "logd": logd, "http": http})
    assert "Traceback" not in node.process.log.read_text()


@pytest.mark.parametrize("port", PORTS)
def test_sslscan_finds_nothing_old_weak_or_slow(scanned: ScannedNode, tmp_path: Path, port: str) -> None:
    need("sslscan", "sslscan")
    report = tmp_path / "report.xml"
    subprocess.run(
        ["sslscan", f"--xml={report}", scanned.addresses[port]], check=True, capture_output=True, timeout=600
    )
    found = ElementTree.parse(report).getroot()
    protocols = {(each.get("type"), each.get("version")): each.get("enabled") for each in found.iter("protocol")}
    assert {name for name, enabled in protocols.items() if enabled != "0"} == {("tls", "1.2"), ("tls", "1.3")}
    assert len(protocols) == 6
    assert {each.get("cipher") for each in found.iter("cipher")} == CIPHERS
    assert {(each.get("sslversion"), each.get("name")) for each in found.iter("group")} == GROUPS
    assert {each.get("vulnerable") for each in found.iter("heartbleed")} == {"0"}
    assert {each.get("supported") for each in found.iter("renegotiation")} == {"0"}
    scanned.serve_somebody()


@pytest.mark.soak
@pytest.mark.timeout(SCAN_S)
@pytest.mark.parametrize("port", PORTS)
def test_testssl_finds_nothing_amiss(scanned: ScannedNode, tmp_path: Path, port: str) -> None:
    need("testssl", "testssl.sh")
    report = tmp_path / "report.json"
    options = ["--quiet", "--warnings", "off", "--color", "0", "--nodns", "none", "--add-ca", scanned.node.ca]
    # It ends with the number of its doubts.
    subprocess.run(
        ["testssl", *options, "--jsonfile", str(report), scanned.addresses[port]],
        check=False,
        capture_output=True,
        timeout=SCAN_S,
    )
    found: list[dict[str, Any]] = json.loads(report.read_text())
    aside = ASIDE if port == "http" else ASIDE | ASIDE_WITHOUT_HTTP
    amiss = [each for each in found if each["severity"] in FAULTS and each["id"] not in aside]
    assert not amiss
    said = {each["id"]: each["finding"] for each in found}
    assert {name: said[name] for name in SAID} == SAID
    grade = said.get("overall_grade")  # which only 3.2 and later give
    assert grade is None or grade.startswith("A")
    scanned.serve_somebody()
