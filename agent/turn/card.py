"""A tool call of a turn, from its start to its end, with the card that the client shows for it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from pydantic import BaseModel

from agent.model import ToolCall
from agent.tools import AnyTool


class Card(Struct):
    """A tool call of a turn; `shown` changes as its card does, until the call has ended."""

    call: ToolCall
    #: the `tool_call` that the client is shown, in wire form
    shown: dict[str, Any]
    tool: AnyTool | None = None
    args: BaseModel | None = None
    #: why the call can't be run, for the model; empty if it can
    problem: str = ""
    #: the client was told that the call runs
    begun: bool = False
    ended: bool = False

    @property
    def id(self) -> str:
        return str(self.shown["toolCallId"])

    @property
    def hidden(self) -> bool:
        """True if the client is shown no card for the call."""
        return "hidden" in self.shown

    @property
    def only_reads(self) -> bool:
        return self.tool is not None and self.tool.access == "read"
