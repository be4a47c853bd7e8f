"""Where a session stands, as its bridge tells in `_acp_bridge/state`. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from acp_bridge.protocol import Json

#: states in which a turn is on its way.
_BUSY: Final = frozenset({"running", "permission", "cancelling", "paused"})
#: states in which a prompt begins as soon as it is sent.
_FREE: Final = frozenset({"idle", "asleep", "starting"})
#: what a person is told of a state; the others are not worth a word.
_WORDS: Final = {
    "permission": "a permission is asked",
    "cancelling": "stopping",
    "paused": "paused, /queue go goes on",
    "held": "on hold, /queue go goes on",
    "blocked": "the agent is not ready",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """One state, of those that docs/extension.md has."""

    state: str = "idle"
    #: since this state began.
    seconds: int = 0
    #: prompts in the queue, of all clients.
    waiting: int = 0
    clients: int = 1
    #: the prompt whose turn runs, if one does.
    prompt_id: object = None
    #: this client has asked for that turn.
    mine: bool = False

    def begins(self, before: Standing | None) -> bool:
        """Tell if another turn runs than before, or is about to: a prompt is being written."""
        if before is None or not before.busy:
            return self.busy
        return self.prompt_id is not None and self.prompt_id != before.prompt_id

    def stopped(self, before: Standing | None) -> bool:
        """Tell if a turn of another client was being cancelled before, and has ended by now."""
        if before is None or before.mine or before.prompt_id is None:
            return False
        return before.state == "cancelling" and before.prompt_id != self.prompt_id

    @property
    def busy(self) -> bool:
        """A turn runs, whoever asked for it."""
        return self.prompt_id is not None or self.state in _BUSY

    @property
    def free(self) -> bool:
        """A prompt begins at once."""
        return self.prompt_id is None and self.waiting == 0 and self.state in _FREE

    @property
    def closed(self) -> bool:
        """The session was closed or deleted."""
        return self.state == "closed"

    @property
    def word(self) -> str | None:
        """What a person is told of the state."""
        return _WORDS.get(self.state)


def standing(params: Json) -> Standing:
    """Return what a notification tells; what is missing or odd is as in an idle session."""
    turn = params.get("turn")
    return Standing(
        str(params.get("state")),
        _count(params.get("seconds"), 0),
        _count(params.get("waiting"), 0),
        _count(params.get("clients"), 1),
        turn.get("promptId") if isinstance(turn, dict) else None,
        isinstance(turn, dict) and turn.get("mine") is True,
    )


def _count(value: object, default: int) -> int:
    return value if isinstance(value, int) else default
