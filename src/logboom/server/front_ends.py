"""The front-ends of a node: one line each.

Everything else that knows them goes by this table: the keys `listen.NAME` and the section `[NAME]` of the configuration
with their pages, the flags of `logboom serve`, the sockets, what a node says when it has started. The order is that of
all these. A test compares it with the folders in protocols/ and with the contract of the import linter.

A front-end is imported when it is made: whoever only asks for the configuration does not pay for its libraries.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Final

from logboom.protocols.endpoint import LOGD_PORT, PORT
from logboom.protocols.front_end import FrontEnd, FrontEndSettings, FrontEndSetup
from logboom.protocols.http.settings import HttpSettings
from logboom.protocols.logd.settings import LogdSettings


@dataclass(frozen=True, slots=True)
class FrontEndKind:
    name: str
    """Of its folder in protocols/, its key in [listen], and its section."""
    port: int
    """Unless the configuration says otherwise."""
    title: str
    """On the screen of a node that has started."""
    what: str
    """Its name in a sentence."""
    meaning: str
    """Of its section, or of itself: one line."""
    settings: type[FrontEndSettings] | None = None
    """Its section."""
    flag: str = ""
    """Of `logboom serve`, where that is not its name."""
    scheme: str = ""
    """With which its addresses are shown."""

    @property
    def option(self) -> str:
        """Of `logboom serve`, without the dashes."""
        return self.flag or self.name

    def make(self, setup: FrontEndSetup) -> FrontEnd:
        """In the event loop it will serve."""
        made: FrontEnd = import_module(f"logboom.protocols.{self.name}.front_end").make(setup)
        return made


FRONT_ENDS: Final = (
    FrontEndKind("binary", PORT, "binary", "the binary protocol", "The protocol of Logboom's clients.", flag="listen"),
    FrontEndKind("logd", LOGD_PORT, "logd", "the logd text protocol", "The logd text protocol.", LogdSettings),
    FrontEndKind("http", 1775, "HTTP", "HTTP", "HTTP with JSON.", HttpSettings, scheme="http://"),
)
