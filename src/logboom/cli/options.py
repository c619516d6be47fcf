"""Options that several commands have, spelt the same everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token

from logboom.cli.names import (
    complete_cursors,
    complete_groups,
    complete_topic_settings,
    complete_topics,
    complete_users,
)

PROFILE = "--profile"


def read_server(_: Any, tokens: Sequence[Token]) -> str:
    """A profile takes the place of servers, as @NAME."""
    token = tokens[0]
    return f"@{token.value}" if token.keyword == PROFILE else token.value


Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Json = Annotated[
    bool,
    Parameter(name="--json", negative="", show_default=False, help="JSON on standard output instead of text."),
]
Quiet = Annotated[bool, Parameter(name=["--quiet", "-q"], negative="", show_default=False)]
Server = Annotated[
    str | None,
    Parameter(
        name=["--server", "-s", PROFILE],
        converter=read_server,
        help="Where the node is: host:port, host, [::1]:port, tls://host:port or unix:/path; several, separated by "
        "commas, are tried in turn. A profile, --profile NAME or @NAME, says also who you are there. Default: "
        "$LOGBOOM_PROFILE, else $LOGBOOM_SERVERS, else localhost:1773.",
    ),
]
Data = Annotated[
    Path | None,
    Parameter(
        help="The node's data directory, on its own machine, instead of --server: whoever runs the node may do "
        "everything, whether it runs or not."
    ),
]
User = Annotated[str, Parameter(completer=complete_users)]
"""One that is there."""
Topic = Annotated[str, Parameter(completer=complete_topics)]
"""A topic that is there; or one of its logs, as topic/partition."""
Cursor = Annotated[str, Parameter(completer=complete_cursors)]
Group = Annotated[str, Parameter(completer=complete_groups)]
"""A group that is there."""
Change = Annotated[str, Parameter(completer=complete_topic_settings)]
"""KEY=VALUE, of a topic."""
