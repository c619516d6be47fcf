"""As `topics_pump`, for a member of a group: places move behind what was written, also before a log is given back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from logboom.cli.records.topics_pump import TopicsPump
from logboom.errors import LogboomError, LogNotHeld

if TYPE_CHECKING:
    import pyarrow as pa

    from logboom.broker.api import Start
    from logboom.client.link.profile import Servers


class MemberReader:
    """A consumer, as a pump takes it."""

    seqno = None

    def __init__(self, topics: str, servers: Servers, group: str, begin: Start, **which: Any) -> None:
        from logboom import Consumer

        self.cursor = group
        self.before_giving_back: Callable[[], None] = lambda: None
        self._consumer = Consumer(
            topics,
            servers,
            group=group,
            commit="manual",
            at=begin.at if begin.at == "latest" else None,
            timestamp=begin.time,
            on_revoked=lambda _: self.before_giving_back(),
            connect_timeout_s=0,
            **which,
        )

    def __enter__(self) -> MemberReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    @property
    def logs(self) -> Sequence[Any]:
        return self._consumer.logs

    @property
    def skipped(self) -> int:
        return self._consumer.skipped

    @property
    def last_gap(self) -> LogboomError | None:
        return self._consumer.last_gap

    def lists(self, columns: Sequence[str], follow: bool, timeout_s: float | None) -> Iterator[tuple[list[Any], ...]]:
        return self._consumer.lists(columns, follow, timeout_s)

    def tables(self, columns: Sequence[str] | None, follow: bool, timeout_s: float | None) -> Iterator[pa.Table]:
        return self._consumer.tables(columns, follow, timeout_s)

    def seek(self, seqno: int, topic: str, partition: int) -> None:
        self._consumer.seek(seqno, topic, partition)

    def commit(self) -> None:
        self._consumer.commit()


class GroupPump(TopicsPump):
    def __init__(self, reader: MemberReader, *arguments: Any, **named: Any) -> None:
        super().__init__(reader, *arguments, **named)
        self._member = reader
        reader.before_giving_back = self._commit

    def _commit(self) -> None:
        held = {(log.topic, log.partition) for log in self._member.logs}
        for log in self._cut.keys() - held:
            del self._cut[log]  # somebody else has it: what was not wanted here is his
        super()._commit()

    def _put_cursor(self) -> None:
        try:
            self._member.commit()
        except LogNotHeld as error:  # whoever has the log now prints these records again: that is no reason to stop
            print(f"logboom: some records were printed and not committed: {error}", file=sys.stderr)
