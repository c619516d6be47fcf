"""Who somebody is, and what he may do: a sign-in that failed, a right that is not there, what rules cannot say."""

from __future__ import annotations

from logboom.errors.root import LogboomError


class AccessError(LogboomError):
    """Something about users, tokens or rules."""


class SignInRequired(AccessError):
    """The node does not let anonymous callers do this."""

    def __init__(self, message: str = "sign in: this node does nothing for callers it does not know") -> None:
        super().__init__(message)


class SignInFailed(AccessError):
    """The name, the password, the token or the certificate is wrong. Which of them, nobody is told."""

    def __init__(self, message: str = "the sign-in failed: the name or the secret is wrong") -> None:
        super().__init__(message)


class NotAllowed(AccessError):
    """No rule gives the caller this right, or one takes it away."""

    def __init__(self, principal: str, right: str, kind: str, name: str = "", reason: str = "") -> None:
        what = f"{kind} {name!r}" if name else f"every {kind}" if kind != "node" else "the node"
        super().__init__(f"{principal} may not {right} {what}{reason and f': {reason}'}")
        self.principal = principal
        self.right = right
        self.kind = kind
        self.name = name


class RecordNotAllowed(NotAllowed):
    """Rules on channels or tags do not let the caller write a record of a batch: the whole batch is refused."""

    def __init__(self, principal: str, right: str, kind: str, name: str = "") -> None:
        what = f"{kind} {name!r}" if name else f"records without a {kind}"
        AccessError.__init__(self, f"{principal} may not {right} {what}")
        self.principal = principal
        self.right = right
        self.kind = kind
        self.name = name


class InvalidPrincipal(AccessError, ValueError):
    """A name that no user, group or role can have."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name[:200]!r} is no name of a user, group or role: use 1 to 128 letters, digits and . _ @ : / + -, "
            "beginning with a letter or digit, and not with group: or role:"
        )
        self.name = name[:200]


class InvalidPassword(AccessError, ValueError):
    """A password that cannot be set."""


class InvalidRule(AccessError, ValueError):
    """A rule that means nothing."""


class InvalidQuota(AccessError, ValueError):
    """A quota that means nothing."""


class UserNotFound(AccessError):
    """No user has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no user {name!r}")
        self.name = name


class UserExists(AccessError):
    """Another user has this name already."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a user {name!r} already: change the password with `logboom user set-password`")
        self.name = name


class TokenNotFound(AccessError):
    """No token has this id."""

    def __init__(self, token_id: str) -> None:
        super().__init__(f"there is no token {token_id!r}")
        self.token_id = token_id


class RuleNotFound(AccessError):
    """No rule has this number."""

    def __init__(self, number: int) -> None:
        super().__init__(f"there is no rule {number}")
        self.number = number


class QuotaNotFound(AccessError):
    """Nobody of this name has a quota of his own."""

    def __init__(self, who: str) -> None:
        super().__init__(f"there is no quota for {who!r}")
        self.who = who
