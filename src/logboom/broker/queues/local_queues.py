"""The calls of a LocalBroker that are about work queues: who may, then what is done."""

from __future__ import annotations

from logboom.access.quota import OUT_OF
from logboom.broker.access.quotas import Quotas
from logboom.broker.admission import Admission
from logboom.broker.api.queues import LeasedJobs, RefusedSettlement, Settlement, TakeJobs
from logboom.broker.caller import EVERYBODY, Caller
from logboom.broker.queues.queues import Queues
from logboom.broker.rules import ObjectKind, Right
from logboom.errors import ShuttingDown


class LocalQueues:
    """Implements broker.api.QueueCalls; see there for what the methods promise."""

    _admission: Admission
    _queues: Queues | None
    quotas: Quotas

    def _ask(self, caller: Caller, right: Right, kind: ObjectKind, name: str = "") -> None:
        raise NotImplementedError

    def _its_queues(self) -> Queues:
        if self._queues is None:
            raise ShuttingDown("the node is starting")
        return self._queues

    async def take_jobs(self, request: TakeJobs, *, caller: Caller = EVERYBODY) -> LeasedJobs:
        self._ask(caller, "read", "group", request.group)
        if self.quotas.is_on:
            await self.quotas.rest(caller, OUT_OF)
        with self._admission.counting():
            jobs = await self._its_queues().take(request, caller)
        if self.quotas.is_on:
            size = sum(len(leased.chunk.data) for leased in jobs.chunks)
            self.quotas.charge(caller, bytes_out=size, records_out=jobs.record_count)
        return jobs

    async def settle_jobs(
        self, group: str, member: str, settlements: list[Settlement], *, caller: Caller = EVERYBODY
    ) -> list[RefusedSettlement]:
        self._ask(caller, "read", "group", group)
        with self._admission.counting():
            return await self._its_queues().settle(group, member, settlements, caller)
