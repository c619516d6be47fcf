"""What lets Spark's Python workers end a task at once.

A worker looks for garbage after every task, in all that it has ever imported: that takes longer than a small task does.
What is there when its second task begins stays until the worker ends, and need not be looked at again.
"""

from __future__ import annotations

import gc
from itertools import count
from typing import Final

_tasks: Final = count(1)


def begin_task() -> None:
    """A task begins in this process. In the first one not everything is imported yet."""
    if next(_tasks) == 2:
        gc.collect()
        gc.freeze()
