"""Every operation of the API, in the order the docs page shows them."""

from __future__ import annotations

from typing import Final

from logboom.protocols.http import (
    activity,
    changes,
    checkpoints,
    checkup,
    console,
    cursors,
    incidents,
    logd,
    node,
    openapi,
    page,
    pipeline,
    reading,
    segments,
    staging,
    tail,
    topics,
    writing,
)
from logboom.protocols.http.operation import Operation

ALL: Final[tuple[Operation, ...]] = (
    *topics.OPERATIONS,
    *segments.OPERATIONS,
    *writing.OPERATIONS,
    *reading.OPERATIONS,
    *checkpoints.OPERATIONS,
    *tail.OPERATIONS,
    *cursors.OPERATIONS,
    *staging.OPERATIONS,
    *pipeline.OPERATIONS,
    *changes.OPERATIONS,
    *logd.OPERATIONS,
    *node.OPERATIONS,
    *checkup.OPERATIONS,
    *incidents.OPERATIONS,
    *activity.OPERATIONS,
    *openapi.OPERATIONS,
    *page.OPERATIONS,
    *console.OPERATIONS,
)
