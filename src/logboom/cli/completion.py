"""`logboom completion SHELL`."""

from __future__ import annotations

import sys
from typing import Literal

from cyclopts import App

DETAILS = """\
Examples:
  logboom completion bash > ~/.local/share/bash-completion/completions/logboom
  logboom completion zsh > ~/.zfunc/_logboom
  logboom completion fish > ~/.config/fish/completions/logboom.fish
"""
app = App(name="completion", help_epilogue=DETAILS)


@app.default
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script that completes commands and options in a shell.

    Parameters
    ----------
    shell
        Which shell it is for.
    """
    from logboom.cli import app as logboom

    sys.stdout.write(logboom.generate_completion(prog_name="logboom", shell=shell))
