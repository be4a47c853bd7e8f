"""One prompt at an agent of version 2, from its request to the answer of version 1. SANS-IO.

An agent of version 2 answers a prompt when it has inserted the words into its session, and tells
the end of the turn by the state `idle`.

- The turn ends at the first `idle` after its words: an `idle` before the answer is of earlier work,
  unless the agent has shown the words before it.
- A Stop also cancels background work, as far as the agent lets it: the turn's answer waits until
  that work has ended. Else the last words of the work would come after the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from acp_bridge.core import errors
from acp_bridge.core.protocol import ErrorCode, Json, as_object
from acp_bridge.core.wire.jsonrpc import Answer, Err, Message, Ok, RequestId, RpcError, read_answer
from acp_bridge.versions import v2

_CANCELLED: Final = "cancelled"
#: members of the last state that the answer to a prompt of version 1 has, too.
_BESIDE: Final = ("usage", "_meta")
#: a type of background work and the id of one piece of it.
Item = tuple[str, str]


@dataclass(slots=True)
class Turn:
    """A prompt whose answer of version 1 the bridge has not got yet."""

    request_id: RequestId
    #: the agent has taken the words in.
    inserted: bool = False
    #: the id of the user's message that the agent has shown last since it was sent the prompt.
    shown: str = ""
    #: the state `idle` after that message, while the agent has not answered the prompt; None if
    #: another message or state came since.
    early: Json | None = None
    #: the client has stopped the turn.
    cancelled: bool = False
    #: the answer, once it is known.
    outcome: Answer | None = None
    #: the background work that was cancelled and has not ended.
    ending: set[Item] = field(default_factory=set)

    @property
    def answer(self) -> Answer | None:
        """The answer for the bridge; None while it is unknown or cancelled work has not ended."""
        return None if self.ending else self.outcome

    def take_answer(self, message: Message) -> str | None:
        """Take the agent's answer to the prompt; returns the id of the message made of its words.

        None if it names no id, or if the answer ends the turn.
        """
        match answer := read_answer(message):
            case Ok(result) if "stopReason" not in as_object(result):
                self.inserted = True
                message_id = as_object(result).get("messageId")
                if self.early is not None and self.shown == message_id:
                    self.outcome = self._ended(self.early)
                return message_id if isinstance(message_id, str) else None
            case Err(error) if error.code == ErrorCode.REQUEST_CANCELLED:
                self.outcome = Ok({"stopReason": _CANCELLED})
            case _:
                self.outcome = answer
        return None

    def take_shown(self, message_id: str) -> None:
        """Note that the agent shows the user's message `message_id`."""
        self.shown, self.early = message_id, None

    def take_state(self, state: Json) -> None:
        """Take a state that the agent tells: `idle` ends the turn once the words are inserted."""
        is_idle = state.get("state") == v2.IDLE
        if not self.inserted:
            self.early = state if is_idle and self.shown else None
        elif is_idle and self.outcome is None:
            self.outcome = self._ended(state)

    def break_off(self) -> None:
        """End the turn as cancelled, if it has not ended: the session was closed."""
        self.ending.clear()
        if self.outcome is None:
            self.outcome = Ok({"stopReason": _CANCELLED})

    def _ended(self, state: Json) -> Answer:
        reason = state.get("stopReason")
        if reason == v2.ERROR:
            return Err(_error(state.get("error")))
        if not isinstance(reason, str):
            reason = _CANCELLED if reason is None and self.cancelled else "end_turn"
        return Ok({"stopReason": reason, **{n: state[n] for n in _BESIDE if n in state}})


def _error(told: object) -> RpcError:
    """Return the error of a state as an RpcError; one of the bridge's own if it is malformed."""
    match as_object(told):
        case {"code": int(code), "message": str(message), **rest}:
            return RpcError.received(code, message, rest.get("data"))
    return errors.agent_trouble("the agent ended the turn with an error")
