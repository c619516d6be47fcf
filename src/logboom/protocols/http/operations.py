"""Every operation of the API, in the order the docs page shows them."""

from __future__ import annotations

from typing import Final

from logboom.protocols.http import (
    changes,
    cursors,
    logd,
    node,
    openapi,
    page,
    reading,
    tail,
    topics,
    writing,
)
from logboom.protocols.http.operation import Operation

ALL: Final[tuple[Operation, ...]] = (
    *topics.OPERATIONS,
    *writing.OPERATIONS,
    *reading.OPERATIONS,
    *tail.OPERATIONS,
    *cursors.OPERATIONS,
    *changes.OPERATIONS,
    *logd.OPERATIONS,
    *node.OPERATIONS,
    *openapi.OPERATIONS,
    *page.OPERATIONS,
)
