"""The values that the journal returns."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any


def now() -> str:
    """Return the time in UTC as ISO 8601 of fixed width, so that it sorts as text."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class PromptState(StrEnum):
    """The states of a prompt."""

    #: It was accepted; its turn has not begun.
    WAITING = "waiting"
    #: It was accepted by a bridge that is gone: it runs on the user's word only.
    HELD = "held"
    #: It was sent to the agent.
    SENT = "sent"
    #: It has its outcome, for good.
    DONE = "done"


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as its own file describes it; `updated_at` is ISO 8601 in UTC."""

    session_id: str
    cwd: str
    agent: str
    agent_session_id: str | None
    title: str | None
    updated_at: str


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as a listing shows it; `updated_at` is ISO 8601 in UTC."""

    session_id: str
    cwd: str
    title: str | None
    updated_at: str
    agent: str
    agent_session_id: str | None


@dataclass(frozen=True, slots=True)
class PromptRow:
    """A prompt; `outcome` is what the client was told, `agent_outcome` what the agent said."""

    seq: int
    prompt_id: str
    params: dict[str, Any]
    state: PromptState
    outcome: dict[str, Any] | None
    agent_outcome: dict[str, Any] | None


class Unset:
    """The type of UNSET."""


UNSET = Unset()
"""Leave this field as it is (None would clear it)."""
