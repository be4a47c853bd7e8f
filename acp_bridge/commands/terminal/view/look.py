"""What a terminal can show, told from its environment: marks, and whether it has colours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from acp_bridge.cli.harmless import harmless


@dataclass(frozen=True, slots=True)
class Marks:
    """The signs that stand before blocks, and in lines of this program's own."""

    user: str
    thought: str
    bridge: str
    more: str
    dot: str
    #: by the status of a tool call or of a plan's entry.
    status: Mapping[str, str]


UNICODE: Final = Marks(
    user="»",
    thought="·",
    bridge="▪",
    more="…",
    dot="·",
    status={"completed": "✓", "failed": "✗", "in_progress": "▸", "pending": "○"},
)
ASCII: Final = Marks(
    user=">",
    thought="~",
    bridge="*",
    more="...",
    dot="-",
    status={"completed": "[ok]", "failed": "[failed]", "in_progress": "[..]", "pending": "[ ]"},
)


@dataclass(frozen=True, slots=True)
class Look:
    """How everything is drawn."""

    #: the terminal shows more than ASCII.
    unicode: bool = True
    #: the user wants colours; bold and dim are used in any case.
    colours: bool = True

    @property
    def marks(self) -> Marks:
        """The signs that this terminal can show."""
        return UNICODE if self.unicode else ASCII

    def plain(self, text: str) -> str:
        """Return a text as this terminal can show it; what it would obey is shown escaped."""
        return self.encodable(harmless(text))

    def encodable(self, text: str) -> str:
        """Return a text in characters of this terminal, with the escape sequences in it."""
        return text if self.unicode else text.encode("ascii", "backslashreplace").decode()


def look(env: Mapping[str, str], encoding: str | None) -> Look:
    """Return how to draw; `encoding`: what Python writes to the terminal.

    Python writes UTF-8 in the locale C, too, so a locale that is named decides.
    """
    named = next((env[key] for key in ("LC_ALL", "LC_CTYPE", "LANG") if env.get(key)), "")
    words = (named or encoding or "").lower().replace("-", "")
    return Look(unicode="utf8" in words, colours=not env.get("NO_COLOR"))


def reflows(env: Mapping[str, str]) -> bool:
    """Return True for a terminal that wraps the rows on it when it becomes narrower.

    Nearly all do; of the others it is known by their names.
    """
    term = env.get("TERM", "")
    if "XTERM_VERSION" in env or term.startswith(("linux", "st-", "rxvt")):
        return False
    return "TMUX" in env or not term.startswith("screen")
