"""Takes a command line apart with the grammar of bash. SANS-IO.

- It finds what a rule may refuse, and is one of the two readings that must agree before a rule
  allows a line (`rules.steps`, invariant A1).
- Its commands are all that it would run, however deep they stand, and what a wrapper such as `sudo`
  or `sh -c` runs: so a refusal finds them. A text in quotes or in a heredoc is none.
- Words are those that the program gets: quotes and backslashes are taken away.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from acp_bridge.core.records import replace
from acp_bridge.features.rules import programs

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

#: the most characters of a line that is taken apart; no rule allows a longer one.
LONGEST: Final = 16 * 1024
#: the most characters of a line that is remembered.
_SHORT: Final = 1000
#: how many characters of a line that is not taken apart are looked at.
MOST: Final = 4 * LONGEST
#: the most parentheses of a line that is taken apart.
_PARENTHESES: Final = 100
#: how deep scripts in scripts (`sh -c "sh -c ..."`) are followed.
_DEPTH: Final = 8
#: how many commands of a line are unwrapped; if it has more, every word counts as one.
_MOST: Final = 200
#: what `>&` and `<&` take for a descriptor, and not for a file.
_DESCRIPTOR: Final = re.compile(r"[0-9]+-?|-")
#: the commands behind which a relative path means another file.
_MOVES: Final = (("cd",), ("pushd",), ("popd",), ("chdir",))
_WRITES: Final = frozenset({">", ">>", "&>", "&>>", ">|", ">&"})
_WORDS: Final = frozenset({"word", "string", "raw_string", "number", "concatenation"})
#: what gives a program's name that is not written.
_GIVES: Final = frozenset({"simple_expansion", "expansion", "command_substitution"})
#: a backslash at the end of a line, which joins it to the next; one behind a backslash does not.
_JOIN: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\\n")
#: a word in which a shell sees nothing but its letters.
_SIMPLE: Final = re.compile(r"[\w./:@%+,-]+", re.ASCII)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED_IN_QUOTES: Final = re.compile(r'\\([\\"$`])')
_VARIABLE: Final = re.compile(r"\$\{[^}]*\}|\$\w+")
#: what parts the words of `${x:-rm}`, `x=rm` and `{rm,x}`.
_PARTED: Final = re.compile(r"\$\{\w*:?[-=+?]|[{},=]")
#: what may stand for nothing, as in `r$@m`.
_EMPTY: Final = re.compile(r"\$[@*#?!$-]|\$\{[\w@*]+\}|\$\w+|\$\(\s*\)|``")
_BRACES: Final = re.compile(r"\{([^{}]*,[^{}]*)\}")
#: shells that a script names by their path.
_AT: Final = ("/bin/sh", "/bin/bash", "/usr/bin/bash")
_DURATION: Final = re.compile(r"\d+(\.\d+)?[smhd]?")


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its words, the program's name first; what expands stands as it is written."""

    words: tuple[str, ...]
    #: which of the words, by place, have an unquoted `*`, `?` or `[`, or begin with `~`.
    expands: frozenset[int] = frozenset()
    #: a `cd` or the like comes before, so that it isn't known what its relative paths mean.
    moved: bool = False
    #: its words are the last ones of another command in the line, a wrapper that runs it.
    inner: bool = False
    #: its name is what a variable or another command gives.
    unknown: bool = False
    #: its first word is more likely an argument of the wrapper than a program.
    guessed: bool = False


@dataclass(frozen=True, slots=True)
class Redirect:
    """A file that a line reads or writes."""

    path: str
    writes: bool
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A command line that was taken apart."""

    #: every command, nested and unwrapped; none if the grammar does not know the line.
    commands: tuple[Command, ...] = ()
    #: every file that a redirection names, in scripts too.
    redirects: tuple[Redirect, ...] = ()
    #: all its words, if it isn't known which of them run.
    raw: tuple[str, ...] = ()
    #: texts that a program may run, in whichever language.
    texts: tuple[str, ...] = ()
    #: what `rules.posix` must have read as well: each command and redirection as it is written.
    said: tuple[tuple[str, ...], ...] = ()
    redirected: tuple[tuple[str, ...], ...] = ()


def line(text: str, depth: int = 0, *, moved: bool = False) -> Line:
    """Take a command line apart; `moved`: it is not known what its relative paths mean."""
    return (_short_line if len(text) <= _SHORT else _line)(text, depth, moved=moved)


def _line(text: str, depth: int, *, moved: bool) -> Line:
    """Take a command line apart as `line` does, remembering nothing."""
    if "\0" in text:  # a shell leaves it out
        return replace(line(text.replace("\0", ""), depth, moved=moved), said=())
    joined = _JOIN.sub(r"\1", text)
    # In single quotes and in a comment a backslash joins nothing.
    unclear = joined != text and bool(re.search(r"['#]", text))
    unclear = unclear or text.count("(") > _PARENTHESES
    if unclear or len(text) > LONGEST or depth > _DEPTH:
        return _unparsed(text, joined)
    root = _parser().parse(joined.encode(errors="replace")).root_node
    if root.has_error:
        return _unparsed(text, joined)
    reader = _Reader(depth, moved=moved)
    for node in _below(root):
        reader.read(node)
    apart = _stands_apart(root, joined.encode(errors="replace"))
    reader.read_code()
    return Line(
        tuple(reader.commands),
        tuple(reader.redirects),
        (*(_unparsed(text, joined).raw if reader.unknown else ()), *reader.raw),
        tuple(dict.fromkeys(reader.foreign)),
        tuple(reader.said) if apart else (),
        tuple(reader.redirected),
    )


#: An agent asks for a permission and then for a terminal, and often asks for the same again.
_short_line = lru_cache(maxsize=256)(_line)


def _unparsed(text: str, joined: str) -> Line:
    """Return a line of which only the words are known, with and without lines that are joined."""
    parted, empty = _PARTED.sub(" ", joined), _EMPTY.sub("", joined)
    texts = dict.fromkeys((joined, text, parted, empty))
    raw = tuple(word for each in texts for word in (*_raw(each), ";"))
    return Line(raw=raw)


def _raw(text: str) -> tuple[str, ...]:
    """Return all words of a line, without a grammar: quotes are taken away, signs part words."""
    bare = re.sub(r"[\"'\\]", "", text[:MOST])
    return tuple(re.sub(r"[;&|()<>`]", " ; ", bare).split())


def _stands_apart(root: Node, source: bytes) -> bool:
    """Return True if nothing but blanks is left between the words and signs of a line.

    The grammar leaves out a backslash before a blank, and can take one word for two.
    """
    end, after_word = 0, False
    waiting = [root]
    while waiting:
        node = waiting.pop()
        is_word = node.type in _WORDS or node.type in ("file_descriptor", "comment")
        if node.children and not is_word:
            waiting.extend(reversed(node.children))
            continue
        gap = source[end : node.start_byte]
        if gap.strip(b" \t\n") or (is_word and after_word and not gap):
            return False
        end, after_word = max(end, node.end_byte), is_word
    return not source[end:].strip(b" \t\n")


def _below(root: Node) -> Iterator[Node]:
    """Give a node and all below it, in the order in which they are written."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


@cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


class _Reader:
    """Collects what one line runs, reads and writes from the nodes of its syntax tree."""

    def __init__(self, depth: int, *, moved: bool) -> None:
        self.commands: list[Command] = []
        self.redirects: list[Redirect] = []
        #: a program's name is not known, so that any word may be it.
        self.unknown = False
        self.said: list[tuple[str, ...]] = []
        self.redirected: list[tuple[str, ...]] = []
        self._depth = depth
        self._moved = moved
        self._texts: list[str] = []
        #: the words of texts that run and are not understood.
        self.raw: list[str] = []
        #: texts that other programs than a shell may run.
        self.foreign: list[str] = []

    def read(self, node: Node) -> None:
        """Collect what a node runs, reads and writes; those below it follow."""
        if node.type == "file_redirect":
            self._redirect(node)
        elif node.type == "command":
            self._command(node)
        elif node.type == "test_command":
            self.said.append(("[", _text(node)))
        elif node.type == "for_statement":
            named = [each for each in node.named_children if each.type != "do_group"]
            self.said.append(("for", *(self._word(each)[0] for each in named)))
        elif node.type == "heredoc_redirect":
            self._expanded(node)
        elif node.type in ("heredoc_body", "herestring_redirect"):
            text = _text(node).removeprefix("<<<").strip()
            text = _of_ansi_c(text[2:-1]) if text.startswith("$'") else text
            self._texts.append(text.strip("'\""))
        elif node.type == "variable_assignment":
            self.foreign.append(_text(node).partition("=")[2])
        elif node.type == "expansion":  # the grammar looks for no command between its backticks
            for script in re.findall(r"`([^`]*)`", _text(node)):
                self._script(script)

    def read_code(self) -> None:
        """Note what is written for a shell that runs what it reads: `echo rm x | sh`."""
        of_shell = any(programs.reads_code(each.words) for each in self.commands)
        of_others = any(programs.interprets(each.words) for each in self.commands)
        if not of_shell and not of_others:
            return
        if of_others:
            own = (each for each in self.commands if not each.inner)
            self.foreign += self._said(each for each in own if not programs.interprets(each.words))
        for text in self._said(self.commands) if of_shell else ():
            if text in self._texts or re.search(r"\s", text):  # a word of a program is no line
                self._script(text)

    def _said(self, commands: Iterable[Command]) -> list[str]:
        """Return the texts of the line that these commands may give to others to read."""
        said = [text for each in commands for text in (" ".join(each.words[1:]), *each.words)]
        return list(dict.fromkeys([*self._texts, *said]))

    def _expanded(self, heredoc: Node) -> None:
        """Note what the body of a heredoc runs: the grammar does not find all of it."""
        of = {each.type: _text(each) for each in heredoc.children}
        body = of.get("heredoc_body", "")
        if re.search(r"['\"\\]", of.get("heredoc_start", "")) or not re.search(r"`|\$\(", body):
            return
        escaped = body.replace('"', '\\"')
        self._script(f'echo "{escaped}"', skipped=1)

    def _script(self, text: str, *, files: bool = True, skipped: int = 0) -> None:
        """Note every command of a text that is run, for refusals.

        `files`: also the files that it reads and writes, since it surely runs; `skipped`: how many
        commands at its beginning were not in the line.
        """
        read = line(text, self._depth + 1)
        for each in read.commands[skipped:]:
            guessed, moved = each.guessed or not files, each.moved or self._moved
            self.commands.append(replace(each, moved=moved, guessed=guessed))
        for one in read.redirects if files else ():
            self.redirects.append(replace(one, moved=one.moved or self._moved))
        self.raw.extend(read.raw)
        self.foreign.extend(read.texts)
        self.unknown = self.unknown or bool(read.commands and read.raw)

    def _redirect(self, node: Node) -> None:
        sign = next((each.type for each in node.children if not each.is_named), "")
        for target in _targets(node)[:1]:
            text, expands = self._word(target)
            home = f"./{text}" if text.startswith("~") and not expands else text
            numbers = (each for each in node.named_children if each.type == "file_descriptor")
            self.redirected.append(("".join(map(_text, numbers)), sign, home))
            if sign in (">&", "<&") and _DESCRIPTOR.fullmatch(text):
                continue
            if text != "/dev/null":
                self.redirects.append(Redirect(home, sign in _WRITES, self._moved))

    def _command(self, node: Node) -> None:
        found: list[tuple[str, bool]] = []
        parted: int | None = None
        unknown = False
        for child in [*node.named_children, *_redirects_behind(node)]:
            if child.type == "command_name":
                unknown = any(each.type in _GIVES for each in _below(child))
                self.unknown |= unknown
                found.extend(self._word(each) for each in child.named_children)
            elif _is_redirect(child):
                if parted is None and any(each.type.startswith("&>") for each in child.children):
                    parted = len(found)
                found.extend(self._word(each) for each in _targets(child)[1:])
            elif child.type not in ("comment", "variable_assignment"):
                found.append(self._word(child))
        words = tuple(text for text, _ in found)
        assigned = (each for each in node.named_children if each.type == "variable_assignment")
        texts = (_text(each) for each in assigned)
        self.said.append((*texts, *words))
        if not words:
            return
        expands = frozenset(at for at, (_, expands) in enumerate(found) if expands)
        command = Command(words, expands, self._moved, unknown=unknown)
        if parted is not None and words[parted:]:  # in dash, `ls &> f rm` is `ls & > f rm`
            self.commands.append(Command(words[parted:], moved=self._moved))
        before = len(self.commands)
        self.commands.append(command)
        self.commands.extend(_otherwise(node, command))
        self._unwrap_all(command)
        if any(each.words[:1] in _MOVES for each in self.commands[before:]):
            self._moved = True

    def _unwrap_all(self, command: Command) -> None:
        """Note every command that a wrapper may run, for refusals."""
        for words, guessed in programs.run_by(command.words):
            if len(self.commands) > _MOST:
                self.unknown = True
                return
            unknown = words[0].startswith(("$", "`")) or "{}" in words[0]  # of `xargs -I{} {}`
            self.unknown |= unknown
            inner = Command(
                words, moved=command.moved, inner=True, unknown=unknown, guessed=guessed
            )
            self.commands.append(inner)
            self._unwrap_all(inner)
        files = not programs.is_guessed(command.words)
        for script in programs.scripts_of(command.words):
            self._script(script, files=files)

    def _word(self, node: Node) -> tuple[str, bool]:
        """Return a word as the program gets it, and True if the shell would expand it."""
        source = _text(node)
        if node.type == "word" and _SIMPLE.fullmatch(source):
            return source, False
        pieces: list[str] = []
        expands = False
        for each in [node] if node.type != "concatenation" else node.children:
            text = _text(each)
            match each.type:
                case "raw_string":
                    pieces.append(text[1:-1])
                case "ansi_c_string":
                    pieces.append(_of_ansi_c(text[2:-1]))
                case "string" | "translated_string":
                    inside = text.removeprefix("$")[1:-1]
                    pieces.append(_ESCAPED_IN_QUOTES.sub(r"\1", inside))
                case _:
                    bare = _ESCAPED.sub("", text)
                    expands = expands or bool(re.search(r"[*?\[]", bare))
                    expands = expands or (not pieces and bare.startswith("~"))
                    pieces.append(_ESCAPED.sub(r"\1", text))
        return "".join(pieces), expands


def _of_ansi_c(text: str) -> str:
    """Return what a shell makes of `$'...'`, as far as escapes in Python are the same."""
    try:
        return text.encode("latin-1", "backslashreplace").decode("unicode_escape")
    except UnicodeDecodeError:
        return text


def _otherwise(node: Node, command: Command) -> Iterator[Command]:
    """Give the other commands that a command may be once variables and braces are expanded."""
    source = _text(node)
    if command.words[0].startswith("="):  # zsh: the path of a program
        yield Command((command.words[0][1:], *command.words[1:]), moved=command.moved)
    if "{" not in source and "$" not in source:
        return
    blank = _VARIABLE.sub(" ", " ".join(command.words)).split()
    words = [word for each in blank for word in _of_braces(each)]
    if words and tuple(words) != command.words:
        yield Command(tuple(words), moved=command.moved)


def _of_braces(word: str, depth: int = 0) -> list[str]:
    """Return the words that a shell makes of one with braces: `rm` and `r` of `r{m,}`."""
    found = _BRACES.search(word)
    if found is None or depth > _DEPTH:
        return [word]
    made = [word[: found.start()] + each + word[found.end() :] for each in found[1].split(",")]
    return [each for one in made[:_DEPTH] for each in _of_braces(one, depth + 1) if each]


def _targets(redirect: Node) -> list[Node]:
    """Return the words behind the sign of a redirection: a file, and further ones of its command.

    The grammar takes `git > f push` for a redirection to two files.
    """
    found = [each for each in redirect.named_children if each.type != "file_descriptor"]
    if redirect.type == "heredoc_redirect":
        found = [each for each in found if each.type in ("heredoc_start", *_WORDS)]
    return found


def _redirects_behind(command: Node) -> Iterator[Node]:
    """Give the redirections that stand behind a command, wherever the grammar has put them."""
    node: Node | None = command
    while node is not None and not (node.next_sibling and not _is_redirect(node.next_sibling)):
        behind = node.next_sibling
        while behind is not None and _is_redirect(behind):
            yield behind
            behind = behind.next_sibling
        if behind is not None:
            return
        node = node.parent


def _is_redirect(node: Node) -> bool:
    return node.type.endswith("_redirect")


# --- wrappers --------------------------------------------------------------------------------


def behind_harmless(command: Command) -> Command | None:
    """Return the command behind `timeout`, `nice`, `nohup` or `time`, if all words of that wrapper
    are understood; None for any other command."""
    words = command.words
    skipped = 0
    match words:
        case ("timeout", duration, _, *_) if _DURATION.fullmatch(duration):
            skipped = 2
        case ("nice", "-n", number, _, *_) if programs.NUMBER.fullmatch(number):
            skipped = 3
        case ("nice" | "nohup" | "time", name, *_) if name[:1] not in ("-", "!"):
            skipped = 1
    if not skipped or any(at <= skipped for at in command.expands):
        return None
    expands = frozenset(at - skipped for at in command.expands)
    return Command(words[skipped:], expands, command.moved)


def plain_script(command: Command) -> str | None:
    """Return the script of `sh -c SCRIPT`, if nothing else is given; else None."""
    match command.words:
        case (name, "-c" | "-lc", script) if name in _AT or programs.has(name, "shell"):
            return script if 2 not in command.expands else None
    return None
