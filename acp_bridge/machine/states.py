"""The states of a session, and what each of them permits.

The shell never classifies the states itself: it asks `permits`, through `Turns.permits`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final


class State(Enum):
    """The stage at which a session and its agent process are."""

    #: there is no process.
    COLD = auto()
    #: a process starts, up to `initialize`.
    STARTING = auto()
    #: the process is given the session and its settings.
    RELOADING = auto()
    #: the agent is ready for a prompt.
    IDLE = auto()
    #: the agent has a prompt.
    RUNNING = auto()
    #: the agent was told to cancel its prompt.
    DRAINING = auto()
    #: a process was told to die and is not yet dead.
    KILLING = auto()
    #: the restarts failed; the next prompt tries again.
    BLOCKED = auto()
    #: the process wants the client to authenticate; the next prompt asks it again.
    UNAUTHENTICATED = auto()
    #: the session has ended.
    CLOSED = auto()


class Timer(Enum):
    """The machine's deadlines; how many seconds each is, the shell knows."""

    #: half of `drain_timeout`: start a replacement, in case the agent ignores the cancel.
    SPARE = auto()
    #: `drain_timeout`: the agent has not answered its cancelled prompt: kill it.
    DRAIN = auto()
    #: the tree should be dead by now.
    KILL = auto()
    #: all tries of a restart together, from the first start to the loaded session.
    RESTART = auto()
    #: a prompt has waited for the end of a pause or a hold for a while: time for a sign of life.
    SIGN = auto()


#: What is armed on the way into a state; everything else is disarmed. (invariants C14, C21)
DEADLINES = {
    State.STARTING: (Timer.RESTART,),
    State.RELOADING: (Timer.RESTART,),
    State.DRAINING: (Timer.SPARE, Timer.DRAIN),
    State.KILLING: (Timer.KILL,),
}
#: What goes on if it was armed before: the tries of a restart share one deadline. (A pause's sign
#: of life is of no state: `Turns` arms and disarms it by the gate.)
KEPT = {State.KILLING: (Timer.RESTART,)}


class Moment(Enum):
    """The moments at which a session's hooks run on the machine's word."""

    #: a prompt's turn has come; the agent gets it after its hooks, unless they refuse it.
    PROMPT = auto()
    #: the agent has ended a turn; its hooks may send it back to work.
    TURN_END = auto()
    #: the agent's process ended by itself. Nothing waits for these.
    DEATH = auto()


class Standstill(Enum):
    """What the user's pause or hold has come to."""

    #: nothing is paused or held.
    OPEN = "open"
    #: the agent was asked to pause the turn; what it had begun ends first.
    PAUSING = "pausing"
    #: the turn waits at the agent, or the queue where no turn runs.
    PAUSED = "paused"
    #: the turn that runs, if one does, goes on to its end; nothing starts.
    HELD = "held"


class Passing(Enum):
    """What becomes of a client's request that is for the agent."""

    #: it goes out at once.
    NOW = auto()
    #: a setting goes out at once; anything else waits for the process that is to be started.
    SETTINGS = auto()
    #: it waits, and a process is started for it.
    STARTS = auto()
    #: it waits for the process that is on its way.
    WAITS = auto()
    #: it fails: no process can take it before the next prompt.
    REFUSED = auto()
    #: it fails: the session has ended.
    GONE = auto()


#: a process has the session and takes requests, settings at least.
TAKES_REQUESTS: Final = (Passing.NOW, Passing.SETTINGS)


class Phase(Enum):
    """How what the agent says now is to be taken."""

    #: nothing that it says of the session counts.
    NOTHING = auto()
    #: it belongs to the running turn, or to none.
    LIVE = auto()
    #: it may be a replay of what is known: the conversation is swallowed.
    REPLAY = auto()
    #: the last turn was cancelled and has ended: more of the conversation is a leak.
    TAINTED = auto()


@dataclass(frozen=True, slots=True)
class Permits:
    """What a state permits the client, and the process that has the session or gets it."""

    #: what becomes of a client's request for the agent.
    requests: Passing
    #: how updates are taken; `Turns.phase` also knows a replay and a cancelled turn before.
    updates: Phase = Phase.NOTHING
    #: notifications other than updates pass to the client.
    notifies: bool = False
    #: the process may ask the client though it does not have the session yet: for a login.
    asks_early: bool = False
    #: the agent is read only as fast as the client reads.
    paced: bool = False
    #: changes that the agent wants to make through the client are refused.
    stopped: bool = False


PERMITS = {
    State.COLD: Permits(Passing.STARTS),
    State.STARTING: Permits(Passing.WAITS, notifies=True, asks_early=True),
    State.RELOADING: Permits(Passing.WAITS, updates=Phase.REPLAY, notifies=True),
    State.IDLE: Permits(Passing.NOW, updates=Phase.LIVE, notifies=True, paced=True),
    State.RUNNING: Permits(Passing.NOW, updates=Phase.LIVE, notifies=True, paced=True),
    State.DRAINING: Permits(Passing.NOW, updates=Phase.LIVE, notifies=True, stopped=True),
    State.KILLING: Permits(Passing.WAITS),
    State.BLOCKED: Permits(Passing.REFUSED, notifies=True, asks_early=True),
    State.UNAUTHENTICATED: Permits(Passing.REFUSED, notifies=True, asks_early=True),
    State.CLOSED: Permits(Passing.GONE),
}
_PROVISIONAL = replace(PERMITS[State.IDLE], requests=Passing.SETTINGS)


def permits(state: State, *, provisional: bool) -> Permits:
    """Return what a state permits; `provisional`: IDLE, and the process may not get a prompt."""
    return _PROVISIONAL if provisional else PERMITS[state]
