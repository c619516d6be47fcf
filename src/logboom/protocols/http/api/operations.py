"""Every operation of the API, in the order the docs page shows them."""

from __future__ import annotations

from typing import Final

from logboom.protocols.http import console
from logboom.protocols.http.api import (
    access,
    activity,
    changes,
    checkpoints,
    checkup,
    cursors,
    groups,
    incidents,
    jobs,
    logd,
    members,
    node,
    pipeline,
    publish,
    quotas,
    read,
    segments,
    session,
    stages,
    tail,
    topics,
    write,
)
from logboom.protocols.http.schema import openapi, page
from logboom.protocols.http.schema.operation import Operation

ALL: Final[tuple[Operation, ...]] = (
    *topics.OPERATIONS,
    *segments.OPERATIONS,
    *write.OPERATIONS,
    *read.OPERATIONS,
    *checkpoints.OPERATIONS,
    *tail.OPERATIONS,
    *cursors.OPERATIONS,
    *members.OPERATIONS,
    *jobs.OPERATIONS,
    *groups.OPERATIONS,
    *publish.OPERATIONS,
    *stages.OPERATIONS,
    *pipeline.OPERATIONS,
    *changes.OPERATIONS,
    *logd.OPERATIONS,
    *node.OPERATIONS,
    *checkup.OPERATIONS,
    *incidents.OPERATIONS,
    *activity.OPERATIONS,
    *access.OPERATIONS,
    *quotas.OPERATIONS,
    *session.OPERATIONS,
    *openapi.OPERATIONS,
    *page.OPERATIONS,
    *console.OPERATIONS,
)
