"""A writer's connection, without the socket: greeting, finding the topic, keeping it alive, and when to try again.

It is `ready` when the node has said hello and the topic is known to be the one the writer began with. A topic that is
not there is made, if the node allows it, but only the first time: one that is gone later is an error (`fatal`), and so
is another one in its place. A connection that is lost is tried again at once, on every server in turn, then with a
growing pause. A replica is no server to write to, and what it lacks may only not have come yet: the next one's turn.
"""

from __future__ import annotations

from typing import Final

import msgspec

from logboom import __version__
from logboom.batch.header import Buffer
from logboom.broker.api import TopicInfo
from logboom.client.link.async_link import KEEP_ALIVE_MIN_S
from logboom.client.link.backoff import LONGEST_S, Backoff
from logboom.client.link.profile import Profile
from logboom.client.link.session import Event, Reply, Session
from logboom.errors import (
    ConnectionLost,
    LimitExceeded,
    LogboomError,
    Overloaded,
    ReadOnlyReplica,
    RemoteProtocolError,
    TopicDeleted,
    TopicError,
    TopicRecreated,
    Unavailable,
)
from logboom.protocols.binary.errors import decode_failure
from logboom.protocols.binary.messages import (
    AppendedAt,
    Appends,
    DescribeTopic,
    Hello,
    Kind,
    Welcome,
    WireLimits,
)

PROBE_S: Final = 10.0
"""After so much silence the node is asked whether it is still there."""
SILENCE_S: Final = 30.0
"""After so much, although it was asked, it is not."""

GREETING_S: Final = 5.0
"""So long a node may take to say hello: another one may be quicker."""

_PASSING: Final = (Unavailable, Overloaded, LimitExceeded)
_topic_info = msgspec.msgpack.Decoder(TopicInfo)


class Contact:
    def __init__(self, topic: str, servers: int = 1) -> None:
        self.topic = topic
        self.topic_id: str | None = None
        self.partitions: int | None = None
        self.limits: WireLimits | None = None
        self.producer_id = 0
        """What the node has given; 0 where it gives none."""
        self.session: Session | None = None
        self.ready = False
        self.fatal: LogboomError | None = None
        """Why no connection will ever do."""
        self.error: LogboomError | None = None
        """Why the last one did not."""
        self.attempts = 0
        """Without success: says which server is next."""
        self.connect_at = 0.0
        self._servers = servers
        self._backoff = Backoff(servers)
        self._refusals = 0
        self._cluster_id: str | None = None
        self._asked = 0
        self._probed = False
        self._began = self._spoke = self._heard = 0.0

    @property
    def server(self) -> int:
        """Which of the servers to try now. The one that was lost is tried again first: it may just have restarted."""
        return self.attempts % self._servers

    def begin(self, now: float, profile: Profile | None = None) -> list[Buffer]:
        """There is a connection: what to send first, in whose name."""
        hello = Hello(client=f"logboom-python/{__version__}", cluster_id=self._cluster_id, topics=[self.topic])
        self.session = Session(hello, profile)
        self._began = self._spoke = self._heard = now
        self._probed = True
        return self.session.hello()

    def end(self, error: LogboomError, now: float) -> None:
        """There is none, or none any more."""
        was_ready, self.ready, self.session, self.error = self.ready, False, None, error
        if not was_ready:
            self.attempts += 1
        elif now - self._began > LONGEST_S:
            self._backoff.reset()
        self.connect_at = now + self._backoff.next_s()
        self._refusals = 0 if was_ready or isinstance(error, _PASSING) else self._refusals + 1
        if self._refusals >= self._servers and self.partitions is None:
            # Where none of the servers has ever been of use it is not a matter of time.
            self.fatal = error

    def take(self, event: Event) -> list[Buffer]:
        """Something that is no answer to an append. Returns what to send; raises what ends the connection."""
        what = event.what
        if isinstance(what, Reply):
            return what.buffers
        if isinstance(what, Welcome):
            return self._welcomed(what)
        if event.correlation == self._asked and isinstance(what, bytes):
            try:
                self._know(_topic_info.decode(what))
            except msgspec.MsgspecError as error:
                raise RemoteProtocolError(f"the description of {self.topic!r} is wrong: {error}") from None
        elif isinstance(what, TopicError) and event.correlation == self._asked:
            self.fatal = what
        elif isinstance(what, LogboomError):
            raise what
        return []

    def heard(self, now: float) -> None:
        self._heard, self._probed = now, False

    def spoke(self, now: float) -> None:
        self._spoke = now

    def tend(self, now: float, waiting: bool) -> list[Buffer]:
        """A ping, where one is due. Raises ConnectionLost where nobody is there any more."""
        if self.session is None:
            return []
        silence_s = now - self._heard
        if not self.ready and now - self._began > self._patience_s:
            raise ConnectionLost(f"the node did not answer within {self._patience_s:g} s")
        if silence_s > SILENCE_S and (waiting or self._probed):
            raise ConnectionLost(f"the node has not been heard of for {silence_s:.0f} s")
        if not self.ready or self._probed:
            return []
        if (waiting and silence_s > PROBE_S) or now - self._spoke >= self.keep_alive_s:
            self._probed = True
            self._heard = max(self._heard, now - PROBE_S)
            return self.session.request(Kind.PING)[1]
        return []

    @property
    def _patience_s(self) -> float:
        """Until it is ready. To make a topic takes longer than to say hello."""
        return GREETING_S if self.session is None or self.session.welcome is None else SILENCE_S

    @property
    def keep_alive_s(self) -> float:
        return 200.0 if self.limits is None else max(KEEP_ALIVE_MIN_S, self.limits.idle_ms / 3000)

    def next_look(self, now: float, waiting: bool) -> float:
        """When there is something to do at the soonest: `tend`, or another connection."""
        if self.session is None:
            return self.connect_at if self.connect_at > now else now + LONGEST_S
        if not self.ready:
            return self._began + self._patience_s
        if waiting or self._probed:
            return self._heard + (SILENCE_S if self._probed else PROBE_S)
        return self._spoke + self.keep_alive_s

    def _welcomed(self, welcome: Welcome) -> list[Buffer]:
        assert self.session is not None
        self.limits, self._cluster_id = welcome.limits, welcome.cluster_id
        self.producer_id = welcome.producer_id
        if welcome.replica_of is not None:
            raise ReadOnlyReplica(welcome.replica_of)
        found = next((info for info in welcome.topics if info.name == self.topic), None)
        if found is not None:
            self._know(found)
        elif self.topic_id is not None:
            self.fatal = TopicDeleted(self.topic, self.topic_id)
        else:
            self._asked, buffers = self.session.request(Kind.CALL, DescribeTopic(self.topic, create=True))
            return buffers
        return []

    def _know(self, info: TopicInfo) -> None:
        if self.topic_id is not None and self.topic_id != info.id:
            self.fatal = TopicRecreated(self.topic, self.topic_id, info.id)
            return
        self.topic_id, self.partitions = info.id, len(info.partitions)
        self.ready, self._refusals = True, 0

    def proved(self) -> None:
        """It is of use: a batch was appended."""
        self._backoff.reset()


def append_answer(event: Event) -> AppendedAt | LogboomError:
    """What became of the one batch of a request."""
    what = event.what
    if isinstance(what, LogboomError):
        return what
    if isinstance(what, Appends) and len(what.answers) == 1:
        answer, failure = what.answers[0], what.failures.get(0)
        if failure is not None:
            return decode_failure(failure)
        if answer is not None:
            return answer
    raise RemoteProtocolError("an append was answered with something else")
