"""The catalog of a running node, asked in the calling thread.

Where that node's own files can be read from here (same node id), it looks there for what only they tell exactly. A node
that does not answer is tried again for a while: it may just be restarting.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from logboom.broker.api import ReadRequest, SegmentInfo, Start, TopicInfo
from logboom.broker.caller import EVERYBODY
from logboom.client.catalog import Ends, ListedTopic, LogPoint, matches
from logboom.client.file_catalog import FileCatalog, open_files
from logboom.client.link.address import Servers, list_servers
from logboom.client.read.start import CONNECT_PATIENCE_S, Gaps
from logboom.client.remote import RemoteBroker
from logboom.errors import Damage, LogboomError, NotAllowed, TopicNotFound, Unavailable
from logboom.protocols.binary.messages import Welcome
from logboom.results.archived import ArchivedLogReader, find_archives
from logboom.results.pipeline_ledger import PipelineLedger
from logboom.results.pipeline_state import PipelineState
from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark, Term
from logboom.storage.readable_log import SeqnoRange, cut_pieces

PATIENCE_S: Final = 30.0
SEGMENTS_MAX: Final = 10_000
AT_ONCE: Final = 256
"""Questions on their way to a node."""
Answer = TypeVar("Answer")


class NodeCatalog:
    node_id: str
    directory: str | None

    def __init__(
        self,
        servers: Servers = None,
        directory: str | None = None,
        patience_s: float = PATIENCE_S,
        opening_s: float = CONNECT_PATIENCE_S,
    ) -> None:
        """`opening_s` is how long a node is looked for at first, `patience_s` one that answered before.

        `directory` is where the node's files are found here, if not under the name that the node has for it."""
        self.servers: tuple[str, ...] = list_servers(servers)
        self.incarnation = 0
        self.is_copy = False
        self._patience_s = opening_s
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._broker: RemoteBroker | None = None
        self._files: FileCatalog | None = None
        self._named = directory
        self._ledger = PipelineLedger(self._its_broker, EVERYBODY)
        try:
            self._ask(_welcome)
        except BaseException:
            _outside_loops(self._runner.close)
            raise
        self._patience_s = patience_s

    def _ask(self, question: Callable[[RemoteBroker], Awaitable[Answer]]) -> Answer:
        """The answer of the first server that has one; a connection that was lost is made again."""

        async def talk() -> Answer:
            give_up = asyncio.get_running_loop().time() + self._patience_s
            while True:
                try:
                    if self._broker is None:
                        self._broker = await RemoteBroker.connect(self.servers, self._patience_s)
                        self._meet(self._broker.welcome)
                    return await question(self._broker)
                except Unavailable:
                    broker, self._broker = self._broker, None
                    if broker is not None:
                        await broker.close()
                    if broker is None or asyncio.get_running_loop().time() > give_up:
                        raise
                    await asyncio.sleep(0.1)

        return _outside_loops(lambda: self._runner.run(talk()))

    async def _its_broker(self) -> RemoteBroker:
        assert self._broker is not None
        return self._broker

    def archived(self, topic: ListedTopic, partition: int) -> ArchivedLogReader | None:
        async def refresh(broker: RemoteBroker) -> PipelineState:
            return await self._ledger.refresh()

        try:
            return find_archives(self._ask(refresh)).get((topic.id, partition))
        except (NotAllowed, TopicNotFound):
            return None  # where results are is not for everybody: the node reads from them itself

    def _meet(self, welcome: Welcome) -> None:
        """Who answers may be another node than before, or have other files."""
        self.incarnation += 1
        self.is_copy = welcome.replica_of is not None
        self.node_id, self.directory = welcome.node_id, self._named or welcome.directory
        if self._files is not None:
            self._files.close()
        self._files = open_files(self.directory, self.node_id)

    def find(self, names: Sequence[str] = (), pattern: str | None = None) -> list[ListedTopic]:
        async def list_topics(broker: RemoteBroker) -> list[TopicInfo]:
            if pattern is not None:
                return await broker.list_topics(_literal_start(pattern) if not names else "")
            described = await _gather(broker, [partial(_describe, name=name) for name in sorted(set(names))])
            found = []
            for answer in described:
                if isinstance(answer, LogboomError):
                    raise answer
                if answer is not None:
                    found.append(answer)
            return found

        return sorted(_listed(topic) for topic in self._ask(list_topics) if matches(topic.name, names, pattern))

    def seqno_at(self, topic: ListedTopic, partition: int, moment: int, gaps: Gaps = "raise") -> int:
        start = Start(time=moment)
        try:
            return self._ask(lambda broker: broker.read(_request(topic, partition, start, gaps))).seqno
        except Damage:
            found = None
            if gaps == "skip":
                found = self._look(lambda files: files.seqno_at(topic, partition, moment, gaps))
            if found is None:
                raise
            return found

    def cut(
        self, topic: ListedTopic, partition: int, seqno_from: int, seqno_until: int, every_bytes: int
    ) -> list[SeqnoRange]:
        pieces = self._look(lambda files: files.cut(topic, partition, seqno_from, seqno_until, every_bytes))
        if pieces and (pieces[0].seqno_from, pieces[-1].seqno_until) == (seqno_from, seqno_until):
            return pieces
        segments = self._ask(lambda broker: broker.segments(topic.name, partition, SEGMENTS_MAX))
        return cut_evenly(segments, seqno_from, seqno_until, every_bytes)

    def terms_before(self, places: Sequence[LogPoint]) -> list[Term | None]:
        terms = self._look(lambda files: files.terms_before(places)) or [None] * len(places)
        unknown = [number for number, term in enumerate(terms) if term is None]
        found = self._ask_all([partial(_term_before, place=places[number]) for number in unknown])
        for number, term in zip(unknown, found, strict=True):
            terms[number] = None if isinstance(term, LogboomError) else term
        return terms

    def commit_cursor(self, cursor: str, bookmarks: Sequence[tuple[str, Bookmark]]) -> None:
        answers = self._ask_all([partial(_commit, cursor=cursor, topic=topic, to=to) for topic, to in bookmarks])
        for answer in answers:
            if answer is not None:
                raise answer

    def _ask_all(self, questions: Sequence[Callable[[RemoteBroker], Awaitable[Answer]]]) -> list[Answer | LogboomError]:
        """All at once; the answer to each, or what was wrong with it."""
        answers: list[Answer | LogboomError] = []
        for start in range(0, len(questions), AT_ONCE):
            some = questions[start : start + AT_ONCE]
            answers += self._ask(partial(_gather, questions=some))
        return answers

    def close(self) -> None:
        if self._files is not None:
            self._files.close()
        broker, self._broker = self._broker, None
        if broker is not None:
            _outside_loops(lambda: self._runner.run(broker.close()))
        _outside_loops(self._runner.close)

    def _look(self, question: Callable[[FileCatalog], Answer]) -> Answer | None:
        """What the node's own files say, where they are here; what they cannot tell, the node is asked."""
        try:
            return None if self._files is None else question(self._files)
        except (LogboomError, OSError):
            return None


def cut_evenly(
    segments: Sequence[SegmentInfo], seqno_from: int, seqno_until: int, every_bytes: int
) -> list[SeqnoRange]:
    """As if the records of a segment were all of the same size. What no segment is known of comes in one piece."""
    stored = (SeqnoRange(segment.first_seqno, segment.next_seqno, segment.size_bytes) for segment in segments)
    return cut_pieces(stored, seqno_from, seqno_until, every_bytes)


def _outside_loops(work: Callable[[], Answer]) -> Answer:
    """In another thread, where the caller's has a loop that is running, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


async def _welcome(broker: RemoteBroker) -> Welcome:
    return broker.welcome


async def _gather(
    broker: RemoteBroker, questions: Sequence[Callable[[RemoteBroker], Awaitable[Answer]]]
) -> list[Answer | LogboomError]:
    """Raises Unavailable where that is one of the answers: all of it is to be asked again."""
    answers = await asyncio.gather(*(question(broker) for question in questions), return_exceptions=True)
    found: list[Answer | LogboomError] = []
    for answer in answers:
        if isinstance(answer, Unavailable) or (
            isinstance(answer, BaseException) and not isinstance(answer, LogboomError)
        ):
            raise answer
        found.append(answer)
    return found


async def _describe(broker: RemoteBroker, name: str) -> TopicInfo | None:
    try:
        return await broker.describe_topic(name)
    except TopicNotFound:
        return None


async def _term_before(broker: RemoteBroker, place: LogPoint) -> Term | None:
    topic, partition, seqno = place
    if not seqno:
        return Term(0)
    if seqno == topic.ends[partition].committed:  # at the end nothing is sent
        chunk = await broker.read(_request(topic, partition, Start(at="latest")))
        if chunk.next_seqno == seqno:
            return None if chunk.term == TERM_UNKNOWN else Term(chunk.term, chunk.lineage)
    chunk = await broker.read(_request(topic, partition, Start(seqno=seqno - 1)))
    if chunk.seqnos is not None and chunk.next_seqno != seqno:
        return None  # records are left out for us, and this is another place
    return None if chunk.term == TERM_UNKNOWN else Term(chunk.term, chunk.lineage)


async def _commit(broker: RemoteBroker, cursor: str, topic: str, to: Bookmark) -> None:
    await broker.commit_cursor(cursor, topic, to.partition, str(to))


def _request(topic: ListedTopic, partition: int, start: Start, gaps: Gaps = "raise") -> ReadRequest:
    return ReadRequest(topic.name, start, partition, topic.id, max_bytes=1, gaps=gaps)


def _listed(topic: TopicInfo) -> ListedTopic:
    ends = (Ends(part.first, part.committed, stored=part.first_stored) for part in topic.partitions)
    return ListedTopic(topic.name, topic.id, tuple(ends))


def _literal_start(pattern: str) -> str:
    """What every name that matches begins with, as far as that is plain to see."""
    start = re.match(r"[A-Za-z0-9_-]*", pattern)
    assert start is not None
    rest = pattern[start.end() :]
    if "|" in pattern or rest[:1] in ("?", "*", "{", "+"):
        return ""
    return start[0]
