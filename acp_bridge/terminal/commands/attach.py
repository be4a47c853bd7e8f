"""`acp-bridge attach`: joins a live session from this terminal, whichever bridge has it open."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.features.notify.read import rings
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import Listener
from acp_bridge.terminal.chat import opening
from acp_bridge.terminal.chat.main import Connect, Plan, add_bell, converse, unfit
from acp_bridge.terminal.cli import openhands
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.cli.options import BUILT_IN, data_folder
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import fail
from acp_bridge.terminal.commands.chat import HISTORY
from acp_bridge.terminal.commands.live import found_by, read
from acp_bridge.terminal.shared import known
from acp_bridge.terminal.shared.live import LiveSession
from acp_bridge.terminal.shared.reach import Again, Reach, There, add_at, reach_of

_ABOUT: Final = """\
See a live session in this terminal and take part in it, beside the editor or the terminal that has
it open: its transcript, what goes on, its questions. What you enter goes onto the session's queue;
a permission is answered by whoever is first. 'acp-bridge ps' lists what is live. With --at a
session that is not live is opened, and a connection that drops is made again without end."""
_AFTER: Final = """\
Keys are those of 'acp-bridge chat'. Esc or Ctrl-C stops the turn, whoever asked for it; Ctrl-C
twice, or Ctrl-D on an empty line, leaves, and the session goes on.

exit code: 0 you left, 1 there is no such live session, or its bridge has ended, 2 wrong usage, or
no terminal, 9 --at without a token that counts."""

#: by the session's agent, what stands behind the id in the command `chat --resume ID`.
_AGAIN: Final = {BUILT_IN: "", openhands.NAME: " --openhands URL"}


def parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge attach`."""
    parser = CommandParser(
        "attach",
        "acp-bridge attach [ID] [--read-only] [--bell] [--at URL]",
        _ABOUT,
        [
            "acp-bridge attach",
            "acp-bridge attach 3f2a --read-only",
            "acp-bridge attach --at https://home.example:8765 3f2a",
        ],
        _AFTER,
        column=18,
    )
    parser.add_argument(
        "id",
        nargs="?",
        metavar="ID",
        help="the session; its first characters are enough. Without it, the one that was used\n"
        "last in this folder, of those that live if there are any",
    )
    parser.add_argument(
        "--read-only",
        action="store_true",
        help="look on: nothing is sent, asked of you, or stopped",
    )
    add_bell(parser)
    add_at(parser)
    parser.add_home()
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run `acp-bridge attach`; returns the exit code."""
    reader = parser()
    given = read(reader, arguments)
    if (why := unfit(os.environ)) is not None:
        return fail("attach", why, Exit.USAGE)
    return anyio.run(_attach, data_folder(given.home), reach_of(reader, given), given)


async def _attach(home: Path, reach: Reach, given: argparse.Namespace) -> int:
    session = await found_by("attach", reach, given.id, known.here())
    if isinstance(session, int):
        return session
    return await converse(_plan(home, reach, session, given))


def _plan(home: Path, reach: Reach, session: LiveSession, given: argparse.Namespace) -> Plan:
    cwd = session.about.get("cwd")

    def comes_back(short: str) -> str:
        return f"{OWN_COMMANDS.line('attach', reach.again + short)} comes back to it"

    def goes_on(short: str) -> str:
        return f"{OWN_COMMANDS.line('chat', f'--resume {short}{again}')} goes on with it"

    # no agent's command, and no address, is kept with a session
    again = _AGAIN.get(str(session.about.get("agent")), " -- COMMAND")
    there = isinstance(reach, There)
    return Plan(
        Again(reach).connect if isinstance(reach, There) else _connects(reach, session),
        opening.join(reach, session),
        Path(cwd) if isinstance(cwd, str) else home,
        home / HISTORY,
        None if there else home,
        lambda short: f"The session goes on; {comes_back(short)}",
        comes_back if there else goes_on,
        own_bridge=False,
        come_again=partial(opening.join, reach, session),
        endless=there,
        read_only=given.read_only,
        bell=given.bell or rings(home),
    )


def _connects(reach: Reach, session: LiveSession) -> Connect:
    def connect(
        listener: Listener, *, tell: Callable[[str], None]
    ) -> AbstractAsyncContextManager[Connection]:
        return reach.connect(session, listener)

    return connect
