"""The states of a session: which follows which, how long each may last, and what each permits.

- `NEXT` is the whole table. The other files of this room say what has happened (`Happened`), and
  none of them names the state that comes next.
- A state that is on its way somewhere has a deadline, armed as the state is entered.
- The user's pause or hold, and a journal that is away, are no states, and may come in any state:
  the `Gate` knows of them.
- The shell reads the `Snapshot` that the machine gives after each step, and nothing else of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

from msgspec import Struct

from acp_bridge.core.machine.effects import Arm, Disarm, Effect, SendGo, SendPause
from acp_bridge.core.machine.events import Timer
from acp_bridge.core.records import replace

# --- which state follows which --------------------------------------------------------------------


class State(Enum):
    """How far a session and its agent process are."""

    #: there is no process.
    COLD = auto()
    #: a process starts, up to `initialize`.
    STARTING = auto()
    #: the process is given the session and its settings.
    RELOADING = auto()
    #: the agent is ready for a prompt.
    IDLE = auto()
    #: the same, and it works on by itself, outside of a prompt.
    WORKING = auto()
    #: the agent has a prompt.
    RUNNING = auto()
    #: the agent was told to cancel its prompt, or what it does outside of one.
    DRAINING = auto()
    #: a process was told to die and is not yet dead.
    KILLING = auto()
    #: the restarts failed; the next prompt tries again.
    BLOCKED = auto()
    #: the process wants the client to authenticate; the next prompt asks it again.
    UNAUTHENTICATED = auto()
    #: the session has ended.
    CLOSED = auto()


#: the states in which the agent can be sent a prompt.
FREE: Final = (State.IDLE, State.WORKING)
#: the states in which a process has the session, or is given it.
HAS_SESSION: Final = (*FREE, State.RELOADING, State.RUNNING, State.DRAINING, State.UNAUTHENTICATED)


class Happened(Enum):
    """The happenings after which the machine goes to another state, by `NEXT`."""

    #: a process was started.
    PROCESS_STARTED = auto()
    #: a process that is initialized was given the session.
    SESSION_GIVEN = auto()
    #: the process that was given the session has taken it.
    SESSION_OPENED = auto()
    #: the process that was given the session wants a login first.
    LOGIN_WANTED = auto()
    #: the agent was sent a prompt.
    PROMPT_SENT = auto()
    #: the agent does something outside of a prompt.
    WORK_SEEN = auto()
    #: the agent does nothing outside of a prompt any more.
    WORK_OVER = auto()
    #: the agent was told to cancel its prompt, or what it does outside of one.
    CANCEL_SENT = auto()
    #: the turn is over, or a drain, and the process may be used again.
    TURN_OVER = auto()
    #: the process was told to end, or the session ends and waits only for hooks.
    TOLD_TO_END = auto()
    #: the process is dead, and nobody needs another one now.
    PROCESS_GONE = auto()
    #: no process could be started or given the session.
    GAVE_UP = auto()
    #: nothing of the session is left.
    SESSION_OVER = auto()


#: State -> what has happened -> the state that follows. What is not in it can't happen.
NEXT: Final = {
    State.COLD: {
        Happened.PROCESS_STARTED: State.STARTING,
        Happened.TOLD_TO_END: State.KILLING,
        Happened.SESSION_OVER: State.CLOSED,
    },
    State.STARTING: {
        Happened.PROCESS_STARTED: State.STARTING,  # the next try
        Happened.SESSION_GIVEN: State.RELOADING,
        Happened.TOLD_TO_END: State.KILLING,
        Happened.GAVE_UP: State.BLOCKED,
    },
    State.RELOADING: {
        Happened.SESSION_OPENED: State.IDLE,
        Happened.LOGIN_WANTED: State.UNAUTHENTICATED,
        Happened.TOLD_TO_END: State.KILLING,
    },
    State.IDLE: {
        Happened.PROMPT_SENT: State.RUNNING,
        Happened.WORK_SEEN: State.WORKING,
        Happened.CANCEL_SENT: State.DRAINING,  # a client asked for work, and none was seen yet
        Happened.TOLD_TO_END: State.KILLING,
    },
    State.WORKING: {
        Happened.PROMPT_SENT: State.RUNNING,
        Happened.WORK_OVER: State.IDLE,
        Happened.CANCEL_SENT: State.DRAINING,
        Happened.TOLD_TO_END: State.KILLING,
    },
    State.RUNNING: {
        Happened.CANCEL_SENT: State.DRAINING,
        Happened.TURN_OVER: State.IDLE,
        Happened.TOLD_TO_END: State.KILLING,
    },
    State.DRAINING: {
        Happened.TURN_OVER: State.IDLE,
        Happened.TOLD_TO_END: State.KILLING,
    },
    State.KILLING: {
        Happened.PROCESS_STARTED: State.STARTING,
        Happened.SESSION_GIVEN: State.RELOADING,  # a spare process was ready
        Happened.TOLD_TO_END: State.KILLING,  # hooks still run at the end of the session
        Happened.PROCESS_GONE: State.COLD,
        Happened.GAVE_UP: State.BLOCKED,
        Happened.SESSION_OVER: State.CLOSED,
    },
    State.BLOCKED: {
        Happened.PROCESS_STARTED: State.STARTING,
        Happened.TOLD_TO_END: State.KILLING,  # a process that would not die is killed again
        Happened.SESSION_OVER: State.CLOSED,
    },
    State.UNAUTHENTICATED: {
        Happened.SESSION_GIVEN: State.RELOADING,
        Happened.TOLD_TO_END: State.KILLING,
    },
    State.CLOSED: {},
}

# --- how long a state may last --------------------------------------------------------------------

#: State -> the timers that are armed as it is entered; others are disarmed. (invariants C14, C21)
DEADLINES: Final = {
    State.STARTING: (Timer.RESTART,),
    State.RELOADING: (Timer.RESTART,),
    State.DRAINING: (Timer.SPARE, Timer.DRAIN),
    State.KILLING: (Timer.KILL,),
}
#: State -> the timers that go on if they were armed before: a restart's tries share one deadline.
KEPT: Final = {State.KILLING: (Timer.RESTART,)}


class Timers:
    """Tracks the armed timers; a timer that passes counts only under its last token."""

    def __init__(self, tokens: Iterator[int]) -> None:
        """`tokens` gives a new token for each timer that is armed."""
        self._tokens = tokens
        self._armed: dict[Timer, int] = {}

    def enter(self, state: State) -> list[Effect]:
        """Disarm the timers that belong to another state, then arm the deadlines of this one.

        The sign of life belongs to no state: it is armed and disarmed by pause and hold.
        """
        out: list[Effect] = []
        wanted = DEADLINES.get(state, ())
        kept = (*wanted, *KEPT.get(state, ()), Timer.SIGN)
        for timer in tuple(self._armed):
            if timer not in kept:
                out += self.disarm(timer)
        for timer in wanted:
            out += self.arm(timer)
        return out

    def arm(self, timer: Timer) -> list[Effect]:
        """Start a timer, unless it is armed."""
        if timer in self._armed:
            return []
        token = self._armed[timer] = next(self._tokens)
        return [Arm(timer, token)]

    def disarm(self, timer: Timer) -> list[Effect]:
        """Stop a timer, if it is armed."""
        return [] if self._armed.pop(timer, None) is None else [Disarm(timer)]

    def take(self, timer: Timer, token: int) -> bool:
        """Note that a timer has passed; False, and no change, if `token` is not its last one."""
        if self._armed.get(timer) != token:
            return False
        del self._armed[timer]
        return True


# --- what a state permits -------------------------------------------------------------------------


class Passing(Enum):
    """What becomes of a client's request that is for the agent."""

    #: it goes out at once.
    NOW = auto()
    #: a setting goes out at once; any other request waits for the process that is to be started.
    SETTINGS = auto()
    #: it waits, and a process is started for it.
    STARTS = auto()
    #: it waits for the process that is on its way.
    WAITS = auto()
    #: it fails: no process can take it before the next prompt.
    REFUSED = auto()
    #: it fails: the session has ended.
    GONE = auto()


class Phase(Enum):
    """What the agent's updates count for, which decides how they are treated."""

    #: for nothing: the agent does not have the session.
    NOTHING = auto()
    #: for the running turn, or for none: they are recorded and shown.
    LIVE = auto()
    #: they may replay what is known: those of the conversation are swallowed.
    REPLAY = auto()
    #: the last turn was cancelled and has ended: those of the conversation are a leak.
    LEAK = auto()


class Permits(Struct, frozen=True):
    """What a state permits to the client, and to the process that has the session or gets it."""

    #: what becomes of a client's request for the agent.
    requests: Passing
    #: what the agent's updates count for.
    updates: Phase = Phase.NOTHING
    #: notifications other than updates pass to the client.
    notifies: bool = False
    #: the process may ask the client though it does not have the session yet: for a login.
    asks_early: bool = False
    #: the agent is read only as fast as the client reads.
    paced: bool = False
    #: the turn is being cancelled: what it still wants of the client is refused.
    drains: bool = False


PERMITS: Final = {
    State.COLD: Permits(Passing.STARTS),
    State.STARTING: Permits(Passing.WAITS, notifies=True, asks_early=True),
    State.RELOADING: Permits(Passing.WAITS, updates=Phase.REPLAY, notifies=True),
    State.IDLE: Permits(Passing.NOW, updates=Phase.LIVE, notifies=True, paced=True),
    State.WORKING: Permits(Passing.NOW, updates=Phase.LIVE, notifies=True, paced=True),
    State.RUNNING: Permits(Passing.NOW, updates=Phase.LIVE, notifies=True, paced=True),
    State.DRAINING: Permits(Passing.NOW, updates=Phase.LIVE, notifies=True, drains=True),
    State.KILLING: Permits(Passing.WAITS),
    State.BLOCKED: Permits(Passing.REFUSED, notifies=True, asks_early=True),
    State.UNAUTHENTICATED: Permits(Passing.REFUSED, notifies=True, asks_early=True),
    State.CLOSED: Permits(Passing.GONE),
}
#: Of every state but CLOSED, once another bridge has the session.
_TAKEN: Final = Permits(Passing.REFUSED)
#: In IDLE and WORKING it depends: on what the updates between two turns count for, and on whether
#: the process is provisional.
_IDLE: Final = {
    (updates, provisional): replace(
        PERMITS[State.IDLE],
        updates=updates,
        requests=Passing.SETTINGS if provisional else Passing.NOW,
    )
    for updates in (Phase.LIVE, Phase.REPLAY, Phase.LEAK)
    for provisional in (False, True)
}


class Standstill(Enum):
    """How far the user's pause or hold has come."""

    #: nothing is paused or held.
    OPEN = "open"
    #: the agent was asked to pause the turn; what it had begun ends first.
    PAUSING = "pausing"
    #: the turn waits at the agent, or the queue where no turn runs.
    PAUSED = "paused"
    #: the turn that runs, if one does, goes on to its end; nothing starts.
    HELD = "held"


# --- what keeps prompts from being sent -----------------------------------------------------------


class Gate:
    """Tracks pause, hold and a journal that is away; methods return effects.

    - While the gate is closed no prompt is sent and no process is started for one.
    - A pause also makes the running turn wait at its agent. It ends with the user's go or Stop,
      with a prompt that interrupts, and when no prompt is left. A hold ends with the user's go
      alone.
    - The agent is asked once for each pause of a turn, under a token; an answer to an older
      question counts no more.
    - While the journal is away nothing is sent either, and what waits is not answered for want of a
      process. No word of the user's changes that.
    """

    def __init__(self) -> None:
        self.paused = False
        self.held = False
        #: the journal can't be written for now, so no prompt can be sent.
        self.away = False
        #: the key of the newest prompt when the pause came.
        self._newest = 0
        #: the token of the `SendPause` that the agent has not answered yet, if there is one.
        self.asked: int | None = None
        #: the agent said that the running turn waits.
        self.turn_waits = False

    @property
    def closed(self) -> bool:
        """True during a pause or a hold: nothing may start."""
        return self.paused or self.held

    @property
    def at_agent(self) -> bool:
        """True if the agent was asked to pause the running turn and has not refused."""
        return self.turn_waits or self.asked is not None

    def standstill(self, state: State) -> Standstill:
        """Return how far a pause or a hold has come in this state."""
        if not self.closed:
            return Standstill.OPEN
        if self.asked is not None:
            return Standstill.PAUSING
        refused = state is State.RUNNING and not self.turn_waits
        return Standstill.PAUSED if self.paused and not refused else Standstill.HELD

    def pause(self, newest: int) -> None:
        """Close the gate; `newest` is the key of the newest prompt without an answer."""
        self.paused, self._newest = True, newest

    def pause_turn(self, epoch: int, token: int) -> list[Effect]:
        """Ask the agent to let the running turn wait, under this token."""
        self.asked = token
        return [SendPause(epoch, token)]

    def hold(self, epoch: int) -> list[Effect]:
        """Close the gate until go; a turn that waits goes on to its end."""
        out = self.open(epoch)
        self.held = True
        return out

    def answered(self, paused: bool) -> None:
        """Note the agent's answer to the last `SendPause`: whether the turn waits now."""
        self.asked, self.turn_waits = None, paused

    def open(self, epoch: int) -> list[Effect]:
        """End pause and hold; a turn that was asked to wait at the agent goes on."""
        out: list[Effect] = [SendGo(epoch)] if self.at_agent else []
        self.held = False
        self.end_pause()
        return out

    def end_older_pause(self, key: int) -> None:
        """End the pause if `key`, a prompt that interrupts, was read after the pause began."""
        if key > self._newest:
            self.end_pause()

    def end_pause(self) -> None:
        """End the pause; the agent is not told, as its turn is cancelled or over."""
        self.paused = False
        self.forget_turn()

    def forget(self) -> None:
        """Open the gate because the session ends; the agent is not told."""
        self.held = self.away = False
        self.end_pause()

    def forget_turn(self) -> None:
        """Forget that the agent was asked to pause a turn, and its answer: no turn runs now."""
        self.asked, self.turn_waits = None, False


# --- where the session stands ---------------------------------------------------------------------


class Snapshot(Struct, frozen=True):
    """Where a session stands after a step of its machine; it changes only with the next step."""

    state: State
    #: the process that has the session or gets it; 0: there was none yet.
    epoch: int
    #: what the client may ask of the agent, and the agent of the client.
    permits: Permits
    #: the key of the prompt that the agent has.
    running: int | None
    #: the keys of the prompts in the queue, the next one first.
    waiting: tuple[int, ...]
    #: the keys of the requests without an answer, the oldest first.
    unanswered: tuple[int, ...]
    #: the key of the prompt for which the oldest of these requests stays open.
    oldest: int | None
    #: what the user's pause or hold has come to.
    standstill: Standstill
    #: the process has the session, and neither a prompt nor a hook is at work.
    at_rest: bool
    #: the agent works outside of a prompt, or a client asked it to: a Stop reaches such work.
    may_work: bool
    #: there is no process, or it ends, because the session was at rest for long.
    asleep: bool
    #: the process has the session, and is to be replaced before it gets a prompt.
    provisional: bool
    #: the session is being closed, or ends with the bridge.
    ending: bool
    #: another bridge has the session: nothing of it is started here any more.
    taken: bool = False

    @property
    def foremost(self) -> int | None:
        """The key of the oldest unanswered request; None if a pause or hold keeps it waiting."""
        first = self.unanswered[0] if self.unanswered else None
        stands = self.standstill is not Standstill.OPEN
        return None if stands and self.oldest in self.waiting else first

    @property
    def works(self) -> bool:
        """True while the agent works outside of a prompt, also while that is being stopped."""
        drains = self.state is State.DRAINING and self.running is None
        return self.state is State.WORKING or drains

    @property
    def busy(self) -> bool:
        """True while a prompt has no answer, or the agent works outside of one."""
        return bool(self.unanswered) or self.works

    @property
    def stopped(self) -> bool:
        """True if the agent may change nothing through the client: its turn is or was cancelled."""
        return self.permits.drains or self.permits.updates is Phase.LEAK

    @property
    def takes_requests(self) -> bool:
        """True if a process has the session and takes requests, settings at least."""
        return self.permits.requests in (Passing.NOW, Passing.SETTINGS)

    @property
    def blocked(self) -> bool:
        """True if the restarts failed, or the process wants a login."""
        return self.state in (State.BLOCKED, State.UNAUTHENTICATED)

    def phase(self, epoch: int) -> Phase:
        """Return how the updates of the process of this epoch are treated."""
        return self.permits.updates if epoch == self.epoch else Phase.NOTHING


class States:
    """Holds the state; `advance` replaces it by the next one of the table."""

    def __init__(self, timers: Timers, *, has_process: bool) -> None:
        """`has_process`: a process has the session open already."""
        self.current = State.IDLE if has_process else State.COLD
        #: what updates count for while the agent has the session and no prompt.
        self.between_turns = Phase.LIVE
        #: since the last Stop, or since it started, the process was asked for work beside prompts:
        #: what it says between turns is no leak then.
        self.work_asked = False
        #: the session is being closed, or ends with the bridge.
        self.closing = False
        #: another bridge has the session: no process is started here any more.
        self.taken = False
        self._timers = timers

    @property
    def may_work(self) -> bool:
        """True if the agent works outside of a prompt, or was asked to."""
        asked = self.current is State.IDLE and self.work_asked
        return self.current is State.WORKING or asked

    def advance(self, happened: Happened) -> list[Effect]:
        """Go to the next state and arm its deadlines; KeyError if the table has none."""
        self.current = NEXT[self.current][happened]
        self.work_asked &= happened is not Happened.TOLD_TO_END
        return self._timers.enter(self.current)

    def permits(self, *, provisional: bool) -> Permits:
        """Return what this state permits; `provisional`: the process is to get no prompt."""
        if self.taken and self.current is not State.CLOSED:
            return _TAKEN
        if self.current in FREE:
            updates = Phase.LIVE if self.work_asked else self.between_turns
            return _IDLE[updates, provisional]
        return PERMITS[self.current]
