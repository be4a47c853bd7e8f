"""The script that completes in fish."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from acp_bridge.cli.described import Command, Option

_SCRIPT: Final = r"""# Completion of acp-bridge in fish, made by 'acp-bridge completion fish'.

function __acp_bridge_in -d 'the command that is being typed is this one'
    set -l words (commandline -opc)
    contains -- -- $words; and return 1
    set -l command ''
    contains -- "$words[2]" @names@; and set command $words[2]
    test "$command" = "$argv[1]"
end

function __acp_bridge_first -d 'nothing but acp-bridge stands there'
    test (count (commandline -opc)) -eq 1
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

for name in acp-bridge acp-stdio-bridge
    complete -c $name -e
    complete -c $name -f
    complete -c $name -n __acp_bridge_agent -a '(__acp_bridge_agent_words)'
@lines@
end
"""


def script(commands: Sequence[Command]) -> str:
    """Return the script."""
    names = " ".join(each.name for each in commands if each.name)
    lines = "\n".join(f"    complete -c $name {line}" for line in _lines(commands))
    return _SCRIPT.replace("@names@", names).replace("@lines@", lines)


def _lines(commands: Sequence[Command]) -> Iterator[str]:
    for command in commands:
        if command.name:
            about = _quoted(command.about)
            yield f"-n __acp_bridge_first -a {command.name} -d {about}"
        place = f"-n '__acp_bridge_in \"{command.name}\"'"
        for option in command.options:
            yield f"{place} {_option(option)}"
        if command.words == ("FOLDER",):
            yield f"{place} -a '(__fish_complete_directories)'"
        elif command.words:
            yield f"{place} -a {_quoted(' '.join(command.words))}"


def _option(option: Option) -> str:
    names = [
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
    ]
    value = ""
    if option.value is not None and not option.optional:
        choices = _quoted(" ".join(option.choices))
        folders = "-x -a '(__fish_complete_directories)'"
        value = " " + {"FOLDER": folders, "FILE": "-r -F"}.get(option.value, f"-x -a {choices}")
    return f"{' '.join(names)}{value} -d {_quoted(option.about)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
