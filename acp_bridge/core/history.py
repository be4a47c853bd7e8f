"""What a client is shown of a live session when it attaches: the member `history`."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from acp_bridge.core.protocol import ATTACH, Json

#: the member of the parameters of `_acp_bridge/attach`.
HISTORY: Final = "history"


class History(StrEnum):
    """How much of a session a client is shown before what happens from then on."""

    #: all of the conversation, then as `PENDING`.
    FULL = "full"
    #: what is open now: questions, prompts that wait or are unsent, the session's state.
    PENDING = "pending"
    #: nothing but the answer.
    NONE = "none"


def history_of(params: Json) -> History | None:
    """Return how much an attach asks for, by default all; None for a value that is unknown."""
    given = params.get(HISTORY, History.FULL)
    return History(given) if given in list(History) else None


def attaches_whole(method: str, params: Json) -> bool:
    """Return True for an attach that asks for all of the session."""
    return method == ATTACH and history_of(params) is History.FULL
