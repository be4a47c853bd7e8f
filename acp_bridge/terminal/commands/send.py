"""`acp-bridge send`: queues a prompt in a session that is live or asleep."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

import anyio

from acp_bridge.core.agents import lease
from acp_bridge.core.history import History
from acp_bridge.core.journal import Journal, JournalError, PromptState, UnknownSession
from acp_bridge.core.protocol import Json
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.core.settings import Delivery
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.terminal.cli.exits import Exit, of_error
from acp_bridge.terminal.cli.harmless import one_line
from acp_bridge.terminal.cli.options import data_folder
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import fail
from acp_bridge.terminal.commands.live import at_session, named, read, said
from acp_bridge.terminal.commands.own_bridge import prompt_given
from acp_bridge.terminal.shared.known import where
from acp_bridge.terminal.shared.live import Asleep, LiveSession, unreachable
from acp_bridge.terminal.shared.reach import Reach, add_at, reach_of
from acp_bridge.terminal.shared.screen import StdScreen, std_screen
from acp_bridge.terminal.shared.sending import NotAccepted, Sending, prompt_params
from acp_bridge.terminal.shared.stored import folder_alone
from acp_bridge.terminal.shared.waiting import Stop, stopped_by_signals

_ABOUT: Final = """\
Put a prompt onto the queue of a session; it is done when the prompt is on the disk. It runs when
those before it have ended, and it runs though this command has left. PROMPT may be - to be read
from stdin. ID is the session's id; its first characters are enough.

To a session that is not live, the prompt is recorded and left over: nothing runs it until somebody
opens the session and says /queue run. With --at it is not recorded."""
_EXAMPLES: Final = (
    'acp-bridge send 3f2a "When you are done, update the changelog"',
    'acp-bridge send --steer 3f2a "Leave the tests alone"',
    "acp-bridge send --wait 3f2a - < prompt.txt",
)
_AFTER: Final = """\
exit code: 0 the prompt is in the queue, or left over; 1 no such session, or nobody answers; 2 wrong
usage; 9 --at without a token that counts; 130 interrupted: the prompt stays in the queue. With
--wait those of 'acp-bridge run', but for 3 and 7."""

_STEERS: Final = """\
Sent to session {}. The words join the turn that runs, if the agent can take them;
else the prompt is the next to run."""

#: seconds to wait for a bridge that is opening or ending the session to release its lock.
_LOCK: Final = 5.0


def parser() -> CommandParser:
    """Return the parser of the arguments of `acp-bridge send`."""
    usage = 'acp-bridge send ID "PROMPT" [--wait] [--interrupt|--steer] [--json] [--at URL]'
    parser = CommandParser("send", usage, _ABOUT, _EXAMPLES, _AFTER)
    parser.add_argument("session", metavar="ID")
    parser.add_argument("prompt", metavar="PROMPT")
    parser.add_argument(
        "--wait",
        action="store_true",
        help="stay, and write the answer to stdout, as 'acp-bridge run' does",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--interrupt",
        action="store_const",
        dest="delivery",
        const=Delivery.INTERRUPT,
        help="cancel the turn that runs; this prompt is next",
    )
    how.add_argument(
        "--steer",
        action="store_const",
        dest="delivery",
        const=Delivery.STEER,
        help="send the words into the turn that runs, if the agent can take them; else this\n"
        "prompt is the next to run. With --wait what the turn says from then on is\n"
        "written, and whether the words joined it",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="with --wait: each update as one line of JSON, the outcome as the last one",
    )
    add_at(parser)
    parser.add_home()
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run `acp-bridge send`; returns the exit code.

    Raises SystemExit for wrong usage and for help.
    """
    reader = parser()
    given = read(reader, arguments)
    if given.json and not given.wait:
        reader.error("--json shows a turn: it needs --wait")
    given.prompt = prompt_given(reader, given.prompt)
    if sys.stdout is None:
        return fail("send", "there is no stdout to say what was done")
    return anyio.run(_send, given, reach_of(reader, given))


async def _send(given: argparse.Namespace, reach: Reach) -> int:
    stop = Stop()
    async with stopped_by_signals(stop), std_screen(stop) as screen:
        sendings: list[Sending] = []

        def listener(session: LiveSession) -> Sending:
            how = {"delivery": given.delivery, "no_demo": given.wait}
            params = prompt_params(session.session_id, given.prompt, **how)
            shown = {"shows": given.wait, "json": given.json, "again": reach.again}
            sendings.append(Sending(params, screen, stop, **shown))
            return sendings[0]

        async def act(connection: Connection, session: LiveSession) -> int:
            try:
                await sendings[0].send(connection, reach.joining(session, History.PENDING))
            except NotAccepted as why:
                return fail("send", why)
            if given.wait:
                try:
                    return await _waited(sendings[0], screen)
                except RpcError as error:
                    return fail("send", said(error), of_error(error))
            told = _STEERS if given.delivery == Delivery.STEER else "In the queue of session {}."
            screen.write(f"{told.format(named(session))}\n".encode())
            return Exit.DONE

        try:
            code = await at_session("send", reach, given.session, act, listener)
        except Asleep as asleep:
            code = await _hold(given, asleep, screen)
    return Exit.FAILED if stop.reason is Exit.FAILED else code


async def _waited(sending: Sending, screen: StdScreen) -> Exit:
    """Show the turn until it ends; return the exit code, when stdout has taken all of it."""
    try:
        return await sending.wait()
    finally:
        await screen.finish()


async def _hold(given: argparse.Namespace, asleep: Asleep, screen: StdScreen) -> int:
    short = one_line(asleep.session_id[:8])
    if given.at is not None:
        attach = OWN_COMMANDS.line("attach", one_line(f"--at {given.at} {short}"))
        opens = f"{attach} opens it"
        return fail("send", f"session {short} is not live there, so nothing was sent: {opens}")
    if given.wait or given.delivery == Delivery.INTERRUPT:
        why = "nothing would run the prompt, so it was not recorded"
        return fail("send", f"session {short} is not live: {why}")
    if (alone := folder_alone()) is not None:
        return fail("send", f"session {short} is not live: {alone}")
    home = data_folder(given.home)
    params = prompt_params(asleep.session_id, given.prompt)
    try:
        count = await leave_prompt(home, asleep.session_id, params)
    except lease.Busy:
        lock = Journal(home).lock_path(asleep.session_id)
        return fail("send", f"session {short} {unreachable(lock)}")
    except JournalError as error:
        return fail("send", f"session {short} can't be written: {error}; {where()}")
    runs = "It runs" if count == 1 else f"{count} prompts are left over now. They run"
    told = f"{runs} when somebody opens the session and says /queue run."
    screen.write(f"Session {short} is not live: recorded, and left over. {told}\n".encode())
    return Exit.DONE


async def leave_prompt(home: Path, session_id: str, params: Json) -> int:
    """Record a prompt as left over; returns how many prompts are left over, this one included.

    Those that waited when a bridge was killed count, too. `params`: of the `session/prompt`. The
    prompt is on disk on return. The session's lock is taken meanwhile, so no bridge can open it.

    Raises:
        lease.Busy: a bridge has the session.
        JournalError: it can't be written.
    """
    journal = Journal(home)
    if not journal.path(session_id).is_file():  # make no lock file for a deleted session
        raise UnknownSession
    try:
        lock = await lease.acquire(journal.lock_path(session_id), _LOCK)
    except OSError as exc:
        raise JournalError(f"it can't be locked ({exc.strerror})") from exc
    try:
        session = await journal.open(session_id)
        seq = session.accept(uuid4().hex, params)
        session.leave_over(seq)
        await session.sync()
        return len(session.prompts(PromptState.WAITING, PromptState.LEFT_OVER))
    finally:
        with anyio.CancelScope(shield=True):
            await journal.close()
        os.close(lock)
