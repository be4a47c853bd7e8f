"""One session that is open on a page: a client of the bridge that shows, answers and sets.

Each prompt is sent by a client of its own that leaves as soon as the prompt is on disk, as
`acp-bridge send` does. So this client is shown the words of a prompt when its turn begins, and a
page that is gone takes no prompt with it.

Invariants
- An answer goes to the very question that was shown: one that the agent has changed is another.
- The updates of the replay are put on the page together, once the load is answered.
- A slow page holds up nobody: it is told less often, and misses only intermediate states.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, Final

import anyio
import anyio.lowlevel

from acp_bridge import errors
from acp_bridge import protocol as acp
from acp_bridge.bridge_client.connection import Connection
from acp_bridge.bridge_client.listener import BridgeRequest
from acp_bridge.bridge_client.permission_options import options_of, selected
from acp_bridge.bridge_client.sent import ConnectionLost, NoAnswer, Sent
from acp_bridge.protocol import CANCELLED_PERMISSION, ErrorCode, Json, as_object
from acp_bridge.remote.page import parts
from acp_bridge.remote.page.have import Have
from acp_bridge.remote.page.shown import SessionShown
from acp_bridge.updates import tool_calls
from acp_bridge.view.block_text import harmless, one_line
from acp_bridge.view.markup import text
from acp_bridge.view.queue_rows import Row, moved, rows
from acp_bridge.view.settings_shown import SettingsShown
from acp_bridge.view.standing import standing
from acp_bridge.wire.jsonrpc import RpcError

#: seconds for the answer to `initialize`, and to a load: the agent may have to start.
_PATIENCE: Final = 5.0
_LOADS: Final = 120.0
#: seconds in which changes are gathered before the page is told; at least `_PAUSES` times as long
#: as the last telling took, since the bridge does nothing else meanwhile.
_GATHERED: Final = 0.05
_PAUSES: Final = 4
_ABILITIES: Final = dict.fromkeys(
    (acp.HEARS_STATE, acp.HEARS_QUEUE, acp.WHOLE_CALLS, acp.HAS_STOP, acp.TAKES_CURSORS), True
)

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
        asks: bool,
        may_all: bool,
    ) -> None:
        """`asks`: the page may answer questions; `may_all`: it may prompt and change settings, too.

        `room` waits until the page has taken most of what it was sent.
        """
        self.session_id = session_id
        self._tell, self._room = tell, room
        self._asks, self._may_all = asks, may_all
        self._shown = SessionShown()
        self._settings = SettingsShown()
        self._rows: tuple[Row, ...] = ()
        self._questions: dict[int, BridgeRequest] = {}
        self._asked = 0
        self._state: Json = {}
        self._connection: Connection | None = None
        self._is_open = False
        self._wake = anyio.Event()

    # -- its life

    async def run(
        self, connection: Connection, cwd: str, client: str | None, have: Have | None = None
    ) -> None:
        """Load the session and keep the page up to date until cancelled, or the bridge leaves.

        `have`: what the page has of the session already.
        """
        self._connection = connection
        own = {**_ABILITIES, acp.CLIENT_NAME: client} if client else dict(_ABILITIES)
        try:
            await connection.initialize("acp-bridge page", own=own, within=_PATIENCE)
            load = {"sessionId": self.session_id, "cwd": cwd, "mcpServers": []}
            found = as_object(await connection.request(acp.SESSION_LOAD, load, within=_LOADS))
        except (RpcError, NoAnswer, ConnectionLost) as why:
            data = why.data if isinstance(why, RpcError) else None
            _, address = errors.held_at(data) or ("", None)
            html = parts.unopened(_told(why), address, self.session_id)
            self._tell({"put": "state", "html": html})
            return
        self._settings.opened(found)
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
            await connection.ended.wait()
            tasks.cancel_scope.cancel()
        self._tell({"put": "state", "html": text("the session was left: open it again")})

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
        if params.get("sessionId") != self.session_id:
            return
        match method:
            case acp.SESSION_UPDATE:
                self._on_update(params)
            case acp.SESSION_STATE:
                self._on_state(params)
            case acp.QUEUE:
                self._rows = rows(params)
                self._tell({"put": "queue", "html": parts.queue(self._rows, may=self._may_all)})

    def _on_update(self, params: Json) -> None:
        self._shown.on_update(params)
        update = params.get("update")
        if isinstance(update, dict):
            before = self._settings.title
            changed = self._settings.note_update(update)
            if changed and self._is_open:
                self._tell_settings()
            if self._settings.title != before:
                self._tell({"put": "title", "html": text(self._settings.title)})
        if self._is_open:
            self._wake.set()

    def _on_state(self, params: Json) -> None:
        was, now = standing(self._state), standing(params)
        self._state = params
        self._tell({"put": "state", "html": parts.state(params), "busy": now.busy})
        if was.busy and not now.busy:
            self._shown.end_message()
            self._wake.set()
        if now.closed:
            self._line("the session was closed")

    def on_request(self, request: BridgeRequest) -> None:
        """Show a permission question. Raises RpcError for any other request: none is supported."""
        if request.method != acp.REQUEST_PERMISSION or not self._asks:
            raise RpcError(ErrorCode.METHOD_NOT_FOUND, f"{request.method} is not done here")
        if not options_of(request.params):
            request.answer(CANCELLED_PERMISSION)
            return
        self._asked += 1
        self._questions[self._asked] = request
        if self._is_open:
            self._flush()  # what was said before it stands above it
        html = parts.question(self._asked, request.params, may=self._asks)
        self._tell({"add": "questions", "id": f"q{self._asked}", "html": html})
        title = tool_calls.title(as_object(request.params.get("toolCall")))
        self._tell({"say": f"The agent asks: {harmless(title)}"})

    def on_withdrawn(self, request: BridgeRequest) -> None:
        """Remove a question from the page that was settled elsewhere, or is asked anew."""
        request.give_up()
        for number, asked in list(self._questions.items()):
            if asked is request:
                self._forget(number)
                self._tell({"say": "A question is not asked any more"})

    async def room(self) -> None:
        """Return at once: a slow page holds up nobody, as only the last state is kept for it."""

    # -- what a person does

    def answer(self, number: int, option: int) -> None:
        """Answer the question of a number with the option at the index `option` of its list."""
        request = self._questions.get(number)
        if request is None:
            self._line("that question is not asked any more: nothing was answered")
            return
        options = options_of(request.params)
        if 0 <= option < len(options):
            request.answer(selected(options[option]["optionId"]))
            self._forget(number)

    def stop(self) -> None:
        """Stop the turn that runs, whoever sent its prompt, or work of the agent without a turn."""
        self._ask_for(acp.CANCEL_TURN, {})

    def drop(self, prompt_id: str) -> None:
        """Drop a waiting prompt from the queue."""
        self._ask_for(acp.QUEUE_DROP, {"promptId": prompt_id})

    def move(self, prompt_id: str, by: int) -> None:
        """Move a waiting prompt by one place in the queue: up if `by` is -1, down if 1."""
        if (params := moved(self._rows, prompt_id, by)) is not None:
            self._ask_for(acp.QUEUE_MOVE, params)

    def choose(self, kind: str, at: int) -> None:
        """Set the mode or the model (`kind`) to the value at the index `at` of its list."""
        choices = self._settings.choices(kind)
        if choices is None or not 0 <= at < len(choices.values):
            return
        value = choices.values[at].id
        method, params = self._settings.chosen(kind, value)

        def was_set(result: Json) -> None:
            self._settings.was_set(kind, value, result)
            self._tell_settings()

        self._ask_for(method, params, was_set)

    def show_earlier(self) -> None:
        """Put some earlier pieces of the session before those on the page."""
        if self._is_open:
            for each in self._shown.earlier():
                self._tell(each)

    def say(self, line: str) -> None:
        """Show the user a line of text."""
        self._line(line)

    # -- internal

    def _ask_for(
        self, method: str, params: Json, then: Callable[[Json], None] | None = None
    ) -> None:
        if self._connection is None:
            return
        sent = self._connection.send(method, {"sessionId": self.session_id, **params})
        sent.when_answered(lambda: self._answered(sent, then))

    def _answered(self, sent: Sent, then: Callable[[Json], None] | None) -> None:
        try:
            result = as_object(sent.outcome())
        except RpcError as error:
            self._line(_told(error))
            self._tell_settings()
        except ConnectionLost:
            pass
        else:
            if then is not None:
                then(result)

    def _tell_settings(self) -> None:
        if self._may_all:
            self._tell({"put": "settings", "html": parts.settings(self._settings)})

    def _forget(self, number: int) -> None:
        del self._questions[number]
        self._tell({"remove": f"q{number}"})

    def _line(self, line: str) -> None:
        self._tell({"line": harmless(line)})


def _told(why: Exception) -> str:
    if isinstance(why, RpcError) and why.code == ErrorCode.RESOURCE_NOT_FOUND:
        return parts.UNKNOWN
    return harmless(why.message if isinstance(why, RpcError) else str(why))
