"""The turn machine of one session: `step(event)` gives effects. SANS-IO.

Everything that decides what happens to a prompt is in this room, and nothing here knows a clock, a
process or JSON. `Turns` puts the parts together and gives each event to the one that takes it:

- `prompt_events.py`: a prompt is read, committed, superseded, cancelled, sent;
- `process_events.py`: what the agent processes do, and what follows when one takes too long;
- `hook_events.py`: hooks begin and end;
- `session_end.py`: the client closes the session, or the bridge ends.

Those decide with `turn_end.py` (how the running turn ends) and `restarts.py` (the way to a process
that has the session). What they keep is in `stage.py` (the state), `prompt_queue.py`, `epochs.py`,
`gate.py`, `open_hooks.py` and `timers.py`. The rules that must always hold:

- One turn runs at a time; prompts run in the order of reading, only after they are committed.
- Every prompt gets exactly one `AnswerPrompt` (or, when the bridge ends, one `Hold` or
  `Interrupted`), and is sent at most once: its key names its turn.
- What comes from an old epoch, an old turn or a disarmed timer is `Dropped`.
- A state that is on its way somewhere has a deadline, armed before anything else is done.
- Nothing starts while the user has paused or held the session; a Stop ends a turn that is paused
  as any other, whatever came before or comes after it.

      COLD -> STARTING -> RELOADING -> IDLE <-> RUNNING -> DRAINING -> IDLE
                ^           |            |         |           |
                +-- KILLING <------------+---------+-----------+
                                                  BLOCKED, UNAUTHENTICATED, CLOSED
"""

from __future__ import annotations

from itertools import count

from acp_bridge.machine import events
from acp_bridge.machine.effects import Dropped, Effect
from acp_bridge.machine.epochs import Epochs
from acp_bridge.machine.gate import Gate
from acp_bridge.machine.hook_events import HookEvents
from acp_bridge.machine.open_hooks import OpenHooks
from acp_bridge.machine.process_events import ProcessEvents
from acp_bridge.machine.prompt_events import PromptEvents
from acp_bridge.machine.prompt_queue import PromptQueue
from acp_bridge.machine.restarts import Restarts
from acp_bridge.machine.session_end import SessionEnd
from acp_bridge.machine.stage import Stage
from acp_bridge.machine.states import (
    Moment,
    Permits,
    Phase,
    Standstill,
    State,
    Timer,
    permits,
)
from acp_bridge.machine.timers import Timers
from acp_bridge.machine.turn_end import TurnEnd


class Turns:
    """One session's machine: `step` feeds it, the properties say where it stands."""

    def __init__(
        self,
        *,
        epoch: int = 0,
        clear_on_cancel: bool = False,
        always_reload: bool = False,
        provisional: bool = False,
        hooks: frozenset[Moment] = frozenset(),
    ) -> None:
        """`epoch` > 0 names a process that has the session open already (`session/new`).

        `provisional`: that process may not get a prompt; the shell feeds `Renew` in time.
        `hooks`: the moments for which the session has hooks.
        """
        self._tokens = count(1)
        queue = self._queue = PromptQueue()
        epochs = self._epochs = Epochs(epoch)
        gate = self._gate = Gate()
        open_hooks = self._open_hooks = OpenHooks(hooks)
        self._timers = Timers(self._tokens)
        state = State.IDLE if epoch else State.COLD
        stage = self._stage = Stage(state, self._timers, gate)
        restarts = self._restarts = Restarts(
            stage, epochs, queue, open_hooks, distrust=always_reload, renew=provisional
        )
        end = self._turn_end = TurnEnd(stage, queue, epochs, open_hooks, restarts)
        shared = stage, queue, gate, epochs, open_hooks, restarts, end
        self._prompts = PromptEvents(*shared, clear_on_cancel)
        self._hooks = HookEvents(stage, queue, open_hooks, end)
        self._processes = ProcessEvents(*shared)
        self._session_end = SessionEnd(*shared)

    @property
    def state(self) -> State:
        """The stage at which the session and its process are."""
        return self._stage.state

    @property
    def tainted(self) -> bool:
        """The last turn was cancelled and nothing was sent since: what still comes is unclean."""
        return self._turn_end.tainted

    @property
    def epoch(self) -> int:
        """The process that has the session, or gets it."""
        return self._epochs.current

    @property
    def running(self) -> int | None:
        """The key of the prompt that the agent has, or None."""
        return self._queue.running_key

    @property
    def ending(self) -> bool:
        """The session is being closed, or ends with the bridge."""
        return self._stage.closing

    @property
    def at_rest(self) -> bool:
        """The process has the session, and neither a prompt nor a hook is about."""
        busy = self._queue.unanswered or self._open_hooks.running or self.ending
        return self.state is State.IDLE and not busy

    @property
    def provisional(self) -> bool:
        """The process has the session, and is to be replaced before it gets a prompt."""
        return self._restarts.provisional

    @property
    def asleep(self) -> bool:
        """There is no process, or it ends, because the session was at rest for long."""
        return self._restarts.asleep

    @property
    def waiting(self) -> tuple[int, ...]:
        """The keys in the queue, the next one first."""
        return tuple(prompt.key for prompt in self._queue.waiting)

    @property
    def unanswered(self) -> tuple[int, ...]:
        """The keys of the requests that wait for an answer, the oldest first."""
        return tuple(dict.fromkeys(prompt.request for prompt in self._queue.unanswered))

    @property
    def standstill(self) -> Standstill:
        """What the user's pause or hold has come to."""
        gate = self._gate
        if not gate.closed:
            return Standstill.OPEN
        if gate.asked is not None:
            return Standstill.PAUSING
        refused = self.state is State.RUNNING and not gate.turn_waits
        return Standstill.PAUSED if gate.paused and not refused else Standstill.HELD

    @property
    def permits(self) -> Permits:
        """What the state permits."""
        return permits(self.state, provisional=self.provisional)

    @property
    def stopped(self) -> bool:
        """The agent may change nothing through the client: its turn is, or was, cancelled."""
        return self.permits.stopped or self.phase(self.epoch) is Phase.TAINTED

    def phase(self, epoch: int) -> Phase:
        """Return how what the process of this epoch says now is to be taken."""
        if epoch != self.epoch:
            return Phase.NOTHING
        if self.state is State.IDLE and self._restarts.replaying:
            return Phase.REPLAY
        if self.state is State.IDLE and self.tainted:
            return Phase.TAINTED
        return self.permits.updates

    def step(self, event: events.Event) -> list[Effect]:
        """Take one event and return what is to be done, in order.

        An event that nothing takes gives `Dropped` and nothing else. Raises ValueError, and
        nothing has happened, if a prompt is received twice.
        """
        return self._take(event) + self._prompts.send_next() + self._keep_sign()

    def _take(self, event: events.Event) -> list[Effect]:
        match event:
            case (
                events.PromptReceived()
                | events.Committed()
                | events.CommitFailed()
                | events.NotBegun()
                | events.RunHeld()
            ):
                return self._prompts.take(event)
            case events.Cancel() | events.CancelPrompt():
                return self._prompts.cancel(event)
            case events.HooksDone() | events.HookBegan() | events.HookEnded():
                return self._hooks.take(event)
            case events.Pause() | events.HoldQueue() | events.Go():
                return self._take_gate(event)
            case events.Close() | events.Shutdown():
                return self._session_end.take(event)
            case events.Deadline(timer, token) if self._timers.take(timer, token):
                return self._processes.pass_deadline(timer)
            case events.Warm():
                return self._restarts.warm(event)
            case events.Sleep(self.epoch) if self.at_rest:
                return self._restarts.sleep()
            case events.Renew():
                return self._restarts.replace(event)
            case events.Deadline() | events.Sleep():
                return [Dropped(event)]
            case _:
                return self._processes.take(event)

    def _take_gate(self, event: events.GateEvent) -> list[Effect]:
        """Take the user's word that nothing more is to start, or that all goes on."""
        gate, unanswered = self._gate, self._queue.unanswered
        match event:
            case events.Pause() if unanswered and not self.ending:
                gate.pause(max(prompt.key for prompt in unanswered))
                asks = self.state is State.RUNNING and not gate.at_agent
                return gate.pause_turn(self.epoch, next(self._tokens)) if asks else []
            case events.HoldQueue() if not self.ending:
                return gate.hold(self.epoch)
            case events.Go() if gate.closed:
                return gate.open(self.epoch)
            case _:
                return [Dropped(event)]

    def _keep_sign(self) -> list[Effect]:
        """Let signs of life come while a prompt waits for the user's go, and no longer."""
        stands = self._queue.unanswered and (not self._queue.running or self._gate.at_agent)
        if self._gate.closed and stands:
            return self._timers.arm(Timer.SIGN)
        return self._timers.disarm(Timer.SIGN)
