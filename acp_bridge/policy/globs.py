"""Compares patterns of names that an agent gives a search with those of rules. SANS-IO.

Which files there are is not looked up, since a search may go through any number of folders: what
counts is whether the pattern could match what a rule names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
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


def meet_any(given: Iterable[str], pattern: str) -> bool:
    """Return True if one of these patterns of a search may match a file that a rule names."""
    return bool(pattern) and any(_meet(each, pattern) for each in given)


@lru_cache(maxsize=1024)
def _meet(given: str, pattern: str) -> bool:
    """Return True if a name on a path that `given` matches may be the one that `pattern` is about.

    That is the last name of the pattern that is no `**`. Its own stars are tried as nothing and as
    some letter. A `*` or `**` of `given` counts as its last name only: a search goes through all
    folders without it, too.
    """
    names = [each for each in pattern.casefold().split("/") if each.strip("*")]
    wanted = names[-1] if names else "x"
    forms = {re.sub(r"\*+", each, wanted).replace("?", "x") for each in ("", "x")}
    parts = set[str]()
    for each in _without_braces(given.casefold()):
        *folders, last = each.rstrip("/").split("/")
        parts.update([*(part for part in folders if part.strip("*")), last])
    return any(fnmatchcase(form, part.replace("[^", "[!")) for part in parts for form in forms)


def _without_braces(text: str) -> Iterator[str]:
    """Give each pattern without braces that one with braces stands for."""
    pieces = _BRACES.split(_ROUND.sub("*", text))
    choices = [each.split(",") if at % 2 else [each] for at, each in enumerate(pieces)]
    found = list(islice(map("".join, product(*choices)), _MOST + 1))
    if len(found) > _MOST or any("{" in each for each in found):
        found = [re.sub(r"[{}].*[{}]", "*", text)]
    yield from found
