"""`logboom completion SHELL`."""

from __future__ import annotations

import sys
from typing import Literal

from cyclopts import App

DETAILS = """\
Commands, options, and the names of topics, cursors and settings. Names come from
the node that --server or $LOGBOOM_SERVERS names, where it answers within a
second.

Examples:
  logboom completion bash > ~/.local/share/bash-completion/completions/logboom
  logboom completion zsh > ~/.zfunc/_logboom
  logboom completion fish > ~/.config/fish/completions/logboom.fish
"""
NO_SPACE = """
# Behind the = of a setting comes its value, not a space.
_logboom_complete() {
  _logboom "$@"
  [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == *= ]] && compopt -o nospace 2>/dev/null
  return 0
}
complete -F _logboom_complete logboom
"""
app = App(name="completion", help_epilogue=DETAILS)


@app.default
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script that completes commands, options and names in a shell.

    Parameters
    ----------
    shell
        Which shell it is for.
    """
    from logboom.cli import app as logboom

    sys.stdout.write(logboom.generate_completion(prog_name="logboom", shell=shell))
    if shell == "bash":
        sys.stdout.write(NO_SPACE)
