"""What goes into the turn machine (events) and what comes out of it (effects).

Both are plain data: `key` names a prompt (an int, unique in the session, in order of reading),
`epoch` one agent process, `turn` one run of a prompt. `detail` and `outcome` are opaque here:
the shell put them in and gets them back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias


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


class Failure(Enum):
    """Why a prompt is answered with an error that is the bridge's own."""

    #: the journal could not take the prompt.
    JOURNAL = auto()
    #: the agent's process ended during the turn.
    AGENT_DIED = auto()
    #: the agent could not be started or would not load the session.
    NO_AGENT = auto()
    #: the agent wants the client to authenticate first.
    NEEDS_AUTH = auto()
    #: the session was closed.
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class Replied:
    """The agent's own answer, result or error."""

    answer: object


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Stop reason `cancelled`."""


@dataclass(frozen=True, slots=True)
class Done:
    """A carrier of held prompts has carried them all."""


@dataclass(frozen=True, slots=True)
class Failed:
    """An error of the bridge's own."""

    why: Failure
    detail: object = None


Outcome: TypeAlias = Replied | Cancelled | Done | Failed


# --- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PromptReceived:
    """A prompt was read; `interrupt` when it is to supersede the oldest one without an answer."""

    key: int
    interrupt: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    """The journal has the prompt, with fsync."""

    key: int


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """The journal could not take the prompt."""

    key: int
    detail: object = None


@dataclass(frozen=True, slots=True)
class RunHeld:
    """`/queue run`: the prompt `carrier` stays open while the held prompts `keys` run. Its
    outcome is `Done`, or that of the last one if that was not the agent's own."""

    carrier: int
    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """`session/cancel`."""


@dataclass(frozen=True, slots=True)
class CancelPrompt:
    """`$/cancel_request` of one prompt."""

    key: int


@dataclass(frozen=True, slots=True)
class Warm:
    """The session was loaded: have an agent ready before the first prompt."""


@dataclass(frozen=True, slots=True)
class Renew:
    """The session's roots or MCP servers changed: another process before the next prompt."""


@dataclass(frozen=True, slots=True)
class Started:
    """The process answered `initialize`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StartFailed:
    """There is no process (any more); `permanent` when another try is useless."""

    epoch: int
    permanent: bool = False
    detail: object = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """The process has the session, its settings are applied."""

    epoch: int


@dataclass(frozen=True, slots=True)
class LoadRefused:
    """The process does not take the session; `permanent` when another try is useless."""

    epoch: int
    permanent: bool = False
    detail: object = None


@dataclass(frozen=True, slots=True)
class NeedsAuth:
    """The process wants the client to authenticate before it takes the session."""

    epoch: int
    detail: object = None


@dataclass(frozen=True, slots=True)
class AgentAnswered:
    """The agent answered the prompt of `turn`."""

    epoch: int
    turn: int
    answer: object = None


@dataclass(frozen=True, slots=True)
class AgentExited:
    """The agent's main process ended; everything it wrote has been read."""

    epoch: int
    detail: object = None


@dataclass(frozen=True, slots=True)
class TreeDead:
    """No process of that epoch is left."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Unclean:
    """The agent went on with a turn after it had answered `cancelled`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Deadline:
    """A timer passed; `token` is the one it was armed with."""

    timer: Timer
    token: int


@dataclass(frozen=True, slots=True)
class Close:
    """`session/close` or `session/delete`."""


@dataclass(frozen=True, slots=True)
class ClientGone:
    """The client's stdin closed, or a signal asks the bridge to end."""


PromptEvent: TypeAlias = PromptReceived | Committed | CommitFailed | RunHeld

AgentEvent: TypeAlias = (
    Started
    | StartFailed
    | Loaded
    | LoadRefused
    | NeedsAuth
    | AgentAnswered
    | AgentExited
    | TreeDead
    | Unclean
)

Event: TypeAlias = (
    PromptEvent | Cancel | CancelPrompt | Warm | Renew | Deadline | Close | ClientGone | AgentEvent
)


# --- effects -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Commit:
    """Write the prompt to the journal with fsync, then `Committed` or `CommitFailed`."""

    key: int


@dataclass(frozen=True, slots=True)
class SendPrompt:
    """Send the prompt to the agent: turn `turn` begins."""

    epoch: int
    turn: int
    key: int


@dataclass(frozen=True, slots=True)
class SendCancel:
    """Send `session/cancel` to the agent; what it asks of the user is answered `cancelled`."""

    epoch: int
    turn: int


@dataclass(frozen=True, slots=True)
class Start:
    """Start a process and initialize it, then `Started` or `StartFailed`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Open:
    """Resume or load the session in the process and apply its settings, then `Loaded`,
    `LoadRefused` or `NeedsAuth`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill the process tree, also one that still starts; then `TreeDead`, at once if it is dead."""

    epoch: int


@dataclass(frozen=True, slots=True)
class CloseAgent:
    """Let the process end by itself, bounded, then kill the tree, then `TreeDead`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Arm:
    """Start a timer; one armed before under the same name is void."""

    timer: Timer
    token: int


@dataclass(frozen=True, slots=True)
class Disarm:
    """Stop a timer."""

    timer: Timer


@dataclass(frozen=True, slots=True)
class Answer:
    """The prompt's outcome: into the journal, then to the client, exactly once."""

    key: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class NoteOutcome:
    """The agent's own outcome of a cancelled prompt: for the journal only."""

    key: int
    answer: object


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The bridge ends while the prompt runs: for the journal only."""

    key: int


@dataclass(frozen=True, slots=True)
class Hold:
    """These prompts wait for the user's word: for the journal only."""

    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CloseCards:
    """Every tool card that is still open becomes `failed`; often there is none."""


@dataclass(frozen=True, slots=True)
class Release:
    """The process is dead: release what it had at the client, its terminals and open requests,
    and forget it. Once for every epoch that was started; at the end also for one that won't die.
    """

    epoch: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The session has ended; nothing of it is left, unless its killing took too long."""


Effect: TypeAlias = (
    Commit
    | SendPrompt
    | SendCancel
    | Start
    | Open
    | Kill
    | CloseAgent
    | Arm
    | Disarm
    | Answer
    | NoteOutcome
    | Interrupted
    | Hold
    | CloseCards
    | Release
    | Closed
)
