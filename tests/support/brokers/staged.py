"""Something staged, for tests that look at it."""

from __future__ import annotations

from logboom.batch import Producer, build
from logboom.broker.api import Part, StageInfo
from support.brokers.any_broker import AnyBroker


async def fill_stage(broker: AnyBroker, topic: str = "t", count: int = 3, note: str = "") -> StageInfo:
    """A stage with so many records for a topic that is there."""
    stage = await broker.open_stage(note)
    batch = build([b"%d" % number for number in range(count)], producer=Producer(stage.producer_id, 0, 0))
    (answer,) = await broker.stage(stage.id, [Part(topic, [batch], 0)])
    assert not isinstance(answer, Exception), answer
    return stage
