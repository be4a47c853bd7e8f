"""Finds the names of files in a hook's command that only the shell knows, when it runs. SANS-IO.

What a person trusts is the files that a command names. A piece in the place of a program, or with a
`/` in it, that the shell makes from a variable, a command or braces could name another file each
time. Other pieces, and texts for other programs, are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
#: words behind which the name of a program or a script stands.
_BEFORE_PROGRAMS: Final = (
    _SHELLS
    | {"!", "{", "}", "if", "then", "elif", "else", "do", "while", "until", "coproc"}
    | {"time", "exec", "command", "env", "nohup", "nice", "sudo", "timeout", "xargs"}
    | {".", "source", "python", "python3", "node", "perl", "ruby"}
)
#: what may stand between those and the program.
_OF_WRAPPERS: Final = re.compile(r"-(?!\w*[ce]$).*|\d+[smhd]?", re.DOTALL)
_BREAKS: Final = ";|&()\n"
_REDIRECTS: Final = re.compile(r"\d*(?:[<>]+[&|]?|&>+)(?!\()|[<>]")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")
#: a name that stands without a `$`: it may be that of a variable which is set.
_NAMED: Final = re.compile(r"(?<![\w$])(?<!\$\{)\w+")
_VARIABLE: Final = re.compile(r"\$(?:(\w+)|\{(\w+)\}|([@*])|([?$!#-]))")
_BRACES: Final = re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
_ADDRESS: Final = re.compile(r"[A-Za-z][\w+.-]*://")


def made_name(
    command: str | tuple[str, ...], known: Collection[str], is_folder: Callable[[str], bool]
) -> str:
    """Return the first piece of a command that may name a file which nobody can foresee; or empty.

    `known`: variables whose values are known beforehand; `is_folder` returns True for a path that
    is a folder of the project.
    """
    if isinstance(command, tuple):
        is_script = command[0].rpartition("/")[2] in _SHELLS and command[1:2] == ("-c",)
        command = "".join(command[2:3]) if is_script else ""
    scan = _Scan(command, frozenset(known).difference(_NAMED.findall(command)))
    scan.script("")
    return next((each.text for each in scan.pieces if each.may_name(is_folder)), "")


@dataclass(slots=True)
class _Piece:
    """A piece of a command: what a shell makes one or more words of."""

    text: str = ""
    #: the text without what the shell puts in.
    literal: str = ""
    #: the literal text up to the first thing that the shell puts in; None: it puts nothing in.
    before: str | None = None
    is_program: bool = False

    def made(self) -> None:
        if self.before is None:
            self.before = self.literal

    def may_name(self, is_folder: Callable[[str], bool]) -> bool:
        """Return True if it may name a file that is not known."""
        assigned = _ASSIGNMENT.match(self.text)
        runs = self.is_program and not assigned
        if self.before is None or not (runs or "/" in self.literal):
            return False
        if runs:
            return True
        before = self.before.partition("=")[2] if assigned else self.before
        folder, slash, name = before.rpartition("/")
        if _ADDRESS.match(before) or (before.startswith("/") and name):
            return False
        return not slash or before.startswith(("/", "~", "..")) or is_folder(folder)


@dataclass(slots=True)
class _Scan:
    """Takes a command apart as a shell does, as far as that is needed for its pieces."""

    text: str
    known: Collection[str]
    pieces: list[_Piece] = field(default_factory=list)
    at: int = 0

    def script(self, end: str) -> None:
        """Read pieces up to the character `end`, or to the end of the text."""
        program, wrapped, target = True, False, False
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == end:
                return
            if sign := _REDIRECTS.match(self.text, self.at):
                target, self.at = True, sign.end()
            elif char in _BREAKS:
                program, wrapped, target = True, False, False
                self.at += 1
            elif char in " \t":
                self.at += 1
            else:
                piece = self._piece(end, program=program and not target)
                self.pieces.append(piece)
                if piece.is_program:
                    wraps = piece.text.rpartition("/")[2] in _BEFORE_PROGRAMS
                    own = wrapped and _OF_WRAPPERS.fullmatch(piece.text)
                    wrapped = bool(wraps or own)
                    program = bool(wrapped or _ASSIGNMENT.match(piece.text))
                target = False

    def _piece(self, end: str, *, program: bool) -> _Piece:
        piece, begin, quoted = _Piece(is_program=program), self.at, False
        while self.at < len(self.text):
            char = self.text[self.at]
            if not quoted and (char in f"{_BREAKS} \t<>" or char == end):
                break
            if char == '"':
                quoted, self.at = not quoted, self.at + 1
            elif char == "'" and not quoted:
                self._literal(piece, self.text.find("'", self.at + 1) + 1 or len(self.text))
            elif char == "\\":
                self._literal(piece, self.at + 2)
            elif char in "$`":
                self._expansion(piece)
            elif not quoted and (braces := _BRACES.match(self.text, self.at)):
                piece.made()
                self._literal(piece, braces.end())
            else:
                self._literal(piece, self.at + 1)
        piece.text = self.text[begin : self.at]
        return piece

    def _literal(self, piece: _Piece, end: int) -> None:
        piece.literal += self.text[self.at : end]
        self.at = min(end, len(self.text))

    def _expansion(self, piece: _Piece) -> None:
        text = self.text
        if found := _VARIABLE.match(text, self.at):
            name = found[1] or found[2]
            if found[3] or (name and name not in self.known):
                piece.made()
            self.at = found.end()
        elif text[self.at] == "`" or text.startswith("$(", self.at):
            piece.made()
            end = "`" if text[self.at] == "`" else ")"
            self.at += len(end) if end == "`" else 2
            self.script(end)
            self.at += 1
        elif text.startswith("${", self.at):
            piece.made()
            self.at = text.find("}", self.at) + 1 or len(text)
        else:
            self._literal(piece, self.at + 1)
