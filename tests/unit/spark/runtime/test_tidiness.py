from __future__ import annotations

import sys
import traceback
from types import SimpleNamespace

import pytest

from logboom.spark.runtime.tidiness import leave_quietly


def fail(error: Exception) -> None:
    try:
        raise error
    except type(error):
        traceback.print_exc()


def test_a_worker_of_spark_says_nothing_of_a_socket_that_was_closed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(traceback, "print_exc", traceback.print_exc)  # so that it is put back
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name="pyspark.daemon"), raising=False)
    leave_quietly()
    fail(BrokenPipeError(32, "Broken pipe"))
    assert capsys.readouterr().err == ""
    fail(ValueError("wrong"))
    assert "ValueError: wrong" in capsys.readouterr().err


def test_any_other_process_is_left_as_it_is() -> None:
    before = traceback.print_exc
    leave_quietly()
    assert traceback.print_exc is before
