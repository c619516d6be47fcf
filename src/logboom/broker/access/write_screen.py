"""What rules on channels and tags do not let a caller write: a batch with one such record is refused as a whole.

Made for a caller when his append takes its place. A small batch is looked through at once; others on a thread, in the
order of their log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from logboom.access.restriction import FEW, Restriction
from logboom.batch import KIND_DATA, Batch
from logboom.broker.caller import Caller
from logboom.broker.rules import Rules
from logboom.errors import BatchError, LogboomError, RecordNotAllowed

QUICK_BYTES: Final = 16 * 1024
"""Of a batch of few records that is looked through at once: a hop to a thread would take longer."""
QUICK_PATTERNS: Final = 32


class WriteScreen(NamedTuple):
    caller: Caller
    restriction: Restriction

    @classmethod
    def of(cls, rules: Rules, caller: Caller) -> WriteScreen | None:
        """None where he may write all records."""
        restriction = rules.restriction(caller, "write")
        return None if restriction is None else cls(caller, restriction)

    def is_quick(self, batches: Sequence[Batch]) -> bool:
        if len(batches) != 1 or self.restriction.pattern_count > QUICK_PATTERNS:
            return False
        header = batches[0].header
        return header.record_count <= FEW and max(header.size, header.body_size) <= QUICK_BYTES

    def refusal(self, batches: Iterable[Batch], limit_bytes: int) -> LogboomError | None:
        """Why these are refused; None where they are not. For a thread: holds what one of them inflates to."""
        for batch in batches:
            try:
                ours = Batch.parse(batch.data)
                ours.verify(limit_bytes)
                refused = self.restriction.find_refused(ours) if ours.header.kind == KIND_DATA else None
            except BatchError as error:
                return error  # whoever is asked next would say the same
            if refused is not None:
                return RecordNotAllowed(self.caller.principal, "write", *refused)
        return None
