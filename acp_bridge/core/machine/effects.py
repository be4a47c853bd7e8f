"""The effects that the turn machine asks the shell for, and the outcomes of a prompt."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from acp_bridge.core.machine.events import Event, Moment, Timer

# --- how a prompt can end -------------------------------------------------------------------------


class Failure(Enum):
    """The reasons for which the bridge itself answers a prompt with an error."""

    #: the journal could not take the prompt.
    JOURNAL = auto()
    #: the journal could not note that the prompt is sent, so it was not sent.
    NOT_BEGUN = auto()
    #: the agent's process ended during the turn.
    AGENT_DIED = auto()
    #: another bridge has the session, so the turn was ended.
    TAKEN = auto()
    #: the agent could not be started or would not load the session.
    NO_AGENT = auto()
    #: the agent wants the client to authenticate first.
    NEEDS_AUTH = auto()
    #: the session was closed.
    CLOSED = auto()
    #: the session was closed for all before the prompt ran: the prompt is left over.
    KEPT = auto()
    #: the prompt was for the running turn alone, and that has ended without it.
    NO_TURN = auto()
    #: the agent died in the turn that the prompt was to join: the prompt is left over.
    NOT_JOINED = auto()
    #: the agent took the prompt into a turn and showed nothing after that: it is left over.
    PERHAPS_UNREAD = auto()


@dataclass(frozen=True, slots=True)
class Replied:
    """The prompt ends with the agent's own answer, a result or an error."""

    answer: object


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The prompt ends with stop reason `cancelled`."""


@dataclass(frozen=True, slots=True)
class Done:
    """All left-over prompts of a `/queue run` have run."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A hook refused the prompt: the agent never gets it."""

    reason: object


@dataclass(frozen=True, slots=True)
class Failed:
    """The bridge answers the prompt with an error of its own."""

    why: Failure
    detail: object = None


Outcome: TypeAlias = Replied | Cancelled | Done | Refused | Failed

# --- effects --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Commit:
    """Write the prompt to the journal with fsync, then feed `Committed` or `CommitFailed`."""

    key: int


@dataclass(frozen=True, slots=True)
class WriteChange:
    """Write the user's change of a prompt with fsync, then feed `ChangeWritten`.

    No prompt is sent meanwhile. `order`: for a move, the keys of all prompts that may be moved, as
    they are to run from now on. Empty: the prompt gets other words, or it is a left-over one.
    """

    key: int
    order: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RefuseChange:
    """Tell the client that wanted to change a prompt that nothing is changed: it has begun, say."""


@dataclass(frozen=True, slots=True)
class SendPrompt:
    """Send the prompt to the agent, which begins its turn; feed `AgentAnswered` at its end."""

    epoch: int
    key: int


@dataclass(frozen=True, slots=True)
class Steer:
    """Give the agent the prompt's words for the turn that runs, then feed `SteerAnswered`.

    Feed `WordsFollowed` when the agent shows something of the turn after it has taken them.
    """

    epoch: int
    key: int


@dataclass(frozen=True, slots=True)
class Queued:
    """Tell the prompt's client that it does not join a turn, and waits for one of its own."""

    key: int


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Show the user the words of a prompt that won't run: it was to join a turn, now stopped."""

    key: int


@dataclass(frozen=True, slots=True)
class SendCancel:
    """Send `session/cancel` to the agent; answer its questions to the user with `cancelled`."""

    epoch: int
    key: int


@dataclass(frozen=True, slots=True)
class StopWork:
    """Send `session/cancel` to an agent that works outside of a prompt, answer `cancelled` to what
    it asks of the user, and end the cards of that work; then feed `WorkOver` when it is silent."""

    epoch: int


@dataclass(frozen=True, slots=True)
class SendPause:
    """Ask the agent to let the running turn wait, then feed `PauseAnswered` with this token."""

    epoch: int
    token: int


@dataclass(frozen=True, slots=True)
class SendGo:
    """Tell the agent to go on with the turn that it was asked to pause."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StillWaits:
    """Give the clients a sign of life: a prompt waits for the end of a pause or a hold."""


@dataclass(frozen=True, slots=True)
class Start:
    """Start a process and initialize it, then feed `Started` or `StartFailed`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Open:
    """Resume or load the session in the process and apply its settings.

    Then feed `Loaded`, `LoadRefused` or `NeedsAuth`.
    """

    epoch: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill the process tree, even while the process starts; then feed `TreeDead`, once."""

    epoch: int


@dataclass(frozen=True, slots=True)
class CloseAgent:
    """Give the process a bounded time to end by itself, kill its tree, and feed `TreeDead`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Arm:
    """Start the timer, instead of an armed one of the same name; feed `Deadline` when it passes."""

    timer: Timer
    token: int


@dataclass(frozen=True, slots=True)
class Disarm:
    """Stop the timer before it has passed."""

    timer: Timer


@dataclass(frozen=True, slots=True)
class AnswerPrompt:
    """Write the prompt's outcome to the journal, then answer the client; once for every prompt."""

    key: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class NoteOutcome:
    """Write the agent's own outcome of a cancelled prompt to the journal, and only there."""

    key: int
    answer: object


@dataclass(frozen=True, slots=True)
class EndTurn:
    """Write to the journal that the agent ended the turn with this answer.

    The client's request stays open: the hooks of the turn's end run, and may send the agent back.
    """

    key: int
    answer: object


@dataclass(frozen=True, slots=True)
class RunHooks:
    """Run the hooks about this prompt, then feed `HooksDone`, once.

    `again`: how often hooks have already sent the agent back to work for this prompt.
    """

    key: int
    moment: Moment
    again: int = 0


@dataclass(frozen=True, slots=True)
class StopHooks:
    """Kill all running hooks, or those about one prompt; feed `HooksDone` or `HookEnded` for each
    when it is dead (C10)."""

    key: int | None = None


@dataclass(frozen=True, slots=True)
class RefuseFeedback:
    """Forget the prompt `key`, the feedback of a hook: the agent does not get it.

    `enough`: clients are told that hooks have sent the agent back to work often enough.
    """

    key: int
    enough: bool


@dataclass(frozen=True, slots=True)
class TellDeath:
    """Run the hooks about the end of the agent's process; nothing waits for them."""

    detail: object


@dataclass(frozen=True, slots=True)
class TellTaken:
    """Tell clients, once, that another bridge has the session, now that nothing of it lives here.

    If a process would not die, they are told all the same.
    """

    detail: object


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Write to the journal, and only there, that the bridge ended while the prompt ran."""

    key: int


@dataclass(frozen=True, slots=True)
class LeaveOver:
    """Write to the journal, and only there, that these prompts are left over for `/queue run`."""

    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CloseCards:
    """Make the open tool cards of the running turn `failed`; often there is none (C22)."""


@dataclass(frozen=True, slots=True)
class Release:
    """Forget a dead process, and release its terminals and open requests at the client.

    It is asked for once for every epoch that was started; when the session ends, also for one that
    won't die.
    """

    epoch: int


@dataclass(frozen=True, slots=True)
class Closed:
    """Let go of the session: nothing of it is left, unless killing its process took too long."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """Log an event that came too late, too early or twice; nothing else comes of it."""

    event: Event


Effect: TypeAlias = (
    Commit
    | WriteChange
    | RefuseChange
    | SendPrompt
    | Steer
    | Queued
    | GiveBack
    | SendCancel
    | StopWork
    | SendPause
    | SendGo
    | StillWaits
    | Start
    | Open
    | Kill
    | CloseAgent
    | Arm
    | Disarm
    | AnswerPrompt
    | NoteOutcome
    | EndTurn
    | RunHooks
    | StopHooks
    | RefuseFeedback
    | TellDeath
    | TellTaken
    | Interrupted
    | LeaveOver
    | CloseCards
    | Release
    | Closed
    | Dropped
)
