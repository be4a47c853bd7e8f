"""The way of updates to the client: first into the journal, then out, in order.

- What is shown was recorded before (HAZARDS T2, K1): one row and one write for each batch.
- While a load replays, what happens meanwhile waits behind it, recorded already.
- A journal that can't be written is said once in the session; the turn goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import anyio

from acp_bridge.journal.errors import JournalError
from acp_bridge.journal.session import SessionJournal
from acp_bridge.log import event
from acp_bridge.updates import is_state, text_chunk
from acp_bridge.wire.jsonrpc import encode

_UNRECORDED = (
    "[acp-bridge] The journal can't be written: what follows is shown but will not be there"
    " when this session is loaded again. Is the disk full?"
)
_INTERRUPTED = (
    "[acp-bridge] Interrupted: the bridge ended during this turn. The prompt was not sent again."
)


class Outlet:
    """Shows updates of one session; `write` sends bytes to the client."""

    def __init__(
        self, session_id: str, journal: SessionJournal, write: Callable[[bytes], None]
    ) -> None:
        self._session_id = session_id
        self._journal = journal
        self._write = write
        sid = encode({"": session_id})[4:-2]
        self._head = (
            b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":' + sid + b","
        )
        self._rows: list[bytes] = []
        self._lines: list[bytes] = []
        self._waiting: list[Callable[[], None]] | None = None
        self._recorded = True
        #: the journal's number of the running turn, 0 outside of one.
        self.turn = 0
        #: bytes that wait behind a replay, and when they go on.
        self.held_bytes = 0
        self.loaded = anyio.Event()

    def show(self, params: dict[str, Any]) -> None:
        """Record and show one update: `params` of `session/update` without the session's id."""
        line = encode(params)
        if is_state(params["update"]):
            self._keep_state(params)
        else:
            self._rows.append(line)
        self._lines.append(self._head + line[1:-1] + b"}\n")

    def record_only(self, params: dict[str, Any]) -> None:
        """Record what the client shows by itself: the user's own words."""
        self._rows.append(encode(params))

    def record_interrupted(self) -> None:
        """Record that the bridge ended during the turn: whoever loads the session is told (Q6)."""
        message_id = f"interrupted-{uuid4().hex[:12]}"
        chunk = text_chunk("agent_message_chunk", _INTERRUPTED, message_id)
        self.record_only({"update": chunk})

    def notice(self, text: str) -> None:
        """Say something of the bridge's own in the session."""
        message_id = f"acp-bridge-{uuid4().hex[:12]}"
        chunk = text_chunk("agent_message_chunk", f"{text}\n\n", message_id)
        self.show({"update": chunk, "_meta": {"acp_bridge": {"notice": True}}})

    def end_turn(self, seq: int) -> None:
        """What was shown until now belongs to the turn; what follows to none."""
        if seq == self.turn:
            self.flush()
            self.turn = 0

    def flush(self) -> None:
        """Commit what was collected, then send it."""
        if self._rows:
            self._record(b"".join(self._rows))
            self._rows.clear()
        if self._lines:
            data = b"".join(self._lines)
            self._lines.clear()
            if self._waiting is not None:
                self.held_bytes += len(data)
            self.then(lambda: self._write(data))

    def then(self, action: Callable[[], None]) -> None:
        """Do this when all that was shown before is on its way."""
        if self._waiting is None:
            action()
        else:
            self._waiting.append(action)

    def show_only(self, params: dict[str, Any]) -> None:
        """Show one update in its order, without recording it."""
        self.then(lambda: self.replay(params))

    def replay(self, params: dict[str, Any]) -> None:
        """Send an update that is recorded already, past what waits."""
        self._write(self._head + encode(params)[1:-1] + b"}\n")

    def hold(self) -> None:
        """A replay begins: what is shown from now on waits."""
        self.flush()
        self._waiting = []
        self.loaded = anyio.Event()

    def let_go(self) -> None:
        """The replay is over."""
        waiting, self._waiting = self._waiting or [], None
        self.held_bytes = 0
        for action in waiting:
            action()
        self.loaded.set()

    def _record(self, rows: bytes) -> None:
        try:
            self._journal.record(self.turn, rows)
            self._recorded = True
        except JournalError as exc:
            event("journal.failed", session=self._session_id, what=exc)
            if self._recorded:
                self._recorded = False
                chunk = {"update": text_chunk("agent_message_chunk", _UNRECORDED)}
                self._lines.append(self._head + encode(chunk)[1:-1] + b"}\n")

    def _keep_state(self, params: dict[str, Any]) -> None:
        try:
            self._journal.set(f"state:{params['update']['sessionUpdate']}", params)
        except JournalError as exc:
            event("journal.failed", session=self._session_id, what=exc)
