"""The script that completes in bash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from acp_bridge.cli.described import Command, Option

_SCRIPT: Final = r"""# Completion of acp-bridge in bash, made by 'acp-bridge completion bash'.

_acp_bridge() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
  local command='' kind='' values='' options='' words='' at
  COMPREPLY=()
  for ((at = 1; at < COMP_CWORD; at++)); do
    if [[ ${COMP_WORDS[at]} == -- ]]; then
      _acp_bridge_agent $((at + 1))
      return
    fi
  done
  if [[ $word == '=' ]]; then
    word=''
  elif [[ $before == '=' ]]; then
    before=${COMP_WORDS[COMP_CWORD-2]}
  fi
  if ((COMP_CWORD > 1)); then
    case ${COMP_WORDS[1]} in
      @names@) command=${COMP_WORDS[1]} ;;
    esac
  fi
  case "$command $before" in
@values@
  esac
  case $command in
@commands@
  esac
  case $kind in
    any) return ;;
    one) _acp_bridge_words "$values" "$word" ;;
    folder) _acp_bridge_paths -d "$word" ;;
    file) _acp_bridge_paths -f "$word" ;;
    *)
      if [[ $word == -* ]]; then
        _acp_bridge_words "$options" "$word"
      elif [[ $words == FOLDER ]]; then
        _acp_bridge_paths -d "$word"
      else
        _acp_bridge_words "$values $words" "$word"
      fi
      ;;
  esac
}

_acp_bridge_words() {
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2")
}

_acp_bridge_paths() {
  compopt -o filenames 2> /dev/null
  mapfile -t COMPREPLY < <(compgen "$1" -- "$2")
}

_acp_bridge_agent() {
  if declare -F _command_offset > /dev/null; then
    _command_offset "$1"
  elif ((COMP_CWORD == $1)); then
    mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
  else
    _acp_bridge_paths -f "${COMP_WORDS[COMP_CWORD]}"
  fi
}

complete -F _acp_bridge acp-bridge acp-stdio-bridge
"""


def script(commands: Sequence[Command]) -> str:
    """Return the script."""
    names = [command.name for command in commands if command.name]
    arms = "\n".join(_arm(command, names) for command in commands)
    values = "\n".join(_values(commands))
    text = _SCRIPT.replace("@names@", "|".join(names)).replace("@values@", values)
    return text.replace("@commands@", arms)


def _arm(command: Command, names: Sequence[str]) -> str:
    options = [name for option in command.options for name in option.names]
    options += ["--"] if command.agent else []
    words = " ".join(command.words)
    if not command.name:
        words = f"'; ((COMP_CWORD > 1)) || words='{' '.join(names)}"
    return f"    '{command.name}') options='{' '.join(options)}' words='{words}' ;;"


def _values(commands: Sequence[Command]) -> Iterator[str]:
    """Give a line for each option of each command that takes a value."""
    for command in commands:
        for option in command.options:
            if option.value is not None:
                places = "|".join(f"'{command.name} {name}'" for name in option.names)
                yield f"    {places}) {_kind(option)} ;;"


def _kind(option: Option) -> str:
    choices = f"values='{' '.join(option.choices)}'"
    if option.optional:
        return choices
    if option.choices:
        return f"kind=one {choices}"
    return f"kind={option.value.lower() if option.value in ('FOLDER', 'FILE') else 'any'}"
