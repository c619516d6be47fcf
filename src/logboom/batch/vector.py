"""NumPy and pyarrow, each imported when it is first used.

A process that handles single records needs neither, and they take longer to import than everything else. After the
first use the names here are plain attributes: an import statement inside a function would cost as much as some of
the checks it serves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    I32: np.dtype[np.int32]
    I64: np.dtype[np.int64]
    from_buffers: Callable[..., pa.Array]

__all__ = ["I32", "I64", "from_buffers", "np", "pa"]


def __getattr__(name: str) -> Any:
    if name in ("pa", "from_buffers"):
        import pyarrow

        globals().update(pa=pyarrow, from_buffers=pyarrow.Array.from_buffers)
    elif name in __all__:
        import numpy

        globals().update(np=numpy, I32=numpy.dtype("<i4"), I64=numpy.dtype("<i8"))
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals()[name]
