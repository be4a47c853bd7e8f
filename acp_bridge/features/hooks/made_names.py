"""Finds the names of files in a hook's command that only the shell knows, when it runs. SANS-IO.

What a person trusts is the files that a command names. A piece in the place of a program, or with a
`/` in it, that the shell makes from a variable, a command or braces could name another file each
time. So could one behind `make -f`, and one in a text that a shell runs, such as that of `eval`.
Other pieces, and texts for other programs, are left alone.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash"})
#: programs that run the file that stands behind them.
_INTERPRETERS: Final = _SHELLS | {
    *("python", "pypy", "node", "perl", "ruby", "php", "lua", "expect", "tclsh", "fish", "csh"),
    *("tcsh", "deno", "bun", "tsx", "osascript", "Rscript", "julia"),
}
#: words behind which the name of a program or a script stands.
_BEFORE_PROGRAMS: Final = (
    _INTERPRETERS
    | {"!", "{", "}", "if", "then", "elif", "else", "do", "while", "until", "coproc"}
    | {"time", "exec", "command", "builtin", "env", "nohup", "nice", "sudo", "doas", "timeout"}
    | {"xargs", "setsid", "stdbuf", "ionice", "noglob", ".", "source"}
)
#: what may stand between those and the program.
_OF_WRAPPERS: Final = re.compile(r"-(?!\w*[ce]$).*|\d+[smhd]?", re.DOTALL)
_OF_SHELLS: Final = re.compile(r"[-+]\w*[oO]|--rcfile|--init-file")
_OF_MODULES: Final = re.compile(r"-[IrWX]|--require|--import|--loader")
#: options of those words of which the value stands behind them, in a word of its own.
_VALUED: Final = {
    **dict.fromkeys(_INTERPRETERS, _OF_MODULES),
    **dict.fromkeys(_SHELLS, _OF_SHELLS),
    "env": re.compile(r"-\w*[uCS]|--unset|--chdir"),
    "exec": re.compile(r"-\w*a"),
    "ionice": re.compile(r"-\w*[cnpPu]|--class|--classdata"),
    "nice": re.compile(r"-n|--adjustment"),
    "stdbuf": re.compile(r"-[ioe]|--input|--output|--error"),
    "sudo": re.compile(r"-\w*[ugpChrtTDR]|--user|--group|--chdir"),
    "doas": re.compile(r"-\w*[uC]"),
    "time": re.compile(r"-\w*[fo]"),
    "timeout": re.compile(r"-\w*[sk]|--signal|--kill-after"),
    "xargs": re.compile(r"-\w*[aEdILnPs]"),
}
#: programs that lead to the folder that stands behind them.
_MOVING: Final = frozenset({"cd", "chdir", "pushd"})
#: programs of which all words are a text that the shell runs.
_EVALUATING: Final = frozenset({"eval", "trap"})
_OF_A_SHELL: Final = re.compile(r"-\w*c")
_EXECUTES: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_OF_MAKE: Final = ("fCI", ("--file", "--makefile", "--directory", "--include-dir"))
_OF_AWK: Final = ("filE", ("--file", "--include", "--load", "--exec"))
_OF_SED: Final = ("f", ("--file",))
#: program -> its options, short and long, of which the value is a file that it runs, or a folder.
_OPTIONS: Final = {
    **dict.fromkeys(("make", "gmake"), _OF_MAKE),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _OF_AWK),
    **dict.fromkeys(("sed", "gsed"), _OF_SED),
    "just": ("fd", ("--justfile", "--working-directory")),
    "ninja": ("fC", ()),
}
#: how deep texts in texts are followed, for `eval eval ...`; what is deeper may be anything.
_DEPTH: Final = 8
#: stands before what a shell puts into a text that another one runs.
_MADE: Final = "\0"
_BREAKS: Final = ";|&()\n"
_REDIRECTS: Final = re.compile(r"\d*(?:[<>]+[&|]?|&>+)(?!\()|[<>](?!\()")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")
#: a name that stands without a `$`: it may be that of a variable which is set.
_NAMED: Final = re.compile(r"(?<![\w$])(?<!\$\{)\w+")
_VARIABLE: Final = re.compile(r"\$(?:(\w+)|\{(\w+)\}|([@*])|([?$!#-]))")
_BRACES: Final = re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
_ADDRESS: Final = re.compile(r"[A-Za-z][\w+.-]*://")
_COMMENT: Final = re.compile(r"(?<![^\s;|&()])#.*")
#: in dash, this ends at the first quote.
_ESCAPING: Final = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL)
#: a text for a program's stdin, in which quotes are letters as others.
_HEREDOC: Final = re.compile(
    r"<<-?[ \t]*\\?(['\"]?)(\w+)\1[^\n]*\n(.*?)^\t*\2$", re.DOTALL | re.MULTILINE
)


def made_name(
    command: str | tuple[str, ...], known: Collection[str], is_folder: Callable[[str], bool]
) -> str:
    """Return the first piece of a command that may name a file which nobody can foresee; or empty.

    `known`: variables whose values are known beforehand; `is_folder` returns True for a path that
    is a folder of the project.
    """
    text = shlex.join(command) if isinstance(command, tuple) else command.replace(_MADE, "")
    known = frozenset(known).difference(_NAMED.findall(text))
    for reading in dict.fromkeys((text, *_without_quotes_of_texts(text))):
        scan = _Scan(reading, known)
        scan.script("")
        if found := next((each.text for each in scan.pieces if each.may_name(is_folder)), ""):
            return found
    return ""


def _without_quotes_of_texts(text: str) -> Iterator[str]:
    """Give a command without its comments, and without the quotes in what it gives to be read."""

    def bare(found: re.Match[str]) -> str:
        return re.sub(r"['\"]", "", found[0])

    yield _ESCAPING.sub("$'.'", text)
    uncommented = _COMMENT.sub("", text)
    yield from (uncommented, _HEREDOC.sub(bare, text), _HEREDOC.sub(bare, uncommented))


@dataclass(slots=True)
class _Piece:
    """A piece of a command: what a shell makes one or more words of."""

    text: str = ""
    #: the text without quotes and without what the shell puts in.
    literal: str = ""
    #: the literal text up to the first thing that the shell puts in; None: it puts nothing in.
    before: str | None = None
    #: the text without quotes, and with what the shell puts in, as it is written.
    script: str = ""
    is_program: bool = False

    @property
    def name(self) -> str:
        """The name of a program, without its folder and version; empty if the shell makes it."""
        name = self.literal.rpartition("/")[2] if self.before is None else ""
        return name.rstrip("0123456789.") or name

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
class _Simple:
    """One command, as far as it was read: what the next piece of it is."""

    #: the next piece may be a program, or a script of one.
    program: bool = True
    #: a program stands before that takes options and the like before what it runs.
    wrapped: bool = False
    #: the last program that was named.
    name: str = ""
    #: the next piece is the value of an option of the program before it.
    valued: bool = False
    #: the next piece is a file that the program runs, or a folder; or a text, which is a shell's.
    value: bool = False
    text: bool = False
    #: what a shell runs as one text, once the command has ended.
    texts: list[str] = field(default_factory=list)

    @property
    def reads(self) -> bool:
        """True if a program runs what it is given to read."""
        return self.program and self.name in _INTERPRETERS

    def take(self, piece: _Piece) -> None:
        """Note a piece that is no redirection's."""
        if self.name in _EVALUATING or (self.text and not piece.literal.startswith("-")):
            self.texts.append(piece.script)
            self.text = False
        self.value = self.value and self.name in _MOVING and piece.literal.startswith("-")
        valued, self.valued = self.valued, False
        if self.program and not valued:
            own = self.wrapped and _OF_WRAPPERS.fullmatch(piece.literal)
            assigns = _ASSIGNMENT.match(piece.text)
            if not (assigns or piece.literal.startswith("-") or (own and self.wrapped)):
                self.name = piece.name
            self.wrapped = bool(own) or piece.name in _BEFORE_PROGRAMS
            self.program = bool(self.wrapped or assigns)
            self.valued = bool(own and _takes_value(self.name, piece.literal))
            self.value = self.name in _MOVING
        if self.name in _SHELLS and _OF_A_SHELL.fullmatch(piece.literal):
            self.text = True
        elif piece.literal in _EXECUTES:
            self.program = True
        elif piece.literal.startswith("-") and self.name in _OPTIONS:
            self._option(piece)

    def _option(self, piece: _Piece) -> None:
        letters, names = _OPTIONS[self.name]
        before = piece.literal if piece.before is None else piece.before
        if before.startswith("--"):
            name, joined, _ = before.partition("=")
            found = len(name) > 3 and any(each.startswith(name) for each in names)
            self.value = found and not joined
        else:
            found = bool(re.match(rf"-\w*?[{letters}]", before))
            self.value = bool(re.fullmatch(rf"-\w*?[{letters}]", piece.literal))
        piece.is_program = piece.is_program or found


def _takes_value(name: str, option: str) -> bool:
    """Return True for an option of a program of which the value is the next word."""
    return name in _VALUED and _VALUED[name].fullmatch(option) is not None


@dataclass(slots=True)
class _Scan:
    """Takes a command apart as a shell does, as far as that is needed for its pieces."""

    text: str
    known: Collection[str]
    pieces: list[_Piece] = field(default_factory=list)
    at: int = 0
    depth: int = 0

    def script(self, end: str) -> None:
        """Read pieces up to the character `end`, or to the end of the text."""
        simple, target = _Simple(), ""
        while self.at < len(self.text) and self.text[self.at] != end:
            char = self.text[self.at]
            if sign := _REDIRECTS.match(self.text, self.at):
                target, self.at = sign[0], sign.end()
            elif char in _BREAKS:
                self._run(simple)
                simple, target = _Simple(), ""
                self.at += 1
            elif char in " \t":
                self.at += 1
            else:
                runs = simple.reads if target else simple.program or simple.value
                piece = self._piece(end, program=runs and ">" not in target)
                self.pieces.append(piece)
                if not target:
                    simple.take(piece)
                target = ""
        self._run(simple)

    def _run(self, simple: _Simple) -> None:
        """Read the text that a command gives a shell, or that the shell itself runs."""
        text = " ".join(simple.texts)
        if text and self.depth < _DEPTH:
            _Scan(text, self.known, self.pieces, depth=self.depth + 1).script("")
        elif text:
            self.pieces.append(_Piece(text, before="", is_program=True))

    def _piece(self, end: str, *, program: bool) -> _Piece:
        piece, begin, quoted = _Piece(is_program=program), self.at, False
        while self.at < len(self.text):
            char = self.text[self.at]
            if self.text.startswith(("<(", ">("), self.at) and not quoted:
                self._expansion(piece)
                continue
            if not quoted and (char in f"{_BREAKS} \t<>" or char == end):
                break
            if self._is_made(begin, quoted=quoted):
                piece.made()
            if char == '"':
                quoted, self.at = not quoted, self.at + 1
            elif char == "'" and not quoted:
                self._quoted(piece)
            elif char == "\\":
                self.at += not quoted or self.text[self.at + 1 : self.at + 2] in tuple('"$`\\')
                self._literal(piece, self.at + 1)
            elif char == _MADE:
                piece.made()
                self.at += 1
            elif char in "$`":
                self._expansion(piece)
            elif not quoted and (braces := _BRACES.match(self.text, self.at)):
                piece.made()
                self._literal(piece, braces.end())
            else:
                self._literal(piece, self.at + 1)
        piece.text = self.text[begin : self.at].replace(_MADE, "")
        return piece

    def _is_made(self, begin: int, *, quoted: bool) -> bool:
        """Return True for `$'...'`, and for `~+` where a piece begins."""
        here = self.text[self.at : self.at + 2]
        return not quoted and (here == "$'" or (self.at == begin and here in ("~+", "~-")))

    def _quoted(self, piece: _Piece) -> None:
        """Read a text in single quotes."""
        self.at += 1
        end = self.text.find("'", self.at)
        end = len(self.text) if end < 0 else end
        if _MADE in self.text[self.at : end]:
            piece.made()
        self._literal(piece, end)
        self.at += 1

    def _literal(self, piece: _Piece, end: int) -> None:
        piece.literal += self.text[self.at : end]
        piece.script += self.text[self.at : end]
        self.at = min(end, len(self.text))

    def _expansion(self, piece: _Piece) -> None:
        text, begin, made = self.text, self.at, True
        if found := _VARIABLE.match(text, self.at):
            name = found[1] or found[2]
            made = bool(found[3] or (name and name not in self.known))
            self.at = found.end()
        elif text[self.at] == "`" or text.startswith(("$(", "<(", ">("), self.at):
            end = "`" if text[self.at] == "`" else ")"
            self.at += len(end) if end == "`" else 2
            self.script(end)
            self.at += 1
        elif text.startswith("${", self.at):
            self.at = text.find("}", self.at) + 1 or len(text)
        else:
            self._literal(piece, self.at + 1)
            return
        if made:
            piece.made()
        piece.script += _MADE * made + text[begin : self.at]
