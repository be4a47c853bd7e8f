"""Knows what common programs do with the words behind their names. SANS-IO.

Of a program that is not known here, any word may be what it runs or writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from acp_bridge.features.rules import wrappers
from acp_bridge.features.rules.known_commands import KEEPING, READING

_CONTAINING: Final = (
    *("docker", "docker-compose", "podman", "nerdctl", "kubectl", "oc", "crictl", "lxc", "vagrant"),
)
#: programs of which only some subcommands run other words, those of containers among them.
_SOMETIMES: Final = {
    **dict.fromkeys(_CONTAINING, frozenset({"run", "exec", "debug", "shell", "ssh"})),
    "cargo": frozenset({"watch"}),
    "nix": frozenset({"run"}),
}
#: programs that put what their other words name into the folder that the last one names.
_COPYING: Final = frozenset({"cp", "mv", "install", "rsync", "scp"})
#: the most pairs of folder and file of a copying command that are listed; of more, it may replace
#: anything.
_MOST_PAIRS: Final = 4000
#: options of copying programs: the next word is the folder; the same word has it; the last name is
#: that of the copy, and not a folder.
_TAKES_TARGET: Final = re.compile(r"-\w*t|--target-directory")
_TARGET: Final = re.compile(r"-[a-su-zA-Z]*t(.+)|--target-directory=(.+)", re.DOTALL)
_AS_TARGET: Final = re.compile(r"-\w*T|--no-target-directory")
#: programs that run what they read, in a language of their own.
_INTERPRETING: Final = frozenset(
    {"perl", "ruby", "node", "nodejs", "php", "lua", "osascript", "bun", "deno", "make", "gmake"}
    | {"xargs", "parallel", "ed", "ex", "vi", "vim", "nvim", "emacs", "gdb", "awk", "tclsh"}
)


def only_reads(words: tuple[str, ...]) -> bool:
    """Return True for a command that changes nothing that its words name."""
    return wrappers.base(words[0]) in READING


def may_run_any(words: tuple[str, ...]) -> bool:
    """Return True for a command of which it is not known which of its words it runs."""
    name = wrappers.base(words[0])
    if name in _SOMETIMES:
        return not _SOMETIMES[name].isdisjoint(words)
    return not (name in READING or name in KEEPING or wrappers.is_runner(name))


def interprets(words: tuple[str, ...]) -> bool:
    """Return True for a command that may run what it reads, in a language of its own."""
    name = wrappers.base(words[0]).rstrip("0123456789.")
    return name in _INTERPRETING or name == "python"


def gives_a_name(words: tuple[str, ...]) -> bool:
    """Return True for a command that gives a file a second name: a program, perhaps."""
    return copies(words) or wrappers.base(words[0]) in ("ln", "link")


def copies(words: tuple[str, ...]) -> bool:
    """Return True for a command that copies or moves files into a folder."""
    return wrappers.base(words[0]) in _COPYING


def written_by_copying(words: tuple[str, ...]) -> Iterator[str]:
    """Give the path of each file and folder that a copying command makes, replaces or takes away.

    A command that copies all that a folder has may also replace the `.git` where it copies to.
    """
    name = wrappers.base(words[0])
    named = [word for word in words[1:] if not word.startswith("-")]
    targets = [word for before, word in pairwise(words) if _TAKES_TARGET.fullmatch(before)]
    targets += [found[1] or found[2] for word in words if (found := _TARGET.fullmatch(word))]
    whole = any(_AS_TARGET.match(word) for word in words)
    if len(targets) * len(named) > _MOST_PAIRS:
        yield from (f"{target}/.git/config" for target in targets[:1])
        return
    for target in dict.fromkeys([*targets, *named[-1:]]):
        for source in dict.fromkeys(named):
            if source == target:
                continue
            last = source.rstrip("/").rpartition("/")[2]
            if whole:
                yield from (target, f"{target}/.git", *(named if name == "mv" else ()))
                break
            if last in ("", ".", "..") or (name == "rsync" and source.endswith("/")):
                yield from (target, f"{target}/.git")
            else:
                yield f"{target}/{last}"
            if name == "mv":
                yield source
