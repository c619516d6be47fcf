"""The files of a log, of a data directory and of a dump."""

from __future__ import annotations

from logboom.errors.root import LogboomError


class StorageError(LogboomError):
    """Something about the files of a log."""


class SeqnoOutOfRange(StorageError):
    """A seqno below the first readable one or above the next."""

    def __init__(self, seqno: int, first: int, next_seqno: int) -> None:
        super().__init__(f"seqno {seqno} is outside of the log, which has {first} up to and not including {next_seqno}")
        self.seqno = seqno
        self.first = first
        self.next = next_seqno


class IndexOutOfRange(StorageError):
    """A batch number the log does not hold, or must not be cut back to."""

    def __init__(self, index: int, lowest: int, highest: int) -> None:
        super().__init__(f"index {index} is outside of {lowest} to {highest}")
        self.index = index
        self.lowest = lowest
        self.highest = highest


class Damage(StorageError):
    """Bytes of a log that were once sound are not any more.

    Seqnos from `seqno_from` up to and not including `seqno_until` cannot be read;
    `seqno_until` is None where nothing sound follows.
    """

    def __init__(self, path: str, position: int, seqno_from: int, seqno_until: int | None, reason: str) -> None:
        until = "the end" if seqno_until is None else f"{seqno_until - 1}"
        super().__init__(f"{path} is damaged at byte {position} (seqnos {seqno_from} to {until}): {reason}")
        self.path = path
        self.position = position
        self.seqno_from = seqno_from
        self.seqno_until = seqno_until
        self.reason = reason


class SyncFailed(StorageError):
    """A sync failed. What was not yet promised is unknown; the log stops writing and a restart recovers."""


class ReplicaDiverged(StorageError):
    """A copy of a log has a batch that its source does not have, or has differently."""

    def __init__(self, log: str, index: int, reason: str) -> None:
        super().__init__(
            f"{log}: batch {index} is not what the source has: {reason}; "
            "nothing more is copied; see which of the two is right, then promote the replica, "
            "or move its data directory away to begin anew"
        )
        self.log = log
        self.index = index
        self.reason = reason


class DumpError(StorageError):
    """Something about a dump."""


class DumpCorrupt(DumpError):
    """Bytes of a dump are not as they were written."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"the dump is damaged at byte {position:,}: {reason}; make it again, or fetch it again")
        self.position = position
        self.reason = reason


class DumpIncomplete(DumpError):
    """The stream ends before its END frame: what came is sound, and not all there is."""

    def __init__(self, position: int) -> None:
        super().__init__(f"the dump ends at byte {position:,}, before its end: it was cut off, or is still being made")
        self.position = position


class DumpUnsupported(DumpError):
    """Not a dump, or one of a format, frame or codec this release does not know."""


class DumpMismatch(DumpError):
    """What is here already is not what the dump holds; or a dump to be gone on with is of something else."""


class PublishUnfinished(StorageError):
    """A publish was cut off, and may be in some of its logs only; the next start of the node finishes it."""

    def __init__(self, publish: str, otherwise: str = "") -> None:
        super().__init__(f"{publish}: start the node once on this directory, which finishes it{otherwise}")
        self.publish = publish


class DumpOvertaken(DumpError):
    """Retention dropped batches before they were dumped."""

    def __init__(self, path: str, index: int, first_index: int) -> None:
        super().__init__(
            f"{path}: retention dropped batch {index} before it was dumped, the log begins with {first_index} now: "
            "dump again, or set a longer retention first"
        )
        self.path = path
        self.index = index
        self.first_index = first_index


class NotOpened(StorageError):
    """How much of a log is committed, its writer says; none has opened it since the state file was made."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the state file says nothing of {path}: start the server, or open the directory once")
        self.path = path


class NotLocal(StorageError):
    """Readers beside the writer share its page cache; a network file system has none to share."""

    def __init__(self, path: str, file_system: str) -> None:
        super().__init__(
            f"{path} is on {file_system}: files can be followed on local file systems only; read through the server"
        )
        self.path = path
        self.file_system = file_system


class DirectoryInUse(StorageError):
    """Another process writes to this data directory."""


class DirectoryUnusable(StorageError):
    """Not a data directory this release can write to."""
