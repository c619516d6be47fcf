"""The settings of the logd front-end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from logboom.protocols.front_end import FrontEndSettings


class LogdSettings(FrontEndSettings, frozen=True):
    section: ClassVar[str] = "logd"
    meanings: ClassVar[Mapping[str, str]] = {
        "shutdown": "Whether a SHUTDOWN from any client that may manage the node stops it.",
    }
    shutdown: bool = False
