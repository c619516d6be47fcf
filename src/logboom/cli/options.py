"""Options that several commands have, spelt the same everywhere."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from logboom.cli.names import complete_cursors, complete_topic_settings, complete_topics

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
Topic = Annotated[str, Parameter(completer=complete_topics)]
"""A topic that is there; or one of its logs, as topic/partition."""
Cursor = Annotated[str, Parameter(completer=complete_cursors)]
Change = Annotated[str, Parameter(completer=complete_topic_settings)]
"""KEY=VALUE, of a topic."""
