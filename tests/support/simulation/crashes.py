"""The machine goes, or a call of its disk fails, anywhere in a story: what publishes of every kind are tried with."""

from __future__ import annotations

import errno
from typing import Final

from logboom.broker.config import BrokerConfig
from logboom.broker.local import LocalBroker
from support.disks.simulated import Call, PowerLoss, SimulatedDisk
from support.simulation.staged import Log, Machine, Story

LOGS: Final[list[Log]] = [("a", 0), ("a", 1), ("b", 0)]
CONFIG: Final = BrokerConfig(reserve_bytes=0)
FAULTS: Final[dict[str, tuple[str, int | None]]] = {
    "full": ("write", None),
    "write": ("write", None),
    "short": ("write", 60),
    "sync": ("sync", None),
    "directory": ("sync_directory", None),
    "create": ("create", None),
    "truncate": ("truncate", None),
    "unlink": ("unlink", None),
    "link": ("link", None),
    "rename": ("rename", None),
}
"""The call that fails; where it is short instead, how much of it is done, in percent."""


def break_off(disk: SimulatedDisk, story: Story, at: int) -> bool:
    """Run it until the machine dies at this call of the disk; whether there was such a call."""

    def fault(call: Call) -> None:
        if call.number >= at:
            raise PowerLoss

    machine = Machine(disk, fault)
    machine.run(story, CONFIG, cut=True)
    return machine.died


def fail_once(disk: SimulatedDisk, story: Story, kind: str, at: int) -> bool:
    """Run it where this one of the calls that can fail so does; whether there were so many.

    None fails while the broker opens. Every other time the broker is left without closing, as by a kill.
    """
    met: list[Call] = []
    armed = False

    def fault(call: Call) -> int | None:
        name, percent = FAULTS[kind]
        if not armed or call.name != name:
            return None
        met.append(call)
        if len(met) != at:
            return None
        if percent is not None:
            return call.size * percent // 100
        raise OSError(errno.ENOSPC if kind == "full" else errno.EIO, kind, call.path)

    async def after_opening(broker: LocalBroker) -> None:
        nonlocal armed
        armed = True
        await story(broker)

    Machine(disk, fault).run(after_opening, CONFIG, cut=bool(at % 2))
    return len(met) >= at


async def do_nothing(broker: LocalBroker) -> None:
    """A story of a machine that starts, and finishes what it finds."""
