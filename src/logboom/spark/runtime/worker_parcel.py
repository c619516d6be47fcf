"""What Spark sends to its workers, packed so that a worker without Logboom says what it lacks, and what to do.

Spark pickles a reader with the name of its class; where nobody has a module of that name, its workers fail with a trace
of their own. So what is sent is bytes, and a function that unpacks them there. It goes along as code, not by name, and
needs only Python itself.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.cloudpickle import dumps, register_pickle_by_value


def unpack(packed: bytes) -> Any:
    """Raises ImportError, which names the Python that lacks something. Whatever it uses it imports itself."""
    import pickle
    import socket
    import sys

    try:
        make, arguments, state = pickle.loads(packed)
    except ImportError as error:
        raise ImportError(
            f"{sys.executable} on {socket.gethostname()}, a Python of Spark's workers, cannot import Logboom: {error}. "
            "Install Logboom for that Python, on every machine that runs workers; or send a packed environment along, "
            "with --archives environment.tar.gz#environment and PYSPARK_PYTHON=./environment/bin/python: see "
            "docs/howto/spark-cluster.md of Logboom"
        ) from None
    made = make(*arguments)
    made.__dict__.update(state or {})
    return made


class WorkerParcel:
    """Mixed into what Spark sends. Objects within need nothing: they are part of the bytes."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        reduced = super().__reduce_ex__(protocol)
        assert not isinstance(reduced, str), "a name: only what is there once has that"
        make, arguments, state, *_ = reduced
        return unpack, (dumps((make, arguments, state), protocol),)  # type: ignore[no-untyped-call]


register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
