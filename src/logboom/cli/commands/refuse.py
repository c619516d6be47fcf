"""`logboom refuse [TOPIC]`."""

from __future__ import annotations

from cyclopts import App

from logboom.cli.connection import ask
from logboom.cli.options import Server, Topic

DETAILS = """\
Writers get the reason as an error; reads continue. Lasts until `logboom accept`,
or until the node restarts.

Examples:
  logboom refuse events --reason "moved to the new cluster"
  logboom refuse
  logboom accept
"""
app = App(name="refuse", help_epilogue=DETAILS)


@app.default
def refuse(topic: Topic | None = None, /, *, reason: str = "", server: Server = None) -> None:
    """Take no more writes: of a topic, or of the whole node.

    Parameters
    ----------
    topic
        The topic; without one the whole node.
    reason
        The reason that writers get.
    """
    ask(server, lambda broker: broker.refuse(topic, reason))
    print(f"{topic or 'the node'} takes no writes")
