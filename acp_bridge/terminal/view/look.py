"""The abilities of a terminal, read from the environment: which marks, and whether colours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from acp_bridge.terminal.cli.harmless import harmless


@dataclass(frozen=True, slots=True)
class Marks:
    """The signs before blocks and in lines of this program's own."""

    user: str
    thought: str
    bridge: str
    more: str
    dot: str
    #: by the status of a tool call or an entry of a plan.
    status: Mapping[str, str]


UNICODE: Final = Marks(
    user="»",
    thought="·",
    bridge="▪",
    more="…",
    dot="·",
    status={"completed": "✓", "failed": "✗", "in_progress": "▸", "pending": "○", "ended": "■"},
)
ASCII: Final = Marks(
    user=">",
    thought="~",
    bridge="*",
    more="...",
    dot="-",
    status={
        "completed": "[ok]",
        "failed": "[failed]",
        "in_progress": "[..]",
        "pending": "[ ]",
        "ended": "[ended]",
    },
)


@dataclass(frozen=True, slots=True)
class Look:
    """The abilities of a terminal that drawing depends on."""

    #: the terminal shows Unicode; else ASCII only.
    unicode: bool = True
    #: colours are used; bold and dim are used in any case.
    colours: bool = True

    @property
    def marks(self) -> Marks:
        """The marks that this terminal can show."""
        return UNICODE if self.unicode else ASCII

    def plain(self, text: str) -> str:
        """Return a text harmless and in the characters that this terminal can show."""
        return self.encodable(harmless(text))

    def encodable(self, text: str) -> str:
        """Return a text in the characters that this terminal can show.

        Escape sequences are kept.
        """
        return text if self.unicode else text.encode("ascii", "backslashreplace").decode()


def look(env: Mapping[str, str], encoding: str | None) -> Look:
    """Return the look for an environment; `encoding`: the one in which Python writes to stdout.

    A locale in the environment wins, since Python writes UTF-8 in the locale C, too.
    """
    named = next((env[key] for key in ("LC_ALL", "LC_CTYPE", "LANG") if env.get(key)), "")
    words = (named or encoding or "").lower().replace("-", "")
    return Look(unicode="utf8" in words, colours=not env.get("NO_COLOR"))


def reflows(env: Mapping[str, str]) -> bool:
    """Return True for a terminal that wraps the rows on it when it becomes narrower.

    Nearly all do; those that don't are known by TERM.
    """
    term = env.get("TERM", "")
    if "XTERM_VERSION" in env or term.startswith(("linux", "st-", "rxvt")):
        return False
    return "TMUX" in env or not term.startswith("screen")
