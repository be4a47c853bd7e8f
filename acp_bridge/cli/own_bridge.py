"""The bridge that a command starts for itself: its options, which are those of `acp-bridge`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, NoReturn

from acp_bridge.agents.identity import AgentIdentity
from acp_bridge.bridge_client.own_process import BRIDGE
from acp_bridge.cli import options
from acp_bridge.cli.help_text import fitted
from acp_bridge.settings import Settings
from acp_bridge.terminal.harmless import one_line
from acp_bridge.terminal.printing import columns, print_text

if TYPE_CHECKING:
    from acp_bridge.journal.records import SessionInfo

#: the options of the bridge that a command takes: those that always have a value, and not what
#: lets a bridge outlive its client.
_NAMES: Final = tuple(name for name in options.NAMES if name not in {*options.FLAGS, "keep"})


#: where the parsers go whose help is asked for, instead of it being printed.
_CAUGHT: ContextVar[list[Parser] | None] = ContextVar("_CAUGHT", default=None)


class Parser(argparse.ArgumentParser):
    """Reads the arguments of a command; what is wrong is said in one line, with exit code 2."""

    def __init__(self, command: str, help: str) -> None:
        super().__init__(prog=f"acp-bridge {command}", allow_abbrev=False)
        #: the name of the command.
        self.name = command
        self._help = help

    def format_help(self) -> str:
        """Return the help that a person wrote."""
        return self._help

    def print_help(self, file: IO[str] | None = None) -> None:  # type: ignore[override]
        """Print the help, or let the parser itself be looked at. Raises SystemExit: it is done."""
        if (caught := _CAUGHT.get()) is None:
            raise SystemExit(print_text(fitted(self._help, columns())))
        caught.append(self)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong; raises SystemExit."""
        options.fail(message, self.prog)


@contextmanager
def parsers_caught() -> Iterator[list[Parser]]:
    """Give a list that gets the parser of each command whose help is asked for in the body."""
    caught: list[Parser] = []
    token = _CAUGHT.set(caught)
    try:
        yield caught
    finally:
        _CAUGHT.reset(token)


@dataclass(frozen=True, slots=True)
class OwnBridge:
    """The command line of the bridge, and the settings that it will have."""

    command: tuple[str, ...]
    settings: Settings
    #: the user said which agent: with a command or by `--openhands`.
    agent_given: bool
    #: what its agent needs that an installation may lack, if it is one of ours.
    packages: Sequence[str]


def divided(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Return the arguments before `--` and the agent's command behind it; None without a `--`."""
    words, dashes, agent = options.split(arguments)
    return words, agent if dashes else None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Let a command take the options of `acp-bridge`."""
    for name in _NAMES:
        parser.add_argument(f"--{name}")
    for name in options.SWITCHES:
        parser.add_argument(f"--no-{name}", action="store_true")


def none_given(**given: str | None) -> dict[str, str | None]:
    """Return the options of the bridge by name, of which only these are given."""
    switches = {f"no_{name}": None for name in options.SWITCHES}
    return {name.replace("-", "_"): None for name in _NAMES} | switches | given


def own_bridge(
    given: argparse.Namespace, agent: Sequence[str] | None, env: Mapping[str, str] = os.environ
) -> OwnBridge:
    """Return the bridge that these options and the agent's command mean.

    Raises SystemExit: 2 after a message on stderr.
    """
    words: list[str] = []
    for name in _NAMES:
        if (value := getattr(given, name.replace("-", "_"))) is not None:
            words += [f"--{name}", value]
    words += [f"--no-{name}" for name in options.SWITCHES if getattr(given, f"no_{name}")]
    if agent is not None:
        words += ["--", *agent]
    parsed = options.parse(words, env)
    named = agent is not None or not parsed.settings.builtin
    return OwnBridge((*BRIDGE, *words), parsed.settings, named, parsed.packages)


def environment() -> dict[str, str]:
    """Return the environment of a bridge that ends with the command, whatever the user's says."""
    return {key: value for key, value in os.environ.items() if key != options.variable("keep")}


def not_its_agent(bridge: OwnBridge, info: SessionInfo) -> str | None:
    """Return why a session is none of this bridge's agent, if it is not."""
    settings = bridge.settings
    agent = AgentIdentity(settings.agent_name, settings.former_names)
    # What an agent says of itself is known only when it runs: its name may have changed.
    by_itself = bridge.agent_given and info.agent_info is not None
    if by_itself or agent.owns(info.agent, info.agent_info):
        return None
    hint = "" if bridge.agent_given else ": give its command after --"
    return f"session {info.session_id[:8]} is of the agent '{one_line(info.agent)}'{hint}"


def prompt_given(parser: Parser, prompt: str) -> str:
    """Return the prompt, which is read from stdin if it is `-`.

    Raises SystemExit if it is empty.
    """
    if prompt == "-":
        if sys.stdin is None:
            parser.error("there is no stdin to read the prompt from")
        prompt = sys.stdin.buffer.read().decode(errors="replace")
    if not prompt.strip():
        parser.error("the prompt is empty")
    return prompt
