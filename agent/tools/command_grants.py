"""Decides what "always allow" means for a command: its first words, or the exact command.

Invariants
- The first words stand for a command only if its program, its subcommand and every option are
  listed in `known_commands`. A word that may be an option and is not listed makes it another
  command.
- They do so only if the program's words can be read from the text: the shell changes nothing in it
  but that it joins quoted pieces.
- Each word that may be a path leads into the session's folders, with links followed, and to no file
  of keys.
- Every other command is allowed only as exactly the same text; a `*` in it is a `*`.
- A rejection counts for every command with these first words, whatever follows them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from acp_bridge.features.rules.known_commands import (
    ANY_NAME,
    KNOWN_COMMANDS,
    OPERANDS,
    is_operand,
    is_option,
)
from agent.tools import Grant, ToolContext, ToolError
from agent.tools.cards import visible
from agent.tools.paths import follow
from agent.tools.trusted_files import KEYS_FILES

#: a piece of a word that the shell doesn't change: bare, in single or in double quotes
_BARE = r"(?:[A-Za-z0-9_%+,./:=@^-]|(?<=[A-Za-z0-9_^])~)+"
_PIECE = re.compile(rf"({_BARE})|'([^'\x00-\x1f\x7f]*)'|\"([^\"$`\\\x00-\x1f\x7f]*)\"")
#: what ends a word in a shell command
_BREAKS = re.compile(r"[ \t\r\n;&|<>()]+")
_BLANKS = re.compile(r"[ \t]+")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
#: characters that may join a path to other text in one word
_JOINTS = re.compile(r"[=:,@]")
#: folders in which a program's name can be trusted
_SYSTEM = ("", "/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")
_PYTHON = re.compile(r"(python|pypy)[\d.]*")
#: programs that a project has in its own folder
_WRAPPERS = frozenset(["./gradlew", "./mvnw"])
_MOST_WORDS = max(map(len, KNOWN_COMMANDS))

#: how many characters of a command an option's name shows
_SHOWN = 60


def grant(command: str, context: ToolContext) -> Grant:
    """Returns what an "always" answer about `command` would hold for. Slow: it follows links."""
    known = first_words(command)
    words = _words(command)
    if known and words and _is_covered(words, len(known), context):
        return Grant(("shell", *known), f"`{' '.join(known)} …`")
    shown = visible(" ".join(command.split()))
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    rejected_by = ("shell", *known) if known else ()
    return Grant(("shell", command), f"exactly `{shown}`", rejected_by=rejected_by)


def first_words(command: str) -> tuple[str, ...]:
    """Returns the first words of a listed command as they are written; () if it is not listed."""
    words = [word for word in _BREAKS.split(command) if word][:_MOST_WORDS]
    count = len(words)
    while count and not _listed(words[:count]):
        count -= 1
    return tuple(words[:count])


def _listed(first_words: list[str]) -> frozenset[str]:
    """Returns what `KNOWN_COMMANDS` lists for a command with these first words: its options, and
    marks such as `OPERANDS`; an empty set if it doesn't have the command."""
    named = (_program(first_words[0]), *first_words[1:])
    options = KNOWN_COMMANDS.get(named)
    if options is None and _NAME.fullmatch(named[-1]):
        options = KNOWN_COMMANDS.get((*named[:-1], ANY_NAME))
    return options or frozenset()


def _program(word: str) -> str:
    """Returns the name of the program that a word runs; "" for a file in any other folder."""
    folder, name = os.path.split(word)
    if folder not in _SYSTEM and word not in _WRAPPERS:
        return ""
    return "python" if _PYTHON.fullmatch(name) else name


def _words(command: str) -> list[str]:
    """Returns the words into which /bin/sh splits a command.

    Returns [] if the shell would do more to them than join quoted pieces.
    """
    found: list[str] = []
    at, text = 0, command.strip(" \t")
    while at < len(text):
        if blanks := _BLANKS.match(text, at):
            at = blanks.end()
        piece = _PIECE.match(text, at)
        if piece is None:
            return []
        part = "".join(group or "" for group in piece.groups())
        if blanks or not found:
            found.append(part)
        else:
            found[-1] += part
        at = piece.end()
    return found


def _is_covered(words: list[str], count: int, context: ToolContext) -> bool:
    """Returns True if all words after the first `count` of a listed command are harmless."""
    options = _listed(words[:count])
    rest = words[count:]
    return (
        all(is_option(word, options) or _is_operand(word, options) for word in rest)
        and all(_stays_inside(path, context) for word in rest for path in _paths(word))
        and not _is_repository_itself(context)
    )


def _is_operand(word: str, options: frozenset[str]) -> bool:
    return OPERANDS in options and is_operand(word)


def _paths(word: str) -> Iterator[str]:
    yield word
    yield from filter(None, _JOINTS.split(word))


def _stays_inside(path: str, context: ToolContext) -> bool:
    if path.startswith("~") or any(name in path.lower() for name in KEYS_FILES):
        return False
    try:
        place = follow(path, context)
    except ToolError:
        return False
    return not (place.outside or place.holds_keys)


def _is_repository_itself(context: ToolContext) -> bool:
    """Returns True if git may take the working folder, or one above, for a bare repository.

    Such a folder has no `.git`. Its configuration is a file that may be edited without asking, and
    names programs that git runs.
    """
    here = follow(".", context).real
    for folder in (here, *here.parents):
        if os.path.lexists(folder / "HEAD"):
            return True
        if os.path.lexists(folder / ".git"):
            return False
    return False
