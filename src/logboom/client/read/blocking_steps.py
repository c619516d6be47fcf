"""Carries out the steps of a `Fetcher` on a blocking link, in the thread that asks for them."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from logboom.client.link.blocking_link import BlockingLink, LinkPushes
from logboom.client.read.fetcher import Ask, Connect, Drop, LongWork, Next, Sleep, Subscribe
from logboom.errors import LogboomError


class BlockingSteps:
    _link: BlockingLink | None = None
    _pushes: LinkPushes | None = None

    def _run(self, steps: Generator[Any, Any, Any]) -> Any:
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
                answer = self._do(step)
            except LogboomError as failure:
                error = failure

    def _do(self, step: Any) -> Any:
        if isinstance(step, Next):
            assert self._pushes is not None
            return self._pushes.next(step.timeout_s)
        if isinstance(step, Connect):
            self._link = BlockingLink.connect(step.address)
            return None
        if isinstance(step, Sleep):
            return time.sleep(step.seconds)
        if isinstance(step, Drop):
            return self._drop(step.connection)
        if isinstance(step, LongWork):
            return step.do()
        assert self._link is not None
        if isinstance(step, Ask):
            return self._link.ask(step.kind, step.head)
        assert isinstance(step, Subscribe)
        self._pushes = self._link.subscribe(step.request)
        return None

    def _drop(self, connection: bool) -> None:
        if self._pushes is not None and not connection:
            self._pushes.close()
        self._pushes = None
        if self._link is not None and connection:
            self._link.close()
            self._link = None
