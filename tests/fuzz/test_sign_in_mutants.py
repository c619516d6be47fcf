"""Mutants of sign-ins run in child processes: a crash in native code is a failure too."""

from __future__ import annotations

import os
from random import Random

import pytest

from logboom.access.scram import ScramClient
from support.mutants.driver import run_child, run_in_chunks
from support.mutants.scram import Echoes, Said, is_proven, say_first, split_header

SOAK = int(os.environ.get("LOGBOOM_SOAK_SIGN_INS", "1000000"))
CHUNK = 10_000
CHALLENGE = "r={}more,s=c2FsdHNhbHQ=,i=4096"


def test_broken_sign_ins_are_refused_and_leave_nothing_behind() -> None:
    verdicts = run_child("sign_ins", 1, 2_000)
    for verdict in ("binary: welcomed", "binary: sign-in-failed", "binary: remote-protocol-error", "logd: sent away"):
        assert verdict in verdicts
    for verdict in ("logd: signed in", "scram: welcomed", "scram: sign-in-failed", "scram, a client: refused"):
        assert verdict in verdicts


def test_broken_sign_ins_over_http_are_refused_and_leave_nothing_behind() -> None:
    verdicts = run_child("http_sign_ins", 1, 1_500)
    for verdict in ("401", "400", "200 anonymous", "200 alice", "200 carol"):
        assert verdict in verdicts


def test_what_is_no_handshake_of_tls_ends_the_connection_and_leaves_nothing_behind() -> None:
    assert "told a handshake" in run_child("tls_hellos", 1, 800)


def test_the_judge_of_proofs_takes_what_a_client_says_and_nothing_else() -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "correct horse", b"n" * 18)
    first = client.begin()
    _, bare = split_header(first.decode())
    challenge = CHALLENGE.format(bare.rpartition("r=")[2])
    final = client.answer(challenge.encode())
    said = Said(first, challenge.encode(), final)
    assert is_proven("SCRAM-SHA-256", said, "alice", "correct horse")
    assert not is_proven("SCRAM-SHA-256", said, "alice", "another")
    assert not is_proven("SCRAM-SHA-256", said, "bob", "correct horse")
    bound = said._replace(first=first.replace(b"n,,", b"y,,"))
    assert not is_proven("SCRAM-SHA-256", bound, "alice", "correct horse")
    changed = said._replace(final=final.replace(b"c=biws", b"c=eSws"))
    assert not is_proven("SCRAM-SHA-256", changed, "alice", "correct horse")


def test_what_is_said_first_follows_from_a_seed() -> None:
    said = [[say_first(Random(seed), "alice", b"n" * 18, Echoes()) for seed in range(100)] for _ in range(2)]
    assert said[0] == said[1]
    assert len(set(said[0])) > 30


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_million_broken_sign_ins_are_refused_and_leave_nothing_behind() -> None:
    run_in_chunks("sign_ins", 2026, SOAK, CHUNK)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_million_broken_sign_ins_over_http_are_refused_and_leave_nothing_behind() -> None:
    run_in_chunks("http_sign_ins", 2026, SOAK, CHUNK)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_tenth_as_many_broken_handshakes_of_tls_end_the_connection_and_leave_nothing_behind() -> None:
    run_in_chunks("tls_hellos", 2026, SOAK // 10, CHUNK)
