"""Errors on the wire: a code, words, and data. The one table of this front-end.

The code is the error's name in lower case with dashes, `seqno-out-of-range`; the data is what it carries. The other
side makes the same error of it, so a caller cannot tell whether its broker is in the process or far away.
"""

from __future__ import annotations

from typing import Any

import msgspec

from logboom.errors import CODES, LogboomError, code_of
from logboom.protocols.binary.messages import Failure


def encode_failure(error: BaseException) -> Failure:
    """What to tell the other side. Of an error that is not ours it learns no more than that there was one."""
    if not isinstance(error, LogboomError):
        return Failure("logboom-error", f"internal error: {type(error).__name__}")
    return Failure(code_of(error), str(error), _plain(vars(error)))


def decode_failure(failure: Failure) -> LogboomError:
    kind = CODES.get(failure.code, LogboomError)
    error = kind.__new__(kind)
    Exception.__init__(error, failure.message)
    for name, value in failure.data.items():
        if name.isidentifier() and not name.startswith("_") and not hasattr(Exception, name):
            setattr(error, name, value)
    return error


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """What of it msgpack can hold."""
    plain = {}
    for name, value in data.items():
        try:
            plain[name] = msgspec.to_builtins(value)
        except (TypeError, ValueError):
            continue
    return plain
