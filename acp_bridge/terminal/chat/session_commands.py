"""`/new`, `/sessions`, `/fork`, `/export` and `/cost`: commands of the chat about sessions.

Invariant: another session is opened only while nothing runs and nothing waits, since leaving this
one ends its bridge.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from anyio import to_thread

from acp_bridge.core import protocol as acp
from acp_bridge.core.protocol import ErrorCode, Json, as_object
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.sent import ConnectionLost, NoAnswer
from acp_bridge.terminal.chat.conversation import Conversation
from acp_bridge.terminal.shared import known
from acp_bridge.terminal.shared.writing import NotWritten, write_text
from acp_bridge.terminal.view.block_text import harmless
from acp_bridge.terminal.view.blocks import Tone
from acp_bridge.terminal.view.settings_shown import Command

if TYPE_CHECKING:
    from acp_bridge.core.journal.records import SessionInfo

#: sessions that are listed or completed, the newest first.
_MOST: Final = 20
#: seconds for the answer to `session/fork`: the agent may have to start.
_FORKS: Final = 120.0
_BUSY: Final = "a turn runs or a prompt waits: stop it (Esc) or take it back (Up) first"
_ELSEWHERE: Final = "only acp-bridge chat can do that: this session is open in another bridge"
_THERE: Final = "that needs the data folder of the bridge, which is on another machine"

#: Leaves the chat for a kept session, or for a new one (None); returns why that can't be, or None.
GoOn = Callable[["SessionInfo | None"], str | None]


class SessionCommands:
    """Runs the commands about sessions that are entered in a chat, one after the other."""

    def __init__(self, conversation: Conversation, home: Path | None, go_on: GoOn | None) -> None:
        """`home`: the data folder, None: it is elsewhere.

        `go_on`: None if the chat can't leave for another session.
        """
        self._talk, self._given, self._go_on = conversation, home, go_on
        #: the agent reports the limits of the user's account.
        self.reports_limits = False
        self._send, self._asked = anyio.create_memory_object_stream[tuple[str, str]](math.inf)

    @property
    def _home(self) -> Path:
        """The data folder; raises NotFound if it is elsewhere."""
        if self._given is None:
            raise known.NotFound(_THERE)
        return self._given

    def run(self, name: str, rest: str) -> None:
        """Run the command `name`, with the text `rest` behind it, after those entered before."""
        self._send.send_nowait((name, rest.strip()))

    def completions(self) -> list[Command]:
        """Return the sessions of this folder by their short ids; reads the disk."""
        try:
            found = self._here()
        except known.NotFound:
            return []
        short = known.short_ids(info.session_id for info in found)
        return [Command(short[info.session_id], info.title or "") for info in found]

    async def serve(self, connection: Connection) -> None:
        """Run commands until cancelled."""
        async for name, rest in self._asked:
            try:
                await self._run(connection, name, rest)
            except (known.NotFound, NotWritten, NoAnswer, RpcError) as why:
                self._talk.say(_told(name, why), Tone.ERROR)
            except ConnectionLost:
                pass  # the chat ends, and says so

    async def _run(self, connection: Connection, name: str, rest: str) -> None:
        match name:
            case "sessions" if rest:
                info = await to_thread.run_sync(known.session, self._home, rest)
                self._leave_for(info)
            case "sessions":
                self._talk.say(await to_thread.run_sync(self._table))
            case "fork":
                await self._fork(connection)
            case "export":
                self._talk.say(await to_thread.run_sync(self._export, rest))
            case "cost":
                await self._cost(connection)
            case _:
                self._leave_for(None)

    def _leave_for(self, info: SessionInfo | None) -> None:
        if why := self._refusal(info):
            self._talk.say(why, Tone.ERROR)

    def _refusal(self, info: SessionInfo | None) -> str | None:
        """Leave for a session, or return why that can't be."""
        if why := self._hindrance():
            return why
        if info is not None and info.session_id == self._talk.session_id:
            return "this is that session"
        assert self._go_on is not None
        return self._go_on(info)

    def _hindrance(self) -> str | None:
        """Return why the chat can't be left for any other session now."""
        if self._go_on is None:
            return _ELSEWHERE
        return _BUSY if self._talk.running or self._talk.prompts.unanswered else None

    async def _fork(self, connection: Connection) -> None:
        if why := self._hindrance():
            self._talk.say(why, Tone.ERROR)
            return
        await to_thread.run_sync(self._session)
        params: Json = {
            "sessionId": self._talk.session_id,
            "cwd": str(self._talk.folder),
            "mcpServers": [],
        }
        result = await connection.request(acp.SESSION_FORK, params, within=_FORKS)
        fork = str(as_object(result).get("sessionId"))
        self._leave_for(await to_thread.run_sync(known.session, self._home, fork))

    async def _cost(self, connection: Connection) -> None:
        """Show what the session has used, as far as it is kept here, and the account's limits."""
        from acp_bridge.terminal.shared.limits import NOT_REPORTED, read_limits, shown

        try:
            self._talk.say(await to_thread.run_sync(self._used))
        except known.NotFound as why:  # the limits are shown all the same
            self._talk.say(str(why))
        if self.reports_limits:
            limits = await read_limits(connection, self._talk.session_id)
            self._talk.say(shown(limits, None).rstrip())
        else:
            self._talk.say(f"this agent {NOT_REPORTED}")

    def _used(self) -> str:
        from acp_bridge.terminal.shared.costs import costs, costs_table
        from acp_bridge.terminal.shared.stored import Kept

        session = self._session()
        used = costs([session], "model", "", Kept(self._home).usage([session.session_id]))
        return costs_table(used, None).rstrip()

    def _session(self) -> SessionInfo:
        """Return this session's row of the index; raises NotFound."""
        if (info := known.kept(self._home, self._talk.session_id or "")) is None:
            raise known.NotFound("nothing was said here yet, so nothing is kept")
        return info

    def _here(self) -> list[SessionInfo]:
        folder = known.real(str(self._talk.folder))
        listed = known.listing(self._home)
        return [info for info in listed if info.cwd and known.real(info.cwd) == folder][:_MOST]

    def _table(self) -> str:
        from acp_bridge.terminal.shared.kept import sessions_table  # slow to import

        return f"{sessions_table(self._here(), None, short=True)}/sessions ID goes on with one"

    def _export(self, given: str) -> str:
        """Write the session as Markdown; returns a sentence that says where."""
        from acp_bridge.core.journal import JournalError
        from acp_bridge.terminal.shared.kept import page

        session = self._session()
        name = given or f"session-{session.session_id[:8]}.md"
        path = self._talk.folder / Path(name).expanduser()
        try:
            text = page(self._home, session)
        except JournalError as error:
            raise NotWritten(f"the session can't be read: {error}") from error
        write_text(path, text)
        return f"written: {path}"


def _told(name: str, why: Exception) -> str:
    if not isinstance(why, RpcError):
        return str(why)
    if name == "fork" and why.code == ErrorCode.METHOD_NOT_FOUND:
        return "this agent can't fork a session"
    return harmless(why.message)
