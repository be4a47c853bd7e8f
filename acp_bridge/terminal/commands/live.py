"""`acp-bridge ps`, `cancel`, `close` and `delete`: ask bridges about live sessions."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from acp_bridge.core import errors
from acp_bridge.core.agents import origin
from acp_bridge.core.clients import rights
from acp_bridge.core.clients.rights import Role
from acp_bridge.core.protocol import (
    CANCEL_TURN,
    CLOSE_FOR_ALL,
    OBSERVES,
    SESSION_DELETE,
    Json,
    may_of,
)
from acp_bridge.core.runtime import log
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import Listener, NullListener
from acp_bridge.sharing.bridge_client.own_process import over_process
from acp_bridge.sharing.bridge_client.sent import ConnectionLost, NoAnswer
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.cli.harmless import one_line
from acp_bridge.terminal.cli.options import split
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import columns, fail, print_json, print_text
from acp_bridge.terminal.commands import own_bridge
from acp_bridge.terminal.shared import known
from acp_bridge.terminal.shared.consent import nobody_to_ask, says_yes
from acp_bridge.terminal.shared.live import Asleep, LiveSession
from acp_bridge.terminal.shared.ps import as_json, as_text, elsewhere
from acp_bridge.terminal.shared.reach import NotThere, Reach, add_at, reach_of
from acp_bridge.terminal.shared.stored import Kept, at_kept

_PS_ABOUT: Final = """\
List the sessions that are live: those that an editor, 'acp-bridge chat' or 'acp-bridge run' has
open now. Shown are the state and for how long, how many prompts wait, and how many clients have the
session. What an agent asks stands below, with the command that answers."""
_CANCEL_ABOUT: Final = """\
Cancel the turn that runs in a session, whoever asked for it, or what its agent does without one.
Prompts that wait run after it.
ID is the session's id; its first characters are enough."""
_CANCEL_AFTER: Final = """\
exit code: 0 it was cancelled, 1 nothing runs there, no such session, or nobody answers, 2 wrong
usage, 9 --at without a token that counts."""
_CLOSE_ABOUT: Final = """\
Close a live session for all clients that have it: its turn is cancelled and its agent ends. It is
kept, and can be loaded again. ID is the session's id; its first characters are enough."""
_CLOSE_AFTER: Final = """\
exit code: 0 closed, 1 no such live session, or nobody answers, 2 wrong usage, 9 --at without a
token that counts."""
_DELETE_ABOUT: Final = """\
Delete a session for good, here and at its agent, also one that is live.
One that is not live needs its agent for that: its command stands after --, but for the built-in
agent. ID is the session's id; its first characters are enough."""
#: seconds in which a bridge must answer a request; a close ends an agent, a delete may start one.
PATIENCE: Final = 30.0

#: what raises where a session is looked for, or its bridge is asked; NotThere is an OSError.
_FAILURES: Final = (RpcError, known.NotFound, ConnectionLost, NoAnswer, OSError)
#: what a command does with a live session over a connection to its bridge; returns the exit code.
Act = Callable[[Connection, LiveSession], Awaitable[int]]


def read(parser: CommandParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments of a command on live sessions.

    Raises SystemExit for wrong usage, and if an agent's process runs the command.
    """
    log.configure("error", None)
    given = parser.parse_args(arguments)
    if origin.runs_in_agent():
        raise SystemExit(fail(parser.name, "an agent can't do that: use a terminal of your own"))
    return given


async def at_session(
    command: str,
    reach: Reach,
    given: str,
    act: Act,
    listener: Callable[[LiveSession], Listener],
    *,
    asleep: bool = False,
) -> int:
    """Connect to the bridge of a live session and run `act`; returns the exit code.

    `given`: the beginning of the session's id. `listener` makes the object that gets the bridge's
    messages. `asleep`: a session that is not live counts too if a bridge elsewhere could open it.
    Raises Asleep if no bridge has the session; other failures are printed.
    """
    try:
        try:
            session = await reach.find(given)
        except Asleep as why:
            if not asleep or why.session is None:
                raise
            session = why.session
        async with reach.connect(session, listener(session)) as connection:
            return await act(connection, session)
    except _FAILURES as why:
        return _failed(command, why)


async def found_by(
    command: str, reach: Reach, given: str | None, folder: Path
) -> LiveSession | int:
    """Return the session that is meant, or the exit code after a message on stderr.

    `given`: the beginning of its id; None: the session that was used last in `folder`. A session
    that is not live counts too if a bridge elsewhere could open it.
    """
    try:
        return await reach.find(given or await reach.in_folder(folder))
    except Asleep as asleep:
        if asleep.session is not None:
            return asleep.session
        how = f"{OWN_COMMANDS.line('chat', f'--resume {asleep.session_id[:8]}')} opens it"
        return fail(command, f"{asleep}: {how}")
    except _FAILURES as why:
        return _failed(command, why)


def _failed(command: str, why: Exception) -> int:
    """Print why a session was not found, or its bridge not asked; returns the exit code."""
    match why:
        case RpcError():
            return fail(command, said(why))
        case NotThere():
            return fail(command, why.why, why.code)
        case OSError():
            return fail(command, f"the acp-bridge of the session can't be reached: {why.strerror}")
    return fail(command, why)


def said(error: RpcError) -> str:
    """Return an error's message with its `details`, as one harmless line."""
    return one_line(errors.whole(error.message, error.data))


def named(session: LiveSession) -> str:
    """Return the session's short id and its title, for a message."""
    title = session.about.get("title")
    short = one_line(session.session_id[:8])
    return f"{short} ({one_line(title)})" if isinstance(title, str) and title else short


def ps_parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge ps`."""
    parser = CommandParser(
        "ps",
        "acp-bridge ps [--json] [--at URL | --journal URL]",
        _PS_ABOUT,
        ["acp-bridge ps", "watch -n 2 acp-bridge ps"],
        "exit code: 0 done, 1 the data folder can't be read, or nobody answers, 2 wrong usage, 9\n"
        "--at without a token that counts.",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="one line of JSON for each session, and for each bridge that does not answer",
    )
    add_at(parser)
    parser.add_home()
    parser.add_journal()
    return parser


def ps(arguments: Sequence[str]) -> int:
    """Run `acp-bridge ps`; returns the exit code."""
    parser = ps_parser()
    given = read(parser, arguments)
    reach = reach_of(parser, given)
    if given.at is not None:
        given.journal = None  # the bridge there says what is live
    return at_kept("ps", given, partial(_ps, given, reach))


def _ps(given: argparse.Namespace, reach: Reach, kept: Kept) -> int:
    try:
        answers = anyio.run(reach.ask)
        if kept.holders:
            answers += elsewhere(answers, known.listing(kept.home), kept.holders)
    except _FAILURES as why:
        return _failed("ps", why)
    if given.json:
        return print_json(as_json(answers))
    return print_text(as_text(answers, columns(), reach.again))


def cancel_parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge cancel`."""
    return _simple_parser("cancel", _CANCEL_ABOUT, _CANCEL_AFTER)


def cancel(arguments: Sequence[str]) -> int:
    """Run `acp-bridge cancel`; returns the exit code."""

    async def act(reach: Reach, connection: Connection, session: LiveSession) -> int:
        result = await _told(reach, connection, CANCEL_TURN, session)
        if not (isinstance(result, dict) and result.get("cancelled")):
            return fail("cancel", f"nothing runs in session {named(session)}")
        return print_text(f"Cancelled what runs in session {named(session)}.\n")

    return _simple(cancel_parser(), arguments, act)


def close_parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge close`."""
    return _simple_parser("close", _CLOSE_ABOUT, _CLOSE_AFTER)


def close(arguments: Sequence[str]) -> int:
    """Run `acp-bridge close`; returns the exit code."""

    async def act(reach: Reach, connection: Connection, session: LiveSession) -> int:
        await _told(reach, connection, CLOSE_FOR_ALL, session)
        return print_text(f"Closed session {named(session)}.\n")

    return _simple(close_parser(), arguments, act)


def delete_parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge delete`."""
    parser = CommandParser(
        "delete",
        "acp-bridge delete ID [--yes] [--at URL | -- COMMAND ARGS...]",
        _DELETE_ABOUT,
        ["acp-bridge delete 3f2a", "acp-bridge delete 3f2a --yes -- codex-acp"],
        "exit code: 0 deleted, 1 not: no such session, nobody answers, or you said no, 2 wrong\n"
        "usage, or no terminal and no --yes, 9 --at without a token that counts.",
    )
    parser.add_argument("session", metavar="ID")
    parser.add_argument(
        "--yes", action="store_true", help="do not ask first; needed where there is no terminal"
    )
    add_at(parser)
    parser.add_home()
    return parser


def delete(arguments: Sequence[str]) -> int:
    """Run `acp-bridge delete`; returns the exit code."""
    words, agent = split(arguments)
    parser = delete_parser()
    given = read(parser, words)
    if given.at is not None and agent is not None:
        parser.error("--at: the agent is that of the bridge there, so give no command")
    reach = reach_of(parser, given)

    async def act(connection: Connection, session: LiveSession) -> int:
        may = may_of(await _introduce(connection))
        if may in list(Role):  # nobody is asked for what the bridge refuses
            rights.check([Role(str(may))], SESSION_DELETE, {"sessionId": session.session_id})
        if (refused := await _refused(given, named(session))) is not None:
            return refused
        await _tell(connection, SESSION_DELETE, session)
        return print_text(f"Deleted session {named(session)}.\n")

    async def work() -> int:
        try:
            return await at_session("delete", reach, given.session, act, _tells_nobody, asleep=True)
        except Asleep as asleep:
            return await _delete_asleep(given, agent, asleep.session_id)

    return anyio.run(work)


async def _refused(given: argparse.Namespace, name: str) -> int | None:
    """Ask the user, unless `--yes` was given; return the exit code for a no, None for a yes."""
    if given.yes:
        return None
    if why := nobody_to_ask("--yes", "stdin", "stdout"):
        return fail("delete", why, Exit.USAGE)
    if await says_yes(f"Delete session {name} for good?"):
        return None
    return fail("delete", "not deleted")


async def _delete_asleep(
    given: argparse.Namespace, agent: list[str] | None, session_id: str
) -> int:
    """Start a bridge to delete a session that no bridge has open; returns the exit code."""
    settings = argparse.Namespace(**own_bridge.none_given(home=given.home))
    bridge = own_bridge.own_bridge(settings, agent)
    info = await anyio.to_thread.run_sync(known.session, bridge.settings.home, session_id)
    if (why := own_bridge.not_its_agent(bridge, info)) is not None:
        return fail("delete", why, Exit.USAGE)
    name = session_id[:8] + (f" ({one_line(info.title)})" if info.title else "")
    if (refused := await _refused(given, name)) is not None:
        return refused
    try:
        async with over_process(
            bridge.command,
            NullListener(),
            _ignore,
            env=own_bridge.environment(),
            log=bridge.log,
        ) as connection:
            await connection.initialize("acp-bridge delete", within=PATIENCE)
            params = {"sessionId": session_id}
            await connection.request(SESSION_DELETE, params, within=PATIENCE)
    except _FAILURES as failure:
        return _failed("delete", failure)
    return print_text(f"Deleted session {name}.\n")


def _simple_parser(command: str, about: str, after: str) -> CommandParser:
    """Return the parser of a command whose only argument is a live session."""
    usage, example = f"acp-bridge {command} ID [--at URL]", f"acp-bridge {command} 3f2a"
    parser = CommandParser(command, usage, about, [example], after)
    parser.add_argument("session", metavar="ID")
    add_at(parser)
    parser.add_home()
    return parser


def _simple(
    parser: CommandParser,
    arguments: Sequence[str],
    act: Callable[[Reach, Connection, LiveSession], Awaitable[int]],
) -> int:
    """Run a command whose only argument is a live session; returns the exit code."""
    given, command = read(parser, arguments), parser.name
    reach = reach_of(parser, given)

    async def work() -> int:
        try:
            acts = partial(act, reach)
            return await at_session(command, reach, given.session, acts, _tells_nobody)
        except Asleep as asleep:
            return fail(command, asleep)

    return anyio.run(work)


async def _told(reach: Reach, connection: Connection, method: str, session: LiveSession) -> Any:
    """Initialize `connection`, join the session if need be, and send a request about the session.

    Returns the result.
    """
    await _introduce(connection)
    if reach.joins_first:
        await connection.request(*reach.joining(session, replay=False), within=PATIENCE)
    return await _tell(connection, method, session)


async def _introduce(connection: Connection) -> Json:
    return await connection.initialize("acp-bridge", own={OBSERVES: True}, within=PATIENCE)


async def _tell(connection: Connection, method: str, session: LiveSession) -> Any:
    params: Json = {"sessionId": session.session_id}
    return await connection.request(method, params, within=PATIENCE)


def _tells_nobody(session: LiveSession) -> NullListener:
    return NullListener()


def _ignore(line: str) -> None:
    """Ignore a line of the bridge's log."""
