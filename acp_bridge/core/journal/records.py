"""The values that the journal returns."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Protocol

from msgspec import Struct

_OWN_ID: Final = re.compile(r"[0-9a-f]{32}")


def now() -> str:
    """Return the time in UTC as ISO 8601 of fixed width, so that it sorts as text."""
    return _iso(datetime.now(UTC))


def days_ago(days: float) -> str:
    """Return the time `days` days ago in the form of `now`."""
    return _iso(datetime.now(UTC) - timedelta(days=days))


def _iso(time: datetime) -> str:
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")


def file_name(session_id: str) -> str:
    """Return a safe file name for any session id; the bridge's own ids are used as they are."""
    if _OWN_ID.fullmatch(session_id):
        return session_id
    import hashlib  # no start waits for it

    return "x" + hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:40]


class PromptState(StrEnum):
    """The states of a prompt."""

    #: It was accepted; its turn has not begun.
    WAITING = "waiting"
    #: It was accepted by a bridge that is gone: it runs on the user's word only.
    LEFT_OVER = "held"
    #: It was sent to the agent.
    SENT = "sent"
    #: It has its outcome, for good.
    DONE = "done"


#: the outcome of a prompt whose turn ran when the bridge ended.
INTERRUPTED: Final = {"interrupted": True}
#: the outcome of a prompt that was left over and dropped.
DROPPED: Final = {"dropped": True}
#: the outcome of a prompt that had one which could not be written before the bridge was killed.
UNRECORDED: Final = {"unrecorded": True}


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as its own file and the listing have it; `updated_at` is ISO 8601 in UTC."""

    session_id: str
    cwd: str
    agent: str
    agent_session_id: str | None
    title: str | None
    updated_at: str
    #: the name that the agent gives itself in `agentInfo`, if it is to be known by it.
    agent_info: str | None = None
    #: the session has had a prompt, or was the agent's before it was ours: only then it is listed.
    prompted: bool = True


class Receipt(Struct, frozen=True):
    """The prompt that was accepted under a key: its number, and a checksum of its words as sent."""

    seq: int
    words: str
    #: what its clients were told, if that is not the prompt's outcome.
    told: dict[str, Any] | None = None


class Owns(Protocol):
    """Tells which sessions belong to an agent (`agents.identity.AgentIdentity`)."""

    @property
    def name(self) -> str:
        """The name under which the agent's sessions are kept."""

    @property
    def info(self) -> str | None:
        """The name that the agent gives itself; None if its sessions are not known by that."""

    def owns(self, name: str, info: str | None) -> bool:
        """Return True for a session that was kept under this name and this `agentInfo`."""


class PromptRow(Struct, frozen=True):
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
