"""What programs use to read and write logs, over the network or straight from the files.

from logboom.client import FileReader

with FileReader("data", "events") as reader:
    for record in reader.records(follow=True):
        print(record.seqno, record.value)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logboom.lazy import exports

if TYPE_CHECKING:
    from logboom.client.async_reader import AsyncReader
    from logboom.client.async_writer import AsyncWriter
    from logboom.client.file_reader import FileReader
    from logboom.client.gathering import Written
    from logboom.client.reader import Reader
    from logboom.client.remote import RemoteBroker, connect
    from logboom.client.transaction import Client, Transaction
    from logboom.client.writer import Writer


__all__ = [
    "AsyncReader",
    "AsyncWriter",
    "Client",
    "FileReader",
    "Reader",
    "RemoteBroker",
    "Transaction",
    "Writer",
    "Written",
    "connect",
]

_HOMES = {
    "AsyncReader": "async_reader",
    "AsyncWriter": "async_writer",
    "Client": "transaction",
    "FileReader": "file_reader",
    "Reader": "reader",
    "RemoteBroker": "remote",
    "Transaction": "transaction",
    "Writer": "writer",
    "Written": "gathering",
    "connect": "remote",
}

__getattr__, __dir__ = exports(__name__, {name: f"{__name__}.{home}" for name, home in _HOMES.items()}, globals())
