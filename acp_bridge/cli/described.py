"""The commands with their options, as their own parsers have them, and what the help says of each.

Nothing is run for it: each command is asked for its help, and its parser is caught at that.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from acp_bridge import cli
from acp_bridge.cli import options
from acp_bridge.cli.help import HELP
from acp_bridge.cli.help_text import Entry, parts_of, usage_of
from acp_bridge.cli.own_bridge import Parser, parsers_caught

_OPTION: Final = re.compile(r"(-[\w-]+(?:, -[\w-]+)*)(?: (\S+))?")
#: where the first words of an explanation end.
_END: Final = re.compile(r"[;.:] |[;:.]$| \(")


@dataclass(frozen=True, slots=True)
class Option:
    """An option with its names, and its value, if it takes one."""

    names: tuple[str, ...]
    about: str
    #: None without a value, else its name in the help, such as FOLDER or queue|interrupt.
    value: str | None
    #: the value may be left out.
    optional: bool = False

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the values that there are; empty where there are many."""
        return tuple(self.value.split("|")) if self.value and "|" in self.value else ()


@dataclass(frozen=True, slots=True)
class Command:
    """A command; serving has an empty name."""

    name: str
    about: str
    options: tuple[Option, ...]
    #: what may stand as its first argument; FOLDER alone means any.
    words: tuple[str, ...]
    #: an agent's command may follow after --.
    agent: bool
    help: str


def commands() -> list[Command]:
    """Return serving and every command, in the order of the table of commands."""
    explained = _explained(HELP)
    about = _about_commands(HELP)
    serving = Command(
        "", "", tuple(_options(options.parser({}), explained)), (), _takes_agent(HELP), HELP
    )
    found = [serving]
    for name in cli.COMMANDS:
        parser = _parser_of(name)
        help = parser.format_help()
        own = {**explained, **_explained(help)}
        found.append(
            Command(
                name,
                about.get(name, ""),
                tuple(_options(parser, own)),
                tuple(_words(parser)),
                _takes_agent(help),
                help,
            )
        )
    return found


def _parser_of(name: str) -> Parser:
    with parsers_caught() as caught:
        cli.run([name, "--help"])
    (parser,) = caught
    return parser


def _takes_agent(help: str) -> bool:
    return any("-- COMMAND" in line for line in usage_of(help))


def _explained(help: str) -> Mapping[str, Option]:
    """Return what a help text says of each option, by its names."""
    found: dict[str, Option] = {}
    for part in parts_of(help):
        if isinstance(part, Entry) and (match := _OPTION.fullmatch(part.name)):
            value = match[2].strip("[]") if match[2] else None
            option = Option(tuple(match[1].split(", ")), _first_words(part.text), value)
            found |= dict.fromkeys(option.names, option)
    return found


def _about_commands(help: str) -> Mapping[str, str]:
    """Return what the help says of each command."""
    entries = [part for part in parts_of(help) if isinstance(part, Entry)]
    return {
        name: entry.text
        for entry in entries
        if entry.name.startswith("acp-bridge ")
        for name in entry.name.split()[1].split("|")
    }


def _first_words(text: str) -> str:
    end = _END.search(text)
    return text[: end.start()] if end else text


def _options(parser: argparse.ArgumentParser, explained: Mapping[str, Option]) -> Iterator[Option]:
    for action in parser._actions:  # argparse has no other way to look at them
        if not action.option_strings:
            continue
        names = tuple(action.option_strings)
        said = next((explained[name] for name in names if name in explained), None)
        said = said or Option(names, "", action.metavar if isinstance(action.metavar, str) else "")
        value = (said.value or "") if action.nargs != 0 else None
        yield replace(said, names=names, value=value, optional=action.nargs == "?")


def _words(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if not action.option_strings:
            if action.choices:
                yield from map(str, action.choices)
            elif action.metavar == "FOLDER":
                yield "FOLDER"
            return
