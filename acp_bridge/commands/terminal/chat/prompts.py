"""One prompt of this terminal, and what a person is told at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from acp_bridge.bridge_client.sent import ConnectionLost, Sent
from acp_bridge.commands.terminal.view.block_text import harmless, one_line
from acp_bridge.commands.terminal.view.blocks import Line, Tone
from acp_bridge.protocol import ErrorCode, Json
from acp_bridge.wire.jsonrpc import RpcError

#: the command under which a bridge has its own.
_BRIDGE_COMMAND: Final = "/queue"
#: what is said of a turn that was cancelled.
STOPPED: Final = Line("stopped")
_STOPS: Final = {
    "cancelled": STOPPED.text,
    "max_tokens": "ended: the model's limit of tokens",
    "max_turn_requests": "ended: the limit of requests of one turn",
    "refusal": "the agent refused",
}


@dataclass(slots=True, eq=False)
class Prompt:
    """What was entered, and its request once it is sent."""

    text: str
    blocks: list[Json]
    sent: Sent | None = None
    #: its id at the bridge, once it is on disk.
    prompt_id: object = None

    @property
    def has_no_turn(self) -> bool:
        """The bridge answers it itself, whatever runs."""
        return self.text.split()[:1] == [_BRIDGE_COMMAND]

    @property
    def summary(self) -> str:
        """The prompt as one line."""
        return one_line(self.text, 200)


def how_it_ended(sent: Sent) -> Line | None:
    """Return the sentence about how a turn ended; empty if it ended as it should."""
    try:
        result: Any = sent.outcome()
    except RpcError as error:
        return refused(error)
    except ConnectionLost:
        return None  # said once, for everything
    reason = result.get("stopReason") if isinstance(result, dict) else None
    if reason == "end_turn":
        return None
    return Line(_STOPS.get(str(reason), f"ended: {one_line(str(reason))}"))


def refused(error: RpcError) -> Line:
    """Return what is said of an error of the bridge or of the agent."""
    if error.code == ErrorCode.REQUEST_CANCELLED:
        return Line("taken back")
    details = error.data.get("details") if isinstance(error.data, dict) else None
    says_more = isinstance(details, str) and details not in ("", error.message)
    more = f": {one_line(details)}" if says_more else ""
    return Line(f"error: {harmless(error.message)}{more}", Tone.ERROR)
