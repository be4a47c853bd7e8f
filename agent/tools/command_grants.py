"""Decides what "always allow" means for a command: its first words, or exactly this command.

Invariants
- A command that does more than one thing, or whose text the shell changes (operators,
  redirections, substitutions, several lines), is allowed only as exactly the same text.
- The same holds for a program that does what its arguments say: `sudo`, `sh -c`, `find`, `rm`.
- The words are compared as they are written: `/tmp/git status` is not `git status`.
"""

from __future__ import annotations

import os
import re

from agent.tools import Grant
from agent.tools.cards import visible

_SHELL_SYNTAX = re.compile(r"[;&|<>()$`\r\n]")
_PROGRAM = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_.+/-]*")
_SUBCOMMAND = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")

#: programs whose second word says what they do
_WITH_SUBCOMMAND = frozenset(
    """apt apt-get brew bun bundle cargo composer conda deno docker dotnet flutter gem gh git glab
    go gradle gradlew helm hg just kubectl make mvn mvnw nix npm pip pip3 pipenv pnpm podman poetry
    hatch pdm pixi rails rake rustup rye stack svn swift systemctl terraform uv yarn
    zig""".split()  # noqa: SIM905
)
#: programs and second words whose third word says what they do
_WITH_TWO = frozenset(
    [("npm", "run"), ("pnpm", "run"), ("yarn", "run"), ("bun", "run"), ("uv", "pip")]
    + [("gh", word) for word in ("issue", "pr", "release", "repo", "run", "workflow")]
)
#: second words that run the words after them, or have them run later
_RUN_ANYTHING = frozenset(
    """alias api bisect compose config develop difftool dlx eval exec exec:exec exec:java explore
    filter-branch mergetool rebase run runner set shell submodule x""".split()  # noqa: SIM905
)
#: programs whose arguments decide what they do, or to what
_BY_ARGUMENTS = frozenset(
    """. [ alias ash awk bash builtin busybox chgrp chmod chown chroot command cp crontab csh curl
    dash dd doas ed eval ex exec expect fd find fish gawk gdb halt install java kill killall ksh ln
    lua mawk mkfs mv nawk nc ncat nice node nohup npx osascript parallel perl php pipx pkexec pkill
    poweroff psql mysql reboot rm rmdir rsync ruby runuser scp screen script sed setsid sftp sh
    shred shutdown source sqlite3 ssh stdbuf strace su sudo tar tee time timeout tmux trap truncate
    ts-node tsx unlink unshare uvx vi vim watch wget xargs zsh env bunx doit nvim emacs set export
    arch bwrap chrt direnv elixir entr firejail flock ghci groovy guile ionice jshell julia less
    ltrace man mise more nix-shell nsenter numactl perf pwsh R racket rg Rscript scala setarch sort
    start-stop-daemon swipl systemd-run taskset tclsh valgrind xvfb-run
    """.split()  # noqa: SIM905
)
_PYTHON = re.compile(r"(python|pypy)[\d.]*")
#: Python modules that run the words after them
_PYTHON_RUN_ANYTHING = frozenset(["cProfile", "code", "pdb", "profile", "runpy", "timeit", "trace"])

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
    """Returns the words that say what a simple command does; empty if only the whole does."""
    if _SHELL_SYNTAX.search(command):
        return ()
    words = re.split(r"[ \t]+", command.strip(" \t"))
    if not _PROGRAM.fullmatch(words[0]):
        return ()
    program = os.path.basename(words[0])
    second, third, *_ = [*words[1:], "", ""]
    if _PYTHON.fullmatch(program):
        count = 3 if second == "-m" and third not in _PYTHON_RUN_ANYTHING else 0
        subcommands = [third]
    else:
        count = _count(program, second)
        subcommands = words[1:count]
    if len(words) < count or not all(map(_SUBCOMMAND.fullmatch, subcommands)):
        return ()
    return tuple(words[:count])


def _count(program: str, second: str) -> int:
    """Returns how many words say what the program does."""
    if program in _BY_ARGUMENTS:
        return 0
    if (program, second) in _WITH_TWO:
        return 3
    if program in _WITH_SUBCOMMAND:
        return 0 if second in _RUN_ANYTHING else 2
    return 1
