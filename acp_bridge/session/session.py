"""One session's shell: takes what the client says, performs what the machine asks for.

Every decision about prompts is in turns.py; here is what it takes to carry them out. An event
is taken to its end before the next (`feed`), and what the agent showed before it is on its way
to the client by then.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import anyio

from acp_bridge import errors
from acp_bridge import signals as sig
from acp_bridge.agents.link import Link
from acp_bridge.journal import JournalError, SessionJournal, UnknownSession
from acp_bridge.log import event
from acp_bridge.relay import Relay
from acp_bridge.session import answers, queue_command
from acp_bridge.session.choices import Choices
from acp_bridge.session.crew import Crew
from acp_bridge.session.errands import Errands
from acp_bridge.session.host import Host
from acp_bridge.session.intake import Intake
from acp_bridge.session.ledger import Ledger
from acp_bridge.session.meta import own_meta, without_own_meta
from acp_bridge.session.opening import Setup
from acp_bridge.session.outlet import Outlet
from acp_bridge.settings import Delivery, OnCancel, ReloadAfterCancel
from acp_bridge.turns import State, Turns
from acp_bridge.updates import Updates, text_chunk, user_chunk
from acp_bridge.wire.jsonrpc import Answer, Ok
from acp_bridge.wire.peer import Call

Json = dict[str, Any]
#: the states in which the process takes what is passed on to it.
_LIVE = frozenset({State.IDLE, State.RUNNING, State.DRAINING})


class Session:
    """A session of the bridge."""

    def __init__(
        self, host: Host, journal: SessionJournal, lease: int, setup: Setup, link: Link | None
    ) -> None:
        """`lease`: the lock's descriptor, owned from now on; `link`: the process that has the
        session open, if one has."""
        self.id = journal.info.session_id
        self.host = host
        self.journal = journal
        self.setup = setup
        self.outlet = Outlet(self.id, journal, host.writer.write)
        self.updates = Updates(
            set(journal.used_ids()),
            booleans=host.abilities.has("session", "configOptions", "boolean"),
        )
        self.relay = Relay(self.id, host.client, host.abilities, self.updates)
        self.choices = Choices(journal, self.updates.settings)
        self.ledger = Ledger(host, journal, self.outlet, self.spawn, self.feed)
        self.intake = Intake(self)
        self.machine = Turns(
            epoch=1 if link else 0,
            clear_on_cancel=host.settings.on_cancel is OnCancel.CLEAR,
            always_reload=host.settings.reload_after_cancel is ReloadAfterCancel.ALWAYS,
        )
        self.errands = Errands(self)
        self.closing = False  #: `close` was called.
        self._titled = journal.info.title is not None
        #: set when nothing of the session is left.
        self.closed = anyio.Event()
        self._crew = Crew(self, lease, link)
        self._lease = lease
        self._timers: dict[sig.Timer, anyio.CancelScope] = {}
        self._events: deque[sig.Event] = deque()
        self._stepping = False
        #: the trouble with the latest start was said, in an answer or in the session.
        self._told = False

    @property
    def link(self) -> Link | None:
        """The process that has the session open and takes requests, or None."""
        return self._crew.link(self.machine.epoch) if self.machine.state in _LIVE else None

    @property
    def link_wanting_auth(self) -> Link | None:
        """The process that waits for `authenticate`, or None."""
        blocked = self.machine.state is State.BLOCKED
        return self._crew.get(self.machine.epoch) if blocked else None

    # --- events and effects --------------------------------------------------------------------

    def feed(self, event_: sig.Event) -> None:
        """Give the machine an event and perform what it asks for, and so on to the end."""
        self._events.append(event_)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events:
                self.outlet.flush()
                for effect in self.machine.step(self._events.popleft()):
                    try:
                        self._perform(effect)
                    except Exception as exc:  # those after it answer somebody (HAZARDS P6, Q9)
                        errors.internal(exc, f"{type(effect).__name__} failed")
        finally:
            self._stepping = False
        if self.machine.state is State.BLOCKED and not self._told:
            self._told = True
            self._say_blocked()
        self.outlet.flush()
        self.intake.look_again()
        self.errands.look_again()

    def _perform(self, effect: sig.Effect) -> None:
        match effect:
            case sig.Commit(key):
                self.ledger.commit(key)
            case sig.SendPrompt(epoch, turn, key):
                self._send_prompt(epoch, turn, key)
            case sig.SendCancel(epoch):
                self._send_cancel(epoch)
            case sig.Answer(key, outcome):
                self._told |= isinstance(outcome, sig.Failed)
                self.ledger.answer(key, outcome)
            case sig.NoteOutcome(key, answer):
                self.ledger.note(key, answer)
            case sig.Interrupted(key):
                self.ledger.interrupted(key)
            case sig.Hold(keys):
                self.ledger.hold(keys)
            case sig.Start(epoch):
                self._told = False
                self.spawn(self._crew.start, epoch)
            case sig.Open(epoch):
                self.spawn(self._crew.open, epoch)
            case sig.Kill(epoch):
                self.spawn(self._crew.kill, epoch)
            case sig.CloseAgent(epoch):
                self.spawn(self._crew.close, epoch)
            case sig.Arm(timer, token):
                self._arm(timer, token)
            case sig.Disarm(timer):
                self._disarm(timer)
            case sig.CloseCards():
                for update in self.updates.close_cards():
                    self.outlet.show({"update": update})
            case sig.Release(epoch):
                if link := self._crew.forget(epoch):
                    self.relay.release(link)
            case sig.Closed():
                self.spawn(self._finish)

    def _say_blocked(self) -> None:
        """A restart failed, and no prompt's answer says so (R3). Not recorded: it is of now."""
        text = (
            "[acp-bridge] The agent is not ready: it would not start, load the session or take it"
            " without authentication; the log says which. The next prompt tries again."
        )
        chunk = text_chunk("agent_message_chunk", f"{text}\n\n", f"acp-bridge-{self.next_id()}")
        self.outlet.show_only({"update": chunk})

    def spawn(self, work: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run a piece of work in the bridge's task group; its failure is this session's only."""

        async def contained() -> None:
            try:
                await work(*args)
            except Exception as exc:
                errors.internal(exc, f"{getattr(work, '__qualname__', 'work')} failed")

        self.host.tasks.start_soon(contained)

    def _arm(self, timer: sig.Timer, token: int) -> None:
        settings = self.host.settings
        seconds = {
            sig.Timer.SPARE: settings.drain_timeout / 2,
            sig.Timer.DRAIN: settings.drain_timeout,
            sig.Timer.KILL: settings.kill_timeout,
            sig.Timer.RESTART: settings.restart_timeout,
        }[timer]
        self._disarm(timer)
        scope = self._timers[timer] = anyio.CancelScope()

        async def wait() -> None:
            with scope:
                await anyio.sleep(seconds)
                event("deadline", session=self.id, what=timer.name.lower())
            if not scope.cancelled_caught:
                self.feed(sig.Deadline(timer, token))

        self.spawn(wait)

    def _disarm(self, timer: sig.Timer) -> None:
        if scope := self._timers.pop(timer, None):
            scope.cancel()

    def close(self) -> None:
        """End the session; its prompts are answered `cancelled`. `closed` says when it is over."""
        self.closing = True
        self.feed(sig.Close())

    async def _finish(self) -> None:
        """The machine is closed: nothing of the session is left afterwards."""
        await self._crew.end()
        await self.journal.close()
        os.close(self._lease)
        self.closed.set()

    # --- prompts -------------------------------------------------------------------------------

    def on_prompt(self, call: Call, params: Json) -> None:
        """`session/prompt`: queued in the order of reading; `params` has been checked."""
        if not self.updates.own_queue and (
            (words := queue_command.parse(params["prompt"])) is not None
        ):
            queue_command.run(self, call, params, words)
            return
        asked = own_meta(params).get("delivery", self.host.settings.delivery)
        key = self.ledger.add(call, params)
        self.feed(sig.PromptReceived(key, interrupt=asked == Delivery.INTERRUPT))
        if not self._titled and (title := queue_command.summary(params["prompt"], 80)):
            self._retitle(title)

    def _send_prompt(self, epoch: int, turn: int, key: int) -> None:
        prompt, link = self.ledger.open[key], self._crew.link(epoch)
        self.intake.begin_turn(prompt.params["prompt"])
        self.outlet.turn = prompt.seq
        said = [{"update": user_chunk(block)} for block in prompt.params["prompt"]]
        try:
            self.journal.start_turn(prompt.seq, said)
        except JournalError as exc:
            event("journal.failed", session=self.id, what=exc)
        if prompt.call is None:
            # Held since a restart: the client doesn't show it by itself.
            for chunk in said:
                self.outlet.show_only(chunk)
        event("turn.started", session=self.id, turn=prompt.seq, agent=link.name)

        def answered(answer: Answer) -> None:
            if not link.gone:
                self.feed(sig.AgentAnswered(epoch, turn, answer))

        link.request_for(
            prompt.call,
            "session/prompt",
            {**without_own_meta(prompt.params), "sessionId": link.agent_session_id},
            answered,
        )

    def _send_cancel(self, epoch: int) -> None:
        link = self._crew.link(epoch)
        event("turn.cancel", session=self.id, turn=self.outlet.turn, agent=link.name)
        link.peer.notify("session/cancel", {"sessionId": link.agent_session_id})
        self.relay.cancel_questions()

    def answer_now(self, call: Call) -> None:
        """The bridge itself has answered a prompt."""
        self.outlet.flush()
        done = Ok({"stopReason": "end_turn"})
        self.outlet.then(lambda: answers.respond(self.host.client, call, done))

    def next_id(self) -> str:
        """An id for a message of the bridge's own."""
        return uuid4().hex[:12]

    # --- what the client asks ------------------------------------------------------------------

    def on_cancel_request(self, request_id: object) -> bool:
        """`$/cancel_request`; False when the request is not of this session."""
        key = self.ledger.key_of(request_id)
        if key is not None:
            self.feed(sig.CancelPrompt(key))
            return True
        return self.errands.cancel(request_id)

    # --- what is known of the session ----------------------------------------------------------

    def note_state(self, update: Json) -> None:
        """An update that is about the session, not of the conversation."""
        self.choices.note_update(update)
        if update.get("sessionUpdate") == "session_info_update" and "title" in update:
            title = update["title"]
            self._retitle(title if isinstance(title, str) else None)

    def _retitle(self, title: str | None) -> None:
        self._titled = True

        async def touch() -> None:
            try:
                await self.host.journal.touch(self.id, title=title)
            except (JournalError, UnknownSession) as exc:
                event("journal.failed", session=self.id, what=exc)

        self.spawn(touch)
