"""Errors on the wire: a code, words, and data. The one table of this front-end.

The code is the error's name in lower case with dashes, `seqno-out-of-range`; the data is what it carries. The other
side makes the same error of it, so a caller cannot tell whether its broker is in the process or far away.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from logboom import errors
from logboom.errors import LogboomError
from logboom.protocols.binary.messages import Failure

CODES: Final[dict[str, type[LogboomError]]] = {
    re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower(): value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, LogboomError)
}
_NAMES: Final = {value: code for code, value in CODES.items()}


def encode_failure(error: BaseException) -> Failure:
    """What to tell the other side. Of an error that is not ours it learns no more than that there was one."""
    if not isinstance(error, LogboomError):
        return Failure("logboom-error", f"internal error: {type(error).__name__}")
    code = next(_NAMES[kind] for kind in type(error).__mro__ if kind in _NAMES)
    return Failure(code, str(error), _plain(vars(error)))


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
