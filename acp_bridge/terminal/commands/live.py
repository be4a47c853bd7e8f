"""`acp-bridge ps`, `cancel`, `close` and `delete`: ask bridges about live sessions."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from acp_bridge.core import errors
from acp_bridge.core.agents import origin
from acp_bridge.core.clients import rights
from acp_bridge.core.clients.rights import Role
from acp_bridge.core.history import History
from acp_bridge.core.protocol import (
    CANCEL_TURN,
    CLOSE_FOR_ALL,
    OBSERVES,
    SESSION_DELETE,
    SOCKET_PROTOCOL,
    Json,
    as_object,
    may_of,
)
from acp_bridge.core.runtime import log
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import Listener, NullListener
from acp_bridge.sharing.bridge_client.own_process import over_process
from acp_bridge.sharing.bridge_client.sent import ConnectionLost, NoAnswer
from acp_bridge.sharing.listening.run_files import LiveBridge
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.cli.harmless import one_line
from acp_bridge.terminal.cli.options import split
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import columns, fail, print_json, print_text
from acp_bridge.terminal.commands import own_bridge
from acp_bridge.terminal.shared import known
from acp_bridge.terminal.shared.consent import nobody_to_ask, says_yes
from acp_bridge.terminal.shared.known import short_ids
from acp_bridge.terminal.shared.live import Answer, Asleep, LiveSession
from acp_bridge.terminal.shared.reach import NotThere, Reach, add_at, reach_of
from acp_bridge.terminal.shared.stored import Kept, at_kept
from acp_bridge.terminal.shared.table import cut, table

if TYPE_CHECKING:
    from acp_bridge.core.journal import SessionInfo
    from acp_bridge.terminal.shared.stored import Holder

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

#: characters of a question that are shown; a permission takes fewer, a form may take more.
_ASKS = 500
_HEAD = ("ID", "STATE", "FOR", "WAITING", "CLIENTS", "AGENT", "FOLDER", "TITLE")


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
        await connection.request(*reach.joining(session, History.NONE), within=PATIENCE)
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


def as_text(answers: Sequence[Answer], columns: int | None, again: str = "") -> str:
    """Return a table of the live sessions, with the open questions below it.

    `columns`: the width of the terminal; None: lines are not cut. `again`: the option with which
    the command that answers a question reaches the session, such as `--at URL `.
    """
    sessions = [about for answer in answers for about in answer.sessions or []]
    short = short_ids(str(about["sessionId"]) for about in sessions)
    rows = [_row(short[str(about["sessionId"])], about) for about in sessions]
    rows += [_silent(answer) for answer in answers if answer.sessions is None]
    if not rows:
        return "No live sessions.\n"
    asked = [
        _asked(short[str(each["sessionId"])], each, again) for each in sessions if "asks" in each
    ]
    lines = [f"{line}\n" for line in asked]  # never cut: a person must see all of it
    return table(_HEAD, rows, columns) + "".join(["\n", *lines] if lines else [])


def elsewhere(
    answers: Sequence[Answer], listed: Sequence[SessionInfo], holders: Mapping[str, Holder]
) -> list[Answer]:
    """Return an answer for each listed session that has a holder, and of which no answer tells.

    They are sessions of a database; most of their bridges are on other machines.
    """
    told = {each["sessionId"] for answer in answers for each in answer.sessions or []}
    return [
        Answer(
            LiveBridge(0, holder.machine, "", SOCKET_PROTOCOL, "", info.agent),
            [
                {
                    "sessionId": info.session_id,
                    "state": "elsewhere",
                    "heldBy": holder._asdict(),
                    "agent": info.agent,
                    "cwd": info.cwd,
                    "title": info.title,
                }
            ],
        )
        for info in listed
        if (holder := holders.get(info.session_id)) and info.session_id not in told
    ]


def as_json(answers: Sequence[Answer]) -> Iterator[Json]:
    """Yield each session as its bridge describes it, and an object for each silent bridge."""
    for answer in answers:
        if answer.sessions is None:
            yield {"state": answer.silence, "agent": answer.bridge.agent, "pid": answer.bridge.pid}
        else:
            yield from answer.sessions


def duration(seconds: object) -> str:
    """Return a duration in seconds as a number and one unit, such as "5m"; "" for no number."""
    if not isinstance(seconds, int | float):
        return ""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def _row(short: str, about: Json) -> list[str]:
    said = [about.get(key) for key in ("waiting", "clients", "agent", "cwd", "title")]
    told = ["" if each is None else str(each) for each in said]
    state = str(about.get("state") or "")
    if held := as_object(about.get("heldBy")):
        state = f"at {held.get('machine')} ({held.get('lease')}s)"
    return [short, state, duration(about.get("seconds")), *told]


def _silent(answer: Answer) -> list[str]:
    bridge = answer.bridge
    return [
        "-",
        answer.silence,
        "",
        "",
        "",
        bridge.agent,
        "",
        f"process {bridge.pid} on {bridge.host}",
    ]


def _asked(short: str, about: Json, again: str) -> str:
    what, short = cut(one_line(str(about["asks"])), _ASKS) or "something", one_line(short)
    return f"{short} asks: {what} ({OWN_COMMANDS.line('approve', again + short)}, or deny)"
