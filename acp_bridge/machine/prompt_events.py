"""What becomes of a prompt before the agent has it: read, committed, superseded, cancelled, sent.

- Prompts run one at a time, in the order of reading, and only after they are committed.
- A prompt is sent at most once: its key names its turn.
- Nothing is sent, and no process is started, while the user has paused or held the session, or
  while hooks about a prompt run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from acp_bridge.machine.effects import AnswerPrompt, Commit, Dropped, Effect, SendPrompt
from acp_bridge.machine.event_taker import EventTaker
from acp_bridge.machine.events import (
    Cancel,
    CancelPrompt,
    CommitFailed,
    Committed,
    NotBegun,
    PromptEvent,
    PromptReceived,
    RunHeld,
)
from acp_bridge.machine.outcomes import Cancelled, Failed, Failure
from acp_bridge.machine.prompt_queue import Hooks, QueuedPrompt
from acp_bridge.machine.states import State


@dataclass(slots=True, eq=False)
class PromptEvents(EventTaker):
    """Takes what the client and the journal say of prompts; methods return effects."""

    #: a Stop cancels all that wait, too.
    _clear: bool

    def take(self, event: PromptEvent) -> list[Effect]:
        """Take one event; raises ValueError if a prompt is received twice."""
        queue, closing = self._queue, self._stage.closing
        match event:
            case PromptReceived(key) | RunHeld(key) if closing:
                return [AnswerPrompt(key, Failed(Failure.CLOSED))]
            case PromptReceived(key, interrupt):
                queue.receive(key, interrupt, self._open_hooks.before_prompt)
                return [Commit(key)]
            case RunHeld(carrier, keys):
                return queue.receive_held(carrier, keys, self._open_hooks.before_prompt)
            case Committed():
                return self._committed(event)
            case CommitFailed(key, detail):
                failure = Failed(Failure.JOURNAL, detail)
                out = queue.drop(failure, lambda p: p.key == key and not p.committed)
                return out or [Dropped(event)]
            case NotBegun(queue.running_key) if self._stage.state is State.RUNNING:
                return self._turn_end.not_begun()
            case NotBegun(queue.running_key) if self._stage.state is State.DRAINING:
                return self._turn_end.end_drain()
            case NotBegun():
                return [Dropped(event)]
            case _:
                assert_never(event)

    def _committed(self, event: Committed) -> list[Effect]:
        prompt = self._queue.find(event.key)
        if not prompt or prompt.committed:
            return [Dropped(event)]
        prompt.committed = True
        return [] if prompt.victim is None else self._supersede(prompt.key, prompt.victim)

    def _supersede(self, key: int, victim: int) -> list[Effect]:
        running = self._queue.running
        self._gate.end_older_pause(key)
        turn = self._stage.state is State.RUNNING and running and running.root == victim
        out = self._turn_end.drain() if turn else []
        return out + self._queue.drop(Cancelled(), lambda prompt: prompt.root == victim)

    def cancel(self, event: Cancel | CancelPrompt) -> list[Effect]:
        """Take the user's Stop, or a cancel of one prompt's request. (invariant C20)

        It ends no prompt of another client than the one that says it. (invariant V4)
        """
        queue, own = self._queue, event.requests
        if self._stage.closing or not queue.unanswered:
            return [Dropped(event)]
        oldest, running = queue.unanswered[0], queue.running
        if isinstance(event, CancelPrompt):
            key = event.key
            if not running or key not in (running.key, running.request):
                out = queue.drop(Cancelled(), lambda p: key in (p.key, p.request))
                return out or [Dropped(event)]
        elif own is not None and oldest.request not in own:
            first = next((p.request for p in queue.unanswered if p.request in own), None)
            return self._drop_with(first, own) or [Dropped(event)]
        self._gate.end_pause()
        return self._turn_end.cancel() + self._drop_with(oldest.request, own)

    def _drop_with(self, request: int | None, own: frozenset[int] | None) -> list[Effect]:
        """Cancel what waits under this request, and what a Stop ends beside it."""

        def goes(prompt: QueuedPrompt) -> bool:
            may_go = own is None or prompt.request in own
            return prompt.request == request or (may_go and (self._clear or prompt.interrupt))

        return self._queue.drop(Cancelled(), goes)

    def send_next(self) -> list[Effect]:
        """After every event: send the next committed prompt, or start a process for it."""
        queue, waiting = self._queue, self._queue.waiting
        if not queue.unanswered:
            self._gate.end_pause()
        if self._stage.closing or self._gate.closed or queue.leaving:
            return []
        if not waiting or not waiting[0].committed:
            return []
        first, hooked, state = waiting[0], queue.hooked, self._stage.state
        out: list[Effect] = []
        if first.hooks is Hooks.DUE and not hooked and not queue.running:
            out = queue.begin_hooks(first)
        if state is State.IDLE:
            waits = hooked or first.hooks is not Hooks.PASSED or self._restarts.provisional
            return out if waits else out + self._send()
        idle = state in (State.COLD, State.BLOCKED, State.UNAUTHENTICATED)
        return out + self._restarts.begin() if idle and not first.ending else out

    def _send(self) -> list[Effect]:
        self._turn_end.tainted = self._restarts.replaying = False
        out = self._stage.enter(State.RUNNING)
        prompt = self._queue.take_next()
        return [*out, SendPrompt(self._epochs.current, prompt.key)]
