"""`logboom accept [TOPIC]`."""

from __future__ import annotations

from cyclopts import App

from logboom.cli.connection import ask
from logboom.cli.options import Server, Topic

DETAILS = """\
A topic that was made read-only by name needs its name here too.

Examples:
  logboom accept events
  logboom accept
"""
app = App(name="accept", help_epilogue=DETAILS)


@app.default
def accept(topic: Topic | None = None, /, *, server: Server = None) -> None:
    """Take writes again, after `logboom refuse`.

    Parameters
    ----------
    topic
        The topic; without one the whole node.
    """
    ask(server, lambda broker: broker.accept(topic))
    print(f"{topic or 'the node'} takes writes")
