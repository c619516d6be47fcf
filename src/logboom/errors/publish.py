"""Stages, and the keys that they are published under. Where one of these is raised nothing was published."""

from __future__ import annotations

from logboom.errors.root import LogboomError


class StageError(LogboomError):
    """About a stage."""


class StageNotFound(StageError):
    """There is no such stage."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"there is no stage {stage!r}: it was published, discarded, has expired, or never was")
        self.stage = stage


class StageBusy(StageError):
    """The stage is being published."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"stage {stage!r} is being published")
        self.stage = stage


class StageIncomplete(StageError):
    """A stage does not hold what its writer has put there."""

    def __init__(self, stage: str, expected: int, found: int) -> None:
        super().__init__(f"stage {stage!r} holds {found:,} records where {expected:,} were staged: stage them again")
        self.stage = stage
        self.expected = expected
        self.found = found


class StageFailed(StageError):
    """What is in a stage cannot be relied on."""

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(f"stage {stage!r} is of no use any more: {reason}; discard it and stage again")
        self.stage = stage
        self.reason = reason


class InvalidKey(LogboomError, ValueError):
    """Not a name and a number to publish under."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"key {name!r}: {reason}")
        self.name = name
        self.reason = reason


class KeyBusy(LogboomError):
    """A publish is under way under this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"key {name!r} is being published: wait until that has ended")
        self.name = name


class KeyMismatch(LogboomError):
    """What is to be published is no repeat of what was published under that name: nothing of it is written."""

    def __init__(self, name: str, number: int, digest: str, published_number: int, published_digest: str) -> None:
        super().__init__(
            f"key {name!r}: number {number} with digest {digest} is no repeat of what was published there last, "
            f"number {published_number} with digest {published_digest}: two publishers have the same name, "
            "or one has gone back; nothing is written"
        )
        self.name = name
        self.number = number
        self.digest = digest
        self.published_number = published_number
        self.published_digest = published_digest
