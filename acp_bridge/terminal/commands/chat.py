"""`acp-bridge chat`: opens a session in this terminal with a bridge of its own."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from acp_bridge.core.records import replace
from acp_bridge.core.runtime import log
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.features.notify.read import rings
from acp_bridge.sharing.bridge_client.own_process import over_process
from acp_bridge.terminal.chat import opening
from acp_bridge.terminal.chat.main import Plan, add_bell, converse, unfit
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.cli.options import split
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import fail
from acp_bridge.terminal.commands.own_bridge import (
    OwnBridge,
    add_options,
    environment,
    not_its_agent,
    own_bridge,
    prompt_given,
    session_to_go_on,
)
from acp_bridge.terminal.shared import known

if TYPE_CHECKING:
    from acp_bridge.core.journal.records import SessionInfo

_ABOUT: Final = """\
Talk with an agent in this terminal: the built-in one, or any other ACP agent. The session is kept
like any other: an editor can load it, and 'acp-bridge attach' shows it elsewhere."""
_AFTER: Final = """\
Enter sends; Ctrl-J begins a new line. While a turn runs you may type on: what you enter waits for
its end, and Alt-Enter sends it into the turn, if the agent can take it. Tab on an empty line goes
to what waits, to edit, move or drop it. @ names a file, / a command, Tab completes, Shift-Tab takes
the next mode. A key marks an answer to a permission, and Enter takes it. Esc or Ctrl-C stops the
turn, Ctrl-C twice leaves; so does Ctrl-D on an empty line. /help says this, too.

A session of another agent than the built-in one needs its command after --.
The options of 'acp-bridge' itself may be given too, such as --model, --openhands and --home. With
--keep 8h the agent goes on when you leave, and --resume comes back to it.
NO_COLOR=1 in the environment turns colours off.

exit code: 0 you left, 1 an error of acp-bridge, 2 wrong usage, or no terminal, 6 the agent failed,
9 the agent wants a login."""
#: options of other commands, and what a chat has in their place.
_REFUSED: Final = {
    **dict.fromkeys(
        ("--continue", "--session"), "chat has --resume [ID] for that: acp-bridge chat --resume"
    ),
    "--at": "chat starts a bridge on this machine; acp-bridge attach --at URL works on another one",
    "--folder": "a chat works in the folder that you start it in",
    "--permissions": "in a chat you answer yourself; permissions.toml has your rules",
    "--timeout": "a chat has no limit of time: Esc stops a turn; acp-bridge run --timeout has one",
    "--json": "a chat is for a person; acp-bridge run --json is for a program",
    "--read-only": "acp-bridge attach --read-only looks on",
    "--version": "acp-bridge --version says it",
}
#: the file in the data folder that keeps the prompts entered in chats.
HISTORY: Final = "chat_history"


def main(arguments: Sequence[str]) -> int:
    """Run `acp-bridge chat`; returns the exit code.

    Raises SystemExit for wrong usage and for help.
    """
    given, bridge = _parsed(arguments)
    if (why := unfit(os.environ)) is not None:
        return fail("chat", why, Exit.USAGE)
    asked = given.resume is not None
    session = session_to_go_on("chat", bridge, given.resume or None) if asked else None
    folder = Path(session.cwd) if session else known.here()
    log.configure("error", None)
    home = bridge.settings.home
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        why = f"the data folder {home} can't be made: {error.strerror}"
        return fail("chat", f"{why}; {OWN_COMMANDS.line('doctor')} says what to do")
    plan = _plan(bridge, session, folder, bell=given.bell or rings(home))
    return anyio.run(converse, replace(plan, first=given.prompt))


def _plan(bridge: OwnBridge, session: SessionInfo | None, folder: Path, *, bell: bool) -> Plan:
    """Return the plan for a chat in `session`, or in a new one if None, that works in `folder`."""

    def after(other: SessionInfo | None) -> Plan | str:
        if other is None:
            return _plan(bridge, None, folder, bell=bell)
        why = not_its_agent(bridge, other)
        return why or _plan(bridge, other, Path(other.cwd), bell=bell)

    home = bridge.settings.home
    return Plan(
        partial(over_process, bridge.command, env=environment(), log=bridge.log),
        opening.resume(session) if session else opening.new(folder),
        folder,
        home / HISTORY,
        home,
        bridge.work_goes_on,
        bridge.come_back,
        own_bridge=True,
        agent=bridge.settings.agent_name,
        keeps=bridge.keeps,
        bell=bell,
        after=after,
    )


def parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge chat`."""
    parser = CommandParser(
        "chat",
        'acp-bridge chat ["PROMPT"] [--resume [ID]] [--bell] [OPTIONS] [-- COMMAND ARGS...]',
        _ABOUT,
        [
            "acp-bridge chat",
            'acp-bridge chat "Which tests are slow?"',
            "acp-bridge chat --resume",
            "acp-bridge chat -- codex-acp",
        ],
        _AFTER,
        column=21,
    )
    parser.refused = _REFUSED
    parser.add_argument("prompt", metavar="PROMPT", nargs="?", help="sent once the session is open")
    parser.add_argument(
        "--resume",
        nargs="?",
        const="",
        metavar="ID",
        help="go on with the session that was used last in this folder, or with this one;\n"
        "its first characters are enough",
    )
    add_bell(parser)
    add_options(parser)
    return parser


def _parsed(arguments: Sequence[str]) -> tuple[argparse.Namespace, OwnBridge]:
    words, agent = split(arguments)
    reader = parser()
    given = reader.parse_args(words)
    if given.prompt is not None:
        if given.prompt == "-":
            reader.error("a chat reads its keys from stdin; acp-bridge run - reads a prompt there")
        given.prompt = prompt_given(reader, given.prompt)
    if " " in (given.resume or ""):
        reader.error('--resume takes the id of a session; put the prompt first: chat "PROMPT" ...')
    return given, own_bridge(given, agent)
