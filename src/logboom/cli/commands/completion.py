"""`logboom completion SHELL`."""

from __future__ import annotations

import sys
from typing import Literal

from cyclopts import App

DETAILS = """\
Commands, options, and the names of topics, cursors and settings. Names come from
the node at --server or $LOGBOOM_SERVERS, if it answers within a second.

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
ZSH_ADD = "compadd -d _cyc_disp -a _cyc_vals"
ZSH_ADD_NO_SPACE = f"{{ [[ ${{_cyc_vals[1]}} == *= ]] && compadd -S '' -d _cyc_disp -a _cyc_vals || {ZSH_ADD}; }}"
"""All that is offered at once is settings, or none of it is."""
ZSH_START = """
# From a file _logboom in a directory of fpath zsh runs this to complete; in .zshrc it says who completes.
if [[ "${zsh_eval_context[-1]}" == loadautofunc ]]; then
  _cyclopts_logboom "$@"
else
  compdef _cyclopts_logboom logboom
fi
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

    script = logboom.generate_completion(prog_name="logboom", shell=shell)
    if shell == "bash":
        script += NO_SPACE
    elif shell == "zsh":
        script = script.replace(ZSH_ADD, ZSH_ADD_NO_SPACE) + ZSH_START
    sys.stdout.write(script)
