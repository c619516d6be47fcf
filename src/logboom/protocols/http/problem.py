"""What went wrong, as application/problem+json: a stable code, the offending parameter, and the fix.

The one table of this front-end, from the errors of the domain to statuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec

from logboom import errors as e
from logboom.errors import LogboomError, RemoteProtocolError

MEDIA_TYPE: Final = "application/problem+json"
_SLIPS: Final = frozenset({400, 404, 405, 406, 411, 415})


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """RFC 9457, with `code`, `parameter` and `fix` of our own."""

    title: str
    status: int
    code: str
    """Stable: programs go by it."""
    detail: str
    parameter: str | None = None
    """Which part of the request is wrong."""
    fix: str | None = None
    data: dict[str, Any] = {}
    """What the error carries, such as the seqno that was expected."""


class RequestError(RemoteProtocolError):
    """A request that HTTP itself, or our use of it, does not allow. Never leaves this front-end as anything else."""

    status: int = 400
    code: str = "bad-request"
    parameter: str | None = None
    fix: str | None = None

    def __init__(self, message: str, status: int = 400, code: str = "bad-request", fix: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.fix = fix

    @property
    def is_slip(self) -> bool:
        """Whether whoever sent it has only got something wrong."""
        return self.status in _SLIPS


class BadParameter(RequestError):
    def __init__(self, parameter: str, reason: str, fix: str | None = None) -> None:
        super().__init__(f"{parameter}: {reason}", 400, "bad-parameter", fix)
        self.parameter: str = parameter
        self.reason = reason


STATUSES: Final[dict[type[LogboomError], int]] = {
    e.BatchTooLarge: 413,
    e.BatchError: 400,
    e.InvalidColumn: 400,
    e.InvalidPattern: 400,
    e.UnexpectedSeqno: 409,
    e.ProducerFenced: 409,
    e.RepeatForgotten: 409,
    e.SequenceGap: 409,
    e.UnknownProducer: 409,
    e.RecordsRejected: 422,
    e.ValidatorFailed: 503,
    e.ValidatorNotAllowed: 403,
    e.WritesRefused: 503,
    e.ReadOnlyReplica: 503,
    e.LowSpace: 507,
    e.Overloaded: 503,
    e.AppendRefused: 503,
    e.OutcomeUnknown: 504,
    e.Unavailable: 503,
    e.LimitExceeded: 429,
    e.ProtocolError: 400,
    e.ConfigError: 400,
    e.InvalidCursorName: 400,
    e.CursorNotFound: 404,
    e.CursorBusy: 409,
    e.CursorMovedBack: 409,
    e.UnexpectedCursor: 409,
    e.CheckpointNotFound: 404,
    e.InvalidGroup: 400,
    e.GroupNotFound: 404,
    e.GroupBusy: 409,
    e.GroupMismatch: 409,
    e.MemberUnknown: 404,
    e.LogNotHeld: 409,
    e.JobNotHeld: 409,
    e.InvalidTopicName: 400,
    e.TopicNotFound: 404,
    e.PartitionNotFound: 404,
    e.TopicExists: 409,
    e.TopicNotAllowed: 403,
    e.TopicDeleted: 410,
    e.TopicRecreated: 410,
    e.TopicBusy: 409,
    e.StageNotFound: 404,
    e.StageBusy: 409,
    e.StageIncomplete: 409,
    e.StageFailed: 410,
    e.InvalidKey: 400,
    e.KeyBusy: 409,
    e.KeyMismatch: 409,
    e.InvalidBookmark: 400,
    e.BookmarkLost: 410,
    e.SeqnoOutOfRange: 416,
    e.SignInRequired: 401,
    e.SignInFailed: 401,
    e.NotAllowed: 403,
    e.InvalidPrincipal: 400,
    e.InvalidPassword: 400,
    e.InvalidRule: 400,
    e.InvalidQuota: 400,
    e.UserNotFound: 404,
    e.UserExists: 409,
    e.TokenNotFound: 404,
    e.RuleNotFound: 404,
    e.QuotaNotFound: 404,
    e.AccessError: 403,
    e.Damage: 500,
    e.StorageError: 500,
    LogboomError: 500,
}
"""The nearest ancestor counts."""


FIXES: Final[dict[type[LogboomError], str]] = {
    e.TopicNotFound: "create it with POST /topics, or write to it: a write makes it where the node's rules allow that",
    e.PartitionNotFound: "name one of its partitions with ?partition=",
    e.TopicExists: "take another name, or change the one there is with PATCH /topics/{topic}",
    e.TopicNotAllowed: "take another name, or change topics.allowed, topics.denied or topics.auto_create",
    e.InvalidTopicName: "use 1 to 249 letters, digits, dots, dashes, underscores",
    e.UnexpectedSeqno: "read from data.next_seqno on what others have written, then try again at that seqno",
    e.RepeatForgotten: "use an Idempotency-Key for one request only; what it first wrote is in the log",
    e.BatchTooLarge: "send fewer records at once, or raise limits.batch_bytes",
    e.WritesRefused: "POST /accept, or /topics/{topic}/accept, lets writes in again",
    e.ReadOnlyReplica: "write to the node it copies, or POST /promote to make this one independent",
    e.LowSpace: "make room on the volume, or shorten retention",
    e.Overloaded: "send it again later: nothing was appended",
    e.OutcomeUnknown: "send it again with the same Idempotency-Key, or look whether it is there",
    e.ShuttingDown: "send it again in a moment, or to another node",
    e.SeqnoOutOfRange: "read from data.first, or from=earliest",
    e.BookmarkLost: "read from an earlier seqno",
    e.CursorMovedBack: "go on from data.at, or send force: true to move it back",
    e.UnexpectedCursor: "GET the cursor, and try again with its bookmark",
    e.GroupNotFound: "GET /groups lists those there are; POST /groups/{group}/members makes one",
    e.GroupBusy: "GET /groups/{group} shows its members: they leave, or their sessions end",
    e.MemberUnknown: "join again with POST /groups/{group}/members, and go on from where the group stands",
    e.LogNotHeld: "forget these records: another member has them",
    e.JobNotHeld: "forget these records: somebody else works on them, or they are done",
    e.TopicRecreated: "read from=earliest: it is another topic now",
    e.TopicDeleted: "create it again, or read another one",
    e.CursorBusy: "wait until the publish has ended; where it cannot end, DELETE /keys?name= gives it up",
    e.TopicBusy: "wait until the publish has ended; where it cannot end, DELETE /keys?name= gives it up",
    e.CheckpointNotFound: "make one with `logboom pipeline run`, or name the one there is with ?by= and ?tag=",
    e.StageNotFound: "GET /stages lists those there are",
    e.StageBusy: "wait until its publish has ended: then it is gone by itself",
    e.StageFailed: "DELETE /stages/{stage}, and stage its records again",
    e.InvalidBookmark: "give it as it came in `next`",
    e.SignInRequired: "send Authorization: Basic with a user and a password, or Authorization: Bearer with a token; "
    "the page at / signs browsers in",
    e.SignInFailed: "look whether the user, the password or the token is right",
    e.NotAllowed: "whoever manages users can allow it: POST /access/rules",
    e.UserNotFound: "GET /access/users lists those there are",
    e.UserExists: "change the one there is with PATCH /access/users/{user}, or take another name",
    e.TokenNotFound: "GET /access/tokens lists those there are",
    e.RuleNotFound: "GET /access/rules lists those there are",
    e.QuotaNotFound: "GET /access/quotas lists those there are",
    e.QuotaExceeded: "close a connection or delete a topic; who manages users can raise it: PUT /access/quotas/{who}",
}
"""The nearest ancestor counts."""

RETRY_AFTER_S: Final = {429: b"1", 503: b"1"}
_OWN: Final = frozenset({"status", "code", "parameter", "fix", "cause", "reason"})
_encoder = msgspec.json.Encoder(enc_hook=str)


class PartFailed(RequestError):
    """Some records of a request were appended, others were not. `cause` says why, for the first of those."""

    def __init__(self, cause: LogboomError, partitions: list[int | None], seqnos: list[int | None]) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.partitions = partitions
        self.seqnos = seqnos

    @property
    def is_slip(self) -> bool:
        return False


def problem_of(error: Exception) -> Problem:
    """What a client is told. Of errors that are not ours it is told nothing."""
    if not isinstance(error, LogboomError):
        return Problem(
            "Internal error", 500, "internal-error", "the node has failed in this request, and its log says how"
        )
    if isinstance(error, PartFailed):
        found = problem_of(error.cause)
        return msgspec.structs.replace(found, data={**found.data, **_data_of(error)})
    if isinstance(error, RequestError):
        status, code, fix = error.status, error.code, error.fix
    else:
        status, code, fix = _nearest(STATUSES, error) or 500, e.code_of(error), _nearest(FIXES, error)
    return Problem(
        code.replace("-", " ").capitalize(),
        status,
        code,
        str(error),
        getattr(error, "parameter", None) or (error.key if isinstance(error, e.ConfigError) else None),
        fix,
        _data_of(error),
    )


Entry = TypeVar("Entry")


def _nearest(table: Mapping[type[LogboomError], Entry], error: LogboomError) -> Entry | None:
    return next((table[kind] for kind in type(error).__mro__ if kind in table), None)


def _data_of(error: LogboomError) -> dict[str, Any]:
    return {name: value for name, value in vars(error).items() if name not in _OWN and not name.startswith("_")}


def encode_problem(problem: Problem) -> bytes:
    return _encoder.encode(problem)


def problem_headers(problem: Problem) -> list[tuple[bytes, bytes]]:
    found = [(b"content-type", MEDIA_TYPE.encode())]
    if problem.status in RETRY_AFTER_S:
        found.append((b"retry-after", RETRY_AFTER_S[problem.status]))
    return found


def raw_problem(error: Exception, headers: Iterable[tuple[bytes, bytes]] = ()) -> bytes:
    """A whole response, the last of its connection."""
    problem = problem_of(error)
    body = encode_problem(problem)
    head = [(b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    lines = [name + b": " + value + b"\r\n" for name, value in (*headers, *problem_headers(problem), *head)]
    phrase = HTTPStatus(problem.status).phrase.encode()
    return b"HTTP/1.1 %d %s\r\n%s\r\n%s" % (problem.status, phrase, b"".join(lines), body)
