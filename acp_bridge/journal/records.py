"""What the journal gives out: plain frozen values."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any


def now() -> str:
    """The time in UTC, ISO 8601, of fixed width: it sorts as text."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class PromptState(StrEnum):
    """Where a prompt stands."""

    #: accepted; its turn has not begun
    WAITING = "waiting"
    #: accepted, but the bridge that accepted it is gone: it runs on the user's word only
    HELD = "held"
    #: handed to the agent
    SENT = "sent"
    #: has its outcome, for good
    DONE = "done"


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """What is known of a session. Times are ISO 8601 in UTC."""

    session_id: str
    cwd: str
    agent: str
    agent_session_id: str | None
    title: str | None
    updated_at: str


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One line of a listing."""

    session_id: str
    cwd: str
    title: str | None
    updated_at: str
    agent: str
    agent_session_id: str | None


@dataclass(frozen=True, slots=True)
class PromptRow:
    """A prompt as it stands; `outcome` is what the client was told, `agent_outcome` what the
    agent said."""

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
