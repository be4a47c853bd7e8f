"""One session that is open on a page: a client of the bridge that shows it, and carries out taps.

Each prompt is sent by a client of its own that leaves as soon as the prompt is on disk, as
`acp-bridge send` does. So this client is shown the words of a prompt when its turn begins, and a
page that is gone takes no prompt with it.

Invariants
- The updates of the replay are put on the page together, once the load is answered.
- A slow page holds up nobody: it is told less often, and misses only intermediate states.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, Final

import anyio
import anyio.lowlevel

from acp_bridge.core import errors
from acp_bridge.core import protocol as acp
from acp_bridge.core.protocol import ErrorCode, Json, as_object
from acp_bridge.core.updates import tool_calls
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.remote.page import parts, taps
from acp_bridge.remote.page.hands import Asked, Hands
from acp_bridge.remote.page.have import Have
from acp_bridge.remote.page.shown import SessionShown
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import BridgeRequest
from acp_bridge.sharing.bridge_client.sent import ConnectionLost, NoAnswer
from acp_bridge.terminal.view.block_text import harmless, one_line
from acp_bridge.terminal.view.element import text
from acp_bridge.terminal.view.standing import standing

#: seconds in which changes are gathered before the page is told; at least `_PAUSES` times as long
#: as the last telling took, since the bridge does nothing else meanwhile.
_GATHERED: Final = 0.05
_PAUSES: Final = 4

#: Sends the page a message, such as `{"put": ID, "html": HTML}`.
Tell = Callable[[Json], None]


class Opened:
    """The listener of a connection to the bridge, for one session of a page."""

    def __init__(
        self,
        session_id: str,
        tell: Tell,
        room: Callable[[], Awaitable[None]],
        *,
        login: str,
        asks: bool,
        may_all: bool,
    ) -> None:
        """`login`: its name. `asks`: the page may answer questions; `may_all`: it may prompt and
        change settings, too.

        `room` waits until the page has taken most of what it was sent.
        """
        self.session_id = session_id
        #: what carries out the user's taps.
        self.hands = Hands(session_id, login, asks=asks, gone=self._remove)
        self._tell, self._room = tell, room
        self._asks, self._may_all = asks, may_all
        self._shown = SessionShown()
        self._is_open = False
        self._wake = anyio.Event()

    # -- its life

    async def run(
        self, connection: Connection, cwd: str, client: str | None, have: Have | None = None
    ) -> None:
        """Load the session and keep the page up to date until cancelled, or the bridge leaves.

        `have`: what the page has of the session already.
        """
        try:
            await self.hands.open(connection, cwd, acp.SESSION_LOAD, client)
        except (RpcError, NoAnswer, ConnectionLost) as why:
            data = why.data if isinstance(why, RpcError) else None
            _, address = errors.held_at(data) or ("", None)
            html = parts.unopened(_told(why), address, self.session_id)
            self._tell({"put": "state", "html": html})
            return
        for _ in self._shown.digests(have):
            await anyio.lowlevel.checkpoint()
        self._is_open = True
        for each in self._shown.begin(have):
            self._tell(each)
        self._flush()
        self._tell_settings()
        self._tell({"opened": self.session_id})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_told)
            tasks.start_soon(self._settle)
            await connection.ended.wait()
            tasks.cancel_scope.cancel()
        self._tell({"put": "state", "html": text("the session was left: open it again")})

    async def _settle(self) -> None:
        try:
            await self.hands.settle()
        except (RpcError, NoAnswer, ConnectionLost):
            self.hands.end()  # taps are carried out by a client of their own

    async def _keep_told(self) -> None:
        took = 0.0
        while True:
            await self._wake.wait()
            await anyio.sleep(max(_GATHERED, _PAUSES * took))
            await self._room()  # over a slow line more is gathered
            self._wake = anyio.Event()
            began = perf_counter()
            self._flush()
            took = perf_counter() - began

    def _flush(self) -> None:
        for each in self._shown.changes():
            self._tell(each)
        if self._shown.behind:
            self._wake.set()

    # -- what the bridge sends

    def on_notification(self, method: str, params: Any) -> None:
        """Show an update, the state or the queue of the session, as the bridge tells it."""
        params = as_object(params)
        if method == acp.LET_GO:
            self._line(one_line(params.get("reason")))
        if method == acp.CANCEL_REQUEST:
            self.hands.on_notification(method, params)
        if params.get("sessionId") != self.session_id:
            return
        match method:
            case acp.SESSION_UPDATE:
                self._on_update(params)
            case acp.SESSION_STATE:
                self._on_state(params)
            case acp.QUEUE:
                self.hands.on_notification(method, params)
                queue = parts.queue(self.hands.rows, may=self._may_all)
                self._tell({"put": "queue", "html": queue})

    def _on_update(self, params: Json) -> None:
        self._shown.on_update(params)
        settings = self.hands.settings
        before = settings.title
        if self.hands.note_update(params) and self._is_open:
            self._tell_settings()
        if settings.title != before:
            self._tell({"put": "title", "html": text(settings.title)})
        if self._is_open:
            self._wake.set()

    def _on_state(self, params: Json) -> None:
        was, now = standing(self.hands.state), standing(params)
        self.hands.on_notification(acp.SESSION_STATE, params)
        stop = taps.stop_key(params)
        self._tell({"put": "state", "html": parts.state(params), "busy": now.busy, "stop": stop})
        if was.busy and not now.busy:
            self._shown.end_message()
            self._wake.set()
        if now.closed:
            self._line("the session was closed")

    def on_request(self, request: BridgeRequest) -> None:
        """Show a permission question. Raises RpcError for any other request: none is supported."""
        asked = self.hands.ask(request)
        if asked is None:
            return
        if self._is_open:
            self._flush()  # what was said before it stands above it
        html = parts.question(asked.number, asked.key, request.params, may=self._asks)
        self._tell({"add": "questions", "id": f"q{asked.number}", "html": html})
        title = tool_calls.title(as_object(request.params.get("toolCall")))
        self._tell({"say": f"The agent asks: {harmless(title)}"})

    def on_withdrawn(self, request: BridgeRequest) -> None:
        """Remove a question from the page that was settled elsewhere, or is asked anew."""
        self.hands.on_withdrawn(request)
        self._tell({"say": "A question is not asked any more"})

    async def room(self) -> None:
        """Return at once: a slow page holds up nobody, as only the last state is kept for it."""

    # -- what a person does

    async def apply(self, tap: Json) -> str | None:
        """Carry a tap out, as `Hands.apply` does."""
        try:
            return await self.hands.apply(tap)
        finally:
            if tap.get("do") == "set":
                self._tell_settings()  # the page shows what was chosen, set or not

    def show_earlier(self) -> None:
        """Put some earlier pieces of the session before those on the page."""
        if self._is_open:
            for each in self._shown.earlier():
                self._tell(each)

    # -- internal

    def _tell_settings(self) -> None:
        if self._may_all:
            self._tell({"put": "settings", "html": parts.settings(self.hands.settings)})

    def _remove(self, asked: Asked) -> None:
        self._tell({"remove": f"q{asked.number}"})

    def _line(self, line: str) -> None:
        self._tell({"line": harmless(line)})


def _told(why: Exception) -> str:
    if isinstance(why, RpcError) and why.code == ErrorCode.RESOURCE_NOT_FOUND:
        return parts.UNKNOWN
    return harmless(why.message if isinstance(why, RpcError) else str(why))
