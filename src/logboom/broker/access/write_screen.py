"""What rules on channels and tags do not let a caller write: a batch with one such record is refused as a whole.

Made for a caller when his append takes its place; looked through with it on a thread, in the order of its log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from logboom.access.restriction import Restriction
from logboom.batch import KIND_DATA, Batch
from logboom.broker.caller import Caller
from logboom.broker.rules import Rules
from logboom.errors import BatchError, LogboomError, RecordNotAllowed


class WriteScreen(NamedTuple):
    caller: Caller
    restriction: Restriction

    @classmethod
    def of(cls, rules: Rules, caller: Caller) -> WriteScreen | None:
        """None where he may write all records."""
        restriction = rules.restriction(caller, "write")
        return None if restriction is None else cls(caller, restriction)

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
