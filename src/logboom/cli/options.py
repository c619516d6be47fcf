"""Options that several commands have, spelt the same everywhere."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Json = Annotated[
    bool,
    Parameter(name="--json", negative="", show_default=False, help="JSON on standard output instead of text."),
]
Quiet = Annotated[bool, Parameter(name=["--quiet", "-q"], negative="", show_default=False)]
Server = Annotated[
    str | None,
    Parameter(
        name=["--server", "-s"],
        help="Where the node is: host:port, host, [::1]:port or unix:/path; several, separated by commas, are tried in "
        "turn. Default: $LOGBOOM_SERVERS, else localhost:1773.",
    ),
]
