"""Reads a command line by POSIX (2.3, 2.9, 2.10): only the forms that agents write. SANS-IO.

It is the second of two readings: a rule allows only a line of which the grammar of bash says the
same (invariant A1). Read are simple commands, `|`, `&&`, `||`, `;`, newlines, `!`, comments,
`for NAME in WORDS`, `if`, and redirections `[n]>`, `[n]>>`, `[n]<`, `[n]>&m` to plain files. All
else is `NotRead`: no guess is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, NoReturn

#: stands around a variable in a word; no line that is read holds one.
MARK: Final = "\0"
#: names that a loop may set: none is a setting of a shell or of a program.
_NAMES: Final = re.compile(
    r"[a-z]\d?|dir|dirname|each|file|filename|fname|folder|item|line|mod|module|name|num|p|pkg"
    r"|project|repo|src|sub|target|test|word"
)
#: words with a meaning of their own where a command begins, in any of the shells.
_RESERVED: Final = frozenset(
    {"then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "in", "select"}
    | {"function", "coproc", "repeat", "foreach", "end", "nocorrect", "noglob", "always", "typeset"}
    | {"declare", "local", "export", "readonly", "let", "float", "integer", "private"}
)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
#: zsh takes `<1-5>` for a pattern of numbers.
_REDIRECT: Final = re.compile(
    r"([0-9]?)(>>|>|<(?!\d*-\d*>))(?![<>&|(!])|([0-9]?)(>&)([0-9])(?=[\s;|]|\Z)"
)
_NAME: Final = re.compile(r"[a-z]+(?=[\s;]|\Z)")
_PROGRAM: Final = re.compile(r"[\w./][\w./+-]*|\[", re.ASCII)
#: blanks, and a comment behind one; a backslash at the end of a line joins it to the next.
_BLANKS: Final = re.compile(r"(?:[ \t]|\\\n)*(?:(?<![^\s;|&])#[^\n]*)?")
#: how a commit's message is often given: a text of several lines, in which nothing is expanded.
_TEXT: Final = re.compile(
    r"\"\$\(cat <<(?:'([A-Za-z_]+)'|\"([A-Za-z_]+)\")\n((?:.*\n)*?)(?:\1|\2)\n[ \t\n]*\)\""
    r"(?=[\s;|&]|\Z)"
)
_END: Final = " \t\n;|&<>()"
#: characters that stand for themselves in each shell, as do `HEAD~1` and `stash@{0}`.
_BARE: Final = re.compile(
    r"(?:[A-Za-z0-9_%+,./:@^=#-]|(?<=[A-Za-z0-9_^])~|(?<=@)\{(?:\d+|u)\}|(?=[^\x00-\x7f])\w)+"
)
#: what does so where a word begins.
_FIRST: Final = re.compile(
    rf"\{{\}}(?=[{_END}]|\Z)|\[(?=[ \t])|\](?=[{_END}]|\Z)|!(?=[= \t])|=(?=[ \t])|~(?=[/{_END}]|\Z)"
)
_EXPANDS: Final = re.compile(r"[*?]|\[[!^]?[A-Za-z0-9_.-]+\]")
_ESCAPED: Final = re.compile(r"\\[\n!-/:-@\[-`{-~ ]")
_IN_QUOTES: Final = re.compile(r'(?:[^"$`\\]|\\["$`\\]|\\(?![\n"$`\\])|\$(?=["| ]))+')
#: zsh takes a part of the value in `$f[1]` and `$f:t`, also in quotes.
_VARIABLE: Final = re.compile(
    r"\$(?:(?:(\?)|([a-z][a-z0-9]*)(?![A-Za-z0-9_]))(?!\[|:[^\s\"])|\{([a-z][a-z0-9]*|\?)\})"
)
#: what no line has that is read: characters that nobody sees, and blanks that are none to a shell.
_ODD: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]|[^\x00-\x7f\S]")
#: how deep loops and conditions may stand in each other.
_DEPTH: Final = 8


class NotRead(Exception):
    """The line has a form that is not read here."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word as a program gets it, but that a variable stands as it is written, between MARKs."""

    text: str
    #: it has an unquoted `*`, `?` or `[`, or begins with `~`.
    expands: bool = False

    @property
    def written(self) -> str:
        """The word with its variables as they are written."""
        return self.text.replace(MARK, "")


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirection: the descriptor or nothing, the sign, and the file or descriptor."""

    number: str
    sign: str
    target: str


@dataclass(frozen=True, slots=True)
class Simple:
    """A program with its words, and what stands before and behind them."""

    words: tuple[Word, ...]
    assignments: tuple[str, ...] = ()
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Loop:
    """`for NAME in WORDS; do BODY done`."""

    name: str
    words: tuple[Word, ...]
    body: Script


@dataclass(frozen=True, slots=True)
class Choice:
    """`if`: its conditions and what stands behind them, in the order in which they are written."""

    parts: tuple[Script, ...]


Command = Simple | Loop | Choice


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands joined by `|`; `joint`: `&&`, `||` or nothing, before it."""

    joint: str
    commands: tuple[Command, ...]
    negated: bool = False


#: Lists of pipelines: what `;` and newlines part.
Script = tuple[tuple[Pipeline, ...], ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """A line that was read."""

    script: Script
    #: each command as it is written, loops too, in order: what the other reading must say as well.
    said: tuple[tuple[str, ...], ...]
    redirects: tuple[Redirect, ...]
    #: the line, with texts that `cat` would give in its place as plain quoted ones.
    line: str


def read(text: str) -> Reading:
    """Return what a line runs; raises NotRead."""
    if _ODD.search(text):
        raise NotRead
    reader = _Reader(text)
    script = reader.script(())
    if reader.at < len(text) or not reader.said:
        raise NotRead
    line = "".join(reader.pieces) + text[reader.copied :]
    return Reading(script, tuple(reader.said), tuple(reader.redirects), line)


class _Reader:
    def __init__(self, text: str) -> None:
        self.at = 0
        self.said: list[tuple[str, ...]] = []
        self.redirects: list[Redirect] = []
        #: the line up to `copied`, with its texts quoted.
        self.pieces: list[str] = []
        self.copied = 0
        self._text = text
        self._loops: list[str] = []
        self._depth = 0

    # --- lists ---------------------------------------------------------------------------------

    def script(self, ends: Collection[str]) -> Script:
        """Read lists up to one of these reserved words, or to the end."""
        found: list[tuple[Pipeline, ...]] = []
        while True:
            self._blanks(lines=True)
            if self.at == len(self._text) or self._reserved() in ends:
                return tuple(found)
            found.append(self._list())
            if self._next() == ";":
                self.at += 1
            elif self._next() not in ("\n", ""):
                self._odd()

    def _list(self) -> tuple[Pipeline, ...]:
        found = [self._pipeline("")]
        while (joint := self._text[self.at : self.at + 2]) in ("&&", "||"):
            self.at += 2
            self._blanks(lines=True)
            found.append(self._pipeline(joint))
        return tuple(found)

    def _pipeline(self, joint: str) -> Pipeline:
        negated = bool(re.compile(r"![ \t]").match(self._text, self.at))
        if negated:
            self.at += 1
            self._blanks()
        found = [self._command()]
        while self._next() == "|" and self._text[self.at : self.at + 2] not in ("||", "|&"):
            self.at += 1
            self._blanks(lines=True)
            found.append(self._command())
        return Pipeline(joint, tuple(found), negated)

    def _command(self) -> Command:
        word = self._reserved()
        if word == "for":
            return self._nested(self._loop)
        if word == "if":
            return self._nested(self._choice)
        if word in _RESERVED:
            self._odd()
        return self._simple()

    def _nested(self, read: Callable[[], Command]) -> Command:
        self._depth += 1
        if self._depth > _DEPTH:
            self._odd()
        found = read()
        self._depth -= 1
        self._blanks()
        if self._next() not in (";", "\n", "|", "&", ""):
            self._odd()
        return found

    def _loop(self) -> Loop:
        self._take("for")
        name = re.split(r"[\s;]", self._text[self.at :], maxsplit=1)[0]
        if not _NAMES.fullmatch(name) or name in self._loops:
            self._odd()
        self.at += len(name)
        self._blanks()
        self._take("in")
        words: list[Word] = []
        while self._next() not in (";", "\n", ""):
            words.append(self._word())
            self._blanks()
        self.said.append(("for", name, *(each.written for each in words)))
        self.at += self._next() == ";"
        self._blanks(lines=True)
        self._take("do")
        self._loops.append(name)
        body = self.script(("done",))
        self._loops.pop()
        self._take("done")
        return Loop(name, tuple(words), body)

    def _choice(self) -> Choice:
        parts: list[Script] = []
        word = "if"
        while word != "fi":
            self._take(word)
            ends = {"if": ("then",), "elif": ("then",), "else": ("fi",)}.get(
                word, ("elif", "else", "fi")
            )
            parts.append(self.script(ends))
            word = self._reserved()
            if word not in ends:
                self._odd()
        self._take("fi")
        return Choice(tuple(parts))

    # --- simple commands -------------------------------------------------------------------------

    def _simple(self) -> Simple:
        assignments: list[str] = []
        words: list[Word] = []
        redirects: list[Redirect] = []
        begin = end = self.at
        while self._next() not in (*";\n|&", ""):
            if _REDIRECT.match(self._text, self.at):
                redirects.append(self._redirect())
            elif not words and _ASSIGNMENT.match(self._text, self.at):
                assignments.append(self._literal())
            else:
                words.append(self._word())
            end = self.at
            self._blanks()
        self._check(words)
        written = tuple(each.written for each in words)
        if written[0] == "[":
            written = ("[", self._text[begin:end].replace("\\\n", ""))
        self.said.append((*assignments, *written))
        self.redirects += redirects
        return Simple(tuple(words), tuple(assignments), tuple(redirects))

    def _check(self, words: list[Word]) -> None:
        if not words or words[0].expands or not _PROGRAM.fullmatch(words[0].text):
            self._odd()
        closed = [each.text for each in words].index("]") if Word("]") in words else -1
        if closed != (len(words) - 1 if words[0].text == "[" else -1):
            self._odd()

    def _redirect(self) -> Redirect:
        found = _REDIRECT.match(self._text, self.at)
        assert found is not None
        self.at = found.end()
        if found[4]:
            return Redirect(found[3], found[4], found[5])
        self._blanks()
        target = self._literal(at_home=True)
        if re.match(r"/dev/(?:tcp|udp)/", target):
            self._odd()  # bash opens a connection
        return Redirect(found[1], found[2], target)

    def _literal(self, *, at_home: bool = False) -> str:
        word = self._word()
        home = at_home and word.expands and re.fullmatch(r"~/[^*?\[]*", word.text)
        if MARK in word.text or (word.expands and not home):
            self._odd()
        return word.text if home or not word.text.startswith("~") else f"./{word.text}"

    # --- words -----------------------------------------------------------------------------------

    def _word(self) -> Word:
        text, begin, pieces, expands = self._text, self.at, list[str](), False
        if found := _TEXT.match(text, begin):
            return Word(self._given(found))
        while self._next() not in (*_END, ""):
            first = self.at == begin
            if text[self.at] == "'":
                end = text.find("'", self.at + 1)
                pieces.append(text[self.at + 1 : end] if end > 0 else self._odd())
                self.at = end + 1
            elif text[self.at] == '"':
                pieces.append(self._quoted())
            elif found := _EXPANDS.match(text, self.at):
                expands = True
                pieces.append(self._taken(found))
            elif first and (found := _FIRST.match(text, self.at)):
                expands = found[0] == "~"
                pieces.append(self._taken(found))
            elif (found := _BARE.match(text, self.at)) and not (first and found[0][0] in "=#"):
                pieces.append(self._taken(found))
            elif found := _ESCAPED.match(text, self.at):
                pieces.append(self._taken(found)[1:].replace("\n", ""))
            else:
                self._odd()
        if text[begin : self.at].isdigit() and self._next() in (*"<>",):
            self._odd()  # `10< x` is a word and a redirection, or only that: shells differ
        return Word("".join(pieces), expands) if self.at > begin else self._odd()

    def _quoted(self) -> str:
        """Read a text in double quotes, in which a variable of a loop and `$?` may stand."""
        pieces, self.at = list[str](), self.at + 1
        while self._next() != '"':
            if found := _IN_QUOTES.match(self._text, self.at):
                pieces.append(re.sub(r'\\(["$`\\])', r"\1", self._taken(found)))
            elif found := _VARIABLE.match(self._text, self.at):
                if (found[1] or found[2] or found[3]) not in ("?", *self._loops):
                    self._odd()
                pieces.append(f"{MARK}{self._taken(found)}{MARK}")
            else:
                self._odd()
        self.at += 1
        return "".join(pieces)

    def _given(self, found: re.Match[str]) -> str:
        """Read a text that `cat` is given, if each shell sees its end at the same place.

        Old ones, such as the bash of macOS, count quotes and brackets in it.
        """
        text, rest = found[3].rstrip("\n"), self._text[found.end() :]
        left, signs = 0, re.findall(r"[()]", text)
        for sign in signs:
            left += 1 if sign == "(" else -1
            if left < 0:
                self._odd()
        counted = "\\" in text or any(text.count(sign) % 2 for sign in "'\"`")
        # Behind the end's word bash also takes a bracket for the end: `EOF)`.
        ends = any(each.startswith(found[1] or found[2]) for each in text.split("\n"))
        if left or ends or (signs and '"' in text) or (counted and re.search(r"['\"`]", rest)):
            self._odd()
        quoted = "'" + text.replace("'", "'\\''") + "'"
        self.pieces += [self._text[self.copied : found.start()], quoted]
        self.copied = self.at = found.end()
        return text

    # --- characters ------------------------------------------------------------------------------

    def _taken(self, found: re.Match[str]) -> str:
        self.at = found.end()
        return found[0]

    def _next(self) -> str:
        return self._text[self.at : self.at + 1]

    def _reserved(self) -> str:
        found = _NAME.match(self._text, self.at)
        return found[0] if found else ""

    def _take(self, word: str) -> None:
        """Read a reserved word and the blanks behind it."""
        if self._reserved() != word:
            self._odd()
        self.at += len(word)
        self._blanks()

    def _blanks(self, *, lines: bool = False) -> None:
        """Read blanks and a comment; `lines`: also the ends of lines."""
        while found := _BLANKS.match(self._text, self.at):
            self.at = found.end()
            if not lines or self._next() != "\n":
                return
            self.at += 1

    def _odd(self) -> NoReturn:
        raise NotRead
