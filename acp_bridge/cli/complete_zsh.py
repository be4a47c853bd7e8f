"""The script that completes in zsh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from acp_bridge.cli.described import Command, Option

_SCRIPT: Final = r"""#compdef acp-bridge acp-stdio-bridge
# Completion of acp-bridge in zsh, made by 'acp-bridge completion zsh'.

_acp-bridge() {
  local -a subcommands options  # 'commands' is zsh's own, which what follows -- needs
  integer at=${words[(i)--]}
  if ((at < CURRENT)); then
    shift $at words
    ((CURRENT -= at))
    _normal
    return
  fi
  subcommands=(
@names@
  )
  if ((CURRENT > 2)); then
    case $words[2] in
@commands@
    esac
  fi
@serving@
  if ((CURRENT == 2)) && [[ $PREFIX != -* ]]; then
    _describe -t commands command subcommands
    return
  fi
  _arguments -S $options
}

if [[ $funcstack[1] == _acp-bridge ]]; then
  _acp-bridge "$@"
else
  compdef _acp-bridge acp-bridge acp-stdio-bridge
fi
"""
_ARM: Final = """\
      {name})
        shift words
        ((CURRENT -= 1))
{options}
        _arguments -S $options
        return
        ;;"""


def script(commands: Sequence[Command]) -> str:
    """Return the script."""
    serving, *others = commands
    names = "\n".join(f"    {_quoted(f'{each.name}:{each.about}')}" for each in others)
    arms = "\n".join(
        _ARM.format(name=each.name, options=_array(each, "        ")) for each in others
    )
    text = _SCRIPT.replace("@names@", names).replace("@commands@", arms)
    return text.replace("@serving@", _array(serving, "  "))


def _array(command: Command, indent: str) -> str:
    lines = "\n".join(f"{indent}  {_quoted(each)}" for each in _specs(command))
    return f"{indent}options=(\n{lines}\n{indent})"


def _specs(command: Command) -> Iterator[str]:
    """Give what `_arguments` takes for each option, and for the words."""
    for option in command.options:
        for name in option.names:
            yield f"{name}[{_plain(option.about)}]{_value(option)}"
    if command.words == ("FOLDER",):
        yield "1:folder:_files -/"
    elif command.words:
        yield f"1:word:({' '.join(command.words)})"


def _value(option: Option) -> str:
    if option.value is None:
        return ""
    colon = "::" if option.optional else ":"
    if option.choices:
        return f"{colon}value:({' '.join(option.choices)})"
    action = {"FOLDER": "_files -/", "FILE": "_files"}.get(option.value, " ")
    return f"{colon}{option.value.lower() or 'value'}:{action}"


def _plain(text: str) -> str:
    """Return a text without what has a meaning in a specification."""
    return text.replace("[", "(").replace("]", ")").replace(":", "")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
