"""May a control batch set the floor that it sets?

Only one at or below the records before it: a floor beyond the end of the log would hide what is acknowledged later.
"""

from __future__ import annotations

from logboom.batch.header import Header
from logboom.storage.tail import Control, Floor


def floor_fault(header: Header, control: Control | None) -> str | None:
    if isinstance(control, Floor) and not 0 <= control.seqno <= header.base_seqno:
        return f"the floor is seqno {control.seqno}, but the log ends at {header.base_seqno}"
    return None
