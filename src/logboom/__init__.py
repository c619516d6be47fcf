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

from typing import TYPE_CHECKING

from logboom.lazy import exports

if TYPE_CHECKING:
    from logboom.batch.record import Record
    from logboom.client import (
        AsyncConsumer,
        AsyncQueueConsumer,
        AsyncReader,
        AsyncWriter,
        Client,
        Consumer,
        FileReader,
        Profile,
        QueueConsumer,
        Reader,
        TopicFileReader,
        Transaction,
        Writer,
        Written,
        connect,
    )
    from logboom.errors import LogboomError
    from logboom.storage.data.topic import (
        AcksSettings,
        FlushSettings,
        HookSettings,
        RecompressionSettings,
        RetentionSettings,
        SegmentSettings,
        Settings,
        ValidatorSettings,
    )
    from logboom.values.serializer import Serializer

__version__ = "0.1.0"

__all__ = [
    "AcksSettings",
    "AsyncConsumer",
    "AsyncQueueConsumer",
    "AsyncReader",
    "AsyncWriter",
    "Client",
    "Consumer",
    "FileReader",
    "FlushSettings",
    "HookSettings",
    "LogboomError",
    "Profile",
    "QueueConsumer",
    "Reader",
    "RecompressionSettings",
    "Record",
    "RetentionSettings",
    "SegmentSettings",
    "Serializer",
    "Settings",
    "TopicFileReader",
    "Transaction",
    "ValidatorSettings",
    "Writer",
    "Written",
    "__version__",
    "connect",
]

_SETTINGS = [name for name in __all__ if name.endswith("Settings")]
_HOMES = {
    "Record": "logboom.batch.record",
    "LogboomError": "logboom.errors",
    "Serializer": "logboom.values.serializer",
} | dict.fromkeys(_SETTINGS, "logboom.storage.data.topic")

__getattr__, __dir__ = exports(
    __name__,
    {name: _HOMES.get(name, "logboom.client") for name in __all__ if name != "__version__"},
    globals(),
)
