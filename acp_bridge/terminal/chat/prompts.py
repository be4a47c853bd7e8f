"""One prompt of this terminal, and the sentence about how its turn ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from acp_bridge.core.protocol import ErrorCode, Json, as_object, queue_words
from acp_bridge.core.updates import notices
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.sharing.bridge_client.sent import ConnectionLost, Sent
from acp_bridge.terminal.view.block_text import harmless, one_line
from acp_bridge.terminal.view.blocks import Line, Tone


@dataclass(slots=True, eq=False)
class Prompt:
    """A prompt that was entered, and its request once that is sent."""

    text: str
    blocks: list[Json]
    sent: Sent | None = None
    #: it was sent, perhaps on a connection that has ended.
    was_sent: bool = False
    #: by this key the bridge knows the prompt if it is sent again.
    key: str = field(default_factory=lambda: uuid4().hex)
    #: the bridge's id for the prompt, once it is on disk.
    prompt_id: object = None
    #: the user took it back into the input line.
    taken_back: bool = False
    #: its words are to join the turn that runs.
    steers: bool = False
    #: its words stand in the transcript.
    shown: bool = False

    @property
    def has_no_turn(self) -> bool:
        """True for a command that the bridge answers itself, at once and without a turn."""
        return queue_words([{"text": self.text}]) is not None

    @property
    def waits(self) -> bool:
        """True for a prompt that gets a turn, unless it was taken back."""
        return not (self.has_no_turn or self.taken_back)

    @property
    def summary(self) -> str:
        """The prompt as one line of at most 200 characters."""
        return one_line(self.text, 200)


def was_taken_back(sent: Sent) -> bool:
    """Return True if a prompt that has not begun was answered as cancelled."""
    try:
        return as_object(sent.outcome()).get("stopReason") == "cancelled"
    except RpcError as error:
        return error.code == ErrorCode.REQUEST_CANCELLED
    except ConnectionLost:
        return False


def how_it_ended(sent: Sent) -> Line | None:
    """Return the line about how a turn ended; None for `end_turn` and for a lost connection."""
    try:
        result: Any = sent.outcome()
    except RpcError as error:
        return refused(error)
    except ConnectionLost:
        return None  # shown once for all prompts
    words = notices.turn_end(result.get("stopReason") if isinstance(result, dict) else None)
    return None if words is None else Line(one_line(words))


def refused(error: RpcError) -> Line:
    """Return the line about an error of the bridge or the agent."""
    tone = Tone.NEWS if error.code == ErrorCode.REQUEST_CANCELLED else Tone.ERROR
    return Line(harmless(notices.turn_error(error.code, error.message, error.data)), tone)
