"""Transactions for programs: records for any topics and partitions that appear all at once, or not at all.

with Client("localhost:1773") as client, client.transaction("orders", 7) as transaction:
    transaction.write("orders", b"...", key=b"kitchen")
    transaction.write_many("lines", [b"...", b"..."])

What a block has written is published at its end, under a name and a number. Of one name numbers rise, and none is
published twice: a program that does not know how far it came says it again. A block that raises publishes nothing.

Client and transaction are each for one thread at a time; while a transaction goes on it has a connection of its own,
which another one uses after it. What is little is published in one call, at the end of its block. See
docs/howto/transactions.md.

What is made of records that were read can be published with the place where their reader stands (`commit_cursor`): a
program that goes on at its cursor reads, and writes, each once.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, TypeVar

from msgspec.msgpack import Decoder

from logboom.batch.builder import table_columns
from logboom.broker.api import CursorMove, TopicInfo
from logboom.broker.publish.publication import KeyInfo, Publication, PublishKey, StageInfo
from logboom.client.keywords import explained
from logboom.client.link.address import Servers, list_servers
from logboom.client.link.calls import Calls
from logboom.client.publish.publish_calls import PUBLISH_TIMEOUT_S
from logboom.client.publish.stage_writer import STAGING_TIMEOUT_S, Payload, StageWriter
from logboom.client.read.cursor_marks import MovingReader
from logboom.client.read.start import CONNECT_PATIENCE_S
from logboom.client.topic_admin import TopicAdmin
from logboom.errors import LocalProtocolError, LogboomError, OutcomeUnknown
from logboom.protocols.binary import messages
from logboom.values.encoded_column import encoded_column
from logboom.values.serializer import Serializer, ValueCoder, ValueFormat, coder_of

Result = TypeVar("Result")

IDLE_MAX: Final = 8

_stages: Final = Decoder(list[StageInfo])
_keys: Final = Decoder(list[KeyInfo])
_count: Final = Decoder(int)
_flag: Final = Decoder(bool)


class Client(TopicAdmin):
    """Where transactions are made, and topics. It connects at once: where no server answers, that is an error here.

    `timeout_s` is how long a transaction goes on where nothing goes on; `publish_timeout_s` how long it waits at the
    end of its block. `codec` and `batch_bytes` say how batches are made.
    """

    @explained()
    def __init__(
        self,
        servers: Servers = None,
        *,
        codec: str = "none",
        batch_bytes: int = 1024 * 1024,
        timeout_s: float = STAGING_TIMEOUT_S,
        publish_timeout_s: float = PUBLISH_TIMEOUT_S,
    ) -> None:
        self._servers = list_servers(servers)
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._timeout_s = timeout_s
        self._publish_timeout_s = publish_timeout_s
        self._calls = Calls(self._servers)
        self._is_closed = False
        self._idle: list[Calls] = []
        """Connections that no transaction has now."""
        self._known: dict[str, TopicInfo] = {}
        self._calls.connect(min(timeout_s, CONNECT_PATIENCE_S))

    def __repr__(self) -> str:
        return f"<Client of {self._calls}>"

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Transactions that were begun go on."""
        self._is_closed = True
        self._calls.close()
        while self._idle:
            self._idle.pop().close()

    def transaction(
        self, name: str | None = None, number: int = 0, *, value: ValueFormat | Serializer | None = None
    ) -> Transaction:
        """To be used with `with`. Without a name it has a random one, which nobody will say again.

        `value` says what values it takes, as in `Writer`.
        """
        self._check()
        coder = coder_of(value)
        key = PublishKey(secrets.token_hex(16), 0, False) if name is None else PublishKey(name, number).check()
        writer_options = {"codec": self._codec, "batch_bytes": self._batch_bytes, "timeout_s": self._timeout_s}
        return Transaction(self, key, self._publish_timeout_s, writer_options, coder)

    def _begin(self, key: PublishKey, writer_options: dict[str, Any]) -> StageWriter:
        try:
            calls = self._idle.pop()
            calls.look()
        except IndexError:
            calls = Calls(self._servers)
        shared: dict[str, Any] = {"calls": calls, "known": self._known, "give_back": self._take_back}
        return StageWriter(self._servers, note=f"{key.name}/{key.number}", lazily=True, **shared, **writer_options)

    def _take_back(self, calls: Calls) -> None:
        if self._is_closed or len(self._idle) >= IDLE_MAX:
            calls.close()
        else:
            self._idle.append(calls)

    def stages(self) -> list[StageInfo]:
        """What is staged at the node and not published, by anybody."""
        return self._ask(messages.ListStages(), _stages)

    def keys(self, prefix: str = "") -> list[KeyInfo]:
        """What was published last under each name that begins so."""
        return self._ask(messages.ListKeys(prefix), _keys)

    def discard(self, stages: str | Sequence[str]) -> int:
        """Throw stages away that are not being published. How many there were."""
        return self._ask(messages.Discard([stages] if isinstance(stages, str) else list(stages)), _count)

    def forget_key(self, name: str) -> bool:
        """From now on the name is one that nothing was published under: its numbers begin anew.

        Whether it was known. After a lost connection that may be False because of the first try.
        """
        return self._ask(messages.ForgetKey(name), _flag)

    def _ask(self, head: messages.Call, result: Decoder[Result]) -> Result:
        self._check()
        return self._calls.ask(head, result, self._timeout_s)

    def _check(self) -> None:
        if self._is_closed:
            raise LocalProtocolError("the client is closed")


class Transaction:
    """One block of records. Made by `Client.transaction`."""

    def __init__(
        self,
        client: Client,
        key: PublishKey,
        publish_timeout_s: float,
        writer_options: dict[str, Any],
        coder: ValueCoder | None = None,
    ) -> None:
        self.key = key
        self.publication: Publication | None = None
        """What was published, once the block has ended well. None where the block has discarded it."""
        self._client = client
        self._publish_timeout_s = publish_timeout_s
        self._writer_options = writer_options
        self._coder = coder
        self._writer: StageWriter | None = None
        self._state = "new"
        self._moves: dict[tuple[str, str, int | None], CursorMove] = {}
        self._readers: list[tuple[MovingReader, list[CursorMove]]] = []
        """What they are to be told when it is published."""

    def __repr__(self) -> str:
        return f"<Transaction {self.key.name!r} number {self.key.number}: {self._state}>"

    def __enter__(self) -> Transaction:
        if self._state != "new":
            raise LocalProtocolError(f"{self!r} has begun already: make another")
        self._state = "open"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state != "open":
            return
        if error is not None:
            self.discard()
            return
        try:
            self.publication = self._publish()
            self._state = "published"
        except LogboomError as failure:
            if not isinstance(failure, OutcomeUnknown):
                self.discard()
            raise
        finally:
            if self._state == "open":
                self._state = "in doubt"

    def _publish(self) -> Publication:
        publication = self._open().publish(self.key, self._publish_timeout_s, list(self._moves.values()))
        for reader, moves in self._readers:
            reader.moved(moves)
        return publication

    def commit_cursor(self, reader: MovingReader) -> None:
        """With the block the reader's cursor moves to where the reader stands now; if it is not published, it stays.

        Raises UnexpectedCursor, or the end of the block does, where somebody else has moved the cursor.
        """
        self._check_open()
        moves = reader.moves()
        self._readers.append((reader, moves))
        self.move_cursors(moves)

    def move_cursors(self, moves: Iterable[CursorMove]) -> None:
        """With the block these cursors move. Of several moves of one cursor in one log the last one counts."""
        self._check_open()
        for move in moves:
            self._moves[move.cursor, move.topic, move.partition] = move

    def write(
        self,
        topic: str,
        value: Any,
        *,
        key: Payload = None,
        timestamp: int | datetime | None = None,
        channel: str | None = None,
        tags: Iterable[str] = (),
        headers: Iterable[tuple[str, bytes]] = (),
        partition: int | None = None,
    ) -> None:
        """A record for a topic: for `partition`, else where its key or channel says."""
        if self._coder is not None:
            value = self._coder.encode(value)
        self._open().write(
            topic, value, key=key, timestamp=timestamp, channel=channel, tags=tags, headers=headers, partition=partition
        )

    def write_many(
        self,
        topic: str,
        values: Any,
        keys: Any = None,
        timestamps: Any = None,
        channels: Any = None,
        tags: Any = None,
        headers: Any = None,
        *,
        partition: int | None = None,
    ) -> None:
        """Columns of records: lists, Arrow or NumPy arrays, pandas series. One timestamp or channel may be for all."""
        if self._coder is not None:
            values = encoded_column(values, self._coder)
        self._open().write_many(topic, values, keys, timestamps, channels, tags, headers, partition=partition)

    def write_table(self, topic: str, table: Any, *, partition: int | None = None) -> None:
        """An Arrow table, or a pandas frame, with columns named as in `Record`. Values in it are what is stored."""
        self._open().write_many(topic, **table_columns(table), partition=partition)

    def discard(self) -> None:
        """Publish nothing of this, whatever follows in the block."""
        if self._state == "published":
            raise LocalProtocolError(f"{self!r}: what is published stays")
        self._state = "discarded"
        if self._writer is not None:
            self._writer.discard()
            self._writer = None

    def _check_open(self) -> None:
        if self._state != "open":
            raise LocalProtocolError(f"{self!r}: records are written inside its `with` block")

    def _open(self) -> StageWriter:
        self._check_open()
        if self._writer is None:
            self._writer = self._client._begin(self.key, self._writer_options)
        return self._writer
