"""One turn as `run` and `send --wait` show it: the answer on stdout, progress on stderr.

Invariants
- Text of others is shown harmless, but for JSON, which is what the bridge sent.
- On stdout stands what the agent says, and nothing else.
"""

from __future__ import annotations

from typing import Protocol

from acp_bridge.cli.harmless import harmless, json_line, one_line
from acp_bridge.commands.terminal.view.blocks import Call, Content, Said, Voice
from acp_bridge.commands.terminal.view.from_updates import Updates
from acp_bridge.protocol import ENDED, Json


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
        self._updates = Updates()
        self._titles: dict[str, str] = {}
        #: the message that stdout ends with, and if that ends with a newline.
        self._message: object = None
        self._said = self._at_line_start = False

    def show(self, params: Json) -> None:
        """Take the params of a `session/update` of the turn."""
        match self._updates.read(params):
            case Said(Voice.BRIDGE, content):
                self._screen.tell(one_line(_words(content)))
            case Said(Voice.AGENT, content, update):
                self._say(update.get("messageId"), _words(content))
            case Call() as call:
                self._card(call)

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

    def _card(self, call: Call) -> None:
        title, status = call.update.get("title"), call.update.get("status")
        if isinstance(title, str) and call.call_id not in self._titles:
            self._titles[call.call_id] = one_line(title)
            self._screen.tell(f"- {one_line(title)}")
        if status in ENDED and status != "completed":
            name = self._titles.get(call.call_id) or one_line(call.call_id)
            self._screen.tell(f"- {name}: {status}")
        self._message = object()  # what is said after it is another paragraph


class JsonAnswer:
    """Shows a turn as JSON: one line for each update, as it came, and one for the outcome."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def show(self, params: Json) -> None:
        """Take the params of a `session/update` of the turn."""
        self._screen.write(json_line(params))

    def end(self, outcome: Json) -> None:
        """Write the outcome."""
        self._screen.write(json_line(outcome))


def _words(content: Content | None) -> str:
    """Return the text of a content block; other content is named in brackets."""
    match content:
        case None:
            return ""
        case Content("text"):
            return content.text or ""
        case Content("resource_link", uri=uri) if uri:
            return uri
    return f"[{content.type}]"
