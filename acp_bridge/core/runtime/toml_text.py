"""Reads TOML that anybody may have written; whatever is wrong with it raises BadToml."""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

_PLACE: Final = re.compile(r"\(at (?:line (\d+), column (\d+)|end of document)\)")
#: how Python's parser begins what it says, and what a user is told.
_SENTENCES: Final = (
    (
        r"(?:Illegal|Found invalid) character '\\[nr]'|Unterminated|Expected \"'",
        "a quote is not closed",
    ),
    (r"Illegal character|Found invalid", "a character that can't be typed stands here"),
    (r"Unescaped", "in a text in double quotes, write \\\\ for \\, or use single quotes"),
    (r"Invalid hex|Escaped character", "what stands behind \\ is no character"),
    (r"Unclosed array", "a list needs a comma between two values, and ] at its end"),
    (
        r"Unclosed inline|Expected '\}'",
        "a table in braces needs a comma between two values, and } at its end",
    ),
    (r"Expected '='", "there is no = behind a name"),
    (r"Expected newline", "something stands behind the end of a value; text needs quotes"),
    (r"Expected '\]", "the name of a section has no ] at its end"),
    (r"Cannot declare", "this section is there already; [[NAME]] begins one more of a list"),
    (r"Cannot overwrite|Duplicate", "this name has a value already"),
    (r"Cannot (?:mutate|redefine)", "this name is something else already"),
    (r"Invalid date", "this is no date and no text; text needs quotes"),
    (r"Invalid value", "a value is missing, or a text has no quotes"),
    (r"Invalid (?:statement|initial)", "a name is expected here; one with signs needs quotes"),
)
_OTHER: Final = "this is no TOML that can be read"


class BadToml(Exception):
    """A text is no TOML; the text says why, with line and column if they are known."""

    def __init__(self, why: str, line: int | None = None, column: int | None = None) -> None:
        """`why` quotes nothing of the text; `line` and `column` count from 1."""
        there = [
            f"{name} {number}"
            for name, number in (("line", line), ("column", column))
            if number is not None
        ]
        super().__init__(f"{', '.join(there)}: {why}" if there else why)
        self.line = line


def loads(text: str) -> dict[str, Any]:
    """Return the table that the text is as TOML. Raises BadToml."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadToml(_sentence(str(error)), *_place(str(error), text)) from None
    except RecursionError:
        raise BadToml("its values are nested too deeply") from None
    except ValueError:
        raise BadToml("one of its numbers has too many digits") from None


def _sentence(why: str) -> str:
    return next((said for begun, said in _SENTENCES if re.match(begun, why)), _OTHER)


def _place(why: str, text: str) -> tuple[int, int]:
    """Return the line and the column that the parser names; those of the text's end for none."""
    found = _PLACE.search(why)
    if found is not None and found[1] is not None:
        return int(found[1]), int(found[2])
    before = text[: _end(why, text)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _end(why: str, text: str) -> int:
    """Return where in the text the error is that the parser has seen at the text's end.

    That is the last quote of its kind where one is not closed.
    """
    if why.startswith("Expected \"'"):
        return max(text.rfind("'''" if "'''" in why else "'"), 0)
    if why.startswith("Unterminated") and text.rpartition("\n")[2].count('"') % 2 == 0:
        return max(text.rfind('"""'), 0)
    return len(text)
