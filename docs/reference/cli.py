"""Makes cli.md from the help texts: python docs/reference/cli.py"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from logboom.cli import app

PAGE = Path(__file__).with_suffix(".md")
FRONT = """\
# The command line

Every command prints the same with `--help`. Exit codes of all commands: 0 done and sound, 1 damage found or something
failed, 2 wrong usage or an error, 130 interrupted, 143 stopped by SIGTERM (`serve` and `pipeline serve` exit with 0
then). Results go to standard output; progress, questions and errors go to standard error. On a terminal tables are
aligned; elsewhere tabs separate their columns. `python docs/reference/cli.py` generates this page. A tour is in
[howto/command-line.md](../howto/command-line.md).
"""


def page() -> str:
    # The usage of a subcommand holds what this process was started as.
    sys.argv, before = ["logboom"], sys.argv
    try:
        made = app.generate_docs(output_format="markdown")
    finally:
        sys.argv = before
    overview, *sections = re.split(r"^(?=## logboom )", made, flags=re.MULTILINE)
    groups = overview[overview.index("**") :]
    return (
        "\n".join([FRONT, groups.rstrip(), "", *("\n".join(_section(section)) for section in sections)]).rstrip() + "\n"
    )


def _section(section: str) -> list[str]:
    """What cyclopts makes of a command, and the details and examples at the end of its help."""
    name = section.split()[2]
    details, _, examples = (app[name].help_epilogue or "").partition("Examples:\n")
    lines = [section.rstrip().replace("```console", "```"), ""]
    if details.strip():
        lines += [details.strip(), ""]
    if examples:
        lines += ["```shell", *(line.removeprefix("  ") for line in examples.rstrip().splitlines()), "```", ""]
    return lines


if __name__ == "__main__":
    PAGE.write_text(page())
