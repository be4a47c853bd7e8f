"""The state of a session, as its bridge tells it in `_acp_bridge/state`. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from acp_bridge.core.protocol import Json, LiveState, as_object

#: states in which a turn runs, is paused or is being cancelled, or the agent works without one.
_BUSY: Final = frozenset(
    {
        LiveState.RUNNING,
        LiveState.WORKING,
        LiveState.PERMISSION,
        LiveState.CANCELLING,
        LiveState.PAUSED,
    }
)
#: states in which a prompt begins as soon as it is sent.
_FREE: Final = frozenset({LiveState.IDLE, LiveState.ASLEEP, LiveState.STARTING})
#: the words for states that a person should see.
_WORDS: Final[Mapping[str, str]] = {
    LiveState.PERMISSION: "a permission is asked",
    LiveState.CANCELLING: "stopping",
    LiveState.PAUSED: "paused, /queue go goes on",
    LiveState.HELD: "on hold, /queue go goes on",
    LiveState.BLOCKED: "the agent is not ready",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """The members of one `_acp_bridge/state` (docs/extension.md)."""

    state: str = LiveState.IDLE
    #: for how long the session has been in this state.
    seconds: int = 0
    #: how many prompts of all clients are in the queue.
    waiting: int = 0
    clients: int = 1
    #: the id of the prompt whose turn runs; None if none runs.
    prompt_id: object = None
    #: the words of that prompt are others than it was sent with, and the bridge shows them.
    edited: bool = False

    def begins(self, before: Standing | None) -> bool:
        """Return True if a turn runs, or is about to, that did not run in the state `before`."""
        if before is None or not before.busy:
            return self.busy
        return self.prompt_id is not None and self.prompt_id != before.prompt_id

    @property
    def busy(self) -> bool:
        """True if a turn runs, whichever client asked for it, or the agent works without one."""
        return self.prompt_id is not None or self.state in _BUSY

    @property
    def free(self) -> bool:
        """True if a prompt would begin at once: nothing runs and nothing waits."""
        return self.prompt_id is None and self.waiting == 0 and self.state in _FREE

    @property
    def closed(self) -> bool:
        """True if the session was closed or deleted."""
        return self.state == LiveState.CLOSED

    @property
    def word(self) -> str | None:
        """The word for the state that a person is shown; None if it needs none."""
        return _WORDS.get(self.state)


def standing(params: Json) -> Standing:
    """Return the state in the params of a `_acp_bridge/state`; bad members get their defaults."""
    turn = as_object(params.get("turn"))
    return Standing(
        str(params.get("state")),
        _count(params.get("seconds"), 0),
        _count(params.get("waiting"), 0),
        _count(params.get("clients"), 1),
        turn.get("promptId"),
        turn.get("edited") is True,
    )


def _count(value: object, default: int) -> int:
    return value if isinstance(value, int) else default
