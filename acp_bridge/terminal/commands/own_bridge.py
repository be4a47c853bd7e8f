"""The bridge that a command starts for itself; the command takes the bridge's options."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from acp_bridge.core.agents.identity import AgentIdentity
from acp_bridge.core.settings import Settings
from acp_bridge.core.wire.jsonrpc import DEFAULT_LIMIT, encode
from acp_bridge.sharing.bridge_client.own_process import BRIDGE
from acp_bridge.terminal.cli import options
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.cli.harmless import one_line
from acp_bridge.terminal.cli.parser import Parser
from acp_bridge.terminal.cli.printing import fail
from acp_bridge.terminal.cli.serving_parser import OPTIONS, variable, words_of
from acp_bridge.terminal.shared import known
from acp_bridge.terminal.shared.stored import listed_in

if TYPE_CHECKING:
    from acp_bridge.core.journal.records import SessionInfo

#: the most bytes that a message with a prompt has beside the prompt.
_AROUND: Final = 1000
#: the bridge's options. Such a command takes all of them.
_OPTIONS: Final = tuple(OPTIONS.values())


@dataclass(frozen=True, slots=True)
class OwnBridge:
    """The command line of the bridge, and the settings that it results in."""

    command: tuple[str, ...]
    settings: Settings
    #: the user named the agent, by a command or by `--openhands`.
    agent_given: bool
    #: the packages that this project's agent imports and that may not be installed.
    packages: Sequence[str]
    #: the file of the bridge's log.
    log: Path

    @property
    def keeps(self) -> bool:
        """True if the bridge goes on with its work when the command has ended."""
        return self.settings.keep > 0

    def come_back(self, session: str) -> str:
        """Return the line that tells the user which command goes on with a session."""
        return f"{self._chat(session)} goes on with it"

    def work_goes_on(self, session: str) -> str:
        """Return the line about a session whose work the bridge goes on with (`--keep`)."""
        return f"The work goes on.\n{self._chat(session)} shows it"

    def _chat(self, session: str) -> str:
        words = ["acp-bridge", "chat", "--resume", session, *self.command[len(BRIDGE) :]]
        return shlex.join(words)


def add_options(parser: Parser, but: Collection[str] = ()) -> None:
    """Add the bridge's options to a command's parser, unlisted in its help.

    `but`: the names of options that the command defines itself.
    """
    unlisted = parser.add_argument_group()
    for option in _OPTIONS:
        if option.name not in but:
            option.add_to(unlisted, {})


def none_given(**given: str | None) -> dict[str, str | None]:
    """Return the values of the bridge's options by attribute: those `given`, the rest None."""
    return {option.attribute: None for option in _OPTIONS} | given


def any_given(given: argparse.Namespace) -> bool:
    """Return True if one of the bridge's options was given, other than the data folder."""
    return bool(words_of(given, [option for option in _OPTIONS if option.name != "home"]))


def own_bridge(
    given: argparse.Namespace, agent: Sequence[str] | None, env: Mapping[str, str] = os.environ
) -> OwnBridge:
    """Return the bridge for parsed options and the command `agent`, None if none was given.

    Raises SystemExit(2) after a message on stderr.
    """
    words = words_of(given, _OPTIONS)
    if agent is not None:
        words += ["--", *agent]
    parsed = options.parse(words, environment(env))
    named = agent is not None or not parsed.settings.builtin
    return OwnBridge((*BRIDGE, *words), parsed.settings, named, parsed.packages, parsed.log)


def environment(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return `env` without the variable of `--keep`: it is for editors.

    The bridge of a command outlives it only if the user gave that command `--keep`.
    """
    return {key: value for key, value in env.items() if key != variable("keep")}


def not_its_agent(bridge: OwnBridge, info: SessionInfo) -> str | None:
    """Return why a session is not of this bridge's agent; None if it is, or may be."""
    settings = bridge.settings
    agent = AgentIdentity(settings.agent_name, settings.former_names)
    # The name that an agent gives itself is known only when it runs.
    by_itself = bridge.agent_given and info.agent_info is not None
    if by_itself or agent.owns(info.agent, info.agent_info):
        return None
    hint = "" if bridge.agent_given else ": give its command after --"
    return f"session {info.session_id[:8]} is of the agent '{one_line(info.agent)}'{hint}"


def session_to_go_on(command: str, bridge: OwnBridge, given: str | None) -> SessionInfo:
    """Return the session whose id begins with `given`; None: the last one used in this folder.

    Raises SystemExit after a message on stderr.
    """
    settings = bridge.settings
    agent = AgentIdentity(settings.agent_name, settings.former_names)
    try:
        home = listed_in(settings.home, settings.journal)
        if given is not None:
            info = known.session(home, given)
        else:
            owner = agent if bridge.agent_given else None
            info = known.last_used(home, known.here(), owner)
    except known.NotFound as why:
        raise SystemExit(fail(command, why)) from None
    if (wrong := not_its_agent(bridge, info)) is not None:
        raise SystemExit(fail(command, wrong, Exit.USAGE))
    return info


def prompt_given(parser: Parser, prompt: str) -> str:
    """Return the prompt, read from stdin if it is `-`.

    Raises SystemExit if it is empty, or longer than a message may be.
    """
    if prompt == "-":
        if sys.stdin is None:
            parser.error("there is no stdin to read the prompt from")
        prompt = sys.stdin.buffer.read(DEFAULT_LIMIT + 1).decode(errors="replace")
    if not prompt.strip():
        parser.error("the prompt is empty")
    if len(prompt) > DEFAULT_LIMIT or len(encode({"text": prompt})) + _AROUND > DEFAULT_LIMIT:
        parser.error(
            f"the prompt is longer than {DEFAULT_LIMIT} bytes in JSON: name a file in it instead"
        )
    return prompt
