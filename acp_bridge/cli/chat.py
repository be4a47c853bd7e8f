"""`acp-bridge chat`: a session in the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import anyio

from acp_bridge.cli.options import parse
from acp_bridge.terminal.chat import opening
from acp_bridge.terminal.chat.main import Plan, converse, unfit
from acp_bridge.terminal.connection import Connection, Listener
from acp_bridge.terminal.process import BRIDGE, over_process

HELP = """\
usage: acp-bridge chat [--resume [ID]] [OPTIONS] [-- COMMAND ARGS...]

A session with an agent in this terminal: the built-in one, or any other ACP agent.

  --resume [ID]    go on with a session of this agent: the last one of this folder, or the one
                   whose id begins with ID
  OPTIONS          those of acp-bridge itself, such as --model (acp-bridge --help)

Enter sends, Alt-Enter or Ctrl-J begins a new line. While a turn runs you may type on: what you
enter waits for its end. Ctrl-C stops the turn, twice leaves; Ctrl-D on an empty line leaves.
@ names a file, / a command, Tab completes, Shift-Tab takes the next mode; /help says more.

exit code: 0 left, 1 the bridge or the agent failed, 2 wrong usage, 9 the agent wants a login.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    if "-h" in (own := _own(arguments)) or "--help" in own:
        print(HELP, end="")
        return 0
    sought, rest = _resumed(list(arguments), len(own))
    options = parse(rest, os.environ)
    if (why := unfit(os.environ)) is not None:
        sys.stderr.write(f"acp-bridge chat: {why}\n")
        return 2
    folder = Path.cwd()
    home = options.settings.home
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return anyio.run(
        converse,
        Plan(
            connect=partial(_connect, rest),
            open=lambda connection: (
                opening.new(connection, folder)
                if sought is None
                else opening.resume(connection, folder, sought)
            ),
            history=home / "chat_history",
        ),
    )


def _connect(
    arguments: list[str], listener: Listener, tell: Callable[[str], None]
) -> AbstractAsyncContextManager[Connection]:
    return over_process([*BRIDGE, *arguments], listener, tell)


def _own(arguments: Sequence[str]) -> Sequence[str]:
    """Return the arguments before the agent's command."""
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _resumed(arguments: list[str], own: int) -> tuple[str | None, list[str]]:
    """Return what `--resume` names ("": the last session, None: not given), and the rest."""
    for at, word in enumerate(arguments[:own]):
        if word.startswith("--resume="):
            return word.partition("=")[2], arguments[:at] + arguments[at + 1 :]
        if word == "--resume":
            named = at + 1 < own and not arguments[at + 1].startswith("-")
            sought = arguments[at + 1] if named else ""
            return sought, arguments[:at] + arguments[at + 1 + named :]
    return None, arguments
