"""The list of sessions on a page: all of them, page by page, searched, and kept up to date.

Invariants
- It asks the bridge for nothing but `session/list` and `_acp_bridge/live`: so it has what the login
  may see, and no more.
- What has not changed is not sent again, and what stands on the page is never emptied for a moment.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from time import perf_counter
from typing import Final

import anyio

from acp_bridge.core import protocol as acp
from acp_bridge.core.journal.records import days_ago
from acp_bridge.core.protocol import Json, as_object, objects
from acp_bridge.remote.page import parts
from acp_bridge.remote.page.list_rows import Change, Wish, change, chosen, matching
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.sent import Sent
from acp_bridge.terminal.view.block_text import one_line
from acp_bridge.terminal.view.element import element

#: seconds for an answer of the bridge, and after which some of the rows are shown without the rest.
_PATIENCE: Final = 30.0
_FIRST: Final = 0.3
#: seconds between two looks; at least `_PAUSES` times as long as the last look took.
_LOOKS: Final = 2.0
_PAUSES: Final = 10
#: the most sessions that are read before somebody searches.
_AHEAD: Final = 5_000
#: the most pages of `session/list` that are read: 50,000 sessions.
_MOST_PAGES: Final = 1_000


async def pages(connection: Connection) -> AsyncIterator[tuple[list[Json], bool]]:
    """Yield the stored sessions page by page, the newest first, and True with the last page.

    Raises RpcError, NoAnswer, ConnectionLost.
    """
    cursor = None
    for number in range(_MOST_PAGES):
        asked: Json = {"cursor": cursor} if cursor else {}
        found = as_object(await connection.request(acp.SESSION_LIST, asked, within=_PATIENCE))
        cursor = found.get("nextCursor")
        last = not isinstance(cursor, str) or not cursor or number == _MOST_PAGES - 1
        yield objects(found.get("sessions")), last
        if last:
            return


async def live(connection: Connection) -> list[Json]:
    """Return a row for each live session. Raises RpcError, NoAnswer, ConnectionLost."""
    found = as_object(await connection.request(acp.LIVE, {}, within=_PATIENCE))
    return objects(found.get("sessions"))


async def find(connection: Connection, session_id: str) -> Json | None:
    """Return the row of a session that this login may see; None if there is none.

    Raises RpcError, NoAnswer, ConnectionLost.
    """
    rows = await live(connection)
    async for page, _ in pages(connection):
        rows += page
        for row in rows:
            if row.get("sessionId") == session_id:
                return row
        rows = []
    return None


class Listing:
    """The list view of one page."""

    def __init__(
        self, tell: Callable[[Json], None], room: Callable[[], Awaitable[None]], wish: Wish
    ) -> None:
        """`room` waits until the page has taken most of what it was sent.

        `wish`: what the page wants to see of the list.
        """
        self._tell, self._room = tell, room
        self._wish = wish
        #: the stored sessions as they were read last, and the live ones.
        self._kept: dict[str, Json] = {}
        self._live: dict[str, Json] = {}
        #: True if there are no stored sessions but those in `_kept`.
        self._all = False
        #: all stored sessions that were read, for a search to begin with; some may be gone.
        self._known: dict[str, Json] = {}
        self._agent = ""
        self._shown = 0.0
        self._told = Change.none()
        self._wished = anyio.Event()

    def want(self, wish: Wish) -> None:
        """Show other rows from now on."""
        if wish != self._wish:
            self._wish = wish
            self._kept, self._all = self._known, False
            self._wished.set()

    def row(self, session_id: str) -> Json | None:
        """Return the row of a session that is known here."""
        return self._live.get(session_id) or self._kept.get(session_id)

    async def run(self, connection: Connection, agent: str) -> None:
        """Keep the page's list up to date until cancelled.

        `agent`: the agent whose sessions these are. Raises RpcError, NoAnswer, ConnectionLost.
        """
        self._agent, self._shown = agent, perf_counter()
        while True:
            self._wished = anyio.Event()
            await self._room()
            if self._kept or self._live:
                self._show()  # what is known is there at once
            began = perf_counter()
            await self._look(connection)
            if len(self._known) == len(self._kept) and not self._all:
                await self._read_ahead(connection)
            took = perf_counter() - began
            with anyio.move_on_after(max(_LOOKS, _PAUSES * took)):
                await self._wished.wait()

    async def _look(self, connection: Connection) -> None:
        """Read as many sessions as the page wants to see, and show them.

        It ends early when the page wants to see others.
        """
        sent = connection.send(acp.LIVE, {})
        await self._wait(sent, _FIRST)
        kept: dict[str, Json] = {}
        count, last = 0, False
        async for page, last in pages(connection):
            if sent.answered.is_set():
                self._note_live(sent.outcome())
            kept |= {str(row.get("sessionId")): row for row in page}
            count += len(matching(page, self._wish.words, self._agent))
            if count > self._wish.rows:
                break
            if self._wished.is_set():
                self._kept = {**self._kept, **kept}
                return
            if not self._all and not last and perf_counter() - self._shown > _FIRST:
                self._kept = {**self._kept, **kept}
                self._show()
        self._kept, self._all = kept, last
        self._known = kept if last else {**kept, **self._known, **kept}
        if not sent.answered.is_set():
            self._show()
            await self._wait(sent, _PATIENCE)
        if sent.answered.is_set():
            self._note_live(sent.outcome())
        self._show()

    async def _wait(self, sent: Sent, seconds: float) -> None:
        """Wait for an answer, or until the page wants to see other rows."""

        async def end(event: anyio.Event) -> None:
            await event.wait()
            tasks.cancel_scope.cancel()

        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(end, sent.answered)
                tasks.start_soon(end, self._wished)

    async def _read_ahead(self, connection: Connection) -> None:
        """Read all sessions once, so that a search finds them known."""
        async for page, last in pages(connection):
            self._known = {**self._known, **{str(row.get("sessionId")): row for row in page}}
            if last or self._wished.is_set() or len(self._known) >= _AHEAD:
                break

    def _note_live(self, result: object) -> None:
        rows = objects(as_object(result).get("sessions"))
        self._live = {str(row.get("sessionId")): row for row in rows}

    def _dated(self, session_id: str, row: Json) -> Json:
        """Return a live session's row with the time at which the session was used last.

        A session without a prompt is in no list: it was used when its state began.
        """
        if stored := self._kept.get(session_id) or self._known.get(session_id):
            return {**stored, **row}
        seconds = row.get("seconds")
        since = seconds if isinstance(seconds, int | float) and 0 <= seconds < 1e9 else 0
        return {**row, "updatedAt": days_ago(since / 86_400)}

    def _show(self) -> None:
        self._shown = perf_counter()
        live = {each: self._dated(each, row) for each, row in self._live.items()}
        rows = chosen(self._kept, live, self._wish.words, self._agent)
        shown = rows[: self._wish.rows]
        more = len(rows) > len(shown) or not self._all
        html = {f"l-{row['sessionId']}": parts.session(row) for row in shown}
        told = Change(self._wish.words, html, parts.more_sessions(len(shown)) if more else "")
        if not html:
            words = "Searching…" if more else "No sessions yet."
            if self._wish.words and not more:
                words = f"No name, folder or agent has “{one_line(self._wish.text, 60)}”."
            told = Change(self._wish.words, {"": element("li", words)}, "")
        for each in change(self._told, told):
            self._tell(each)
        self._told = told
