"""Knows the programs that run what others of their words say. SANS-IO."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

NUMBER: Final = re.compile(r"-?\d+(\.\d+)?[a-zA-Z]?")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "mksh"})
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

#: runners of which the first word is never what they run.
_WITH_A_WORD: Final = frozenset({"flock", "chroot", "ssh"})


def base(name: str) -> str:
    """Return a program's name without its folder."""
    return name.rpartition("/")[2]


@lru_cache(maxsize=256)
def is_wrapper(words: tuple[str, ...], expands: frozenset[int]) -> bool:
    """Return True if the first words of a command do not tell what runs.

    `expands`: the places of words for which the shell puts others, that may be options.
    """
    name = base(words[0]) if words else ""
    if not name or name in _RUNNERS or name in _CODE or name in SHELLS:
        return True
    found = _INTERPRETERS.get(re.sub(r"[\d.]+$", "", name), ())
    given = list(words[1:])
    if name == "tar" and given:
        given[0] = f"-{given[0].removeprefix('-')}"  # `tar xfI` has the letters without a sign
    if found and any(words[at][0] in "*?[-" for at in expands):
        return True
    return any(_is_option(word, option) for word in given for option in found)


def run_by(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Give every command that a runner may run: which words are its own is not always known."""
    name = base(words[0])
    if name in _RUNNERS or name in ("systemd-run", "nsenter", "ssh"):
        for at in range(1, len(words)):
            yield words[at:]
            before = words[at - 1] if at > 1 else ""
            own = words[at].startswith("-") or before.startswith("-") or words[at] == "--"
            own = own or (at == 1 and name in _WITH_A_WORD)
            if not (own or _ASSIGNMENT.match(words[at]) or NUMBER.fullmatch(words[at])):
                return
    for at, word in enumerate(words):
        if name in ("find", "fd", "fdfind") and word in _EXECUTES and words[at + 1 :]:
            yield words[at + 1 :]


def scripts_of(words: tuple[str, ...]) -> Iterator[str]:
    """Give every text among the words that is run as a script."""
    name = base(words[0])
    behind = "S" if name == "env" else "c"
    if name in SHELLS or name in ("su", "script", "runuser", "flock", "env"):
        for at, word in enumerate(words):
            if at and (found := re.fullmatch(rf"-[a-zA-Z]*{behind}(.*)", word, re.DOTALL)):
                yield found[1]
                yield from words[at + 1 : at + 3]
    elif name in ("eval", "watch", "trap", "parallel"):
        own = next((at for at, word in enumerate(words) if at and not word.startswith("-")), 1)
        yield " ".join(words[own:])


def _is_option(word: str, option: str) -> bool:
    """Return True if a word is this option, with or without its value in the same word."""
    if len(option) == 2 and option.startswith("-"):  # short ones may stand together
        return bool(re.match(rf"-\w*{re.escape(option[1])}", word))
    name = word.partition("=")[0]
    return name == option or (len(name) > 2 and name[:2] == "--" and option.startswith(name))
