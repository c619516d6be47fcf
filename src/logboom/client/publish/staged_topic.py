"""The logs that records of a stage are for, as its writer knows them: what is gathered for each, and how far it is."""

from __future__ import annotations

import random

from logboom.broker.api import TopicInfo
from logboom.client.write.gathered import Gathered
from logboom.client.write.pieces import ColumnPiece
from logboom.errors import PartitionNotFound


class StagedLog:
    """What goes to one log: pieces in their order, and behind them what is gathered."""

    __slots__ = ("gathered", "partition", "pieces", "seq", "size", "topic")

    def __init__(self, topic: StagedTopic, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.seq = 0
        """Of the next batch: how many records went before."""
        self.pieces: list[ColumnPiece] = []
        self.gathered = Gathered()
        self.size = 0


class StagedTopic:
    """A topic as it was found first. A stage is for that one, not for another that takes its name."""

    __slots__ = ("id", "logs", "name", "partitions", "sticky")

    def __init__(self, name: str, info: TopicInfo) -> None:
        self.name = name
        self.id = info.id
        self.partitions = len(info.partitions)
        self.logs: dict[int, StagedLog] = {}
        self.sticky = self.log(random.randrange(self.partitions))
        """Where records go that may go anywhere, until a batch of them is cut."""

    def log(self, partition: int) -> StagedLog:
        found = self.logs.get(partition)
        if found is None:
            if isinstance(partition, bool) or not 0 <= partition < self.partitions:
                raise PartitionNotFound(self.name, partition, self.partitions)
            found = self.logs[partition] = StagedLog(self, partition)
        return found

    def unstick(self) -> None:
        if self.partitions > 1:
            self.sticky = self.log(random.randrange(self.partitions))
