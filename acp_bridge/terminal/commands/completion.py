"""`acp-bridge completion`: prints a script by which a shell completes commands and options.

The library shtab makes the script from the parsers. This module adds what shtab can't do: the words
of the agent's command after `--`, the program's second name, and the ids of sessions.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from acp_bridge.terminal.cli import serving_parser
from acp_bridge.terminal.cli.commands import COMMANDS
from acp_bridge.terminal.cli.harmless import one_line
from acp_bridge.terminal.cli.options import data_folder
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import print_text
from acp_bridge.terminal.shared import known
from acp_bridge.terminal.shared.key_forms import KNOWN

_ABOUT: Final = """\
Print the script by which a shell completes the commands and options of acp-bridge, and after --
those of the agent. SHELL is bash, zsh or fish. Make it again after an upgrade."""
_EXAMPLES: Final = (
    "acp-bridge completion bash > ~/.local/share/bash-completion/completions/acp-bridge",
    "acp-bridge completion zsh > ~/.zfunc/_acp-bridge",
    "acp-bridge completion fish > ~/.config/fish/completions/acp-bridge.fish",
)
_AFTER: Final = """\
bash needs its package bash-completion for that folder; zsh needs 'fpath+=~/.zfunc' in .zshrc,
before its compinit.

exit code: 0 printed, 2 wrong usage."""

#: the argument with which the scripts call the command to list the ids of sessions.
_IDS: Final = "sessions"
_ASK: Final = f"command acp-bridge completion {_IDS} 2> /dev/null"
#: an id without characters that are special to a shell; agents choose ids.
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
#: what shtab is given to complete an id: the name of a shell function, for fish a command.
_SESSIONS: Final = {
    "bash": "_acp_bridge_sessions",
    "zsh": "_acp_bridge_sessions",
    "fish": f"({_ASK})",
}
#: the end of the first clause of an explanation, which is all that a shell shows.
_END: Final = re.compile(r"[;.:]\s|[;:.]$|\s\(")

_BASH: Final = f"""
_acp_bridge_sessions() {{
  if [[ $completing_word == -* ]]; then  # shtab's, as the next: a value that was left out
    compgen -W "${{current_option_strings[*]}}" -- "$completing_word"
    return
  fi
  compgen -W "$({_ASK} | cut -f 1)" -- "$1"
}}

_acp_bridge() {{
  local at word
  local -a typed=()
  for ((at = 1; at < COMP_CWORD; at++)); do
    if [[ ${{COMP_WORDS[at]}} == -- ]]; then
      _acp_bridge_agent $((at + 1))
      return
    fi
  done
  for word in "${{COMP_WORDS[@]:0:COMP_CWORD+1}}"; do  # bash makes a word of the = in --home=
    [[ $word == = ]] || typed+=("$word")
  done
  [[ $word != = ]] || typed+=('')
  local -a COMP_WORDS=("${{typed[@]}}")
  local COMP_CWORD=$((${{#typed[@]}} - 1))
  if ((COMP_CWORD > 1)) && [[ ${{COMP_WORDS[1]}} == -* ]]; then
    # A command stands first: what follows an option is none.
    local -a _shtab_acp_bridge_subparsers=() _shtab_acp_bridge_pos_0_choices=()
  fi
  _shtab_acp_bridge
}}

_acp_bridge_agent() {{
  if declare -F _command_offset > /dev/null; then
    _command_offset "$1"
  elif ((COMP_CWORD == $1)); then
    mapfile -t COMPREPLY < <(compgen -c -- "${{COMP_WORDS[COMP_CWORD]}}")
  else
    compopt -o filenames 2> /dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "${{COMP_WORDS[COMP_CWORD]}}")
  fi
}}

complete -F _acp_bridge acp-bridge acp-stdio-bridge
"""
_ZSH: Final = f"""
_acp_bridge_sessions() {{
  local -a sessions=(${{(f)"$({_ASK})"}})
  sessions=("${{(@)sessions/$'\\t'/:}}")
  _describe session sessions
}}

_acp_bridge() {{
  integer at=${{words[(i)--]}}
  if ((at < CURRENT)); then
    shift $at words
    ((CURRENT -= at))
    _normal
  else
    _shtab_acp_bridge "$@"
  fi
}}

typeset -A opt_args
if [[ $zsh_eval_context[-1] == (eval|file) ]]; then
  compdef _acp_bridge acp-bridge acp-stdio-bridge
else
  _acp_bridge "$@"
fi
"""
_FISH: Final = r"""
functions -e __acp_bridge_using
functions -c _shtab_acp_bridge_using __acp_bridge_using
function _shtab_acp_bridge_using -d 'the command that is being typed is this one'
    contains -- -- (commandline -opc); and return 1
    __acp_bridge_using $argv
end

function __acp_bridge_agent -d 'the words after -- are being typed'
    contains -- -- (commandline -opc)
end

function __acp_bridge_agent_words -d 'what completes those'
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words)
    set -l agent (string escape -- $words[(math $at + 1)..-1])
    test $at -eq (count $words); and set agent
    complete -C (string join ' ' -- $agent (commandline -ct))
end

complete -c acp-bridge -n __acp_bridge_agent -a '(__acp_bridge_agent_words)'
complete -c acp-stdio-bridge -w acp-bridge
"""


def main(arguments: Sequence[str]) -> int:
    """Run `acp-bridge completion`; returns the exit code.

    Raises SystemExit for wrong usage and for help.
    """
    if list(arguments) == [_IDS]:
        return print_text(_ids())
    given = parser().parse_args(arguments)
    return print_text(script(given.shell))


def parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge completion`."""
    parser = CommandParser("completion", "acp-bridge completion SHELL", _ABOUT, _EXAMPLES, _AFTER)
    parser.add_argument("shell", metavar="SHELL", choices=tuple(SHELLS))
    return parser


def script(shell: str) -> str:
    """Return the completion script for `bash`, `zsh` or `fish`."""
    import shtab

    return SHELLS[shell](shtab.complete(_everything(shell), shell))


def _in_zsh(script: str) -> str:
    """Return shtab's script for zsh, for both names of the program and with `_ZSH` at its end."""
    head, _, rest = script.partition("\n")
    functions = rest.partition("\ntypeset -A opt_args")[0]
    return f"{head} acp-stdio-bridge\n{functions}\n{_ZSH}"


SHELLS: Final[Mapping[str, Callable[[str], str]]] = {
    "bash": lambda script: f"{script}\n{_BASH}",
    "zsh": _in_zsh,
    "fish": lambda script: f"{script}\n{_FISH}",
}


def _everything(shell: str) -> argparse.ArgumentParser:
    """Return one parser of `acp-bridge` and all its commands, with what shtab needs for a shell."""
    whole = argparse.ArgumentParser(
        "acp-bridge", add_help=False, parents=[serving_parser.parser({})]
    )
    parsers = [whole]
    commands = whole.add_subparsers()
    for name, command in COMMANDS.items():
        parents, about = [command.parser()], command.about
        parsers.append(
            commands.add_parser(
                name, help=about, description=about, parents=parents, add_help=False
            )
        )
    for each in parsers:
        for action in each._actions:
            _explain(action, shell)
    return whole


def _explain(action: Any, shell: str) -> None:
    """Set the attributes of an argparse action by which shtab completes its value; cut its help."""
    import shtab

    words = action.metavar
    match words:
        case "FOLDER" | "FROM" | "TO":
            action.complete = shtab.DIRECTORY
        case "FILE":
            action.complete = shtab.FILE
        case "ID":
            action.complete = _SESSIONS
        case "PROVIDER":
            action.choices = [each.id for each in KNOWN]
        case str() if "|" in words:
            action.choices = words.split("|")
        case _ if not (action.option_strings or action.choices):
            action.help = argparse.SUPPRESS  # otherwise zsh shows its name and completes no option
    if action.help:
        end = _END.search(action.help)
        action.help = action.help[: end.start()] if end else action.help
    if shell == "zsh" and action.option_strings and action.nargs == "?":
        action.metavar = f":{words}"  # the colon tells zsh that the value is optional


def _ids() -> str:
    """Return a line for each recorded session: the short id, a tab, and its title or folder."""
    try:
        found = known.listing(data_folder(os.environ.get("ACP_BRIDGE_HOME")))
    except known.NotFound:
        return ""
    short = known.short_ids(info.session_id for info in found)
    return "".join(
        f"{short[info.session_id]}\t{one_line(info.title or info.cwd)}\n"
        for info in found
        if _PLAIN.fullmatch(info.session_id)
    )
