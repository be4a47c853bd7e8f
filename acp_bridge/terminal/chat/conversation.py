"""One session at a terminal: what it shows, what is entered, what is asked. No terminal here.

Invariants:
- What is entered is sent in its order, one request each; the session's bridge queues it.
- Each question of the session gets at most one answer, by a key or by the end of its turn.
- While a transcript is replayed only its newest blocks are kept, however long it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import anyio

from acp_bridge import protocol as acp
from acp_bridge.protocol import CANCELLED_PERMISSION, ErrorCode, Json
from acp_bridge.terminal.chat.mentions import blocks_of
from acp_bridge.terminal.chat.prompts import Prompt, how_it_ended, refused
from acp_bridge.terminal.chat.questions import Option, Question, Questions, question
from acp_bridge.terminal.chat.settings_shown import SettingsShown
from acp_bridge.terminal.connection import BridgeRequest, Connection
from acp_bridge.terminal.sent import ConnectionLost, Sent
from acp_bridge.terminal.view import tool_calls
from acp_bridge.terminal.view.blocks import Block, Line, Tone
from acp_bridge.terminal.view.transcript import Transcript
from acp_bridge.wire.jsonrpc import RpcError

#: seconds in which a second Ctrl-C leaves.
_TWICE: Final = 2.0
#: blocks of a replayed transcript that are shown.
_MOST_REPLAYED: Final = 60
#: blocks that may wait to be printed before nothing more is read.
_MOST_UNPRINTED: Final = 200


class Conversation:
    """Is the listener of the connection; `changed` is called whenever something is to be drawn."""

    def __init__(
        self, folder: Path, changed: Callable[[], None], clock: Callable[[], float]
    ) -> None:
        """`folder`: where mentioned files are looked for; `clock` gives seconds."""
        self.folder = folder
        self.shown = SettingsShown()
        self.questions = Questions(clock)
        self.transcript = Transcript()
        self.prompts: list[Prompt] = []
        self.session_id: str | None = None
        #: a transcript may be replayed: nothing is shown yet.
        self._opening = True
        #: where the bridge says that the session stands, if it does.
        self.state: Json = {}
        self._changed, self._clock = changed, clock
        self._began = 0.0
        self._connection: Connection | None = None
        self._blocks: deque[Block] = deque()
        self._left_out = 0
        self._printed = anyio.Event()
        self._interrupted: float | None = None

    # -- its life

    def use(self, connection: Connection) -> None:
        """Talk over this connection from now on."""
        self._connection = connection

    def opened(self, session_id: str, result: Json) -> None:
        """Begin: the session is open; what was entered before is sent."""
        self.shown.opened(result)
        self.transcript.end_turn()
        self._collect()
        self.session_id, self._opening = session_id, False
        if self._left_out:
            text = f"{self._left_out} earlier blocks are not shown here"
            self._blocks.appendleft(Line(f"{text}: acp-bridge show {session_id[:8]}"))
        for prompt in self.prompts:
            self._send(prompt)
        self._changed()

    def end(self) -> None:
        """Note that nothing more is to come; what was read is shown."""
        self._connection = None
        self._opening = False

    @property
    def running(self) -> bool:
        """A turn runs, as far as this terminal knows."""
        return bool(self.prompts and self.prompts[0].sent)

    @property
    def seconds(self) -> float:
        """How long the turn runs."""
        return self._clock() - self._began

    @property
    def waiting(self) -> list[Prompt]:
        """The prompts that were entered here and have not begun."""
        return self.prompts[1:] if self.running else self.prompts

    def take_blocks(self) -> list[Block]:
        """Return what is to be printed, once each; nothing while a transcript is replayed."""
        if self._opening:
            return []
        blocks = [*self._blocks]
        self._blocks.clear()
        self._printed.set()
        return blocks

    def tail(self) -> list[Block]:
        """Return what is drawn below all that was printed; nothing during a replay.

        What is finished stays in it until it is printed, since a key may draw before that.
        """
        return [] if self._opening else [*self._blocks, *self.transcript.tail()]

    def say(self, text: str, tone: Tone = Tone.NEWS) -> None:
        """Print a line of this program's own."""
        self.transcript.say(Line(text, tone))
        self._collect()
        self._changed()

    # -- what the bridge sends

    def on_notification(self, method: str, params: Json) -> None:
        """Take an update of the session."""
        if method != acp.SESSION_UPDATE:
            return
        self.transcript.take(params)
        update = params.get("update")
        if isinstance(update, dict) and (news := self.shown.take(update)):
            self.transcript.say(Line(news))
        self._collect()
        self._changed()

    def on_request(self, request: BridgeRequest) -> None:
        """Show a permission that is asked; nothing else is done for an agent. Raises RpcError."""
        if request.method != acp.REQUEST_PERMISSION:
            raise RpcError(ErrorCode.METHOD_NOT_FOUND, f"{request.method} is not done here")
        asked = question(request, request.params)
        if not asked.options:
            request.answer(CANCELLED_PERMISSION)
            return
        self.questions.add(asked)
        self.transcript.ask(asked.call)
        self._collect()
        self._changed()

    def on_withdrawn(self, request: BridgeRequest) -> None:
        """Take off a question that is not asked any more."""
        if asked := self.questions.withdraw(request):
            self.say(f"not asked any more: {_title(asked)}")

    async def room(self) -> None:
        """Return when the terminal has printed most of what it was given."""
        while not self._opening and len(self._blocks) > _MOST_UNPRINTED:
            self._printed = anyio.Event()
            await self._printed.wait()

    # -- what a person does

    def enter(self, text: str) -> None:
        """Send a prompt, or let it wait until the session is open."""
        prompt = Prompt(text, blocks_of(text, self.folder))
        self.prompts.append(prompt)
        if self.session_id is not None:
            self._send(prompt)
        self._changed()

    def answer(self, key: str) -> bool:
        """Answer the question that is shown by a key; returns False if the key means nothing."""
        chosen = self.questions.choose(key)
        if chosen is None:
            return False
        self._choose(*chosen)
        return True

    def interrupt(self) -> bool:
        """Stop the turn that runs; returns True if this is the second time, which leaves."""
        now = self._clock()
        twice = self._interrupted is not None and now - self._interrupted < _TWICE
        self._interrupted = now
        if twice or self._connection is None:
            return True
        for asked in self.questions.take_all():
            if isinstance(asked.request, BridgeRequest):
                asked.request.answer(CANCELLED_PERMISSION)
        if self.running and self.session_id is not None:
            self.stop(self._connection, self.session_id)
        self._changed()
        return False

    @property
    def leaves_next(self) -> bool:
        """Another Ctrl-C would leave."""
        return self._interrupted is not None and self._clock() - self._interrupted < _TWICE

    def stop(self, connection: Connection, session_id: str) -> None:
        """Ask the bridge to stop the turn."""
        connection.notify(acp.SESSION_CANCEL, {"sessionId": session_id})

    def choose(self, kind: str, value: str) -> None:
        """Set the mode or the model, by its id."""
        if self._connection is None or self.session_id is None:
            self.say("the session is not open yet")
            return
        method, params = self.shown.chosen(kind, value)
        sent = self._connection.send(method, {"sessionId": self.session_id, **params})
        sent.when_answered(lambda: self._was_set(kind, value, sent))

    def cycle_mode(self) -> None:
        """Set the mode after the one in force."""
        choices = self.shown.choices("mode")
        if choices is not None and (after := choices.after()) is not None:
            self.choose("mode", after.id)

    # -- within

    def _send(self, prompt: Prompt) -> None:
        assert self._connection is not None
        params = {"sessionId": self.session_id, "prompt": prompt.blocks}
        prompt.sent = sent = self._connection.send(acp.SESSION_PROMPT, params)
        if prompt is self.prompts[0]:
            self._begin(prompt)
        sent.when_answered(lambda: self._answered(prompt, sent))

    def _begin(self, prompt: Prompt) -> None:
        self._began = self._clock()
        self.transcript.begin_turn(prompt.blocks)
        self._collect()

    def _answered(self, prompt: Prompt, sent: Sent) -> None:
        was_first = self.prompts[0] is prompt
        self.prompts.remove(prompt)
        if was_first:
            self.transcript.end_turn()
        if (line := how_it_ended(sent)) is not None:
            text = line.text if was_first else f"{line.text}: {prompt.summary}"
            self.transcript.say(Line(text, line.tone))
        if was_first and self.running:
            self._begin(self.prompts[0])
        self._collect()
        self._changed()

    def _choose(self, asked: Question, option: Option) -> None:
        if isinstance(asked.request, BridgeRequest):
            outcome = {"outcome": "selected", "optionId": option.id}
            asked.request.answer({"outcome": outcome})
        self.say(f"{option.name}: {_title(asked)}")

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
        self.shown.was_set(kind, value, result if isinstance(result, dict) else {})
        now = self.shown.choices(kind)
        if now is not None and (before is None or before.current != now.current):
            self.say(f"{kind}: {now.name}")

    def _collect(self) -> None:
        """Take the blocks that are finished; of a replay only the newest."""
        self._blocks += self.transcript.take_finished()
        while self._opening and len(self._blocks) > _MOST_REPLAYED:
            self._blocks.popleft()
            self._left_out += 1


def _title(asked: Question) -> str:
    return tool_calls.card(asked.call).title
