"""Terminals of an agent of version 2, shown as text: version 1 has only a client's. SANS-IO."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from dataclasses import dataclass
from typing import Any, Final

from acp_bridge.core.protocol import Json, as_object, has
from acp_bridge.versions.blocks_to_v1 import fenced

#: bytes of a terminal's output that are kept and shown, from its end.
SHOWN: Final = 16 * 1024
#: escape sequences that colour a text, move the cursor or name the window.
_CONTROL: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


@dataclass(slots=True)
class Terminal:
    """What an agent has told of one of its terminals."""

    command: str = ""
    output: bytes = b""
    #: bytes of output that came in all, and how many of them, at the beginning, are not kept.
    told: int = 0
    cut: int = 0
    #: the exit status; None while the command runs.
    exit: Json | None = None
    can_cancel: bool = False

    def update(self, update: Json) -> None:
        """Note what a `terminal_update` tells: an absent member stays, null clears one."""
        if "command" in update:
            command = update["command"]
            self.command = command if isinstance(command, str) else ""
        if "output" in update:
            self.output, self.told, self.cut = b"", 0, 0
            self.add(as_object(update["output"]).get("data"))
        if "exitStatus" in update:
            status = update["exitStatus"]
            self.exit = status if isinstance(status, dict) else None
        if "capabilities" in update:
            self.can_cancel = has(update["capabilities"], "cancel")

    def add(self, data: Any) -> None:
        """Append output, given in base64; only its last `SHOWN` bytes are kept."""
        output = self.output + _decoded(data)
        self.told += len(output) - len(self.output)
        self.cut += max(0, len(output) - SHOWN)
        self.output = output[-SHOWN:]

    def text(self) -> str:
        """Return the text that shows the terminal; empty if there is nothing to show yet."""
        lines = [f"$ {self.command}"] if self.command else []
        if output := self._readable():
            lines.append(output)
        if (ended := self._ended()) is not None:
            lines.append(ended)
        return fenced("\n".join(lines), "console") if lines else ""

    def _readable(self) -> str:
        text = self.output.decode("utf-8", "replace")
        if self.cut:
            text = f"[... {self.cut} bytes ...]\n{text.partition(chr(10))[2] or text}"
        return _CONTROL.sub("", text).replace("\r\n", "\n").rstrip("\n")

    def _ended(self) -> str | None:
        if self.exit is None:
            return None
        code, signal = self.exit.get("exitCode"), self.exit.get("signal")
        if isinstance(signal, str) and signal:
            return f"[ended by {signal}]"
        return f"[exit code {code}]" if isinstance(code, int) else "[ended]"


def _decoded(data: Any) -> bytes:
    """Return the bytes of a text in base64; none if it is not valid base64."""
    if not isinstance(data, str):
        return b""
    try:
        return b64decode(data, validate=True)
    except (NotBase64, ValueError):
        return b""
