"""One prompt at an agent of version 2, from its request to the answer of version 1. SANS-IO.

Version 2 answers a prompt when its words are inserted, and tells the end of the work by a state.

- The turn ends at the first `idle` after its words: one before the answer is of earlier work,
  unless the agent has shown the words before it.
- A Stop also ends what runs in the background, as far as the agent lets it: the turn's answer waits
  for the end of what was told to end. Else its last words would come after the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from acp_bridge import errors
from acp_bridge.protocol import ErrorCode, Json, as_object
from acp_bridge.versions import v2
from acp_bridge.wire.jsonrpc import Answer, Err, Message, Ok, RequestId, RpcError, read_answer

_CANCELLED: Final = "cancelled"
_REASONS: Final = ("end_turn", "max_tokens", "max_turn_requests", "refusal", _CANCELLED)
#: what a state says beside the end, as the answer to a prompt of version 1 does.
_BESIDE: Final = ("usage", "_meta")
#: a type of background work and the id of one piece of it.
Item = tuple[str, str]


@dataclass(slots=True)
class Turn:
    """A prompt that has no answer of version 1 yet."""

    request_id: RequestId
    #: the agent has taken the words in.
    inserted: bool = False
    #: the id of the user's message that the agent has shown last since it was sent the prompt.
    shown: str = ""
    #: the `idle` after that, while the prompt has no answer and nothing was begun since.
    early: Json | None = None
    #: the client has stopped the turn.
    cancelled: bool = False
    #: the answer, once it is known.
    outcome: Answer | None = None
    #: what was told to end and has not.
    ending: set[Item] = field(default_factory=set)

    @property
    def answer(self) -> Answer | None:
        """The answer for the bridge, None while it is to wait."""
        return None if self.ending else self.outcome

    def take_answer(self, message: Message) -> str | None:
        """Take the agent's answer to the prompt; returns the id of the message it was put into."""
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
        """Take a message of the user's, as the agent shows it."""
        self.shown, self.early = message_id, None

    def take_state(self, state: Json) -> None:
        """Take a state of the session."""
        is_idle = state.get("state") == v2.IDLE
        if not self.inserted:
            self.early = state if is_idle and self.shown else None
        elif is_idle and self.outcome is None:
            self.outcome = self._ended(state)

    def break_off(self) -> None:
        """Note that the session was closed: nothing more is told of the turn."""
        self.ending.clear()
        if self.outcome is None:
            self.outcome = Ok({"stopReason": _CANCELLED})

    def _ended(self, state: Json) -> Answer:
        reason = state.get("stopReason")
        if reason == v2.ERROR:
            return Err(_error(state.get("error")))
        if reason not in _REASONS:
            reason = _CANCELLED if reason is None and self.cancelled else "end_turn"
        return Ok({"stopReason": reason, **{n: state[n] for n in _BESIDE if n in state}})


def _error(told: object) -> RpcError:
    """Return the error with which a turn has ended."""
    match as_object(told):
        case {"code": int(code), "message": str(message), **rest}:
            return RpcError.received(code, message, rest.get("data"))
    return errors.agent_trouble("the agent ended the turn with an error")
