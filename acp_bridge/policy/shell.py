"""Takes a command line apart with the grammar of bash. SANS-IO.

- A line is *plain* if nothing is in it but commands with literal words, joined by operators, and
  redirections. Only then can a rule allow it: what is not understood is not plain (invariant A1).
- Its commands are all that it would run, however deep they stand, and what a wrapper such as `sudo`
  or `sh -c` runs: so a refusal finds them. A text in quotes or in a heredoc is none.
- Words are those that the program gets: quotes and backslashes are taken away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

#: characters of a line that is looked at; a longer one is not plain.
LONGEST: Final = 16 * 1024
#: how deep scripts in scripts (`sh -c "sh -c ..."`) are followed.
_DEPTH: Final = 8
#: the kinds of nodes of a plain line; any other stands for what can run or expand something.
_PLAIN: Final = frozenset(
    {"program", "list", "pipeline", "command", "command_name", "word", "string", "string_content"}
    | {"raw_string", "number", "concatenation", "comment", "redirected_statement"}
    | {"file_redirect", "file_descriptor"}
)
#: operators and other signs of a plain line.
_SIGNS: Final = frozenset(
    {"&&", "||", ";", "|", "|&", "&", "\n", '"', "'", ">", ">>", "<", ">&", "<&", "&>", "&>>", ">|"}
)
_WRITES: Final = frozenset({">", ">>", "&>", "&>>", ">|", ">&"})
_WORDS: Final = frozenset({"word", "string", "raw_string", "number", "concatenation"})
#: a backslash at the end of a line, which joins it to the next; one behind a backslash does not.
_JOIN: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\\n")
_ODD: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]|[^\x00-\x7f\S]")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED_IN_QUOTES: Final = re.compile(r'\\([\\"$`])')
_DURATION: Final = re.compile(r"\d+(\.\d+)?[smhd]?")
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?[a-zA-Z]?")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "mksh"})
#: programs that run the words behind them, or what these name.
_RUNNERS: Final = frozenset(
    {"env", "timeout", "nice", "nohup", "stdbuf", "time", "command", "builtin", "exec", "sudo"}
    | {"doas", "xargs", "setsid", "ionice", "chrt", "taskset", "unshare", "chroot", "watch"}
    | {"parallel", "strace", "ltrace", "noglob", "nocorrect", "coproc", "repeat", "busybox"}
    | {"toybox", "runuser", "flock", "prlimit", "caffeinate", "pkexec", "entr"}
)
#: words that begin a script or other code, in which no prefix says what runs.
_CODE: Final = frozenset(
    {"eval", "source", ".", "trap", "su", "ssh", "script", "expect", "gdb", "fish", "csh", "tcsh"}
    | {"awk", "gawk", "mawk", "nawk", "alias", "nsenter", "bwrap", "at", "batch", "crontab"}
    | {"enable", "hash", "bind", "complete", "mapfile", "readarray", "systemd-run"}
)
#: interpreters, and the options behind which code follows.
_INTERPRETERS: Final = {
    "python": ("-c",),
    "perl": ("-e", "-E"),
    "ruby": ("-e",),
    "node": ("-e", "-p", "--eval", "--print"),
    "nodejs": ("-e", "-p", "--eval", "--print"),
    "bun": ("-e", "-p", "--eval", "--print"),
    "deno": ("eval",),
    "php": ("-r", "-B", "-R", "-E"),
    "lua": ("-e",),
    "osascript": ("-e",),
    "find": (
        "-exec",
        "-execdir",
        "-ok",
        "-okdir",
        "-delete",
        "-fprint",
        "-fprint0",
        "-fprintf",
        "-fls",
    ),
    "git": ("-c", "--config-env", "--exec-path", "--upload-pack", "--receive-pack"),
    "tar": (
        "-I",
        "-F",
        "--to-command",
        "--use-compress-program",
        "--checkpoint-action",
        "--info-script",
        "--new-volume-script",
        "--rsh-command",
    ),
    "fd": ("-x", "-X", "--exec", "--exec-batch"),
    "fdfind": ("-x", "-X", "--exec", "--exec-batch"),
    "rg": ("--pre",),
    "sort": ("--compress-program",),
    "rsync": ("-e", "--rsh", "--rsync-path"),
}
_EXECUTES: Final = ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch")


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its words, the program's name first; what expands stands as it is written."""

    words: tuple[str, ...]
    #: which of the words, by place, have an unquoted `*`, `?` or `[`, or begin with `~`.
    expands: frozenset[int] = frozenset()
    #: a `cd` or the like comes before, so that it isn't known what its relative paths mean.
    moved: bool = False

    @property
    def is_wrapper(self) -> bool:
        """True if the first words do not tell what runs."""
        name = base(self.words[0]) if self.words else ""
        if not name or 0 in self.expands:
            return True
        if name in _RUNNERS or name in _CODE or name in _SHELLS:
            return True
        found = _INTERPRETERS.get(re.sub(r"[\d.]+$", "", name), ())
        return any(_is_option(word, option) for word in self.words[1:] for option in found)


@dataclass(frozen=True, slots=True)
class Redirect:
    """A file that a line reads or writes."""

    path: str
    writes: bool
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A command line that was taken apart."""

    plain: bool
    #: False if the grammar does not know it; `raw` are its words then, and there are no commands.
    parsed: bool
    #: the commands of which each must be allowed, those of a harmless wrapper in its place.
    parts: tuple[Command, ...] = ()
    #: every command, nested and unwrapped.
    commands: tuple[Command, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    raw: tuple[str, ...] = ()


def base(name: str) -> str:
    """Return a program's name without its folder."""
    return name.rpartition("/")[2]


def line(text: str, depth: int = 0, *, moved: bool = False) -> Line:
    """Take a command line apart; `moved`: it is not known what its relative paths mean."""
    raw = tuple(re.sub(r"[\"'\\]", "", text[: 4 * LONGEST]).replace(";", " ; ").split())
    joined = _JOIN.sub(r"\1", text)
    if len(text) > LONGEST or depth > _DEPTH:
        return Line(plain=False, parsed=False, raw=raw)
    root = _parser().parse(joined.encode(errors="replace")).root_node
    if root.has_error:
        return Line(plain=False, parsed=False, raw=raw)
    reader = _Reader(depth, moved=moved)
    reader.read(root)
    odd = bool(_ODD.search(text)) or (joined != text and "'" in text)
    plain = reader.plain and not odd and bool(reader.parts)
    return Line(
        plain, True, tuple(reader.parts), tuple(reader.commands), tuple(reader.redirects), raw
    )


def words_of(pattern: str) -> list[str]:
    """Return the words of a rule's pattern, which `policy.config` has checked."""
    import shlex

    return shlex.split(pattern)


@cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


class _Reader:
    """Walks over the nodes of one line."""

    def __init__(self, depth: int, *, moved: bool) -> None:
        self.plain = True
        self.parts: list[Command] = []
        self.commands: list[Command] = []
        self.redirects: list[Redirect] = []
        self._depth = depth
        self._moved = moved

    def read(self, node: Node) -> None:
        """Collect what a node and all below it run, read and write."""
        known = _PLAIN if node.is_named else _SIGNS
        self.plain = self.plain and node.type in known and not node.is_missing
        if node.type == "file_redirect":
            self._redirect(node)
        elif node.type == "command":
            self._command(node)
        for child in node.children:
            self.read(child)

    def _redirect(self, node: Node) -> None:
        sign = next((each.type for each in node.children if not each.is_named), "")
        targets = [each for each in node.named_children if each.type != "file_descriptor"]
        for target in targets:
            text, expands = self._word(target)
            if sign in (">&", "<&") and (target.type == "number" or text == "-"):
                continue
            if expands and not text.startswith("~"):
                self.plain = False
            if text != "/dev/null":
                self.redirects.append(Redirect(text, sign in _WRITES, self._moved))

    def _command(self, node: Node) -> None:
        found: list[tuple[str, bool]] = []
        for child in node.named_children:
            if child.type == "command_name":
                found.extend(self._word(each) for each in child.named_children)
            elif child.type not in ("file_redirect", "comment", "variable_assignment"):
                found.append(self._word(child))
        words = tuple(text for text, _ in found)
        if not words:
            return
        expands = frozenset(at for at, (_, expands) in enumerate(found) if expands)
        command = Command(words, expands, self._moved)
        self.commands.append(command)
        self._unwrap_all(command)
        self._part(command)
        if words[0] in ("cd", "pushd", "popd", "chdir"):
            self._moved = True

    def _part(self, command: Command, depth: int = 0) -> None:
        """Note a command that must be allowed, or what its harmless wrapper runs."""
        inner = _behind_harmless(command) if depth < _DEPTH else None
        if inner is not None:
            self._part(inner, depth + 1)
        elif (script := _plain_script(command)) is not None:
            read = line(script, self._depth + 1)
            self.plain = self.plain and read.plain
            self.parts.extend(self._here(read.parts))
            self.redirects.extend(replace(each, moved=self._moved) for each in read.redirects)
        else:
            self.parts.append(command)

    def _unwrap_all(self, command: Command) -> None:
        """Note every command that a wrapper may run, for refusals."""
        for words in _run_by(command.words):
            inner = Command(words, moved=command.moved)
            self.commands.append(inner)
            if len(self.commands) < 1000:
                self._unwrap_all(inner)
        for script in _scripts_of(command.words):
            read = line(script, self._depth + 1)
            self.commands.extend(self._here(read.commands))
            if not read.parsed:
                self.commands.extend(Command(read.raw[at:]) for at in range(len(read.raw)))

    def _here(self, commands: Sequence[Command]) -> Iterator[Command]:
        for each in commands:
            yield replace(each, moved=each.moved or self._moved)

    def _word(self, node: Node) -> tuple[str, bool]:
        """Return a word as the program gets it, and True if the shell would expand it.

        One with a brace, or that begins with `=`, makes the line not plain.
        """
        pieces: list[str] = []
        expands = False
        for each in [node] if node.type != "concatenation" else node.children:
            text = (each.text or b"").decode(errors="replace")
            match each.type:
                case "raw_string":
                    pieces.append(text[1:-1])
                case "string":
                    pieces.append(_ESCAPED_IN_QUOTES.sub(r"\1", text[1:-1]))
                case _:
                    bare = _ESCAPED.sub("", text)
                    expands = expands or bool(re.search(r"[*?\[]", bare))
                    expands = expands or (not pieces and bare.startswith("~"))
                    if not pieces and bare.startswith("="):
                        self.plain = False
                    pieces.append(_ESCAPED.sub(r"\1", text))
        word = "".join(pieces)
        source = (node.text or b"").decode(errors="replace")
        if node.type in ("word", "concatenation") and re.search(r"[{}]", source) and word != "{}":
            self.plain = False
        return word, expands


# --- wrappers --------------------------------------------------------------------------------


def _behind_harmless(command: Command) -> Command | None:
    """Return what a wrapper runs whose words are wholly understood; None for any other command."""
    words = command.words
    skipped = 0
    match words:
        case ("timeout", duration, _, *_) if _DURATION.fullmatch(duration):
            skipped = 2
        case ("nice", "-n", number, _, *_) if _NUMBER.fullmatch(number):
            skipped = 3
        case ("nice" | "nohup" | "time", name, *_) if not name.startswith("-"):
            skipped = 1
    if not skipped or any(at <= skipped for at in command.expands):
        return None
    expands = frozenset(at - skipped for at in command.expands)
    return Command(words[skipped:], expands, command.moved)


def _plain_script(command: Command) -> str | None:
    """Return the script of `sh -c SCRIPT`, if nothing else is given; else None."""
    match command.words:
        case (shell, "-c" | "-lc", script) if shell in _SHELLS and 2 not in command.expands:
            return script
        case ("/bin/sh" | "/bin/bash" | "/usr/bin/bash", "-c" | "-lc", script):
            return script if 2 not in command.expands else None
    return None


def _run_by(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Give every command that a runner may run: which words are its own is not always known."""
    name = base(words[0])
    if name in _RUNNERS:
        for at in range(1, len(words)):
            yield words[at:]
            before = words[at - 1] if at > 1 else ""
            own = words[at].startswith("-") or before.startswith("-") or words[at] == "--"
            if not (own or _ASSIGNMENT.match(words[at]) or _NUMBER.fullmatch(words[at])):
                return
    for at, word in enumerate(words):
        if name in ("find", "fd", "fdfind") and word in _EXECUTES and words[at + 1 :]:
            yield words[at + 1 :]


def _scripts_of(words: tuple[str, ...]) -> Iterator[str]:
    """Give every text among the words that is run as a script."""
    name = base(words[0])
    if name in _SHELLS or name == "su":
        for at, word in enumerate(words[:-1]):
            if at and re.fullmatch(r"-[a-zA-Z]*c", word):
                yield words[at + 1]
    elif name in ("eval", "watch", "trap", "parallel"):
        yield " ".join(word for word in words[1:] if not word.startswith("-"))


def _is_option(word: str, option: str) -> bool:
    """Return True if a word is this option, with or without its value in the same word."""
    if len(option) == 2 and option.startswith("-"):  # short ones may stand together
        return bool(re.match(rf"-[a-zA-Z]*{re.escape(option[1])}", word))
    return word == option or word.startswith(f"{option}=")
