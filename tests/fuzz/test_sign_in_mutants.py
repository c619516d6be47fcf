"""Mutants of sign-ins run in child processes: a crash in native code is a failure too."""

from __future__ import annotations

import os

import pytest

from support.mutants.driver import run_child, run_in_chunks

SOAK = int(os.environ.get("LOGBOOM_SOAK_SIGN_INS", "100000"))
CHUNK = 10_000


def test_broken_sign_ins_are_refused_and_leave_nothing_behind() -> None:
    verdicts = run_child("sign_ins", 1, 1_500)
    for verdict in ("binary: welcomed", "binary: sign-in-failed", "binary: remote-protocol-error", "logd: sent away"):
        assert verdict in verdicts
    assert "logd: signed in" in verdicts


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_hundred_thousand_broken_sign_ins_are_refused_and_leave_nothing_behind() -> None:
    run_in_chunks("sign_ins", 2026, SOAK, CHUNK)
