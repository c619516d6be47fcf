"""Between two sides: a node that is not there now, a limit, a protocol that one of them breaks."""

from __future__ import annotations

from logboom.errors.root import LogboomError


class Unavailable(LogboomError):
    """Not now."""


class ShuttingDown(Unavailable):
    """The node is stopping and takes nothing new."""

    def __init__(self, message: str = "the node is shutting down") -> None:
        super().__init__(message)


class FeedEnded(Unavailable):
    """What a copy was told of a log when it began holds no more. It asks again, and learns what does."""

    def __init__(self, log: str, reason: str) -> None:
        super().__init__(f"{log}: {reason}")
        self.log = log
        self.reason = reason


class ConnectionLost(Unavailable):
    """No connection to a node, or the one there was is gone."""


class LimitExceeded(LogboomError):
    """More than a limit allows."""

    def __init__(self, limit: str, allowed: int, hint: str = "") -> None:
        super().__init__(f"more than {limit} = {allowed:,} allows{': ' if hint else ''}{hint}")
        self.limit = limit
        self.allowed = allowed


class QuotaExceeded(LimitExceeded):
    """More connections or topics at one time than a quota gives to somebody. What is a rate makes him wait instead."""

    def __init__(self, who: str, kind: str, allowed: int) -> None:
        less = "close one" if kind == "connections" else "delete one"
        Exception.__init__(
            self,
            f"the quota of {who} gives {allowed:,} {kind}, and there are as many: {less}, or have it raised with "
            f"`logboom quota set`",
        )
        self.limit = f"quota.{kind}"
        self.allowed = allowed
        self.who = who


class ProtocolError(LogboomError):
    """Bytes that are not what the protocol says."""


class RemoteProtocolError(ProtocolError):
    """The other side has broken the protocol."""


class LocalProtocolError(ProtocolError):
    """This side would break the protocol: a call in the wrong state."""


class UnsupportedVersion(ProtocolError):
    """No version of the protocol is spoken by both sides."""

    def __init__(self, lowest: int, highest: int, ours: int) -> None:
        super().__init__(f"unsupported version: this node speaks {ours}, the client {lowest} to {highest}")
        self.version = ours


class WrongCluster(ProtocolError):
    """The client wants to talk to another cluster than this node's."""

    def __init__(self, wanted: str, cluster_id: str) -> None:
        super().__init__(f"this node is of cluster {cluster_id}, not of {wanted[:100]!r}")
        self.cluster_id = cluster_id
