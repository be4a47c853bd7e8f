"""`acp-bridge chat`: a session in the terminal."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from acp_bridge import log
from acp_bridge.cli.chosen_session import OtherAgent, chosen
from acp_bridge.cli.own_bridge import OwnBridge, Parser, add_options, divided, own_bridge
from acp_bridge.terminal import known
from acp_bridge.terminal.chat import opening
from acp_bridge.terminal.chat.main import Plan, converse, unfit
from acp_bridge.terminal.exits import Exit
from acp_bridge.terminal.process import over_process

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
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else Exit.USAGE
    if (why := unfit(os.environ)) is not None:
        return _fail(why)
    try:
        session = chosen(bridge, given.resume or None) if given.resume is not None else None
    except known.NotFound as none:
        return _fail(str(none), Exit.FAILED)
    except OtherAgent as other:
        return _fail(str(other))
    log.configure("error", None)
    way = opening.resume(session) if session else opening.new(Path.cwd())
    home = bridge.settings.home
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    plan = Plan(partial(over_process, bridge.command), way, home / HISTORY)
    return anyio.run(converse, plan)


def _parsed(arguments: Sequence[str]) -> tuple[argparse.Namespace, OwnBridge]:
    words, agent = divided(arguments)
    parser = Parser("chat", HELP)
    parser.add_argument("--resume", nargs="?", const="", metavar="ID")
    add_options(parser)
    given = parser.parse_args(words)
    return given, own_bridge(given, agent)


def _fail(why: str, code: Exit = Exit.USAGE) -> int:
    sys.stderr.write(f"acp-bridge chat: {why}\n")
    return code
