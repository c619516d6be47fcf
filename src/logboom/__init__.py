"""Logboom: a commit log for Python and Spark.

from logboom import Reader, Writer

with Writer("events", "localhost:1773") as writer:
    writer.write(b"hello")
with Reader("events", "localhost:1773") as reader:
    for record in reader:
        print(record.seqno, record.value)

What is named here is imported when it is first used: `import logboom` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logboom.batch.record import Record
    from logboom.client import (
        AsyncReader,
        AsyncWriter,
        Client,
        FileReader,
        Reader,
        Transaction,
        Writer,
        Written,
        connect,
    )
    from logboom.errors import LogboomError

__version__ = "0.1.0"

__all__ = [
    "AsyncReader",
    "AsyncWriter",
    "Client",
    "FileReader",
    "LogboomError",
    "Reader",
    "Record",
    "Transaction",
    "Writer",
    "Written",
    "__version__",
    "connect",
]

_HOMES = {"Record": "logboom.batch.record", "LogboomError": "logboom.errors"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "logboom.client")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
