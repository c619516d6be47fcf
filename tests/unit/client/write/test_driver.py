"""The thread that looks after a writer's socket while nobody waits."""

from __future__ import annotations

import threading
from typing import Any

from logboom.client.write.driver import Driver
from logboom.client.write.options import WriterOptions
from logboom.client.write.writer_core import WriterCore
from logboom.errors import LocalProtocolError

PATIENCE_S = 60.0


class ClosedMeanwhile(Driver):
    """Somebody closes the writer when its thread has just seen that it is open."""

    def tend(self) -> tuple[float, Any]:
        with self.lock:
            self.core.contact.fatal = LocalProtocolError("the writer is closed")
            self.close()
        return super().tend()


def test_a_writer_closed_while_its_thread_wakes_up_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    driver = ClosedMeanwhile(WriterCore("events", WriterOptions()), [], None)
    driver.start()
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
