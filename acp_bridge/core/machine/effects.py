"""The effects that the turn machine asks the shell for, and the outcomes of a prompt."""

from __future__ import annotations

from enum import Enum, auto
from typing import TypeAlias

from msgspec import Struct

from acp_bridge.core.machine.events import Event, Moment, Timer

# --- how a prompt can end -------------------------------------------------------------------------


class Failure(Enum):
    """The reasons for which the bridge itself answers a prompt with an error."""

    #: the journal could not take the prompt.
    JOURNAL = auto()
    #: the prompt was not sent: the journal could not note that it is sent, or the journal is lost
    #: or another bridge's.
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


class Replied(Struct, frozen=True):
    """The prompt ends with the agent's own answer, a result or an error."""

    answer: object


class Cancelled(Struct, frozen=True):
    """The prompt ends with stop reason `cancelled`."""


class Done(Struct, frozen=True):
    """All left-over prompts of a `/queue run` have run."""


class Refused(Struct, frozen=True):
    """A hook refused the prompt: the agent never gets it."""

    reason: object


class Failed(Struct, frozen=True):
    """The bridge answers the prompt with an error of its own."""

    why: Failure
    detail: object = None


Outcome: TypeAlias = Replied | Cancelled | Done | Refused | Failed

# --- effects --------------------------------------------------------------------------------------


class Commit(Struct, frozen=True):
    """Write the prompt to the journal with fsync, then feed `Committed` or `CommitFailed`."""

    key: int


class WriteChange(Struct, frozen=True):
    """Write the user's change of a prompt with fsync, then feed `ChangeWritten`.

    No prompt is sent meanwhile. `order`: for a move, the keys of all prompts that may be moved, as
    they are to run from now on. Empty: the prompt gets other words, or it is a left-over one.
    """

    key: int
    order: tuple[int, ...] = ()


class RefuseChange(Struct, frozen=True):
    """Tell the client that wanted to change a prompt that nothing is changed: it has begun, say."""


class SendPrompt(Struct, frozen=True):
    """Send the prompt to the agent, which begins its turn; feed `AgentAnswered` at its end."""

    epoch: int
    key: int


class Steer(Struct, frozen=True):
    """Give the agent the prompt's words for the turn that runs, then feed `SteerAnswered`.

    Feed `WordsFollowed` when the agent shows something of the turn after it has taken them.
    """

    epoch: int
    key: int


class Queued(Struct, frozen=True):
    """Tell the prompt's client that it does not join a turn, and waits for one of its own."""

    key: int


class GiveBack(Struct, frozen=True):
    """Show the user the words of a prompt that won't run: it was to join a turn, now stopped."""

    key: int


class SendCancel(Struct, frozen=True):
    """Send `session/cancel` to the agent; answer its questions to the user with `cancelled`.

    `spares`: the agent may let go on what it has listed as running in the background.
    """

    epoch: int
    key: int
    spares: bool = False


class StopWork(Struct, frozen=True):
    """Send `session/cancel` to an agent that works outside of a prompt, answer `cancelled` to what
    it asks of the user, and end the cards of that work; then feed `WorkOver` when it is silent.

    `spares`: as in `SendCancel`; the cards of what goes on stay open.
    """

    epoch: int
    spares: bool = False


class SendPause(Struct, frozen=True):
    """Ask the agent to let the running turn wait, then feed `PauseAnswered` with this token."""

    epoch: int
    token: int


class SendGo(Struct, frozen=True):
    """Tell the agent to go on with the turn that it was asked to pause."""

    epoch: int


class StillWaits(Struct, frozen=True):
    """Give the clients a sign of life: a prompt waits for the end of a pause or a hold."""


class Start(Struct, frozen=True):
    """Start a process and initialize it, then feed `Started` or `StartFailed`."""

    epoch: int


class Open(Struct, frozen=True):
    """Resume or load the session in the process and apply its settings.

    Then feed `Loaded`, `LoadRefused` or `NeedsAuth`.
    """

    epoch: int


class Kill(Struct, frozen=True):
    """Kill the process tree, even while the process starts; then feed `TreeDead`, once."""

    epoch: int


class Leave(Struct, frozen=True):
    """Leave the process to the other sessions that it has, or kill it; then feed `TreeDead`, once.

    The process has closed the session then, or is dead.
    """

    epoch: int


class CloseAgent(Struct, frozen=True):
    """Give the process a bounded time to end by itself, kill its tree, and feed `TreeDead`.

    If it has other sessions, it only closes this one.
    """

    epoch: int


class Arm(Struct, frozen=True):
    """Start the timer, instead of an armed one of the same name; feed `Deadline` when it passes."""

    timer: Timer
    token: int


class Disarm(Struct, frozen=True):
    """Stop the timer before it has passed."""

    timer: Timer


class AnswerPrompt(Struct, frozen=True):
    """Write the prompt's outcome to the journal, then answer the client; once for every prompt."""

    key: int
    outcome: Outcome


class NoteOutcome(Struct, frozen=True):
    """Write the agent's own outcome of a cancelled prompt to the journal, and only there."""

    key: int
    answer: object


class EndTurn(Struct, frozen=True):
    """Write to the journal that the agent ended the turn with this answer.

    The client's request stays open: the hooks of the turn's end run, and may send the agent back.
    """

    key: int
    answer: object


class RunHooks(Struct, frozen=True):
    """Run the hooks about this prompt, then feed `HooksDone`, once.

    `again`: how often hooks have already sent the agent back to work for this prompt.
    """

    key: int
    moment: Moment
    again: int = 0


class StopHooks(Struct, frozen=True):
    """Kill all running hooks, or those about one prompt; feed `HooksDone` or `HookEnded` for each
    when it is dead (C10)."""

    key: int | None = None


class RefuseFeedback(Struct, frozen=True):
    """Forget the prompt `key`, the feedback of a hook: the agent does not get it.

    `enough`: clients are told that hooks have sent the agent back to work often enough.
    """

    key: int
    enough: bool


class TellDeath(Struct, frozen=True):
    """Run the hooks about the end of the agent's process; nothing waits for them."""

    detail: object


class TellTaken(Struct, frozen=True):
    """Tell clients, once, that another bridge has the session, now that nothing of it lives here.

    If a process would not die, they are told all the same.
    """

    detail: object


class Interrupted(Struct, frozen=True):
    """Write to the journal, and only there, that the bridge ended while the prompt ran."""

    key: int


class LeaveOver(Struct, frozen=True):
    """Write to the journal, and only there, that these prompts are left over for `/queue run`."""

    keys: tuple[int, ...]


class CloseCards(Struct, frozen=True):
    """Make the open tool cards of the running turn `failed`; often there is none (C22).

    `spares`: as in the turn's `SendCancel`; the cards of what goes on stay open.
    """

    spares: bool = False


class Release(Struct, frozen=True):
    """Forget a dead process, and release its terminals and open requests at the client.

    It is asked for once for every epoch that was started; when the session ends, also for one that
    won't die.
    """

    epoch: int


class Closed(Struct, frozen=True):
    """Let go of the session: nothing of it is left, unless killing its process took too long."""


class Dropped(Struct, frozen=True):
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
    | Leave
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
