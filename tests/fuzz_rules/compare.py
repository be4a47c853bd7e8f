"""Compares what ran with what the rules have read; each difference is a sentence.

Texts are bytes as latin-1, since a shell may cut a character.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence

from acp_bridge.features.rules.definitions import Place
from acp_bridge.features.rules.shell import Command
from tests.fuzz_rules.judge import Read
from tests.fuzz_rules.sandbox import Ran
from tests.fuzz_rules.scratch import RAN, SIGN

#: programs that only print what they are given, or don't read the file that is named.
_PRINTS = ("echo", "printf", "test", "[", "git", RAN)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\33"}
_IN_ANSI_C = re.compile(
    r"\\(?:([0-7]{3})|u([0-9a-fA-F]{4})|(M-)?(?:\\?C-(.)|\^(.)|(.)))", re.DOTALL
)
_BARE = re.compile(r"[^\s'\"\\$]+|\$(?!')")
_BRACKETS = re.compile(r"\[[^\]]*\]")


def differences(line: str, read: Read, ran: Ran, place: Place) -> list[str]:
    """Return what one shell did with a line and the rules have not read."""
    reading = _Reading(line, read, place)
    found = [
        f"ran in {_shown(cwd)}: {_words_shown(words)}"
        for cwd, words in programs_of(ran)
        if not reading.started(words, cwd)
    ]
    found += [
        f"traced: {_shown(text)}" for shell, text in _traced(ran) if not reading.traced(shell, text)
    ]
    for cwd, words in programs_of(ran):
        found += reading.forbidden(words, cwd)
    for path in ran.changed:
        if path not in read.writes or not path.startswith(f"{place.real}/out/"):
            found.append(f"wrote {path}")
    return found


def programs_of(ran: Ran) -> list[tuple[str, tuple[str, ...]]]:
    """The folder and the words of each program that was started."""
    fields = iter(ran.log.decode("latin-1").split("\0"))
    found = []
    for cwd in fields:
        if not cwd:
            break
        found.append((cwd, tuple(next(fields, "") for _ in range(int(next(fields, "0"))))))
    return found


def _traced(ran: Ran) -> list[tuple[str, str]]:
    """The letter of the shell and the text of each command in a trace."""
    parts = re.split(f"{SIGN}+([bdz])", ran.trace.decode("latin-1"))
    return list(zip(parts[1::2], parts[2::2], strict=True))


def _joined(words: Sequence[str]) -> str:
    return "".join(f"{word}\0" for word in _plain(words))


def _plain(words: Sequence[str]) -> Sequence[str]:
    """Return `[ x ]` as `test x`."""
    return ("test", *words[1:-1]) if words[0] == "[" and words[-1] == "]" else words


class _Reading:
    """What was read of one line, as patterns of what may run."""

    def __init__(self, line: str, read: Read, place: Place) -> None:
        self._read = read
        self._place = place
        self._status = "$?" in line
        self._started = [(self._pattern(each), folders) for each, folders in read.commands]
        commands = [*(each for each, _ in read.commands), *read.wrappers]
        self._seen = [self._pattern(each) for each in commands]
        self._bare = [self._without_quotes(each) for each in commands]
        self._assigned = {_bytes(each) for each in read.assignments}
        if "<<" in line:  # `"$(cat <<'D' ...)"` is read as the text that cat gives
            anywhere = tuple(folder for _, folders in read.commands for folder in folders)
            self._started.append(("cat\0", anywhere))
            self._seen.append("cat\0")
            self._bare.append("cat\n")

    def started(self, words: tuple[str, ...], cwd: str) -> bool:
        """Return True if a program was read with these words, in this folder."""
        text = _joined(words)
        return any(
            cwd in map(_bytes, folders) and re.fullmatch(pattern, text)
            for pattern, folders in self._started
        )

    def traced(self, shell: str, text: str) -> bool:
        """Return True if a command in a trace was read."""
        if shell == "d":
            return self._traced_bare(text)
        if text.startswith(tuple(f"for {name} in" for name in self._read.names)):
            return True
        if text.startswith(tuple(f"{name}=" for name in self._read.names)):
            return True
        words = _words(text)
        while words and words[0] in self._assigned:
            words = words[1:]
        return not words or any(re.fullmatch(each, _joined(words)) for each in self._seen)

    def _traced_bare(self, text: str) -> bool:
        """Return True for a command of dash, which writes its words without quotes."""
        assigned = "|".join(map(re.escape, self._assigned))
        for pattern in self._bare:
            if re.match(f"(?:(?:{assigned}) )*{pattern}(?<=\n)", text):
                return True
        brackets = re.match(r"\[( .*)? \]\n", text, re.DOTALL)
        return brackets is not None and self._traced_bare(f"test{brackets[1] or ''}\n")

    def _pattern(self, command: Command) -> str:
        pieces = []
        for at, word in enumerate(_plain(command.words)):
            expands = at in command.expands
            pieces.append(f"(?:{self._of_word(_bytes(word), expands=expands)}\0)" + "+" * expands)
        return "".join(pieces)

    def _without_quotes(self, command: Command) -> str:
        """Return a pattern of what dash traces; behind a word that expands it may be anything."""
        first = min(command.expands, default=len(command.words))
        words = _plain(command.words)[:first]
        pieces = [f"{self._of_word(_bytes(word), expands=False)}[ \\n]" for word in words]
        return "".join(pieces) + (r"[^\0]*" if command.expands else "")

    def _of_word(self, word: str, *, expands: bool) -> str:
        exact = re.escape(word)
        if self._status:
            exact = exact.replace("0", r"(?:\d{1,3})")
        if not expands:
            return exact
        home = re.sub(r"^~(?=/|$)", lambda _: _bytes(self._place.home), word)
        return f"(?:{exact}|{''.join(_globbed(home))})"

    def forbidden(self, words: tuple[str, ...], cwd: str) -> Iterator[str]:
        """Give what no rule allows, however it was read."""
        name, real = words[0], self._place.real
        if name in ("rm", "evil", "other", "./evil", RAN) or words[:2] == ("git", "push"):
            yield f"what no rule allows ran: {_words_shown(words)}"
        for word in words[1:] if name not in _PRINTS else ():
            path = os.path.realpath(
                os.path.join(cwd, word.encode("latin-1").decode(errors="surrogateescape"))
            )
            inside = path == f"{real}/src" or path.startswith(f"{real}/src/")
            if name == "nl" and not word.startswith("-") and not inside:
                yield f"nl reads {path}, and its rule is about src"
            if path.endswith("/secret") and os.path.isfile(path) and name != "grep":
                yield f"{name} reads {path}, which is denied"


def _globbed(word: str) -> Iterator[str]:
    """Give a regular expression, in pieces, of what a shell may put in the place of a word."""
    at = 0
    while at < len(word):
        if word.startswith("**/", at):
            yield "(?:[^\\0]*/)?"  # zsh goes down
            at += 3
        elif word[at] == "*":
            yield "[^\\0/]*"
            at += 1
        elif word[at] == "?":
            yield "[^\\0/]{1,4}"
            at += 1
        elif word[at] == "/":
            yield "/+"  # zsh makes one of two
            at += 1 + len(word[at + 1 :]) - len(word[at + 1 :].lstrip("/"))
        elif found := _BRACKETS.match(word, at):
            yield "[^\\0/]{1,4}"
            at = found.end()
        else:
            yield re.escape(word[at])
            at += 1


def _words(text: str) -> list[str]:
    """Take apart a line of the traces of bash and zsh, up to an end of a line without quotes."""
    found: list[str] = []
    word: str | None = None
    at = 0
    while at < len(text) and text[at] != "\n":
        if text[at] == " ":
            found += [word] if word is not None else []
            word, at = None, at + 1
            continue
        piece, at = _piece(text, at)
        word = (word or "") + piece
    return found + ([word] if word is not None else [])


def _piece(text: str, at: int) -> tuple[str, int]:
    if text.startswith("$'", at):
        end = at + 2
        while end < len(text) and text[end] != "'":
            end += 1 + (text[end] == "\\")
        return _IN_ANSI_C.sub(_escaped, text[at + 2 : end]), end + 1
    if text[at] == "'":
        end = text.find("'", at + 1)
        end = end if end >= 0 else len(text)
        return text[at + 1 : end], end + 1
    if text[at] == "\\":
        return text[at + 1 : at + 2], at + 2
    found = _BARE.match(text, at)
    return (found[0], found.end()) if found else (text[at], at + 1)


def _escaped(found: re.Match[str]) -> str:
    if found[1]:
        return chr(int(found[1], 8) & 255)
    if found[2]:
        return _bytes(chr(int(found[2], 16)))
    control = found[4] or found[5]
    plain = found[6] if found[3] else _ESCAPES.get(found[6], found[6])
    code = ord(control) ^ 64 if control else ord(plain)
    return chr(code | 128 if found[3] else code)


def _bytes(text: str) -> str:
    return text.encode(errors="surrogateescape").decode("latin-1")


def _shown(text: str) -> str:
    return repr(text.encode("latin-1").decode(errors="replace"))


def _words_shown(words: Iterable[str]) -> str:
    return " ".join(map(_shown, words))
