"""The folder in which the lines run, and the programs that they find: each notes how it was called.

The folder has the same path and content for the rules, which look at it, and in the sandbox, where
the lines run. No program there does what its name says; some do what could harm: git, tar, sort,
find and python3 run or write what an option, a variable or their stdin tells them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

SHELLS: Final = ("bash", "dash", "zsh")
#: where the real shells are in the sandbox, and where the programs are: all that PATH names.
SHELLS_AT: Final = "/shells"
PROGRAMS_AT: Final = "/programs"
PROGRAMS: Final = (
    *("ls", "cat", "head", "grep", "nl", "wc", "sort", "find", "git", "tar", "python3"),
    *("echo", "printf", "test", "[", "pwd", "true", "false", "timeout", "nice", "nohup", "time"),
    *("evil", "other", "rm", "touch", "push", "log", "a.txt", "src", "f"),
)
#: begins what a program runs or would write besides what its words plainly say.
RAN: Final = "!ran"
#: begins each command in a shell's trace; a letter for the shell follows.
SIGN: Final = "\1"
#: files of the project; a name of which the contents don't matter.
FILES: Final = (
    *("a.txt", "README.md", "x", "-xevil", "]", "2", "ü.txt", ".hidden", "10", "$f"),
    *("src/a.py", "src/b.py", "src/secret", "src/sub/c.py", "src/sub/secret", "src/x"),
    *("tests/test_a.py", "tests/x", "out/f", "sub dir/x y.txt", "sub dir/x", "../home/secret"),
)
LINKS: Final = {"away": "../home", "src/away": "../../home", "out/link": "../tests", "in": "src"}

_PROGRAM: Final = r"""#!/shells/dash
name=${0##*/} called=${0#/programs/}
note() { cd -P . 2>/dev/null; printf '%s\0' "$PWD" $# "$@" >>'@scratch@/log'; }
ran() { note '!ran' "$@"; set -f; $1; }
here() {
    value=
    for word do
        if [ "$value" ]; then cd "$word" 2>/dev/null || exit 128; value=
        else case $word in -C) value=1;; -*) ;; *) return;; esac; fi
    done
}
# options PROGRAMS VALUES WORD...: runs the value of each of the letters PROGRAMS, bundled or not;
# the letters VALUES take the rest of their word, or the next one.
options() {
    runs=$1 takes=$2 value=; shift 2
    for word do
        if [ "$value" = run ]; then ran "$word"; value=; continue; fi
        if [ "$value" ]; then value=; continue; fi
        case $word in
            --) return;;
            --exec=*|--use-compress-program=*|--compress-program=*|--to-command=*|--open-files=*)
                ran "${word#*=}"; continue;;
            --exec|--use-compress-program|--compress-program|--to-command) value=run; continue;;
            --*|[!-]*|-) continue;;
        esac
        rest=${word#-}
        while [ "$rest" ]; do
            letter=${rest%"${rest#?}"} rest=${rest#?}
            case $letter in
                =) exit 129;; # as git and getopt: no option of that name
                ["$runs"]) if [ "$rest" ]; then ran "$rest"; else value=run; fi; break;;
                ["$takes"]) [ "$rest" ] || value=skip; break;;
            esac
        done
    done
}
case $name in
    timeout) shift; exec "$@";;
    nice) [ "$1" = -n ] && shift 2; exec "$@";;
    nohup|time) exec "$@";;
    git) here "$@";;
esac
note "$called" "$@"
case $name in
    git)
        pager=${GIT_PAGER-${PAGER-}}
        case $pager in ''|cat) ;; *) ran "$pager";; esac
        for word do case $word in rebase|clone|grep|commit|log) break;; esac; done
        case $word in
            rebase) options x XCsS "$@";;
            clone) options u bocj "$@";;
            grep) for word do case $word in -e*|--*) ;; -*O?*) ran "${word#*O}";; esac; done;;
        esac;;
    tar) options IF fCTXbgHKLNV "$@";;
    sort)
        for word do case $word in -o?*) ran "write ${word#-o}";; -o|--out*) ran write;; esac; done
        options '' kotST "$@";;
    find) for word do case $word in -exec*|-ok*|-delete|-fprint*) ran "$word";; esac; done;;
    python3)
        case $#${1-} in 0|?-) ran stdin;; esac
        for word do case $word in -*c*) ran "$word";; [!-]*) break;; esac; done;;
    cat) if [ $# = 0 ]; then while IFS= read -r line; do printf '%s\n' "$line"; done; exit; fi;;
esac
printf 'x\n' 2>/dev/null
[ $(($# % 3)) != 2 ]
"""
_SHELL: Final = """#!/shells/dash
PS4='@sign@'; export PS4
exec /shells/@shell@ -x "$@" 2>>'@scratch@/trace'
"""


def home(scratch: str) -> str:
    return f"{scratch}/home"


def project(scratch: str) -> str:
    return f"{scratch}/project"


def furnish(scratch: str) -> None:
    """Put the project and the home into an empty folder."""
    root = Path(project(scratch))
    for name in ("src/sub", "tests", "out", "sub dir", "../home"):
        (root / name).mkdir(parents=True)
    for name in FILES:
        (root / name).write_text(f"{name}\n")
    for name, to in LINKS.items():
        (root / name).symlink_to(to)
    for name in ("evil", "src/evil"):
        (root / name).write_text(programs(scratch)["evil"])
        (root / name).chmod(0o755)


def programs(scratch: str) -> dict[str, str]:
    """The text of each program by its name: dash runs them."""
    found = dict.fromkeys(PROGRAMS, _PROGRAM.replace("@scratch@", scratch))
    for name in ("sh", *SHELLS):
        shell = "dash" if name == "sh" else name
        text = _SHELL.replace("@sign@", SIGN + shell[0]).replace("@shell@", shell)
        found[name] = text.replace("@scratch@", scratch)
    return found


def environment(scratch: str, shell: str) -> dict[str, str]:
    return {
        "PATH": PROGRAMS_AT,
        "HOME": home(scratch),
        "PWD": project(scratch),
        "LC_ALL": "C.UTF-8",
        "PS4": SIGN + shell[0],
        "TMPPREFIX": f"{scratch}/tmp",
    }


def seen(scratch: str) -> dict[str, tuple[int, int]]:
    """What is there, with the size and the time of the last change of each file."""
    found: dict[str, tuple[int, int]] = {}
    waiting = [project(scratch), home(scratch)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                plain = entry.is_file(follow_symlinks=False)
                state = entry.stat(follow_symlinks=False)
                found[entry.path] = (state.st_size, state.st_mtime_ns) if plain else (-1, -1)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return found
