"""`acp-bridge chat`: a session in the terminal."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from acp_bridge import log
from acp_bridge.agents.identity import AgentIdentity
from acp_bridge.bridge_client.own_process import over_process
from acp_bridge.cli.own_bridge import (
    OwnBridge,
    Parser,
    add_options,
    divided,
    environment,
    not_its_agent,
    own_bridge,
)
from acp_bridge.terminal import known
from acp_bridge.terminal.chat import opening
from acp_bridge.terminal.chat.main import Plan, converse, unfit
from acp_bridge.terminal.exits import Exit
from acp_bridge.terminal.printing import fail

if TYPE_CHECKING:
    from acp_bridge.journal.records import SessionInfo

HELP: Final = """\
usage: acp-bridge chat [--resume [ID]] [OPTIONS] [-- COMMAND ARGS...]

Talk with an agent in this terminal: the built-in one, or any other ACP agent. The session is kept
like any other: an editor can load it, and 'acp-bridge attach' shows it elsewhere.

  acp-bridge chat
  acp-bridge chat --resume
  acp-bridge chat -- codex-acp

  --resume [ID]      go on with the session that was used last in this folder, or with this one;
                     its first characters are enough
  --help             show this

Enter sends; Alt-Enter or Ctrl-J begins a new line. While a turn runs you may type on: what you
enter waits for its end. @ names a file, / a command, Tab completes, Shift-Tab takes the next mode.
A permission is answered by its key. Ctrl-C stops the turn, twice leaves; so does Ctrl-D on an
empty line. /help says this, too.

A session of another agent than the built-in one needs its command after --.
The options of 'acp-bridge' itself may be given too, such as --model, --openhands and --home.
NO_COLOR=1 in the environment turns colours off.

exit code: 0 you left, 1 an error of acp-bridge, 2 wrong usage, or no terminal, 6 the agent failed,
9 the agent wants a login.
"""
#: the name of the file, in the data folder, that keeps what was entered.
HISTORY: Final = "chat_history"


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    try:
        given, bridge = _parsed(arguments)
        if (why := unfit(os.environ)) is not None:
            return fail("chat", why, Exit.USAGE)
        session = _resumed(given, bridge) if given.resume is not None else None
        folder = Path(session.cwd) if session else known.here()
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else Exit.USAGE
    log.configure("error", None)
    home = bridge.settings.home
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    plan = Plan(
        partial(over_process, bridge.command, env=environment()),
        opening.resume(session) if session else opening.new(folder),
        folder,
        home / HISTORY,
        "acp-bridge chat --resume {} goes on with it",
    )
    return anyio.run(converse, plan)


def _resumed(given: argparse.Namespace, bridge: OwnBridge) -> SessionInfo:
    """Return the session to go on with. Raises SystemExit after a message on stderr."""
    settings = bridge.settings
    agent = AgentIdentity(settings.agent_name, settings.former_names)
    try:
        if given.resume:
            info = known.session(settings.home, given.resume)
        else:
            owner = agent if bridge.agent_given else None
            info = known.last_used(settings.home, known.here(), owner)
    except known.NotFound as why:
        raise SystemExit(fail("chat", why)) from None
    if (wrong := not_its_agent(bridge, info)) is not None:
        raise SystemExit(fail("chat", wrong, Exit.USAGE))
    return info


def _parsed(arguments: Sequence[str]) -> tuple[argparse.Namespace, OwnBridge]:
    words, agent = divided(arguments)
    parser = Parser("chat", HELP)
    parser.add_argument("--resume", nargs="?", const="", metavar="ID")
    add_options(parser)
    given = parser.parse_args(words)
    return given, own_bridge(given, agent)
