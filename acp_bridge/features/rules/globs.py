"""Reads patterns of names, which an agent gives a search. SANS-IO."""

from __future__ import annotations

import re
from itertools import islice, product
from typing import Final

#: braces with words between which a search chooses, such as `{py,pyi}`.
_BRACES: Final = re.compile(r"\{([^{}]*)\}")
#: what other shells and libraries take for a choice.
_ROUND: Final = re.compile(r"[@!?*+]?\([^)]*\)?")
#: how many patterns one with braces stands for at most; beyond, each brace may be anything.
_MOST: Final = 64


def is_glob(text: str) -> bool:
    """Return True for a text that may stand for the names of several files."""
    return re.search(r"[*?\[{(]", text) is not None


def choices(text: str) -> list[str]:
    """Return each pattern without braces that one with braces stands for."""
    pieces = _BRACES.split(_ROUND.sub("*", text))
    found = map(
        "".join, product(*(each.split(",") if at % 2 else [each] for at, each in enumerate(pieces)))
    )
    known = list(islice(found, _MOST + 1))
    if len(known) > _MOST or any("{" in each for each in known):
        return [re.sub(r"[{}].*[{}]", "*", text)]
    return known
