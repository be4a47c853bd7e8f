"""One turn as `run` and `send --wait` show it: the answer on stdout, progress on stderr.

Invariants
- Text of others is shown harmless, but for JSON, which is what the bridge sent.
- On stdout stands what the agent says, and nothing else.
"""

from __future__ import annotations

from typing import Protocol

from acp_bridge.protocol import (
    AGENT_MESSAGE,
    ENDED,
    TOOL_CALL,
    TOOL_CALL_UPDATE,
    Json,
    own_meta,
)
from acp_bridge.terminal.harmless import harmless, harmless_json, one_line
from acp_bridge.wire.jsonrpc import encode


class Screen(Protocol):
    """Where a command writes."""

    def write(self, data: bytes) -> None:
        """Write to stdout; never waits."""

    def tell(self, line: str) -> None:
        """Write a line of progress to stderr; never waits."""

    async def room(self) -> None:
        """Return when stdout takes more, or the command is to end."""


class TextAnswer:
    """Shows a turn as text: messages on stdout, tool calls and notices as progress."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._titles: dict[str, str] = {}
        #: the message that stdout ends with, and if that ends with a newline.
        self._message: object = None
        self._said = self._at_line_start = False

    def show(self, params: Json) -> None:
        """Take the params of a `session/update` of the turn."""
        update = params.get("update")
        if not isinstance(update, dict):
            return
        if own_meta(params).get("notice"):
            self._screen.tell(one_line(_text(update)))
            return
        match update.get("sessionUpdate"):
            case kind if kind == AGENT_MESSAGE:
                self._say(update.get("messageId"), _text(update))
            case kind if kind in (TOOL_CALL, TOOL_CALL_UPDATE):
                self._card(update)

    def end(self, _outcome: Json) -> None:
        """End the answer with a newline, if there is one."""
        if self._said and not self._at_line_start:
            self._screen.write(b"\n")
            self._at_line_start = True

    def _say(self, message: object, text: str) -> None:
        shown = harmless(text)
        if not shown:
            return
        if self._said and message != self._message:
            shown = ("\n" if self._at_line_start else "\n\n") + shown
        self._message, self._said = message, True
        self._at_line_start = shown.endswith("\n")
        self._screen.write(shown.encode(errors="backslashreplace"))

    def _card(self, update: Json) -> None:
        call, title = str(update.get("toolCallId")), update.get("title")
        if isinstance(title, str) and call not in self._titles:
            self._titles[call] = one_line(title)
            self._screen.tell(f"- {self._titles[call]}")
        status = update.get("status")
        if status in ENDED and status != "completed":
            self._screen.tell(f"- {self._titles.get(call) or one_line(call)}: {status}")
        self._message = object()  # what is said after it is another paragraph


class JsonAnswer:
    """Shows a turn as JSON: one line for each update, as it came, and one for the outcome."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def show(self, params: Json) -> None:
        """Take the params of a `session/update` of the turn."""
        self._screen.write(harmless_json(encode(params)))

    def end(self, outcome: Json) -> None:
        """Write the outcome."""
        self._screen.write(harmless_json(encode(outcome)))


def _text(update: Json) -> str:
    """Return the text of a message's chunk; other content is named in brackets."""
    match update.get("content"):
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource_link", "uri": str(uri)}:
            return uri
        case {"type": str(kind)}:
            return f"[{kind}]"
    return ""
