"""A connection to a source's logd port: questions, and what it sends by itself.

It is read from only while somebody asks for more, so that what this side cannot take waits at the other. A PING goes
out every so often, and a source that says nothing for long is taken for dead.
"""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from typing import Final

from logboom.errors import ConnectionLost, Unavailable
from logboom.protocols.endpoint import Endpoint
from logboom.replication.source_stream import Event, SourceAnswer, SourceRefusal, SourceStream

CONNECT_S: Final = 5.0
PING_S: Final = 0.5
DEAD_S: Final = 10.0
BUFFER_BYTES: Final = 1024 * 1024


class SourceLink:
    def __init__(self, source: Endpoint, reader: StreamReader, writer: StreamWriter, heard: Callable[[], None]) -> None:
        self._source = source
        self._reader = reader
        self._writer = writer
        self._heard = heard
        self._stream = SourceStream()
        self._clock = asyncio.get_running_loop().time
        self._ping_at = self._clock() + PING_S
        self._silent_s = 0.0

    @classmethod
    async def connect(cls, source: Endpoint, heard: Callable[[], None] = lambda: None) -> SourceLink:
        """Raises ConnectionLost. `heard` is called whenever something comes."""
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(source.host, source.port, limit=BUFFER_BYTES)
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise ConnectionLost(f"{source} cannot be reached: {reason or error or 'no answer'}") from None
        return cls(source, reader, writer, heard)

    def send(self, line: str) -> None:
        self._writer.write(f"{line}\r\n".encode())

    async def receive(self) -> list[Event]:
        """What has come; nothing where it is time to look after something else. Raises ConnectionLost."""
        if self._clock() >= self._ping_at:
            self.send("PING")
            self._ping_at = self._clock() + PING_S
        try:
            async with asyncio.timeout_at(self._ping_at):
                data = await self._reader.read(BUFFER_BYTES)
        except TimeoutError:
            self._silent_s += PING_S
            if self._silent_s >= DEAD_S:
                raise ConnectionLost(f"{self._source} has said nothing for {DEAD_S:g} s") from None
            return []
        except OSError as error:
            raise ConnectionLost(f"the connection to {self._source} was lost: {error.strerror or error}") from None
        if not data:
            raise ConnectionLost(f"{self._source} has closed the connection")
        self._silent_s = 0.0
        self._heard()
        return self._stream.receive(data)

    async def ask(self, question: str) -> memoryview:
        """The facts it answers with. Raises Unavailable where it does not."""
        self.send(question)
        while True:
            for event in await self.receive():
                if isinstance(event, SourceAnswer):
                    return event.body
                if isinstance(event, SourceRefusal):
                    raise Unavailable(f"{self._source} answers {question} with: {event.reason}")

    def close(self) -> None:
        self._writer.transport.abort()
