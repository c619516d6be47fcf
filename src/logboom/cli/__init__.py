"""The `logboom` command: one file per command, imported when it is called, so that `--help` stays quick.

Exit codes of every command: 0 done and sound, 1 damage found or something failed, 2 wrong usage or an error, 130
interrupted (upkeep also 143 and 129, when told to end). What is asked for goes to standard output; progress, questions
and errors go to standard error.
"""

from __future__ import annotations

import os
import sys

from cyclopts import App, CycloptsError

from logboom import __version__
from logboom.errors import LogboomError

USAGE = 2
INTERRUPTED = 130

app = App(
    name="logboom",
    help="A commit log for Python and Spark.",
    version=__version__,
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)
app.command("logboom.cli.check:app", name="check", help="Is everything in a directory as it was written?")
app.command("logboom.cli.doctor:app", name="doctor", help="What is wrong in a data directory, and what to do?")
app.command("logboom.cli.repair:app", name="repair", help="Mend what a check finds.")
app.command("logboom.cli.upkeep:app", name="upkeep", help="Drop, recompress and scrub what is due.")
app.command("logboom.cli.dump:app", name="dump", help="Write logs as one portable stream.")
app.command("logboom.cli.load:app", name="load", help="Make logs of a dump again.")


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; returns the exit code."""
    try:
        code = app(arguments, exit_on_error=False)
        sys.stdout.flush()
    except CycloptsError:
        return USAGE
    except KeyboardInterrupt:
        print("logboom: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return USAGE
    except PermissionError as error:
        print(f"logboom: {error.filename}: {error.strerror}: run as the user that owns it", file=sys.stderr)
        return USAGE
    except (LogboomError, OSError) as error:
        print(f"logboom: {error}", file=sys.stderr)
        return USAGE
    return code if isinstance(code, int) else 0
