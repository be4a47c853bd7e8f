"""Decides what "always allow" means for a command: its first words, or exactly this command.

Invariants
- Only programs and subcommands that are known here have a grant by their first words: whatever
  options follow, they look at the project, build it or test it, and run no other command of the
  model's. All else is allowed only as exactly the same text.
- A command that does more than one thing, or whose text the shell changes (operators,
  redirections, substitutions, several lines), that leads out of the folder by a path, or that names
  the file of keys, is allowed only as exactly the same text, too.
- The words are compared as they are written: `/usr/bin/git status` is not `git status`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from agent.tools import Grant
from agent.tools.cards import visible
from agent.tools.trusted_files import KEYS_FILE

_SHELL_SYNTAX = re.compile(r"[;&|<>()$`\r\n]")
_QUOTES = str.maketrans("", "", "\"'\\")
#: an argument that may lead out of the folder: an absolute path, one with `..` or `~`, as a word of
#: its own or as the value of an option, or a pattern that `..` may fit
_LEADS_OUT = re.compile(
    r"(^|[=:,@]|^-[A-Za-z]+)[/~]|\.\./|(^|[=:,@/]|^-[A-Za-z]+)\.\.$|[{\[?]|\.\*"
)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
#: folders in which a program is what its name says
_SYSTEM = ("", "/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")


def _table(*lines: str) -> dict[tuple[str, ...], frozenset[str]]:
    """Returns the subcommands by the words before them, from lines `words before: subcommands`."""
    found: dict[tuple[str, ...], frozenset[str]] = {}
    for line in lines:
        words, _, subcommands = line.partition(":")
        found[tuple(words.split())] = frozenset(subcommands.split())
    return found


#: programs that need no second word
_ALONE = frozenset(
    """basename black cat clang-format cmp comm cut date df diff dirname du echo egrep false fgrep
    flake8 free gofmt grep head id isort jq ls md5sum mkdir mypy nl nproc paste printf ps pwd pytest
    readlink realpath rustfmt seq sha1sum sha256sum shellcheck sleep stat tail touch tr true tsc
    uname uptime wc which whoami""".split()  # noqa: SIM905
)
#: subcommands, by the words before them; with `*` every name is one
_SUBCOMMANDS: Mapping[tuple[str, ...], frozenset[str]] = _table(
    "apt: list search show",
    "brew: info list search",
    "bun: test",
    "bun run: *",
    "cargo: bench build check clippy doc fmt metadata test tree",
    "docker: images info inspect logs ps version",
    "dotnet: build test",
    "gh issue: list status view",
    "gh pr: checks diff list status view",
    "gh release: list view",
    "gh repo: list view",
    "gh run: list view",
    "gh workflow: list view",
    "git: add blame branch cat-file commit describe diff log ls-files ls-tree merge-base rev-list"
    " rev-parse shortlog show status switch tag",
    "go: build doc fmt list test version vet",
    "gradle: assemble build check tasks test",
    "gradlew: assemble build check tasks test",
    "make: *",
    "mvn: compile package test validate verify",
    "mvnw: compile package test validate verify",
    "npm: ls outdated test view",
    "npm run: *",
    "pip: check freeze list show",
    "pip3: check freeze list show",
    "pnpm: list outdated test",
    "pnpm run: *",
    "python -m: black flake8 isort mypy pytest ruff unittest",
    "ruff: check format",
    "swift: build test",
    "systemctl: status",
    "uv pip: check freeze list show tree",
    "yarn: test",
    "yarn run: *",
)
#: by program: arguments with which it does something else after all, runs another program or
#: writes where it likes. A tool of many targets takes no second one.
_EXCEPT: Mapping[str, re.Pattern[str]] = {
    "cargo": re.compile(r"--(config|manifest)|-[CZ]"),
    "date": re.compile(r"-s|--s"),
    "git": re.compile(r"--(ou|exe|ext|textc|fi)|-O"),
    "go": re.compile(r"--?(C|exec|toolexec|vettool|overlay|modfile)(=|$)"),
    "gradle": re.compile(r"[^-]|-[IbcpgPD]|--(init|build|settings|project|gradle|include)"),
    "make": re.compile(r"[^-]|-[A-Za-z]*[fCIEoW]|--(f|m|e|di|inc|as|ol|wh|ne)"),
    "mvn": re.compile(r"[^-]|-[fsgDPt]|--(f|s|g|d|a|t)"),
    "mypy": re.compile(r"--(python-e|config|custom|install)"),
    "npm": re.compile(r"-C|--(prefix|script|node|user|global|shell|init|viewer|c)"),
    "pnpm": re.compile(r"-C|--(dir|script|node|shell|c)"),
    "yarn": re.compile(r"--(cwd|script|node|use)"),
}
_EXCEPT_AS = {"gradlew": "gradle", "mvnw": "mvn"}
_PYTHON = re.compile(r"(python|pypy)[\d.]*")
#: programs that a project brings with it, by their own names in the project's folder
_WRAPPERS = frozenset(["./gradlew", "./mvnw"])

#: characters of a command in an option's name
_SHOWN = 60


def grant(command: str) -> Grant:
    """Returns what "always allow" means when the user is asked about `command`."""
    words = first_words(command)
    if words:
        return Grant(("shell", *words), f"`{' '.join(words)} …`")
    shown = visible(" ".join(command.split()))
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    return Grant(("shell", command), f"exactly `{shown}`")


def first_words(command: str) -> tuple[str, ...]:
    """Returns the words that say what a known command does; empty if only the whole does."""
    if _SHELL_SYNTAX.search(command) or KEYS_FILE in command.translate(_QUOTES).lower():
        return ()
    words = re.split(r"[ \t]+", command.strip(" \t"))
    program = _known_program(words[0])
    count = _count(program, words)
    if not count:
        return ()
    rest = [word.translate(_QUOTES) for word in words[count:]]
    unfit = _EXCEPT.get(_EXCEPT_AS.get(program, program))
    if any(_LEADS_OUT.search(word) or (unfit and unfit.match(word)) for word in rest):
        return ()
    return tuple(words[:count])


def _known_program(word: str) -> str:
    """Returns the name of the program that a word stands for; empty if it is some other file."""
    folder, name = os.path.split(word)
    if folder not in _SYSTEM and word not in _WRAPPERS:
        return ""
    return "python" if _PYTHON.fullmatch(name) else name


def _count(program: str, words: list[str]) -> int:
    """Returns how many words say what the command does; 0 if that is not known."""
    if program in _ALONE:
        return 1
    named = [program, *words[1:3]]
    for count in (3, 2):
        known = _SUBCOMMANDS.get(tuple(named[: count - 1]), ())
        if len(named) < count or not known:
            continue
        if named[count - 1] in known or ("*" in known and _NAME.fullmatch(named[count - 1])):
            return count
    return 0
