"""The ways in which a prompt can end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias


class Failure(Enum):
    """Why a prompt is answered with an error that is the bridge's own."""

    #: the journal could not take the prompt.
    JOURNAL = auto()
    #: the journal could not note that the prompt is sent: it was not.
    NOT_BEGUN = auto()
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
    """The agent's own answer, a result or an error."""

    answer: object


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The prompt ends with stop reason `cancelled`."""


@dataclass(frozen=True, slots=True)
class Done:
    """A carrier of held prompts has carried them all."""


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
