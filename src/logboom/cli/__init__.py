"""The `logboom` command: one file per command, imported when it is called, so that `--help` stays quick.

Exit codes of every command: 0 done and sound, 1 damage found or something failed, 2 wrong usage or an error, 130
interrupted, 141 whoever read the output has gone, 143 ended by SIGTERM (upkeep also 129, by SIGHUP; what serves ends
with 0). What is asked for goes to standard output; progress, questions and errors go to standard error.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from cyclopts import App, CycloptsError, Group

from logboom import __version__
from logboom.cli.show.terminal import guard, name_streams
from logboom.cli.signals import ending_as_interrupted
from logboom.errors import LogboomError, SignInRequired

USAGE = 2
INTERRUPTED = 130
PIPE_CLOSED = 141
SIGN_IN = "set LOGBOOM_USER and LOGBOOM_PASSWORD, or LOGBOOM_TOKEN, or name a profile with --profile"

_COMMANDS = {
    Group("Start here", sort_key=0): {
        "serve": "Run a node.",
        "topic": "Create, list, describe, set, trim and delete topics.",
        "write": "Write records.",
        "read": "Read records.",
    },
    Group("Inspect and control", sort_key=1): {
        "head": "Show where a topic's logs begin and end.",
        "sql": "Query topics with SQL.",
        "pipeline": "Run checkpoints, archives, checks and reports on Spark.",
        "cursor": "List, show, set and delete cursors.",
        "group": "List, describe, reset and delete groups of consumers.",
        "stage": "List and discard stages; list and forget publish keys.",
        "top": "Watch a node in the terminal: rates, latencies, health, topics.",
        "stats": "Show a node's counters and state.",
        "refuse": "Make a topic, or the whole node, read-only.",
        "accept": "Allow writes again after `logboom refuse`.",
        "promote": "Turn a replica into a node that takes writes.",
        "ping": "Check that a node answers, and how fast.",
        "bench": "Measure a node's throughput and latency percentiles.",
        "config": "Show, check and explain a node's configuration.",
        "completion": "Print a script that completes commands, options and names in a shell.",
    },
    Group("Who may do what", sort_key=2): {
        "user": "Add, change, remove and list users.",
        "token": "Create, list and revoke tokens.",
        "acl": "Allow, deny, list, remove and explain rules.",
        "role": "Set and list who has a role.",
        "quota": "Set, list, show and remove quotas of users and groups.",
        "whoami": "Show who you are to a node, and how it knows.",
        "cert": "Make certificates for TLS, and show them.",
    },
    Group("Data directories", sort_key=3): {
        "doctor": "Find problems of a node or a data directory, and say what to do.",
        "check": "Verify every byte of a data directory.",
        "repair": "Repair damage that a check found.",
        "upkeep": "Run retention, recompression and scrub on a stopped node's directory.",
        "dump": "Export logs as one portable stream.",
        "load": "Import logs from a dump.",
    },
}
app = App(
    name="logboom",
    help="A commit log for Python and Spark.",
    version=__version__,
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)
for _group, _commands in _COMMANDS.items():
    for _order, (_name, _help) in enumerate(_commands.items()):
        app.command(f"logboom.cli.commands.{_name}:app", name=_name, help=_help, group=_group, sort_key=_order)
app["--help"].group = app["--version"].group = (Group("Options", sort_key=len(_COMMANDS)),)


def main() -> None:
    _fill_descriptors()
    name_streams()
    guard()
    with ending_as_interrupted() as ended:
        code = run(sys.argv[1:])
    sys.exit((ended() or code) if code == INTERRUPTED else code)


def _fill_descriptors() -> None:
    """Where a standard stream is closed, the next file opened would get its number, and what is said would go there."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  as long as the process
        try:
            os.fstat(number)
        except OSError:
            os.dup2(getattr(sys, name).fileno(), number)


def run(arguments: list[str]) -> int:
    """Run one command; returns the exit code."""
    try:
        code = app(arguments, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except CycloptsError as error:
        command = " ".join(("logboom", *(error.command_chain or ())))
        return _fail(f"{str(error).strip()}\nlogboom: `{command} --help` lists the commands and options")
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        return PIPE_CLOSED
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # so rich says it
            return PIPE_CLOSED
        raise
    except PermissionError as error:
        return _fail(f"{_place_of(error)}{error.strerror}: run as the user that owns it")
    except OSError as error:
        return _fail(f"{_place_of(error)}{error.strerror or error}")
    except SignInRequired as error:
        return _fail(f"{error}; {SIGN_IN}")
    except LogboomError as error:
        return _fail(str(error))
    finally:
        _give_up_stuck()
    return code if isinstance(code, int) else 0


def _fail(text: str, code: int = USAGE) -> int:
    """Say it, where anybody can hear it."""
    with suppress(OSError):
        print(f"logboom: {text}", file=sys.stderr, flush=True)
    return code


def _place_of(error: OSError) -> str:
    if isinstance(error.filename, (str, os.PathLike)):
        return f"{os.fspath(error.filename)}: "
    return ""


def _give_up_stuck() -> None:
    """What could not be written is not tried again at the end of the process, which would be another error."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())
