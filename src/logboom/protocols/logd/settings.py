"""The settings of the logd front-end."""

from __future__ import annotations

import msgspec


class LogdSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    shutdown: bool = False
    """Whether SHUTDOWN ends the node."""
