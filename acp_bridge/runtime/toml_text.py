"""Reads TOML that anybody may have written; whatever is wrong with it raises BadToml."""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

_LINE: Final = re.compile(r"\bline (\d+)")


class BadToml(Exception):
    """A text is no TOML, or none that can be read; the text says why, with the line if known."""

    def __init__(self, why: str, line: int | None = None) -> None:
        """`why` may quote the text."""
        super().__init__(why if line is None else f"line {line}: {why}")
        self.line = line


def loads(text: str) -> dict[str, Any]:
    """Return the table that the text is as TOML. Raises BadToml."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        why = str(error)
        found = _LINE.search(why)
        line = int(found[1]) if found else text.count("\n") + 1
        raise BadToml(why.partition(" (at ")[0], line) from None
    except RecursionError:
        raise BadToml("its values are nested too deeply") from None
    except ValueError:
        raise BadToml("one of its numbers has too many digits") from None
