"""One session at a terminal: what is shown, the prompts entered, the questions. No terminal I/O.

Invariants:
- Prompts are sent in the order of entering, one request each; the session's bridge queues them.
- Each question of the session gets at most one answer: the marked one, or by a cancel of its turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

import anyio

from acp_bridge.core import protocol as acp
from acp_bridge.core.protocol import CANCELLED_PERMISSION, ErrorCode, Json, as_object, own_meta
from acp_bridge.core.records import replace
from acp_bridge.core.settings import Delivery
from acp_bridge.core.updates import tool_calls
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import BridgeRequest
from acp_bridge.sharing.bridge_client.sent import ConnectionLost, Sent
from acp_bridge.terminal.chat.coming_back import ComingBack
from acp_bridge.terminal.chat.mentions import blocks_of
from acp_bridge.terminal.chat.own_prompts import OwnPrompts
from acp_bridge.terminal.chat.prompts import (
    Prompt,
    how_it_ended,
    refused,
    was_taken_back,
)
from acp_bridge.terminal.chat.questions import Held, Question, Questions, Taken, question
from acp_bridge.terminal.chat.queue_changes import QueueChanges
from acp_bridge.terminal.chat.queue_shown import QueueShown
from acp_bridge.terminal.chat.unprinted import Unprinted
from acp_bridge.terminal.view import decided
from acp_bridge.terminal.view.block_text import one_line
from acp_bridge.terminal.view.blocks import Block, Line, Tone
from acp_bridge.terminal.view.settings_shown import Command, SettingsShown
from acp_bridge.terminal.view.standing import Standing, standing
from acp_bridge.terminal.view.transcript import Transcript

#: seconds within which a second Ctrl-C leaves.
_TWICE: Final = 2.0
_MOST_WITHDRAWN: Final = 50


class OtherSessions(Protocol):
    """The commands about sessions beside the one that is open."""

    def run(self, name: str, rest: str) -> None:
        """Run the command `name`; `rest`: the text behind it."""

    def completions(self) -> list[Command]:
        """Return the sessions that may stand behind `/sessions`; reads the disk."""


class Conversation:
    """One session at a terminal; calls `changed` whenever the screen should be drawn again.

    It is the listener of its connection.
    """

    def __init__(
        self,
        folder: Path,
        changed: Callable[[], None],
        clock: Callable[[], float],
        *,
        read_only: bool = False,
        ring: Callable[[], None] = lambda: None,
        name: str | None = None,
    ) -> None:
        """`folder`: where mentioned files are looked for; `clock` returns seconds.

        `name`: the client's name, if it comes back on other connections.

        `ring` is called when the user is waited for: a question is shown, or all turns have ended.
        """
        self.folder, self.read_only = folder, read_only
        self.shown = SettingsShown()
        self.questions = Questions(clock)
        self.transcript = Transcript()
        self.unprinted = Unprinted(self.transcript)
        self.prompts = OwnPrompts(clock)
        self.back = ComingBack(name, self.prompts)
        #: the waiting prompts of all clients.
        self.queue = QueueShown(self.prompts)
        self.changes = QueueChanges(self.queue, self.prompts, folder, self._request, self.say)
        self.session_id: str | None = None
        #: set by whoever can open other sessions.
        self.others: OtherSessions | None = None
        #: set when any client has closed or deleted the session.
        self.closed = anyio.Event()
        #: the bridge's last word on the session's state; None if it does not tell.
        self.standing: Standing | None = None
        self._changed, self._clock, self._ring = changed, clock, ring
        self._connection: Connection | None = None
        self._interrupted: float | None = None
        #: the block of the shown question; None if it was printed on an earlier connection.
        self._card: Block | None = None
        #: the tool calls whose questions were withdrawn: it is not known yet who has decided.
        self._withdrawn: deque[object] = deque(maxlen=_MOST_WITHDRAWN)
        #: a prompt without a turn was shown below the one whose turn runs.
        self._said_aside = False

    # -- opening and ending

    def use(self, connection: Connection) -> None:
        """Use this connection to send from now on."""
        self._connection = connection

    def opened(
        self, session_id: str, result: Json, *, live: bool = False, header: str = ""
    ) -> None:
        """Note that the session is open, print the header, and send the prompts entered before.

        `live`: a turn may be running, so the last blocks of the transcript stay unfinished.
        """
        self.shown.opened(result)
        self.back.note_opened(result)
        if not live:
            self.transcript.end_turn()
        self.session_id = session_id
        self.unprinted.begin(session_id)
        if header:
            self.say(header)
        for prompt in [each for each in self.prompts.unanswered if each.sent is None]:
            self._send(prompt)
            if prompt.taken_back and prompt.sent and self._connection:
                self._connection.cancel(prompt.sent)
        self._changed()

    def lost(self) -> None:
        """Note that the connection has ended, and that another one is tried."""
        self._connection = None
        self.questions.remove_all()
        self.transcript.say_above(Line("the connection has ended: connecting again", Tone.ERROR))
        self.unprinted.collect()
        self._changed()

    def begin_anew(self) -> None:
        """Note that the session is shown from its beginning, once more."""
        self.back.forget()
        self.transcript.forget()
        self.unprinted.begin_anew()
        self.say("the session is shown anew")

    def end(self) -> None:
        """Note that the connection has ended; blocks that were read are still printed."""
        self._connection = None
        self.unprinted.begin("")

    @property
    def running(self) -> bool:
        """True while a turn runs, whichever client asked for it, or the agent works without one."""
        return self.prompts.begun is not None or bool(self.standing and self.standing.busy)

    @property
    def queued(self) -> list[Prompt]:
        """This terminal's prompts that wait in the queue."""
        return self.prompts.queued(self.standing, self.queue.order)

    def say(self, text: str, tone: Tone = Tone.NEWS) -> None:
        """Print a line of this program's own."""
        self.unprinted.say(Line(text, tone))
        self._changed()

    # -- what the bridge sends

    def on_notification(self, method: str, params: Any) -> None:
        """Show an update of the session, or handle another notification of its bridge."""
        params = as_object(params)
        match method:
            case acp.SESSION_UPDATE if self.back.shows(params):
                self.transcript.add_update(params)
                update = params.get("update")
                if isinstance(update, dict) and (news := self.shown.note_update(update)):
                    self.transcript.say(Line(news))
                self._note_decided(params)
            case acp.ACCEPTED:
                self.prompts.note_accepted(params.get("requestId"), params.get("promptId"))
                self._begin_next()
            case acp.SESSION_STATE:
                self._stands(standing(params))
            case acp.QUEUE:
                if self.queue.note(params):
                    self.changes.refresh()
            case acp.LET_GO if self.back.name is None:
                self.transcript.say(Line(one_line(params.get("reason")), Tone.ERROR))
        self.unprinted.collect()
        self._changed()

    def on_request(self, request: BridgeRequest) -> None:
        """Show a permission request. Raises RpcError for any other request: it is not supported."""
        if request.method != acp.REQUEST_PERMISSION:
            raise RpcError(ErrorCode.METHOD_NOT_FOUND, f"{request.method} is not done here")
        asked = question(request, request.params)
        if not asked.options:
            request.answer(CANCELLED_PERMISSION)
            return
        self.questions.add(asked)
        if self.questions.shown is asked:
            self._show_question()
        self._changed()

    def on_withdrawn(self, request: BridgeRequest) -> None:
        """Remove a question that another client has answered, or whose turn has ended."""
        request.give_up()
        was_shown = self.questions.shown
        if asked := self.questions.withdraw(request):
            self._withdrawn.append(asked.call.get("toolCallId"))
            self.say(f"no longer asked: {_title(asked)}")
            if asked is was_shown:
                self._show_question()

    async def room(self) -> None:
        """Wait until the terminal has printed most of the blocks; no more are read until then."""
        await self.unprinted.room()

    # -- what a person does

    def enter(self, text: str, *, steers: bool = False) -> None:
        """Send a prompt, or keep it until the session is open.

        `steers`: its words are to join the turn that runs, if one does.
        """
        if self.read_only:
            self.say("this only looks on: nothing was sent")
            return
        prompt = Prompt(text, blocks_of(text, self.folder))
        prompt.steers = steers and self.running and not prompt.has_no_turn
        self.prompts.unanswered.append(prompt)
        if self.session_id is not None and self._connection is not None:
            self._send(prompt)
        self._changed()

    def take_back(self) -> str | None:
        """Take the last waiting prompt of this terminal off the queue; return its text, or None."""
        if not (queued := self.queued):
            return None
        last = queued[-1]
        last.taken_back = True
        if not last.was_sent:
            self.prompts.unanswered.remove(last)
        elif last.sent is not None and self._connection is not None:
            self._connection.cancel(last.sent)
        self._changed()
        return last.text

    def keys_mark(self, line: str) -> bool:
        """Return True if a plain key can mark an answer; `line`: the text in the input line."""
        busy = line or self.queue.chosen or self.queue.editing
        return self.questions.shown is not None and not busy

    def press_enter(self) -> Taken | Held | None:
        """Answer the shown question with the marked answer, if Enter does that now.

        Return what Enter did; None: it is for the input line.
        """
        found = self.questions.enter()
        if isinstance(found, Taken):
            self._answer(found)
        elif found is Held.GONE:
            self.say("no longer asked: Enter again sends the line")
        return found

    def interrupt(self) -> bool:
        """Cancel the running turn; returns True, to leave, at a second call in 2 s.

        Without a connection it returns True at once.
        """
        now = self._clock()
        twice = self._interrupted is not None and now - self._interrupted < _TWICE
        self._interrupted = now
        if twice or self._connection is None:
            return True
        self.stop()
        return False

    def stop(self) -> None:
        """Cancel the running turn and what it asks."""
        if self._connection is None:
            if self.back.name is not None:
                self.say("not connected: nothing was stopped", Tone.ERROR)
            return
        for asked in self.questions.remove_all():
            if isinstance(asked.request, BridgeRequest):
                asked.request.answer(CANCELLED_PERMISSION)
        if self.prompts.begun is not None:
            self._connection.notify(acp.SESSION_CANCEL, {"sessionId": self.session_id})
        elif self.running and not self.read_only:
            self._connection.send(acp.CANCEL_TURN, {"sessionId": self.session_id})
        self._changed()

    @property
    def leaves_next(self) -> bool:
        """True if another Ctrl-C would leave."""
        return self._interrupted is not None and self._clock() - self._interrupted < _TWICE

    def choose(self, kind: str, value: str) -> None:
        """Send a request to set the mode or the model, by its id.

        The answer is shown when it comes.
        """
        if self._connection is None or self.session_id is None or self.read_only:
            self.say("this only looks on" if self.read_only else "the session is not open yet")
            return
        method, params = self.shown.chosen(kind, value)
        sent = self._connection.send(method, {"sessionId": self.session_id, **params})
        sent.when_answered(lambda: self._was_set(kind, value, sent))

    def open_call(self) -> None:
        """Print the whole of the last tool call, and of the one before it if called again."""
        if not self.transcript.open_call():
            self.transcript.say(Line("no tool call with output is left to open"))
        self.unprinted.collect()
        self._changed()

    def cycle_mode(self) -> None:
        """Set the next mode after the current one."""
        choices = self.shown.choices("mode")
        if choices is not None and (after := choices.after()) is not None:
            self.choose("mode", after.id)

    # -- internal

    def _request(self, method: str, params: Json) -> Sent | None:
        """Send a request about the session; None if there is no connection for it."""
        if self._connection is None or self.session_id is None:
            return None
        return self._connection.send(method, {"sessionId": self.session_id, **params})

    def _send(self, prompt: Prompt) -> None:
        assert self._connection is not None
        params: Json = {"sessionId": self.session_id, "prompt": prompt.blocks}
        own: Json = {"delivery": Delivery.STEER} if prompt.steers else {}
        if self.back.name is not None and not prompt.has_no_turn:
            own[acp.PROMPT_KEY] = prompt.key
        params = acp.with_own_meta(params, own) if own else params
        again, prompt.was_sent = prompt.was_sent, True
        prompt.sent = sent = self._connection.send(acp.SESSION_PROMPT, params)
        if again:
            pass  # the bridge tells where it stands
        elif prompt.has_no_turn or prompt.steers:
            self._say_aside(prompt)
            self.unprinted.collect()
        elif self.standing is None or self.standing.free:
            self._begin_next(at_once=True)
        sent.when_answered(lambda: self._answered(prompt, sent))

    def _begin_next(self, *, at_once: bool = False) -> None:
        """Show the first waiting prompt as begun, if its turn has begun."""
        if (first := self.prompts.begin_next(self.standing, at_once=at_once)) is not None:
            self.transcript.end_turn()
            if not (first.shown or (self.standing is not None and self.standing.edited)):
                self._show_words(first)
            self._said_aside = False
            self.unprinted.collect()

    def _say_aside(self, prompt: Prompt) -> None:
        self._show_words(prompt)
        self._said_aside = True

    def _show_words(self, prompt: Prompt) -> None:
        self.transcript.say_aside(prompt.blocks)
        prompt.shown = True

    def _answered(self, prompt: Prompt, sent: Sent) -> None:
        if sent.lost and self.back.name is not None:
            self._lost(prompt)
            return
        self.back.note_answered(prompt)
        back = prompt.taken_back and was_taken_back(sent)  # it stands in the input line
        line = None if back else how_it_ended(sent)
        if self.prompts.remove(prompt):
            self.transcript.end_turn()
            if line is not None and self._said_aside:  # else it would be read as the end of that
                line = replace(line, text=f"{one_line(prompt.text, 40)}: {line.text}")
        elif back and prompt.shown:
            line = Line(f"taken back: {one_line(prompt.text, 40)}")
        elif prompt.steers:  # the turn that it joined has a line of its own
            line = line if line is not None and line.tone is Tone.ERROR else None
        elif not prompt.shown and self._was_dropped(prompt, sent):
            line = None if back else Line(f"not run: {one_line(prompt.text, 40)}")
        elif not prompt.shown and not back:  # it has no turn: it was not shown as begun
            self._say_aside(prompt)
        if line is not None:
            self.transcript.say(line)
        self._begin_next()
        self.unprinted.collect()
        self._changed()

    def _lost(self, prompt: Prompt) -> None:
        """Keep a prompt whose connection has ended, to send it again; but remove a command."""
        prompt.sent = None
        if prompt.has_no_turn:
            self.prompts.unanswered.remove(prompt)
            said = f"perhaps not done: {one_line(prompt.text, 40)}"
            self.transcript.say_above(Line(said, Tone.ERROR))

    def _was_dropped(self, prompt: Prompt, sent: Sent) -> bool:
        """Return True if a prompt that has not begun was cancelled, whichever client did that.

        False if the bridge, one of an older version, does not tell what waits.
        """
        return self.queue.order is not None and not prompt.has_no_turn and was_taken_back(sent)

    def _stands(self, now: Standing) -> None:
        was, self.standing = self.standing, now
        if now.begins(was):
            self.prompts.note_turn(now.seconds)
            self.prompts.note_turn_of(now.prompt_id)
        if not now.busy and self.prompts.begun is None:
            self.transcript.end_turn()
            if was is not None and was.busy:
                self._ring()
        self._begin_next()
        if now.closed and not self.closed.is_set():
            self.transcript.say(Line("the session was closed"))
            self.closed.set()

    def _show_question(self) -> None:
        """Print the whole tool call that is asked about."""
        if (asked := self.questions.shown) is not None:
            printed = self.back.prints(asked.id)
            if printed:
                self.transcript.ask(asked.call)
            self.unprinted.collect()
            self._card = self.unprinted.newest if printed else None
            self._ring()

    def _note_decided(self, params: Json) -> None:
        """Print who has decided about a call whose question was withdrawn here."""
        found = as_object(own_meta(params).get("decided"))
        call_id = as_object(params.get("update")).get("toolCallId")
        if found and call_id in self._withdrawn:
            self._withdrawn.remove(call_id)
            self.transcript.say_above(Line(decided.sentence(found)))

    def _answer(self, taken: Taken) -> None:
        asked, option = taken.asked, taken.option
        if isinstance(asked.request, BridgeRequest):
            asked.request.answer({"outcome": {"outcome": "selected", "optionId": option.id}})
        self.unprinted.collect()
        below = self._card is self.unprinted.newest and not self.transcript.tail()
        self.say(option.name if below else f"{option.name}: {_title(asked)}")
        self._show_question()

    def _was_set(self, kind: str, value: str, sent: Sent) -> None:
        before = self.shown.choices(kind)
        try:
            result: Any = sent.outcome()
        except RpcError as error:
            line = refused(error)
            self.say(line.text, line.tone)
            return
        except ConnectionLost:
            return
        self.shown.was_set(kind, value, as_object(result))
        now = self.shown.choices(kind)
        if now is not None and (before is None or before.current != now.current):
            self.say(f"{kind}: {now.name}")


def _title(asked: Question) -> str:
    return one_line(tool_calls.title(asked.call), 60)
