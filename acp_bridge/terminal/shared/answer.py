"""One turn as `run` and `send --wait` show it: the answer on stdout, progress on stderr.

Invariants
- Text of agents and files is made harmless; in JSON it stays as the bridge sent it.
- What the agent says goes to stdout, and nothing else.
"""

from __future__ import annotations

from typing import Protocol

from acp_bridge.core.protocol import ENDED, Json
from acp_bridge.terminal.cli.harmless import harmless, json_line, one_line
from acp_bridge.terminal.view.blocks import Call, Content, Said, Voice
from acp_bridge.terminal.view.from_updates import Updates, card


class Screen(Protocol):
    """Where a command writes its answer and its progress."""

    def write(self, data: bytes) -> None:
        """Write to stdout without waiting; bytes are buffered if stdout is full."""

    def tell(self, line: str) -> None:
        """Write a line of progress to stderr without waiting."""

    async def room(self) -> None:
        """Wait until stdout's buffer has room, or the command is to end."""


class TextAnswer:
    """Shows a turn as text: messages on stdout, tool calls and notices on stderr."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._updates = Updates()
        self._titles: dict[str, str] = {}
        #: the id of the message written last, and whether stdout ends with a newline.
        self._message: object = None
        self._said = self._at_line_start = False

    def show(self, params: Json) -> None:
        """Show the params of a `session/update` that belongs to the turn."""
        match self._updates.read(params):
            case Said(Voice.BRIDGE, content):
                self._screen.tell(one_line(_words(content)))
            case Said(Voice.AGENT, content, update):
                self._say(update.get("messageId"), _words(content))
            case Call() as call:
                self._card(call)

    def end(self, _outcome: Json) -> None:
        """Write a newline if the answer doesn't end with one."""
        self._end_line()

    def _end_line(self) -> None:
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

    def _card(self, call: Call) -> None:
        title, status = call.update.get("title"), call.update.get("status")
        self._end_line()
        if isinstance(title, str) and call.call_id not in self._titles:
            self._titles[call.call_id] = one_line(title)
            self._screen.tell(f"- {one_line(title)}")
        if status in ENDED and (shown := card(call.now)).status == "failed":
            name = self._titles.get(call.call_id) or one_line(call.call_id)
            end = f", {one_line(shown.end)}" if shown.end else ""
            self._screen.tell(f"- {name}: failed{end}")
        self._message = object()  # the next message begins a new paragraph


class JsonAnswer:
    """Shows a turn as JSON on stdout: a line for each update, unchanged; one for the outcome."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def show(self, params: Json) -> None:
        """Write the params of a `session/update` that belongs to the turn as one line."""
        self._screen.write(json_line(params))

    def end(self, outcome: Json) -> None:
        """Write the outcome as one line."""
        self._screen.write(json_line(outcome))


def _words(content: Content | None) -> str:
    """Return the text of a content block; other kinds as their URI, or as `[kind]`."""
    match content:
        case None:
            return ""
        case Content("text"):
            return content.text or ""
        case Content("resource_link", uri=uri) if uri:
            return uri
    return f"[{content.type}]"
