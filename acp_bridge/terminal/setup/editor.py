"""What all editors share: the command line to start, and a description of one editor."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acp_bridge.core.protocol import Json

#: the name of the built-in agent's entry in settings.
NAME: Final = "acp-bridge"


@dataclass(frozen=True, slots=True)
class Launch:
    """The command line that an editor is to start."""

    #: the path of acp-bridge, or its name.
    program: str
    args: tuple[str, ...] = ()
    #: the name of the agent that the bridge starts; None for the built-in one.
    agent: str | None = None

    @property
    def name(self) -> str:
        """The name under which a person finds the agent in the editor."""
        return f"{self.agent}, bridged" if self.agent else NAME

    @property
    def words(self) -> tuple[str, ...]:
        """The whole command line."""
        return (self.program, *self.args)

    def identifier(self, separator: str) -> str:
        """Return the entry's name in lower-case ASCII letters and digits, joined by `separator`."""
        words = f"{NAME} {self.agent}" if self.agent else NAME
        marks = "".join(each if each.isascii() and each.isalnum() else " " for each in words)
        return separator.join(marks.lower().split())


@dataclass(frozen=True, slots=True)
class Entry:
    """A member of a JSON settings file, with its value."""

    #: the names of the members that lead to the entry, the outermost first.
    path: tuple[str, ...]
    value: Json
    #: members of an older form, which can't stand beside those of `value` and are removed.
    instead_of: frozenset[str] = frozenset()

    def document(self) -> Json:
        """Return a settings file that has this entry and nothing else."""
        document = self.value
        for name in reversed(self.path):
            document = {name: document}
        return document


@dataclass(frozen=True, slots=True)
class Editor:
    """A description of one editor: how it is set up to start acp-bridge."""

    #: the editor's own name.
    title: str
    #: makes the text to paste.
    snippet: Callable[[Launch], str]
    #: makes the settings file's path from the environment; returns None for text for a terminal.
    file: Callable[[Mapping[str, str]], str | None]
    #: makes the sentence about what to do in the editor then.
    then: Callable[[Launch], str]
    #: makes the entry of the settings file, if that is JSON.
    entry: Callable[[Launch], Entry] | None = None
    #: why `--write` is not possible; "" if it is.
    why_not: str = ""
    #: a note for a settings file that exists already.
    beside: str = ""


def in_home(env: Mapping[str, str], *parts: str) -> str:
    """Return a path below the user's home folder."""
    return str(Path(env.get("HOME") or os.path.expanduser("~")).joinpath(*parts))


def in_config(env: Mapping[str, str], *parts: str) -> str:
    """Return a path below the user's configuration folder (XDG_CONFIG_HOME, else ~/.config)."""
    folder = env.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(folder):  # the XDG rules: ignore a relative path
        return in_home(env, ".config", *parts)
    return str(Path(folder).joinpath(*parts))
