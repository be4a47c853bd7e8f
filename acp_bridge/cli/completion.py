"""`acp-bridge completion`: a script by which a shell completes commands and options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from acp_bridge.cli import complete_bash, complete_fish, complete_zsh
from acp_bridge.cli.described import Command, commands
from acp_bridge.cli.own_bridge import Parser
from acp_bridge.terminal.printing import print_text

SHELLS: Final[Mapping[str, Callable[[Sequence[Command]], str]]] = {
    "bash": complete_bash.script,
    "zsh": complete_zsh.script,
    "fish": complete_fish.script,
}

HELP: Final = """\
usage: acp-bridge completion SHELL

Print the script by which a shell completes the commands and options of acp-bridge, and after --
those of the agent. SHELL is bash, zsh or fish. Make it again after an upgrade.

  acp-bridge completion bash > ~/.local/share/bash-completion/completions/acp-bridge
  acp-bridge completion zsh > ~/.zfunc/_acp-bridge
  acp-bridge completion fish > ~/.config/fish/completions/acp-bridge.fish

  --help           show this

bash needs its package bash-completion for that folder; zsh needs 'fpath+=~/.zfunc' in .zshrc,
before its compinit.

exit code: 0 printed, 2 wrong usage.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code. Raises SystemExit for wrong usage and for help."""
    parser = Parser("completion", HELP)
    parser.add_argument("shell", metavar="SHELL", choices=tuple(SHELLS))
    given = parser.parse_args(list(arguments))
    return print_text(SHELLS[given.shell](commands()))
