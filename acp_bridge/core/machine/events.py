"""What happens outside the turn machine, as it is told: the events that `step` takes."""

from __future__ import annotations

from enum import Enum, auto
from typing import TypeAlias

from msgspec import Struct


class Timer(Enum):
    """The machine's deadlines; the shell knows how many seconds each is."""

    #: half of `drain_timeout`: start a spare process, in case the agent ignores the cancel.
    SPARE = auto()
    #: `drain_timeout`: the agent has not answered its cancelled prompt: kill it.
    DRAIN = auto()
    #: the tree should be dead by now.
    KILL = auto()
    #: all tries of a restart together, from the first start to the loaded session.
    RESTART = auto()
    #: a prompt has waited for the end of a pause or a hold for a while: time for a sign of life.
    SIGN = auto()


class Steered(Enum):
    """What an agent made of words that it was given for the turn that runs."""

    #: the words have joined the turn.
    JOINED = auto()
    #: the agent has not got the words, or does not take them.
    NOT_TAKEN = auto()
    #: the agent has not said whether it took them.
    UNKNOWN = auto()


class Moment(Enum):
    """The moments at which the machine asks for a session's hooks."""

    #: before a prompt is sent; a hook may refuse it.
    PROMPT = auto()
    #: the agent has ended a turn; a hook may send it back to work.
    TURN_END = auto()
    #: the agent's process ended by itself. Nothing waits for these hooks.
    DEATH = auto()


class PromptReceived(Struct, frozen=True):
    """A prompt was read.

    With `interrupt` it supersedes the oldest one without an answer. With `steers` its words are to
    join the turn that runs; if no turn runs, or they can't join it, the prompt is the next to run.
    With `lapses` it does not run if the turn ends without it.
    """

    key: int
    interrupt: bool = False
    steers: bool = False
    lapses: bool = False


class SteerWaiting(Struct, frozen=True):
    """The user wants the words of a prompt that waits to join the turn that runs."""

    key: int


class SteerAnswered(Struct, frozen=True):
    """The agent answered the `Steer` of this prompt, was silent for too long, or is gone."""

    key: int
    how: Steered


class EditWaiting(Struct, frozen=True):
    """The user wants other words for a prompt that waits."""

    key: int


class MoveWaiting(Struct, frozen=True):
    """The user wants a prompt that waits to run before the prompt `before`; None: last.

    `first`: in the first place that it can take.
    """

    key: int
    before: int | None = None
    first: bool = False


class DropWaiting(Struct, frozen=True):
    """The user wants a prompt that waits never to run."""

    key: int


class ChangeLeftOver(Struct, frozen=True):
    """The user wants other words or another place for a prompt that is left over."""

    key: int


class ChangeWritten(Struct, frozen=True):
    """The journal has the change that `WriteChange` asked for, or (`made` is False) has not."""

    made: bool = True


class Committed(Struct, frozen=True):
    """The journal has the prompt, with fsync."""

    key: int


class CommitFailed(Struct, frozen=True):
    """The journal could not take the prompt."""

    key: int
    detail: object = None


class NotBegun(Struct, frozen=True):
    """The journal could not note that the prompt is sent; the agent has nothing of it (Q5).

    `away`: the journal may be able to later; `JournalBack` or `JournalLost` follows.
    """

    key: int
    away: bool = False
    detail: object = None


class JournalAway(Struct, frozen=True):
    """The journal can't be written for now: no prompt could be sent."""


class JournalBack(Struct, frozen=True):
    """The journal can be written again."""


class JournalLost(Struct, frozen=True):
    """The journal can't be written any more, and never will: no prompt that waits can be sent."""

    detail: object = None


class Taken(Struct, frozen=True):
    """Another bridge has the session: nothing of it may work here any more. That is for good."""

    detail: object = None


class RunLeftOver(Struct, frozen=True):
    """`/queue run`: the request `carrier` stays open while the left-over prompts `keys` run.

    When all have run the carrier is answered `Done`, or like the last prompt if the agent did not
    answer that one.
    """

    carrier: int
    keys: tuple[int, ...]


class HooksDone(Struct, frozen=True):
    """The hooks that a `RunHooks` asked for have ended, or were killed; fed once for each effect.

    `refusal`: why the prompt may not run; None: it may. `feedback`: the key of a new prompt that
    sends the agent back to work; None: the turn stays over.
    """

    key: int
    refusal: object = None
    feedback: int | None = None


class HookBegan(Struct, frozen=True):
    """A hook began, as the run `run`, that the machine did not ask for: about a permission, say."""

    run: int


class HookEnded(Struct, frozen=True):
    """No process of the hook that began as `run` is left."""

    run: int


class Cancel(Struct, frozen=True):
    """The client sent `session/cancel`.

    `requests`: the keys of the client's own requests, the only ones that it may end; None: all.
    If `requests` is empty, or no prompt is open, the cancel is for what the agent does outside of a
    prompt. `spares`: what runs in the background goes on.
    """

    requests: frozenset[int] | None = None
    spares: bool = False


class CancelPrompt(Struct, frozen=True):
    """The client sent `$/cancel_request` for one prompt; `requests` and `spares` as in `Cancel`."""

    key: int
    requests: frozenset[int] | None = None
    spares: bool = False


class Pause(Struct, frozen=True):
    """The user wants the running turn to wait, and nothing in the queue to start.

    The shell feeds it only where the agent can pause a turn.
    """


class HoldQueue(Struct, frozen=True):
    """The user wants nothing more to start; the turn that runs goes on to its end."""


class Go(Struct, frozen=True):
    """The user ends a pause or a hold."""


class Warm(Struct, frozen=True):
    """A process is needed though no prompt waits: for a load, or for a request to the agent."""


class Sleep(Struct, frozen=True):
    """The session has been at rest for long: its process may end; a prompt starts the next one.

    The shell feeds it only if no question, request or tool of the agent is open.
    """

    epoch: int


class ReplaceProcess(Struct, frozen=True):
    """The process may get no further prompt, and another one takes its place.

    The session's roots or MCP servers have changed, or the process was provisional.
    """


class Started(Struct, frozen=True):
    """The process answered `initialize`."""

    epoch: int


class StartFailed(Struct, frozen=True):
    """The process could not be started, and is gone; `permanent`: another try is useless."""

    epoch: int
    permanent: bool = False
    detail: object = None


class Loaded(Struct, frozen=True):
    """The process has the session, and its settings are applied.

    `provisional`: it may not get a prompt; the shell feeds `ReplaceProcess` in time.
    """

    epoch: int
    provisional: bool = False


class LoadRefused(Struct, frozen=True):
    """The process does not take the session; `permanent`: another try is useless."""

    epoch: int
    permanent: bool = False
    detail: object = None


class NeedsAuth(Struct, frozen=True):
    """The process wants the client to authenticate before it takes the session."""

    epoch: int
    detail: object = None


class AgentAnswered(Struct, frozen=True):
    """The agent answered the prompt `key`."""

    epoch: int
    key: int
    answer: object = None


class AgentExited(Struct, frozen=True):
    """The agent's main process ended; everything that it wrote has been read."""

    epoch: int
    detail: object = None


class TreeDead(Struct, frozen=True):
    """No process of that epoch is left; fed once, after its `AgentExited` or its `Kill`."""

    epoch: int


class Leaked(Struct, frozen=True):
    """The agent went on with a turn after it had answered `cancelled`."""

    epoch: int


class PauseAnswered(Struct, frozen=True):
    """The agent answered the `SendPause` of this token; `paused`: the turn waits now."""

    epoch: int
    token: int = 0
    paused: bool = True


class MaySteer(Struct, frozen=True):
    """The process takes words into the turn that runs from now on, or (`now` is False) does not.

    The shell feeds it only for an agent that can take words at all. While a question of the agent
    to the user is open it takes none.
    """

    epoch: int
    now: bool = True


class WordsFollowed(Struct, frozen=True):
    """The process has shown something of the turn since words joined it."""

    epoch: int


class WorkSeen(Struct, frozen=True):
    """The agent does something outside of a prompt."""

    epoch: int


class WorkOver(Struct, frozen=True):
    """The agent does nothing outside of a prompt any more, or has heeded the Stop of such work."""

    epoch: int


class WorkAsked(Struct, frozen=True):
    """The client has asked the agent for something beside prompts that may start work."""


class Occupied(Struct, frozen=True):
    """Another session works in the process while this one is at rest; `now` is False: no longer.

    An occupied process gets no prompt of this session.
    """

    epoch: int
    now: bool = True


class Deadline(Struct, frozen=True):
    """The timer that was armed with this token has passed."""

    timer: Timer
    token: int


class Close(Struct, frozen=True):
    """The client closed or deleted the session."""

    #: the prompts that wait are left over, as somebody closes the session for all of its clients.
    keeps_prompts: bool = False


class Shutdown(Struct, frozen=True):
    """The bridge ends, and the session with it."""


PromptEvent: TypeAlias = PromptReceived | Committed | CommitFailed | NotBegun | RunLeftOver
JournalEvent: TypeAlias = JournalAway | JournalBack | JournalLost | Taken
SteeringEvent: TypeAlias = SteerWaiting | SteerAnswered
ChangeEvent: TypeAlias = EditWaiting | MoveWaiting | DropWaiting | ChangeLeftOver | ChangeWritten

HookEvent: TypeAlias = HooksDone | HookBegan | HookEnded
GateEvent: TypeAlias = Pause | HoldQueue | Go

AgentEvent: TypeAlias = (
    Started
    | StartFailed
    | Loaded
    | LoadRefused
    | NeedsAuth
    | AgentAnswered
    | AgentExited
    | TreeDead
    | Leaked
    | PauseAnswered
    | MaySteer
    | WordsFollowed
    | WorkSeen
    | WorkOver
    | Occupied
)

Event: TypeAlias = (
    PromptEvent
    | JournalEvent
    | SteeringEvent
    | ChangeEvent
    | HookEvent
    | GateEvent
    | Cancel
    | CancelPrompt
    | WorkAsked
    | Warm
    | Sleep
    | ReplaceProcess
    | Deadline
    | Close
    | Shutdown
    | AgentEvent
)
