"""The bridge that a command starts for itself: its options, which are those of `acp-bridge`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from acp_bridge.agents.identity import AgentIdentity
from acp_bridge.bridge_client.own_process import BRIDGE
from acp_bridge.cli import options
from acp_bridge.cli.exits import Exit
from acp_bridge.cli.harmless import one_line
from acp_bridge.cli.parser import Parser
from acp_bridge.cli.printing import fail
from acp_bridge.cli.serving_parser import OPTIONS, variable, words_of
from acp_bridge.commands.terminal import known
from acp_bridge.settings import Settings
from acp_bridge.wire.jsonrpc import DEFAULT_LIMIT

if TYPE_CHECKING:
    from acp_bridge.journal.records import SessionInfo

#: the options of the bridge that a command takes: those that always have a value, and not what
#: lets a bridge outlive its client.
_OPTIONS: Final = [
    option for option in OPTIONS.values() if not option.optional and option.name != "keep"
]


@dataclass(frozen=True, slots=True)
class OwnBridge:
    """The command line of the bridge, and the settings that it will have."""

    command: tuple[str, ...]
    settings: Settings
    #: the user said which agent: with a command or by `--openhands`.
    agent_given: bool
    #: what its agent needs that an installation may lack, if it is one of ours.
    packages: Sequence[str]


def add_options(parser: Parser, but: Collection[str] = ()) -> None:
    """Let a command take the options of `acp-bridge`, which its help doesn't list.

    `but`: the names of those that it has itself.
    """
    unlisted = parser.add_argument_group()
    for option in _OPTIONS:
        if option.name not in but:
            option.add_to(unlisted, {})


def none_given(**given: str | None) -> dict[str, str | None]:
    """Return the options of the bridge by name, of which only these are given."""
    return {option.attribute: None for option in _OPTIONS} | given


def own_bridge(
    given: argparse.Namespace, agent: Sequence[str] | None, env: Mapping[str, str] = os.environ
) -> OwnBridge:
    """Return the bridge that these options and the agent's command mean.

    Raises SystemExit: 2 after a message on stderr.
    """
    words = words_of(given, _OPTIONS)
    if agent is not None:
        words += ["--", *agent]
    parsed = options.parse(words, env)
    named = agent is not None or not parsed.settings.builtin
    return OwnBridge((*BRIDGE, *words), parsed.settings, named, parsed.packages)


def environment() -> dict[str, str]:
    """Return the environment of a bridge that ends with the command, whatever the user's says."""
    return {key: value for key, value in os.environ.items() if key != variable("keep")}


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


def session_to_go_on(command: str, bridge: OwnBridge, given: str | None) -> SessionInfo:
    """Return the session whose id begins so; None: the one that was used last in this folder.

    Raises SystemExit after a message on stderr.
    """
    settings = bridge.settings
    agent = AgentIdentity(settings.agent_name, settings.former_names)
    try:
        if given is not None:
            info = known.session(settings.home, given)
        else:
            owner = agent if bridge.agent_given else None
            info = known.last_used(settings.home, known.here(), owner)
    except known.NotFound as why:
        raise SystemExit(fail(command, why)) from None
    if (wrong := not_its_agent(bridge, info)) is not None:
        raise SystemExit(fail(command, wrong, Exit.USAGE))
    return info


def prompt_given(parser: Parser, prompt: str) -> str:
    """Return the prompt, which is read from stdin if it is `-`.

    Raises SystemExit if it is empty, or longer than a message may be.
    """
    if prompt == "-":
        if sys.stdin is None:
            parser.error("there is no stdin to read the prompt from")
        prompt = sys.stdin.buffer.read(DEFAULT_LIMIT + 1).decode(errors="replace")
    if not prompt.strip():
        parser.error("the prompt is empty")
    if len(prompt.encode(errors="replace")) > DEFAULT_LIMIT:
        parser.error(f"the prompt is longer than {DEFAULT_LIMIT} bytes: name a file in it instead")
    return prompt
