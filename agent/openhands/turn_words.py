"""The effects that a turn gives its shell, and the sentences for the user (sans-IO)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal, TypeAlias

from agent.openhands.events import Action

StopReason = Literal["end_turn", "max_turn_requests", "cancelled"]


class Phase(Enum):
    """The phase of a prompt."""

    #: the message is being sent
    SENDING = auto()
    #: an answer of the server was lost; the conversation's state is read to find out the outcome
    LOOKING = auto()
    #: the server has the message, and a run is requested
    STARTING = auto()
    RUNNING = auto()
    #: actions wait for the user's answer
    ASKING = auto()
    CONFIRMING = auto()
    #: the user's refusal is sent, and its effect is looked for in the server's state
    REJECTING = auto()
    #: the prompt was cancelled; everything that runs is being stopped
    STOPPING = auto()
    #: the user's pause is in effect: nothing runs until the pause ends
    PAUSED = auto()
    ENDED = auto()


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Sends the prompt's message; the one request that is never sent twice."""


@dataclass(frozen=True, slots=True)
class Run:
    """Asks the server to begin a run, `after` seconds from now."""

    after: float = 0


@dataclass(frozen=True, slots=True)
class Confirm:
    """Accepts or refuses all waiting actions, `after` seconds from now."""

    accept: bool
    after: float = 0


@dataclass(frozen=True, slots=True)
class Interrupt:
    after: float = 0


@dataclass(frozen=True, slots=True)
class Pause:
    """Asks the server to let the running call end and begin no other."""


@dataclass(frozen=True, slots=True)
class Sync:
    """Reads the newly stored events and the conversation's status, `after` seconds from now."""

    after: float = 0


@dataclass(frozen=True, slots=True)
class Ask:
    """Asks the user about all of these actions at once."""

    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Withdraws the question to the user."""


@dataclass(frozen=True, slots=True)
class Paused:
    """Answers the user's pause: True if the turn waits, False if it continues or has ended."""

    waits: bool


@dataclass(frozen=True, slots=True)
class Say:
    """Shows the user a sentence of this agent's own."""

    text: str


@dataclass(frozen=True, slots=True)
class End:
    reason: StopReason


@dataclass(frozen=True, slots=True)
class Fail:
    """Ends the turn with an error. `auth`: the server refused the key."""

    sentence: str
    auth: bool = False


Request: TypeAlias = SendMessage | Run | Confirm | Interrupt | Pause | Sync
Effect: TypeAlias = Request | Ask | Paused | Withdraw | Say | End | Fail

MAY_GO_ON: Final = (
    "[OpenHands] The server can't be reached: what was stopped may go on there until it can."
)
STILL_RUNS: Final = "[OpenHands] The server did not stop the run: it may go on there."
BUSY: Final = (
    "[OpenHands] The server has your message and no room to run it now; it is asked again until it"
    " has."
)
STUCK: Final = "[OpenHands] The server ended the run: the agent repeats itself."
STOPPED_ELSEWHERE: Final = "[OpenHands] The run was stopped by another client of the conversation."
STARTING: Final = "[OpenHands] Waiting for the agent-server, which can't be reached yet."
NOT_STREAMED: Final = (
    "[OpenHands] The model's profile on the server does not stream (`stream` is off), so answers"
    " come whole."
)
LOST: Final = "[OpenHands] The server can't be reached; it is tried again until it can."

LEFT_OUT: Final = "[OpenHands] Not all that other clients of the conversation did is shown here."

NOT_SENT: Final = "The agent-server can't be reached; your message was not sent."
NOT_STOPPED: Final = (
    "What the agent-server ran before could not be stopped; your message was not sent."
)
NOT_KNOWN: Final = (
    "The connection to the agent-server failed while the message was sent, and the server does not"
    " show it. It was not sent again, because it may still arrive."
)
NOT_STARTED: Final = "The agent-server has the message, but starts no run for it."
NOT_REJECTED: Final = "The agent-server does not take the refusal; nothing more is sent to it."
NO_REASON: Final = (
    "The agent-server ended the run with an error and gave no reason; it may have been started"
    " again."
)
DELETED: Final = "The conversation is being deleted on the agent-server."
