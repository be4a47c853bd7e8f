"""The bridge that a command starts for itself: its options, which are those of `acp-bridge`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from acp_bridge.cli import options
from acp_bridge.settings import Settings
from acp_bridge.terminal.process import BRIDGE


class Parser(argparse.ArgumentParser):
    """Reads the arguments of a command; what is wrong is said in one line, with exit code 2."""

    def __init__(self, command: str, help: str) -> None:
        super().__init__(prog=f"acp-bridge {command}", allow_abbrev=False)
        self._help = help

    def format_help(self) -> str:
        """Return the help that a person wrote."""
        return self._help

    def error(self, message: str) -> NoReturn:
        """Say what is wrong; raises SystemExit."""
        sys.stderr.write(f"{self.prog}: {message}\nTry '{self.prog} --help'.\n")
        raise SystemExit(2)


@dataclass(frozen=True, slots=True)
class OwnBridge:
    """The command line of the bridge, and the settings that it will have."""

    command: tuple[str, ...]
    settings: Settings
    #: the user said which agent: with a command or by `--openhands`.
    agent_given: bool


def divided(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Return the arguments before `--` and the agent's command behind it; None without a `--`."""
    words, dashes, agent = options.split(arguments)
    return words, agent if dashes else None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Let a command take the options of `acp-bridge`."""
    for name in options.NAMES:
        parser.add_argument(f"--{name}")


def own_bridge(
    given: argparse.Namespace, agent: Sequence[str] | None, env: Mapping[str, str] = os.environ
) -> OwnBridge:
    """Return the bridge that these options and the agent's command mean.

    Raises SystemExit: 2 after a message on stderr.
    """
    words: list[str] = []
    for name in options.NAMES:
        if (value := getattr(given, name.replace("-", "_"))) is not None:
            words += [f"--{name}", value]
    if agent is not None:
        words += ["--", *agent]
    parsed = options.parse(words, env)
    named = agent is not None or not parsed.settings.builtin
    return OwnBridge((*BRIDGE, *words), parsed.settings, named)
