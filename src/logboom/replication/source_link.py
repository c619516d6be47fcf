"""A connection to a source's logd port: a sign-in, questions, and what it sends by itself.

It is read from only while somebody asks for more, so that what this side cannot take waits at the other. A PING goes
out every so often, and a source that says nothing for long is taken for dead.
"""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from typing import Any, Final

from logboom.client.link.profile import Profile
from logboom.client.link.tls import context_of
from logboom.errors import ConnectionLost, LogboomError, SignInFailed, SignInRequired, Unavailable
from logboom.protocols.endpoint import Endpoint
from logboom.replication.source_access import ReplicateSettings, check_private, write_source
from logboom.replication.source_stream import Event, SourceAnswer, SourceConsent, SourceRefusal, SourceStream

CONNECT_S: Final = 5.0
PING_S: Final = 0.5
DEAD_S: Final = 10.0
BUFFER_BYTES: Final = 1024 * 1024
SIGN_IN_REQUIRED: Final = "sign-in required"
NOT_ALLOWED: Final = "not allowed"


class SourceLink:
    def __init__(self, source: Endpoint, reader: StreamReader, writer: StreamWriter, heard: Callable[[], None]) -> None:
        self._source = write_source(source)
        self._reader = reader
        self._writer = writer
        self._heard = heard
        self._stream = SourceStream()
        self._clock = asyncio.get_running_loop().time
        self._ping_at = self._clock() + PING_S
        self._silent_s = 0.0
        self.has_signed_in = False

    @classmethod
    async def connect(
        cls,
        source: Endpoint,
        heard: Callable[[], None] = lambda: None,
        settings: ReplicateSettings = ReplicateSettings(),  # noqa: B008
    ) -> SourceLink:
        """Raises ConnectionLost, ConfigError and SignInFailed. `heard` is called whenever something comes."""
        profile = await asyncio.to_thread(settings.load)
        link = await cls._open(source, heard, profile)
        if profile.has_identity:
            try:
                check_private(source)
                await link._sign_in(profile)
            except BaseException:
                link.close()
                raise
        return link

    @classmethod
    async def _open(cls, source: Endpoint, heard: Callable[[], None], profile: Profile) -> SourceLink:
        secured: dict[str, Any] = {}
        if source.tls:
            context = await asyncio.to_thread(context_of, profile)
            secured = {"ssl": context, "server_hostname": profile.server_name or source.host}
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(source.host, source.port, limit=BUFFER_BYTES, **secured)
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise ConnectionLost(
                f"{write_source(source)} cannot be reached: {reason or error or 'no answer'}"
            ) from None
        return cls(source, reader, writer, heard)

    async def _sign_in(self, profile: Profile) -> None:
        if profile.token is not None:
            self.send(f"AUTH {profile.token}")
        else:
            self.send(f"AUTH {profile.user} {profile.password or ''}")
        while True:
            for event in await self.receive():
                if isinstance(event, SourceConsent):
                    self.has_signed_in = True
                    return
                if isinstance(event, SourceRefusal):
                    raise SignInFailed(f"{self._source} answers the sign-in of this replica with: {event.reason}")

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
                    raise self._refusal(question.partition(" ")[0], event.reason)

    def _refusal(self, question: str, reason: str) -> LogboomError:
        said = f"{self._source} answers {question} with: {reason}"
        if reason == SIGN_IN_REQUIRED:
            return SignInRequired(f"{said}; set replicate.token_file, or replicate.user and replicate.password_file")
        if reason == NOT_ALLOWED:
            needed = "the right to manage users" if question == "ACCESS" else "the role replica"
            said = f"{said}; the user of this replica needs {needed} there"
        return Unavailable(said)

    def close(self) -> None:
        self._writer.transport.abort()
