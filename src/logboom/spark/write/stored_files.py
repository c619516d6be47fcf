"""Small files of a store that pyarrow knows (`s3a://`, `gs://`, `abfss://`, `hdfs://`), read within a bound.

They are read with the credentials that this process has: its environment, AWS_ENDPOINT_URL, the role of its machine.
What Spark alone was told (`fs.s3a.access.key`) is not known here.

A process of its own reads them, because nothing else ends a client that waits for a store: a thread that does keeps the
interpreter from ending, for minutes. It is killed at the bound; where its parent is killed before, it ends itself then.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from msgspec.msgpack import Decoder, encode

STORE_S: Final = 10
"""How long all files of one call may take, with whatever the store's client tries again."""
SCHEMES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **{scheme: scheme for scheme in ("gs", "abfs", "abfss", "hdfs", "viewfs")},
}
"""What Hadoop calls them, and what pyarrow does."""
ORPHAN_S: Final = 1
"""And how much longer whoever reads them lives, where nobody kills it."""
REASON_CHARS_MAX: Final = 400
FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""What Spark writes down of a micro-batch is a few lines: more than this is something else."""
NOT_FOUND: Final = 2
UNREADABLE: Final = 3

_files = Decoder(list[bytes])


def store_uri(location: str) -> str | None:
    """For pyarrow, which decodes what Hadoop takes as it is; None where it knows no such store."""
    scheme, _, rest = location.partition("://")
    known = SCHEMES.get(scheme.lower())
    authority, slash, path = rest.partition("/")
    return f"{known}://{authority}{slash}{quote(path)}" if known else None


def read_stored(location: str, names: Sequence[str], timeout_s: float = STORE_S) -> list[bytes]:
    """The files of these names. Raises FileNotFoundError, TimeoutError, or an OSError that says why not."""
    uri = store_uri(location)
    if uri is None:
        raise OSError(f"pyarrow knows no store {location.partition(':')[0]}:")
    command = [sys.executable, "-m", __name__, str(timeout_s), uri.rstrip("/"), *names]
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, env={**os.environ, **paths}
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"the store has not answered within {timeout_s:g} seconds") from None
    if done.returncode == 0:
        return _files.decode(done.stdout)
    said = done.stdout.decode(errors="replace") or f"whoever reads it has ended with status {done.returncode}"
    raise (FileNotFoundError if done.returncode == NOT_FOUND else OSError)(said[:REASON_CHARS_MAX])


def _main(timeout_s: str, uri: str, *names: str) -> int:
    signal.setitimer(signal.ITIMER_REAL, float(timeout_s) + ORPHAN_S)
    from pyarrow import ArrowException
    from pyarrow.fs import FileSystem

    try:
        files, root = FileSystem.from_uri(uri)
        found = []
        for name in names:
            with files.open_input_stream(f"{root}/{name}", compression=None) as stream:
                content = stream.read(FILE_BYTES_MAX + 1)
            if len(content) > FILE_BYTES_MAX:
                raise OSError(f"{name} has more than {FILE_BYTES_MAX:,} bytes")
            found.append(content)
    except (ArrowException, OSError, ValueError) as error:
        sys.stdout.write(" ".join(str(error).split()))
        return NOT_FOUND if isinstance(error, FileNotFoundError) else UNREADABLE
    sys.stdout.buffer.write(encode(found))
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
