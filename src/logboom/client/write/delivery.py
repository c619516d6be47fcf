"""Where one record went, for whoever wants to know before it goes on."""

from __future__ import annotations

import time
from concurrent.futures import Future

from logboom.client.write.driver import Driver
from logboom.client.write.gathered import Written
from logboom.errors import LogboomError


class Delivery(Future[Written]):
    """Where a record went, or the error that kept it from going there. It cannot be cancelled: it may be on its way.

    Whoever waits for the result drives the connection meanwhile, in its own thread.
    """

    def __init__(self, driver: Driver) -> None:
        super().__init__()
        self._driver = driver
        self._outcome: Written | LogboomError | None = None
        """The same as the future has, for those who look without its lock. It is set last."""

    def settle(self, outcome: Written | LogboomError) -> None:
        if isinstance(outcome, LogboomError):
            self.set_exception(outcome)
        else:
            self.set_result(outcome)
        self._outcome = outcome

    def done(self) -> bool:
        return self._outcome is not None or super().done()

    def result(self, timeout: float | None = None) -> Written:
        self._await(timeout)
        outcome = self._outcome
        return outcome if isinstance(outcome, Written) else super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._await(timeout)
        return super().exception(0)

    def cancel(self) -> bool:
        return False

    def _await(self, timeout: float | None) -> None:
        if not self.done():
            self._driver.drive(self.done, None if timeout is None else time.monotonic() + timeout, hasten=True)
