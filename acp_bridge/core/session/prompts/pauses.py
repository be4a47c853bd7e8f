"""Pause, hold and go of one session: the user's word, the agent's part, and what clients are told.

The machine decides (`machine.states.Gate`). Each change is told to every client: in a quiet
`session_info_update` for programs, and in a sentence for people. While a prompt waits for the
user's go, that update comes again each minute, as a sign of life.
"""

from __future__ import annotations

from typing import Final

import anyio

from acp_bridge.core.agents.link import Link
from acp_bridge.core.clients.client import Client, ClientRequest
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.states import Standstill
from acp_bridge.core.protocol import (
    CAN_PAUSE,
    GO,
    HOLD,
    INFO_UPDATE,
    PAUSE,
    ErrorCode,
    Json,
    can_own,
    with_own_meta,
)
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.core import Core, SessionState
from acp_bridge.core.session.opening import in_words
from acp_bridge.core.session.transcript.transcript_out import TranscriptOut
from acp_bridge.core.updates import notices
from acp_bridge.core.wire.jsonrpc import Answer, Err, Ok, RpcError

#: the methods that are the user's word, as `/queue pause` and its kin are.
METHODS: Final = frozenset({PAUSE, HOLD, GO})
#: the member by which clients are told of a hold that a usage limit has caused.
USAGE_LIMIT: Final = "usageLimit"


class Pauses:
    """Carries the user's pause, hold and go to machine and agent, and tells clients the result."""

    def __init__(self, core: Core, transcript: TranscriptOut, capabilities: object) -> None:
        """`capabilities`: the agent's."""
        self._core = core
        self._can_pause = can_own(capabilities, CAN_PAUSE)
        self._transcript = transcript
        #: how far the pause or hold had come when the clients were told last.
        self.told = Standstill.OPEN
        self._since = 0.0
        #: why the queue is held, in a notice, and what clients are told of it; None if that is the
        #: user's own word.
        self.because: str | None = None
        self._why: Json = {}
        #: why the agent did not pause, when it was asked last.
        self._refusal = ""

    # --- the user's word -----------------------------------------------------------------------

    def take(self, request: ClientRequest) -> None:
        """Answer one of `METHODS` with the state that it leads to; raises RpcError."""
        self._transcript.end_quiet(request.client)
        if request.method == PAUSE and not self._can_pause:
            raise RpcError(ErrorCode.METHOD_NOT_FOUND, notices.CANNOT_PAUSE)
        self._take_over()
        match request.method:
            case m if m == PAUSE:
                self._core.feed(ev.Pause())
            case m if m == HOLD:
                self._core.feed(ev.HoldQueue())
            case _:
                self.go()
        result = {"state": self._core.now.standstill.value}
        self._transcript.then(request.client, lambda: request.answer(result))

    def command(self, word: str) -> None:
        """Do what `/queue pause`, `hold` or `go` says, and say what came of it."""
        before = self._core.now.standstill
        if word == "pause" and not self._can_pause:
            self._transcript.notice(notices.CANNOT_PAUSE)
            return
        self._take_over()
        match word:
            case "pause":
                self._core.feed(ev.Pause())
            case "hold":
                self._core.feed(ev.HoldQueue())
            case _ if before is Standstill.OPEN:
                self._transcript.notice(notices.NOTHING_PAUSED)
                return
            case _:
                self.go()
                return
        after = self._core.now.standstill
        if after is Standstill.OPEN:
            self._transcript.notice(notices.NOTHING_TO_PAUSE)
        elif after is before:  # a change is said by `follow`
            self._transcript.notice(self.said or notices.STANDSTILL[after.value])

    def _take_over(self) -> None:
        """Make a hold for a usage limit the user's own, so that only their go ends it."""
        if self.behind_limit:
            self.because = None

    def hold_because(self, said: str, why: Json) -> None:
        """Hold the queue for another reason than the user's word, also if it is held already.

        `said`: the notice, `why`: what clients are told.
        """
        held = self._core.now.standstill is Standstill.HELD
        self.because, self._why = said, why
        self._core.feed(ev.HoldQueue())
        if held:
            self._transcript.show_only(self._update())
            self._transcript.notice(said)

    def go(self, said: str = notices.GOES_ON) -> None:
        """End a pause or a hold, and say so."""
        if self._core.now.standstill is not Standstill.OPEN:
            self._transcript.notice(said)
            self._core.feed(ev.Go())

    def note_prompt(self, client: Client, *, interrupts: bool) -> None:
        """Tell a client that its new prompt waits for go: a pause or a hold lasts."""
        if self._core.now.standstill is Standstill.HELD or not interrupts:
            self._transcript.show_to(client, notices.notice(notices.WAITS_FOR_GO))

    # --- the agent's part ----------------------------------------------------------------------

    def ask_agent(self, link: Link, token: int) -> None:
        """Ask the agent to pause its turn; it answers when the turn waits."""
        epoch, self._refusal = link.epoch, ""

        def answered(answer: Answer) -> None:
            match answer:
                case Ok({"paused": True}):
                    paused = True
                case Err(error):
                    self._refusal, paused = in_words(error), False
                case _:
                    paused = False
            self._core.feed(ev.PauseAnswered(epoch, token, paused))

        link.request_for(None, PAUSE, {"sessionId": link.agent_session_id}, answered)

    def tell_agent(self, link: Link) -> None:
        """Tell the agent that the turn goes on."""

        def answered(answer: Answer) -> None:
            if isinstance(answer, Err):
                event("agent.go_refused", agent=link.name, what=answer.error.message)

        link.request_for(None, GO, {"sessionId": link.agent_session_id}, answered)

    # --- what clients are told -----------------------------------------------------------------

    @property
    def state(self) -> Json | None:
        """The state of the pause or hold as clients are told it; None if there is neither."""
        return None if self.told is Standstill.OPEN else self._shown()

    @property
    def behind_limit(self) -> bool:
        """True if the queue is held for a usage limit."""
        return self.because is not None and USAGE_LIMIT in self._why

    @property
    def said(self) -> str | None:
        """The sentence about a pause or hold, for those who come later; None if there is none."""
        return self.because or notices.STANDSTILL.get(self.told.value)

    def follow(self, before: SessionState, after: SessionState) -> None:
        """Tell the clients when a pause or a hold has begun, ended or come further."""
        stands = after.turns.standstill
        refused = self.told is Standstill.PAUSING and stands is Standstill.HELD
        self.told, self._since = stands, anyio.current_time()
        if stands is Standstill.OPEN:
            self.because = None
        if after.turns.ending:
            return
        self._transcript.show_only(self._update())
        if refused and self._refusal:
            self._transcript.notice(notices.not_paused(self._refusal))
        elif said := self.said:
            self._transcript.notice(said)

    def give_sign(self) -> None:
        """Send the pause's state to every client that can be shown updates, as a sign of life."""
        self._transcript.show_now(self._update())

    def _update(self) -> Json:
        return with_own_meta({"update": {"sessionUpdate": INFO_UPDATE}}, {"pause": self._shown()})

    def _shown(self) -> Json:
        seconds = round(anyio.current_time() - self._since)
        why = self._why if self.because else {}
        return {"state": self.told.value, "seconds": seconds, **why}
