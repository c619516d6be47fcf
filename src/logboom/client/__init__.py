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
    from logboom.client.consume.async_consumer import AsyncConsumer
    from logboom.client.consume.async_queue_consumer import AsyncQueueConsumer
    from logboom.client.consume.consumer import Consumer
    from logboom.client.consume.queue_consumer import QueueConsumer
    from logboom.client.files.file_reader import FileReader
    from logboom.client.files.topic_file_reader import TopicFileReader
    from logboom.client.link.profile import Profile
    from logboom.client.publish.transaction import Client, Transaction
    from logboom.client.read.async_reader import AsyncReader
    from logboom.client.read.reader import Reader
    from logboom.client.remote import RemoteBroker, connect
    from logboom.client.write.async_writer import AsyncWriter
    from logboom.client.write.gathered import Written
    from logboom.client.write.writer import Writer


__all__ = [
    "AsyncConsumer",
    "AsyncQueueConsumer",
    "AsyncReader",
    "AsyncWriter",
    "Client",
    "Consumer",
    "FileReader",
    "Profile",
    "QueueConsumer",
    "Reader",
    "RemoteBroker",
    "TopicFileReader",
    "Transaction",
    "Writer",
    "Written",
    "connect",
]

_HOMES = {
    "AsyncConsumer": "consume.async_consumer",
    "AsyncQueueConsumer": "consume.async_queue_consumer",
    "AsyncReader": "read.async_reader",
    "AsyncWriter": "write.async_writer",
    "Client": "publish.transaction",
    "Consumer": "consume.consumer",
    "FileReader": "files.file_reader",
    "Profile": "link.profile",
    "QueueConsumer": "consume.queue_consumer",
    "Reader": "read.reader",
    "RemoteBroker": "remote",
    "TopicFileReader": "files.topic_file_reader",
    "Transaction": "publish.transaction",
    "Writer": "write.writer",
    "Written": "write.gathered",
    "connect": "remote",
}

__getattr__, __dir__ = exports(__name__, {name: f"{__name__}.{home}" for name, home in _HOMES.items()}, globals())
