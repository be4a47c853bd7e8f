"""Carries out the taps and prompts of a page's user, in any session, and says what became of each.

Invariants
- Each tap that arrives with a key is answered once over each line: `taken`, or `refused` with a
  sentence. What arrives again is not carried out again.
- A tap for a session that the page does not show now is carried out by a client of its own. A
  session has one such client at a time, and no two have the same name: the bridge ends the earlier
  connection of a name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from secrets import token_hex
from typing import Any, Final
from weakref import WeakValueDictionary

import anyio
from anyio.abc import TaskGroup

from acp_bridge.core import protocol as acp
from acp_bridge.core.protocol import ErrorCode, Json, as_object, own_meta
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.remote.page import taps
from acp_bridge.remote.page.hands import Hands, is_live
from acp_bridge.remote.page.opened import Opened
from acp_bridge.remote.page.taps import Outcome, Receipt, Receipts
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import BridgeRequest, Listener, NullListener
from acp_bridge.sharing.bridge_client.sent import ConnectionLost, NoAnswer, Sent
from acp_bridge.terminal.view.block_text import harmless, one_line

#: taps of one page that are carried out at once, and characters of a tap's key.
_MOST: Final = 32
_LONGEST_KEY: Final = 255
#: seconds for the answer of the bridge to `initialize`, and in which a tap waits for the session
#: that the page opens: a long one is slower than a Stop may be.
_PATIENCE: Final = 30.0
_OPENS: Final = 2.0

Tell = Callable[[Json], None]

#: seconds for each answer of the bridge.
_ANSWERS_WITHIN: Final = 30.0
_ABILITIES: Final = {acp.HEARS_ACCEPTED: True, acp.OWN_TURNS_ONLY: True}


@dataclass(frozen=True, slots=True)
class Ways:
    """How taps reach sessions."""

    #: gives a connection to the bridge with the rights of the login.
    connection: Callable[[Listener], AbstractAsyncContextManager[Connection]]
    #: returns the folder of a session.
    folder: Callable[[str], Awaitable[str]]
    #: returns the session that the page shows, if it shows one.
    opened: Callable[[], Opened | None]


class Carrier:
    """The taps of one page that are being carried out."""

    def __init__(
        self, tell: Tell, ways: Ways, receipts: Receipts, login: str, client: str | None
    ) -> None:
        """`login`: its name; `client`: the page's name at the bridge."""
        self._tell, self._ways, self._receipts = tell, ways, receipts
        self._login = login
        #: the name of the page, and a part that no other line of it has.
        self._client = client and f"{client} {token_hex(8)}"
        #: by session, held by the client that carries taps out there apart.
        self._apart_in: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._count = 0
        self._over = False

    def take(self, tap: Json, session: str, tasks: TaskGroup) -> None:
        """Carry a tap out in a task of its own, unless it has arrived before; then tell the page.

        `session`: the session that it is for.
        """
        key = tap.get("key")
        key = key if isinstance(key, str) and len(key) <= _LONGEST_KEY else ""
        known = self._receipts.find(key) if key else None
        if key:
            self._tell({"got": key})
        if known is not None:
            known.when_known(partial(self._on_known, tap, session, tasks))
        elif self._count >= _MOST:
            self._tell({"refused": key, "line": "Too many taps are on their way. Try again."})
        else:
            receipt = self._receipts.begin(key) if key else Receipt("")
            receipt.when_known(partial(self._on_known, tap, session, tasks))
            self._count += 1
            tasks.start_soon(self._carry, tap, session, receipt)

    def take_back(self, key: str, sent_to: str) -> None:
        """Have a tap never carried out, if it was not, and tell the page what is true.

        `sent_to`: the server that the page has sent it to last, by `Receipts.server`.
        """
        if not key or len(key) > _LONGEST_KEY:
            return
        known = self._receipts.find(key)
        if known is not None and known.outcome is None:  # what is true is not known yet
            known.when_known(lambda _: self.take_back(key, sent_to))
        elif not self._over:
            outcome = self._receipts.take_back(key, sent_to)
            self._tell({"undone": key, "line": outcome.line, "done": outcome.done})

    def refuse(self, tap: Json, line: str) -> None:
        """Tell the page that its login may not do what it has sent."""
        self._tell({"refused": tap.get("key"), "line": line})

    def end(self) -> None:
        """Note that the page is gone: it is told nothing more."""
        self._over = True

    def _on_known(self, tap: Json, session: str, tasks: TaskGroup, outcome: Outcome | None) -> None:
        if self._over:
            return
        if outcome is None:  # the line over which it came was cut meanwhile
            self.take(tap, session, tasks)
            return
        key = tap.get("key")
        if outcome.done:
            self._tell({"taken": key})
            if outcome.line:
                self._tell({"line": outcome.line})
        else:
            self._tell({"refused": key, "line": outcome.line})

    async def _carry(self, tap: Json, session: str, receipt: Receipt) -> None:
        outcome = None
        try:
            outcome = await self._outcome(tap, session)
        finally:
            self._count -= 1
            self._over |= outcome is None  # cancelled: another line may carry it out, not this one
            self._receipts.end(receipt, outcome)

    async def _outcome(self, tap: Json, session: str) -> Outcome:
        try:
            if tap.get("do") == "prompt":
                return await self._send(session, str(tap.get("text")), str(tap.get("key")))
            if (why := await self._apply(tap, session)) is not None:
                return Outcome(False, why)
            if tap.get("do") == "run":
                return await self._send(session, "/queue run", "run")
            return Outcome(True)
        except (RpcError, NoAnswer, ConnectionLost) as why:
            said = why.message if isinstance(why, RpcError) else str(why)
            return Outcome(False, one_line(said, 500))

    async def _send(self, session: str, said: str, key: str) -> Outcome:
        sender = Sender()
        folder = await self._ways.folder(session)
        async with self._ways.connection(sender) as connection:
            await sender.send(connection, session, folder, said, key)
        return Outcome(True, harmless(sender.said))

    async def _apply(self, tap: Json, session: str) -> str | None:
        """Carry a tap out in the session that the page shows, or by a client that comes for it."""
        opened = self._ways.opened()
        if opened is not None and opened.session_id == session:
            with anyio.move_on_after(_OPENS):
                await opened.hands.settled.wait()
            if opened.hands.open_now:
                try:
                    return await opened.apply(tap)
                except ConnectionLost:
                    pass  # it was left meanwhile: what was done already is seen below
        return await self._apart(tap, session)

    async def _apart(self, tap: Json, session: str) -> str | None:
        ends = tap.get("do") in ("stop", "answer")
        if ends and not await self._is_live(session):
            return taps.TURN_ENDED
        lock = self._apart_in.setdefault(session, anyio.Lock())
        async with lock:
            return await self._by_hands(tap, session, ends=ends)

    async def _by_hands(self, tap: Json, session: str, *, ends: bool) -> str | None:
        hands = Hands(session, self._login, asks=tap.get("do") == "answer")
        client = _name_apart(self._client, session)
        folder = await self._ways.folder(session)
        # the transcript says who has answered
        method = acp.SESSION_LOAD if tap.get("do") == "answer" else acp.SESSION_RESUME
        async with self._ways.connection(hands) as connection:
            try:
                await hands.open(connection, folder, method, client)
            except RpcError as why:
                if ends and why.code == ErrorCode.RESOURCE_NOT_FOUND:
                    return taps.TURN_ENDED
                raise
            await hands.settle()
            return await hands.apply(tap)

    async def _is_live(self, session: str) -> bool:
        async with self._ways.connection(NullListener()) as connection:
            await connection.initialize("acp-bridge page", within=_PATIENCE)
            return await is_live(connection, session)


def _name_apart(client: str | None, session: str) -> str | None:
    """Return the name of the client that carries out taps in a session that is not shown.

    The same name would take the place of the client that shows a session, or of one that carries
    out taps in another session.
    """
    if client is None:
        return None
    return hashlib.sha256(f"taps of {client} in {session}".encode(errors="replace")).hexdigest()


class Sender:
    """The listener of the connection over which one prompt is sent."""

    def __init__(self) -> None:
        self._sent: Sent | None = None
        self._done = anyio.Event()
        #: the text of the bridge's notices, its answer to a command such as `/queue`.
        self.said = ""

    def on_notification(self, method: str, params: Any) -> None:
        """Note that the prompt is on disk, or collect the text of a notice."""
        params = as_object(params)
        if self._sent is None:
            return
        if method == acp.ACCEPTED and params.get("requestId") == self._sent.id:
            self._done.set()
        elif method == acp.SESSION_UPDATE and own_meta(params).get(acp.NOTICE) is True:
            content = as_object(as_object(params.get("update")).get("content"))
            self.said += str(content.get("text", ""))

    def on_request(self, request: BridgeRequest) -> None:
        """Refuse a question by raising RpcError: other clients have a person to ask."""
        raise RpcError(ErrorCode.METHOD_NOT_FOUND, "this client only sends a prompt")

    def on_withdrawn(self, request: BridgeRequest) -> None:
        """Do nothing: no request is open."""

    async def room(self) -> None:
        """Return at once: there is nothing to wait for."""

    async def send(
        self, connection: Connection, session_id: str, cwd: str, text: str, key: str
    ) -> None:
        """Send a prompt under an idempotency key, and wait until it is on disk or answered.

        Raises RpcError, NoAnswer, ConnectionLost.
        """
        await connection.initialize("acp-bridge page", own=_ABILITIES, within=_ANSWERS_WITHIN)
        resume = {"sessionId": session_id, "cwd": cwd, "mcpServers": []}
        await connection.request(acp.SESSION_RESUME, resume, within=_ANSWERS_WITHIN)
        prompt: Json = {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}
        params = acp.with_own_meta(prompt, {acp.PROMPT_KEY: key})
        sent = self._sent = connection.send(acp.SESSION_PROMPT, params)
        sent.when_answered(self._done.set)
        with anyio.move_on_after(_ANSWERS_WITHIN):
            await self._done.wait()
        if sent.answered.is_set() or not self._done.is_set():
            await sent.result(within=0)
