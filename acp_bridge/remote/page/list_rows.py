"""Which sessions the page's list shows, in which order, and what is sent of a change. SANS-IO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self
from unicodedata import combining, normalize

from acp_bridge.core.protocol import Json

#: rows that are shown at first, that one more step adds, and that are shown at all.
STEP: Final = 50
_MOST_ROWS: Final = 50_000
#: characters of a search, and words in it, that count.
_LONGEST: Final = 200
_MOST_WORDS: Final = 10


@dataclass(frozen=True, slots=True)
class Wish:
    """What a page wants to see of the list: so many rows, of sessions that have all `words`."""

    text: str = ""
    rows: int = STEP

    @classmethod
    def read(cls, message: Json) -> Self:
        """Read the members `find`, a text, and `rows`, a number, of a page's message."""
        found, rows = message.get("find"), message.get("rows")
        asked = rows if isinstance(rows, int) and not isinstance(rows, bool) else 0
        return cls(
            found[:_LONGEST] if isinstance(found, str) else "",
            min(max(STEP, asked), _MOST_ROWS),
        )

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the search; empty if there is none."""
        return tuple(_folded(self.text).split()[:_MOST_WORDS])


def chosen(
    kept: Mapping[str, Json], live: Mapping[str, Json], words: tuple[str, ...], agent: str
) -> list[Json]:
    """Return the rows that have all `words` in their title, folder or agent.

    Live ones come first, of those the ones that ask, then the newest first. The others keep the
    order of `kept`, which is the newest first. `agent`: the agent of a row that names none.
    """
    living = [{**kept.get(each, {}), **row} for each, row in live.items()]
    living.sort(key=lambda row: (str(row.get("updatedAt", "")), str(row.get("sessionId"))))
    living.reverse()
    living.sort(key=lambda row: not row.get("asks"))
    rows = [*living, *(row for each, row in kept.items() if each not in live)]
    return matching(rows, words, agent)


def matching(rows: list[Json], words: tuple[str, ...], agent: str) -> list[Json]:
    """Return the rows that have all `words` in their title, folder or agent; all without words."""
    return [row for row in rows if _has(row, words, agent)] if words else rows


def _has(row: Json, words: tuple[str, ...], agent: str) -> bool:
    about = (row.get("title"), row.get("cwd"), row.get("agent") or agent)
    searched = _folded("\n".join(each for each in about if isinstance(each, str)))
    return all(word in searched for word in words)


def _folded(text: str) -> str:
    """Return a text as it is compared: without case, accents and forms of the same letter."""
    plain = normalize("NFKD", text.casefold())
    return plain if plain.isascii() else "".join(each for each in plain if not combining(each))


@dataclass(frozen=True, slots=True)
class Change:
    """What a page was told of the list: the search, the HTML of each row by its id, and of more."""

    words: tuple[str, ...]
    rows: Mapping[str, str]
    more: str

    @classmethod
    def none(cls) -> Self:
        """Return what a page was told before the first time."""
        return cls((), {}, "")


def change(before: Change, now: Change) -> list[Json]:
    """Return the messages after which a page that has `before` shows `now`.

    Rows of the same search are changed, added and removed one by one, and put in order.
    """
    told: list[dict[str, Any]] = []
    if not before.rows or "" in before.rows or "" in now.rows or before.words != now.words:
        if before.rows != now.rows or before.words != now.words:
            told.append({"put": "sessions", "html": "".join(now.rows.values())})
    else:
        told += [{"gone": each} for each in before.rows if each not in now.rows]
        told += [
            {"add": "sessions", "id": each, "html": html}
            for each, html in now.rows.items()
            if before.rows.get(each) != html
        ]
        there = [each for each in before.rows if each in now.rows]
        there += [each for each in now.rows if each not in before.rows]
        if there != list(now.rows):
            told.append({"order": "sessions", "ids": list(now.rows)})
    if before.more != now.more:
        told.append({"put": "more", "html": now.more})
    return told
