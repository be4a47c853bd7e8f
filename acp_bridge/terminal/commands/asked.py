"""`acp-bridge approve` and `deny`: show the question of a session's agent and answer it once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from acp_bridge.core.history import History
from acp_bridge.core.protocol import Json, as_object
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.tasks import beside
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.cli.harmless import one_line
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import fail, print_text
from acp_bridge.terminal.commands.live import at_session, named, read
from acp_bridge.terminal.shared.consent import nobody_to_ask, says_yes
from acp_bridge.terminal.shared.live import Asleep, LiveSession
from acp_bridge.terminal.shared.question import (
    NotAnswered,
    Question,
    option_for,
    shown,
    summary_of,
)
from acp_bridge.terminal.shared.reach import Reach, add_at, reach_of
from acp_bridge.terminal.shared.reminder import reminder
from acp_bridge.terminal.shared.waiting import Stop, stopped_by_signals

_APPROVE_ABOUT: Final = """\
Show what the agent asks for in a session, and allow it, once, after a yes. The answer is for what
was shown alone: if it was settled elsewhere meanwhile, this is said, and nothing else is answered.
An agent can't use this command. ID is the session's id; its first characters are enough."""
_APPROVE_AFTER: Final = """\
exit code: 0 allowed, 1 not: nothing is asked, it was settled elsewhere, the answer was no, no such
session, or nobody answers, 2 wrong usage, 9 --at without a token that counts, 130 interrupted."""
_DENY_ABOUT: Final = """\
Show what the agent asks for in a session, and deny it, once.
ID is the session's id; its first characters are enough."""
_DENY_AFTER: Final = """\
exit code: 0 denied, 1 not: nothing is asked, it was settled elsewhere, no such session, or nobody
answers, 2 wrong usage, 9 --at without a token that counts, 130 interrupted."""


def approve_parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge approve`."""
    examples = ["acp-bridge approve 3f2a", "acp-bridge approve 3f2a --option allow_once"]
    texts = _APPROVE_ABOUT, examples, _APPROVE_AFTER
    return _parser("approve", *texts, "by its id, its kind or its name, without a yes")


def deny_parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge deny`."""
    texts = _DENY_ABOUT, ["acp-bridge deny 3f2a"], _DENY_AFTER
    return _parser("deny", *texts, "by its id, its kind or its name")


def _parser(
    command: str, about: str, examples: Sequence[str], after: str, chosen: str
) -> CommandParser:
    usage = f"acp-bridge {command} ID [--option OPTION] [--at URL]"
    parser = CommandParser(command, usage, about, examples, after)
    parser.add_argument("session", metavar="ID")
    parser.add_argument("--option", metavar="OPTION", help=f"choose this option, {chosen}")
    add_at(parser)
    parser.add_home()
    return parser


def approve(arguments: Sequence[str]) -> int:
    """Run `acp-bridge approve`; returns the exit code."""
    return _run(approve_parser(), arguments, allow=True)


def deny(arguments: Sequence[str]) -> int:
    """Run `acp-bridge deny`; returns the exit code."""
    return _run(deny_parser(), arguments, allow=False)


def _run(parser: CommandParser, arguments: Sequence[str], *, allow: bool) -> int:
    given = read(parser, arguments)
    if allow and given.option is None and (why := nobody_to_ask("--option", "stdin")):
        parser.error(why)
    reach = reach_of(parser, given)
    return anyio.run(_answered, _Order(parser.name, reach, given.session, given.option, allow))


@dataclass(frozen=True, slots=True)
class _Order:
    """The parsed arguments of `approve` or `deny`."""

    command: str
    reach: Reach
    session: str
    option: str | None
    allow: bool


async def _answered(order: _Order) -> int:
    """Show the session's oldest open permission and answer it; return the exit code.

    A signal ends this without an answer.
    """
    stop, question = Stop(), Question()
    code: int = Exit.INTERRUPTED
    async with stopped_by_signals(stop), beside() as tasks:

        async def interrupted() -> None:
            await stop.asked.wait()
            tasks.cancel_scope.cancel()

        async def act(connection: Connection, session: LiveSession) -> int:
            try:
                return await _answer(order, question, connection, session)
            except NotAnswered as why:
                return fail(order.command, why)

        tasks.start_soon(interrupted)
        try:
            code = await at_session(
                order.command, order.reach, order.session, act, lambda session: question
            )
        except Asleep as asleep:
            code = fail(order.command, asleep)
    return code


async def _answer(
    order: _Order, question: Question, connection: Connection, session: LiveSession
) -> int:
    """Print the question, ask the user for a yes if needed, answer it, and print the answer.

    Returns the exit code. Raises NotAnswered, RpcError, ConnectionLost, NoAnswer.
    """
    if "asks" not in session.about:
        raise NotAnswered(f"nothing is asked in session {named(session)}")
    params = await question.ask(connection, order.reach.joining(session, History.PENDING))
    print_text(f"Session {named(session)} asks:\n\n{shown(params)}\n\n")
    meant = option_for(params, allow=order.allow, given=order.option)

    async def choose() -> Json:
        if (
            order.allow
            and order.option is None
            and not await _allowed(reminder(as_object(params.get("toolCall"))).shown())
        ):
            raise NotAnswered("not approved: the agent still waits for an answer")
        return meant

    chosen = await question.answer(connection, choose)
    verb = "Approved" if order.allow else "Denied"
    name = one_line(str(chosen.get("name") or chosen["optionId"]))
    more = len([each for each in question.requests if each.open])
    rest = f" {more} more asked." if more else ""
    return print_text(f"{verb} ({name}): {summary_of(params)}.{rest}\n")


async def _allowed(about: str) -> bool:
    print_text(f"This is about {about}\n" if about else "")
    return await says_yes("Allow it?")
