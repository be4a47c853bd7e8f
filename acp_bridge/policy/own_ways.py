"""Knows which arguments make git and sed run a program, write or change settings. SANS-IO."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

#: subcommand of git that can run other programs -> the word with which it does; empty: always.
_RUNNING: Final = {
    "bisect": "run",
    "submodule": "foreach",
    "filter-branch": "",
    "difftool": "",
    "mergetool": "",
    "send-email": "",
    "hook": "",
    "rebase": "-x",
    "grep": "-O",
}
#: options and subcommands with which `git config` only shows what is set.
_SHOWS: Final = re.compile(r"--get(?:-.+)?|--list|-l|get|list")
#: options of git before a subcommand that take the next word.
_WITH_VALUE: Final = frozenset({"-C", "--git-dir", "--work-tree", "--namespace"})

_ADDRESS: Final = r"(?:\d+|\$|/(?:[^/\\\n]|\\.)*/I?)"
_RANGE: Final = rf"(?:{_ADDRESS}(?:,[+~]?{_ADDRESS})?)?\s*+!?\s*+"
#: commands of sed that neither run nor write anything: no `e`, no `w`, and neither as a flag.
_PLAIN: Final = (
    r"(?:[pdDnNPgGhHxl=]|q\d*"
    r"|[sy](?P<by{0}>[^\w\s\\])(?:(?!(?P=by{0}))[^\\\n]|\\.)*(?P=by{0})"
    r"(?:(?!(?P=by{0}))[^\\\n]|\\.)*(?P=by{0})[gpI\d]*)"
)
_LINE: Final = re.compile(rf"\s*+{_RANGE}{_PLAIN.format(1)}[ \t]*+(?:[;\n]|\Z)")


def sed_does_more(words: Sequence[str]) -> bool:
    """Return True for the words behind `sed` unless all their code only changes what is printed."""
    scripts, named, after = list[str](), list[str](), False
    for word in words:
        if after:
            scripts.append(word)
            after = False
        elif word.startswith("--expression="):
            scripts.append(word.partition("=")[2])
        elif word.startswith("--file") or re.match(r"-[nErsuzi]*f", word):
            return True
        elif found := re.match(r"-[nErsuz]*e(.*)", word, re.DOTALL):
            scripts += [found[1]] if found[1] else []
            after = not found[1]
        elif word == "--expression":
            after = True
        elif not word.startswith("-"):
            named.append(word)
    return not all(map(_is_plain, scripts or named[:1]))


def _is_plain(script: str) -> bool:
    """Return True for a script of sed of which each command only changes what is printed."""
    at = 0
    while at < len(script):
        found = _LINE.match(script, at)
        if found is None:
            return False
        at = found.end()
    return True


def git_does_more(words: Sequence[str]) -> bool:
    """Return True for the words behind `git` if they make it run a program, or change a setting."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _WITH_VALUE else 1
    subcommand, given = "".join(words[at : at + 1]), words[at + 1 :]
    if any(word.startswith("ext::") for word in given):
        return True
    if subcommand == "config":
        shows = any(_SHOWS.fullmatch(word) for word in given)
        return not shows and len([word for word in given if not word.startswith("-")]) != 1
    sign = _RUNNING.get(subcommand)
    if not sign:
        return sign is not None
    return any(word.startswith(sign) for word in given)
