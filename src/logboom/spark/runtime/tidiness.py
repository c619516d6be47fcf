"""What lets Spark's Python workers end a task at once, and end themselves without a word.

A worker looks for garbage after every task, in all that it has ever imported: that takes longer than a small task does.
What is there when its second task begins stays until the worker ends, and need not be looked at again.

A worker that Spark needs no more finds its socket closed. Over a Unix socket its last write fails then, and it prints
the trace of that, into the console of whoever runs the query, though nothing is wrong.
"""

from __future__ import annotations

import gc
import sys
import traceback
from itertools import count
from typing import Any, Final

_tasks: Final = count(1)
_print_exc: Final = traceback.print_exc


def begin_task() -> None:
    """A task begins in this process. In the first one not everything is imported yet."""
    leave_quietly()
    if next(_tasks) == 2:
        gc.collect()
        gc.freeze()


def leave_quietly() -> None:
    """In a worker of Spark's: a socket that is closed is no news. In any other process nothing."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is not None and main.name == "pyspark.daemon":
        traceback.print_exc = _print_others


def _print_others(*arguments: Any, **options: Any) -> None:
    if not isinstance(sys.exc_info()[1], BrokenPipeError):
        _print_exc(*arguments, **options)
