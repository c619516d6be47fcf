"""Carries out the steps of a `Fetcher` on a link of the running event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

from logboom.client.link.async_link import AsyncLink
from logboom.client.link.pushes import Pushes
from logboom.client.read.fetcher import Ask, Connect, Drop, LongWork, Next, Sleep, Subscribe
from logboom.errors import LogboomError


class AsyncSteps:
    _link: AsyncLink | None = None
    _pushes: Pushes | None = None

    async def _run(self, steps: Generator[Any, Any, Any]) -> Any:
        """Carry out the steps; what they lead to."""
        answer: Any = None
        error: LogboomError | None = None
        while True:
            try:
                step = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as stop:
                return stop.value
            answer = error = None
            try:
                answer = await self._do(step)
            except LogboomError as failure:
                error = failure

    async def _do(self, step: Any) -> Any:
        if isinstance(step, Next):
            assert self._pushes is not None
            try:
                async with asyncio.timeout(step.timeout_s):
                    return await self._pushes.next()
            except TimeoutError:
                return None
        if isinstance(step, Connect):
            self._link = await AsyncLink.connect(step.address)
            return None
        if isinstance(step, Sleep):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, Drop):
            return await self._drop(step.connection)
        if isinstance(step, LongWork):
            return await asyncio.to_thread(step.do)
        assert self._link is not None
        if isinstance(step, Ask):
            return await self._link.request(step.kind, step.head)
        assert isinstance(step, Subscribe)
        self._pushes = self._link.subscribe(step.request)
        return None

    async def _drop(self, connection: bool) -> None:
        if self._pushes is not None and not connection:
            await self._pushes.close()
        self._pushes = None
        if self._link is not None and connection:
            link, self._link = self._link, None
            await link.close()
