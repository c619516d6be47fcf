"""The sum of all calls. Who needs only some of them is typed by those."""

from __future__ import annotations

from typing import Protocol

from logboom.broker.api.access import AccessCalls
from logboom.broker.api.cursors import CursorCalls
from logboom.broker.api.groups import GroupCalls
from logboom.broker.api.insight import InsightCalls
from logboom.broker.api.logs import LogCalls
from logboom.broker.api.operations import OperatorCalls
from logboom.broker.api.queues import QueueCalls
from logboom.broker.api.stages import StageCalls
from logboom.broker.api.topics import TopicCalls


class Broker(
    TopicCalls,
    LogCalls,
    CursorCalls,
    GroupCalls,
    QueueCalls,
    StageCalls,
    InsightCalls,
    OperatorCalls,
    AccessCalls,
    Protocol,
):
    """All that a node does for those who ask."""
