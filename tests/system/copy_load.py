"""A process that copies a topic in transactions, each with the place it has read up to: read, transform, write.

    copy_load.py ADDRESS CURSOR

Begins where the cursor stands, and goes on until its standard input ends. Where another one with the same cursor was
quicker, or nobody knows what became of a transaction, it begins again there. Says `copied` after each transaction.
"""

from __future__ import annotations

import random
import sys
import threading
from itertools import islice
from typing import Final

from logboom import Client, Reader
from logboom.errors import CursorMovedBack, OutcomeUnknown, Unavailable, UnexpectedCursor

LARGE: Final = 40
"""So many records take more than one call: they are staged."""
PADDING = b"x" * 12_000


def copy(client: Client, address: str, cursor: str, ending: threading.Event) -> None:
    with Reader("in", address, cursor=cursor) as reader:
        while not ending.is_set():
            count = random.choice((1, 3, LARGE))
            with client.transaction() as transaction:
                for record in islice(reader.records(follow=True, timeout_s=0.05), count):
                    place = f"{record.partition}/{record.seqno} ".encode()
                    padding = PADDING if count == LARGE else b""
                    transaction.write("out", place + (record.value or b"") + b" " + padding)
                transaction.commit_cursor(reader)
            print("copied", flush=True)


def main(address: str, cursor: str) -> None:
    ending = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ending.set()

    threading.Thread(target=wait, daemon=True).start()
    while not ending.is_set():
        try:
            with Client(address, timeout_s=120.0) as client:
                copy(client, address, cursor, ending)
        except (UnexpectedCursor, CursorMovedBack, OutcomeUnknown, Unavailable) as error:
            print("again", type(error).__name__, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
