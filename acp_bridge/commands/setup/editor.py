"""What is the same for all editors: the command that one starts, and how it is told to."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acp_bridge.protocol import Json

#: the name of the built-in agent's entry.
NAME: Final = "acp-bridge"


@dataclass(frozen=True, slots=True)
class Launch:
    """The command that an editor is to start."""

    #: the path of acp-bridge, or its name.
    program: str
    args: tuple[str, ...] = ()
    #: the name of the agent behind it; None for the built-in one.
    agent: str | None = None

    @property
    def name(self) -> str:
        """Return the name under which a person finds it in the editor."""
        return f"{self.agent}, bridged" if self.agent else NAME

    @property
    def words(self) -> tuple[str, ...]:
        """Return the whole command line."""
        return (self.program, *self.args)

    def identifier(self, separator: str) -> str:
        """Return a name of ASCII letters, digits and this separator."""
        words = f"{NAME} {self.agent}" if self.agent else NAME
        marks = "".join(each if each.isascii() and each.isalnum() else " " for each in words)
        return separator.join(marks.lower().split())


@dataclass(frozen=True, slots=True)
class Entry:
    """A place in a settings file of JSON, and what stands there."""

    #: the names of the members that lead to it, from the outermost on.
    path: tuple[str, ...]
    value: Json
    #: members that can't stand beside these: an older form of the same.
    instead_of: frozenset[str] = frozenset()

    def document(self) -> Json:
        """Return a settings file that has nothing but this entry."""
        document = self.value
        for name in reversed(self.path):
            document = {name: document}
        return document


@dataclass(frozen=True, slots=True)
class Editor:
    """How one editor is told to start acp-bridge."""

    #: what it calls itself.
    title: str
    #: makes what is pasted.
    snippet: Callable[[Launch], str]
    #: makes the path of the file where that goes, from the environment; None for a terminal.
    file: Callable[[Mapping[str, str]], str | None]
    #: makes what the person does in the editor then.
    then: Callable[[Launch], str]
    #: makes the entry of that file, where it is JSON.
    entry: Callable[[Launch], Entry] | None = None
    #: why `--write` can't be had; it is empty if it can.
    why_not: str = ""
    #: what to heed where the file is there already.
    beside: str = ""


def in_home(env: Mapping[str, str], *parts: str) -> str:
    """Return a path in the user's home."""
    return str(Path(env.get("HOME") or os.path.expanduser("~")).joinpath(*parts))


def in_config(env: Mapping[str, str], *parts: str) -> str:
    """Return a path in the user's folder of settings, as the XDG rules have it."""
    folder = env.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(folder):  # the rules: a relative one is not to be followed
        return in_home(env, ".config", *parts)
    return str(Path(folder).joinpath(*parts))
