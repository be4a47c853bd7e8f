"""Knows the programs that run what their arguments say, such as `sudo` and `sh -c`. SANS-IO."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

NUMBER: Final = re.compile(r"-?(\d+(\.\d*)?|\.\d+)[a-zA-Z]?|0x[\da-fA-F]+|\d+([,-]\d+)+|inf")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
SHELLS: Final = frozenset({"sh", "bash", "rbash", "dash", "zsh", "ksh", "ash", "mksh", "yash"})
#: programs that run the words behind them, or what these name.
_RUNNERS: Final = frozenset(
    {
        "-",
        "!",
        "{",
        "env",
        "timeout",
        "nice",
        "nohup",
        "stdbuf",
        "time",
        "command",
        "builtin",
        "exec",
        "sudo",
    }
    | {"doas", "xargs", "setsid", "ionice", "chrt", "taskset", "unshare", "chroot", "watch"}
    | {"parallel", "strace", "ltrace", "noglob", "nocorrect", "coproc", "repeat", "busybox"}
    | {
        "toybox",
        "runuser",
        "flock",
        "prlimit",
        "caffeinate",
        "pkexec",
        "entr",
        "run0",
        "systemd-run",
    }
    | {"fakeroot", "proot", "firejail", "bwrap", "nsenter", "setpriv", "setarch", "linux32"}
    | {"linux64", "dbus-run-session", "valgrind", "rlwrap", "unbuffer", "chpst", "daemonize"}
    | {"torsocks", "proxychains", "proxychains4", "choom", "ssh-agent", "xvfb-run", "hyperfine"}
    | {"start-stop-daemon", "screen", "tmux", "capsh", "sg", "nix-shell", "hash", "gtimeout"}
    | {"gosu", "su-exec", "eatmydata", "dumb-init", "tini", "cpulimit", "numactl", "cross-env"}
    | {"setuidgid", "s6-setuidgid", "faketime", "envdir", "chronic", "nocache", "catchsegv"}
)
#: words that begin a script or other code, in which no prefix says what runs.
_CODE: Final = frozenset(
    {"eval", "source", ".", "trap", "su", "ssh", "script", "expect", "gdb", "fish", "csh", "tcsh"}
    | {"awk", "gawk", "mawk", "nawk", "alias", "at", "batch", "crontab"}
    | {"enable", "bind", "complete", "compgen", "mapfile", "readarray", "pwsh", "fc"}
    | {"read", "getopts", "let"}  # those set variables, such as PATH
)
#: program -> its options of which the value is a command.
_TAKE_A_LINE: Final = {
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
    "rg": ("--pre", "--hostname-bin"),
    "split": ("--filter",),
    "zip": ("-TT", "--unzip-command"),
    "install": ("--strip-program",),
    "man": ("-P", "--pager", "-H", "--html"),
    "sort": ("--compress-program",),
    "rsync": ("-e", "--rsh", "--rsync-path"),
}
_EXECUTES: Final = ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch")

#: commands of a shell that run a `$(...)` in the brackets of `a[...]`, even if it is quoted.
_SUBSCRIPTS: Final = frozenset({"printf", "test", "read", "let", "wait", "getopts", "unset"})
#: runners of which the first word is never what they run.
_WITH_A_WORD: Final = frozenset(
    {"flock", "chroot", "ssh", "direnv", "gosu", "su-exec", "setuidgid", "s6-setuidgid"}
    | {"faketime", "envdir"}
)
#: the options of runners that take no value.
_FLAGS: Final = {
    "sudo": "AbEeHiKknPSsVv",
    "doas": "Lns",
    "xargs": "0oprtx",
    "env": "0iv",
    "time": "apv",
    "exec": "cl",
    "command": "p",
    "setsid": "cfw",
    "strace": "cCdDfFiqtTvxyYzZ",
}
#: runners with so many words of their own that any word may begin what they run.
_ANYWHERE: Final = frozenset(
    {"bwrap", "nsenter", "firejail", "proot", "systemd-run", "start-stop-daemon", "screen", "tmux"}
    | {"hash", "gdb", "xvfb-run", "setpriv", "setarch", "coproc"}
)
#: programs of which a subcommand or option runs the words behind it; their prefix may be allowed.
_CARRIERS: Final = {
    **dict.fromkeys(("uv", "poetry", "pipenv", "pdm", "hatch", "rye", "conda"), ("run",)),
    **dict.fromkeys(("mamba", "micromamba"), ("run",)),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun", "mise"), ("exec", "x", "dlx")),
    **dict.fromkeys(("npx", "pnpx", "bunx", "uvx"), ()),
    **dict.fromkeys(("bundle", "bundler", "rbenv", "pyenv", "nodenv", "asdf", "direnv"), ("exec",)),
    "pipx": ("run",),
    "nix": ("-c", "--command"),
    "perf": ("stat", "record", "trace"),
    "git": ("run", "foreach"),
}
#: runners that may take what they run as one text.
_TEXTS: Final = frozenset(
    {"watch", "trap", "parallel", "tmux", "screen", "hyperfine", "sg", "nix-shell", "ssh", "capsh"}
    | {"alias", "mapfile", "readarray", "complete", "bind", "expect", "entr", "xvfb-run", "fish"}
    | {"csh", "tcsh", "pwsh"}
)
#: programs of which it is only guessed that one of their words is a script.
GUESSED: Final = frozenset({"git", *_TAKE_A_LINE, *_SUBSCRIPTS})
#: options of shells of which the value is no script's name.
_OF_SHELLS: Final = re.compile(r"[-+]\w*[oO]|--rcfile|--init-file")
#: options of git behind which a shell's line follows.
_OF_GIT: Final = re.compile(r"-x|-u|--exec|--extcmd|--(?:upload|receive)-pack|--\w+-filter")
#: options of git that take a text or a pattern.
_TEXTS_OF_GIT: Final = re.compile(
    r"--(?:grep|author|committer|format|pretty|message|date|since|until|after|before|trailer)="
)
#: programs that run what they read.
_READERS: Final = (
    SHELLS
    | {"fish", "csh", "tcsh", "at", "batch", "crontab", "source", ".", "ssh"}
    | {"su", "sudo", "doas", "newgrp", "chroot"}
)


def base(name: str) -> str:
    """Return a program's name without its folder."""
    return name.rpartition("/")[2]


def is_wrapper(words: tuple[str, ...]) -> bool:
    """Return True if the first words of a command do not tell what runs."""
    name = base(words[0])
    if _only_says(words):
        return False
    if not name or name in _RUNNERS or name in _CODE or name in SHELLS:
        return True
    return name in _SUBSCRIPTS and any("$(" in word or "`" in word for word in words)


def is_runner(name: str) -> bool:
    """Return True for a program that runs others, such as `env`: `run_by` returns what it runs."""
    loads = name.startswith(("ld-linux", "ld-musl", "ld.so"))
    return name in _RUNNERS or name in _CARRIERS or name == "ssh" or loads


def _only_says(words: tuple[str, ...]) -> bool:
    """Return True for `command -v NAME`, which says what would run."""
    return words[:1] == ("command",) and bool(re.match(r"-p?[vV]", "".join(words[1:2])))


def run_by(words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Give every command that a runner may run: which words are its own is not always known.

    True goes with a command whose first word is more likely the runner's own.
    """
    name = base(words[0])
    if name in _ANYWHERE:
        yield from ((words[at:], True) for at in range(1, len(words)))
    elif name in ("timeout", "gtimeout"):
        yield from ((each, False) for each in [_behind_duration(words)] if each)
    elif is_runner(name) and name not in _CARRIERS and not _only_says(words):
        yield from _behind(words, 1, first_is_own=name in _WITH_A_WORD)
    elif name in _CARRIERS:
        signs = _CARRIERS[name]
        places = [at for at, word in enumerate(words) if word in signs] if signs else [0]
        for at in places:
            yield from _behind(words, at + 1, first_is_own=name in _WITH_A_WORD)
    for at, word in enumerate(words):
        if name in ("find", "fd", "fdfind") and word in _EXECUTES and words[at + 1 :]:
            yield words[at + 1 :], False


def _behind_duration(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that `timeout` runs: those behind its options and the duration."""
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        at += 2 if words[at] in ("-s", "-k", "--signal", "--kill-after") else 1
    return words[at + 1 + (words[at : at + 1] == ("--",)) :]


def _behind(
    words: tuple[str, ...], begin: int, *, first_is_own: bool = False
) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Give each command that may begin at the place `begin` or later, as `run_by` does.

    The last one begins with the first word that can't be the runner's own. `first_is_own`: even
    the first such word is.
    """
    name = base(words[0])
    for at in range(begin, len(words)):
        before = words[at - 1] if at > begin else ""
        own = words[at].startswith("-") or _may_take(name, before) or words[at] in ("!", "{")
        own = own or bool(_ASSIGNMENT.match(words[at]) or NUMBER.fullmatch(words[at]))
        yield words[at:], own or first_is_own
        if not own and not first_is_own:
            return
        first_is_own = first_is_own and own


def _may_take(name: str, option: str) -> bool:
    """Return True for an option of a runner behind which its value may follow."""
    flags = _FLAGS.get(name)
    return option.startswith("-") and not (flags and re.fullmatch(f"-[{flags}]+", option))


def scripts_of(words: tuple[str, ...]) -> Iterator[str]:
    """Give every text among the words that is run as a script."""
    name = base(words[0])
    behind = r"(?:S|-split-string=?)" if name == "env" else "c"
    if name in SHELLS or name in ("su", "script", "runuser", "flock", "env", "capsh"):
        for at, word in enumerate(words):
            if at and (found := re.fullmatch(rf"-[a-zA-Z]*{behind}(.*)", word, re.DOTALL)):
                yield found[1]
                options = next(
                    (n for n, each in enumerate(words[at + 1 :]) if each[:1] not in "-+"), 0
                )
                yield from words[at + 1 : at + options + 3]
            elif at and word.partition("=")[0] == "--command":
                yield word.partition("=")[2]
                yield from words[at + 1 : at + 2]
    if name in ("npm", "npx", "pnpm", "yarn"):
        for at, word in enumerate(words):
            if word.partition("=")[0] in ("-c", "--call"):
                yield word.partition("=")[2]
                yield from words[at + 1 : at + 2]
    if name in ("eval", *_TEXTS):
        own = next((at for at, word in enumerate(words) if at and not word.startswith("-")), 1)
        yield " ".join(words[own:])
    if name in _TEXTS:
        yield from (word.partition("=")[2] if name == "alias" else word for word in words[1:])
    if name in _SUBSCRIPTS:
        yield from (word for word in words if "$(" in word or "`" in word)
    if name in _TAKE_A_LINE:
        for at, word in enumerate(words):
            if any(_is_option(word, option) for option in _TAKE_A_LINE[name]):
                yield word.partition("=")[2].removeprefix("exec=")
                yield from words[at + 1 : at + 2]
    if name == "git":
        yield from _scripts_of_git(words)


def _scripts_of_git(words: tuple[str, ...]) -> Iterator[str]:
    """Give every text among the words of a git command that may be run as a script."""
    config = words.index("config") if "config" in words else len(words)
    for at, word in enumerate(words):
        value = re.match(r"(?:[\w.-]+=)?!(.*)|--[\w-]+=(.*)", word, re.DOTALL)
        if value and not _TEXTS_OF_GIT.match(word):
            yield value[1] or value[2] or ""
        if at and words[at - 1] == "-c":
            yield word.partition("=")[2]
        if at > config:
            yield word
        if own := re.match(r"(?:-[Oxu]|ext::)(.+)", word, re.DOTALL):
            yield own[1]
        if at and (_OF_GIT.fullmatch(words[at - 1]) or words[at - 1] in _CARRIERS["git"]):
            yield word


def reads_code(words: tuple[str, ...]) -> bool:
    """Return True for a command that runs what it reads: what it is given to read is code."""
    name = base(words[0])
    if name not in _READERS:
        return False
    if name in ("at", "batch", "crontab"):
        return True
    given = [
        word
        for before, word in pairwise(words)
        if not word.startswith(("-", "+")) and not (name in SHELLS and _OF_SHELLS.fullmatch(before))
    ]
    streamed = any(sign in word for word in given for sign in ("/dev/", "/proc/", "<("))
    if name in ("source", ".", "ssh"):
        return streamed or (name == "ssh" and len(given) == 1)
    scripted = any(re.fullmatch(r"-[a-zA-Z]*c", word) for word in words[1:])
    return (not given or "-s" in words or streamed) and not scripted


def _is_option(word: str, option: str) -> bool:
    """Return True if a word is this option, with or without its value in the same word."""
    if len(option) == 2 and option.startswith("-"):  # short ones may stand together
        return bool(re.match(rf"-\w*{re.escape(option[1])}", word))
    name = word.partition("=")[0]
    return name == option or (len(name) > 2 and name[:2] == "--" and option.startswith(name))
