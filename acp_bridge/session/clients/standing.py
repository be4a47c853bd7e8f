"""Where one session stands, told to the clients that want to know at each change.

It is told past any quiet, since it is no update of the session, and to a client that is being
shown the session only behind that. That it is closed is told only if somebody has closed it: when
the bridge ends, the session is kept, and may be opened elsewhere at once.
"""

from __future__ import annotations

from typing import Final

import anyio

from acp_bridge import notices
from acp_bridge.machine.states import Standstill, State
from acp_bridge.protocol import CLOSED_STATE, SESSION_STATE, Json
from acp_bridge.session.core import Core, SessionState
from acp_bridge.session.prompts.prompts import Prompts
from acp_bridge.session.transcript.client_view import ClientView
from acp_bridge.session.transcript.transcript_out import TranscriptOut

#: characters of a prompt that are told.
_LENGTH: Final = 200
#: the words for states that nothing else decides.
_WORDS: Final = {
    State.CLOSED: CLOSED_STATE,
    State.DRAINING: "cancelling",
    State.BLOCKED: "blocked",
    State.UNAUTHENTICATED: "blocked",
}


class Standing:
    """Tells one session's state."""

    def __init__(
        self,
        core: Core,
        transcript: TranscriptOut,
        prompts: Prompts,
    ) -> None:
        """The session has no client yet."""
        #: somebody closes the session for all.
        self.closing = False
        self._core = core
        self._transcript = transcript
        self._prompts = prompts
        self._word = "idle"
        self._since = anyio.current_time()
        self._told: tuple[object, ...] = ()

    def follow(self, after: SessionState) -> None:
        """Tell a change; nothing is told of a bridge's end."""
        now = after.turns
        if now.ending and not self.closing:
            return
        word = self._word_for(after)
        if word != self._word:
            self._word, self._since = word, anyio.current_time()
        stands = word, len(now.waiting), after.around.clients, now.running
        if stands != self._told:
            self._told = stands
            for view in self._transcript.views:
                self._tell(view)

    def welcome(self) -> None:
        """Tell all where the session stands: one more client has been shown it."""
        self._told = ()
        self.follow(self._core.state)

    def row(self) -> Json:
        """Return what `_acp_bridge/live` lists of the state."""
        self.follow(self._core.state)
        row = self._params()
        if asked := self._core.state.around.asked:
            more = f" (and {len(asked) - 1} more)" if len(asked) > 1 else ""
            row["asks"] = asked[0] + more
        return row

    def _tell(self, view: ClientView) -> None:
        if not view.client.hears_state or view.replaying:
            return
        told, now = self._params(), self._core.now
        if (key := now.running) is not None:
            prompt = self._prompts.get(key)
            mine = self._prompts.asker(now.unanswered[0]) is view.client
            text = notices.first_line(prompt.params["prompt"], _LENGTH)
            told["turn"] = {"promptId": prompt.prompt_id, "mine": mine, "text": text}
        view.client.peer.notify(SESSION_STATE, told)

    def _params(self) -> Json:
        return {
            "sessionId": self._core.id,
            "state": self._word,
            "seconds": int(anyio.current_time() - self._since),
            "waiting": len(self._core.now.waiting),
            "clients": len(self._transcript.views),
        }

    def _word_for(self, stand: SessionState) -> str:
        now = stand.turns
        state, stands = now.state, now.standstill
        ends = state is State.KILLING and now.running is not None
        if word := "cancelling" if ends else _WORDS.get(state):
            return word
        if stands is Standstill.PAUSED:
            return "paused"
        if stand.around.asked:
            return "permission"
        if state is State.RUNNING:
            return "running"
        if stands is not Standstill.OPEN:
            return "held"
        if now.asleep:
            return "asleep"
        if state in (State.STARTING, State.RELOADING, State.KILLING):
            return self._word if self.closing else "starting"  # nothing starts then
        return "running" if now.unanswered else "idle"
