"""Knows what programs do with the words behind their names, and which of them run others. SANS-IO.

Of a program that is not known here, any word may be what it runs or writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise, product
from typing import Final

#: what each program does, by its name:
#: - looks: it only reads what its words name, or does nothing with it
#: - keeps: it writes or keeps what it is given, and runs none of its words
#: - listed: nothing of it is harmless that `known_commands` doesn't have
#: - project: it runs the code of the project: a rule for it allows whatever that says
#: - runs: the words behind it, or what they name; any: any of them may begin what it runs;
#:   first: the first word that may is never that; flags: its options that take no value
#: - carries: it runs the words behind one of these, or behind its name; its prefix may be allowed
#: - sometimes: only with one of these it runs others of its words, in a container for example
#: - code: its words are code, in which no prefix says what runs; text: each may be a whole script
#: - shell; script: its options of which the value is a script; perhaps: the value may be one
#: - reads: it runs what it is given to read; interprets: that, in a language of its own
#: - calculates: a shell runs a `$(...)` in the brackets of `a[...]` among its words, even if quoted
#: - executes: it runs what stands behind `-exec`
#: - copies: it puts what its words name into the folder that the last one names
#: - names: it gives a file a second name
_TABLE: Final = """
: [ apropos b2sum basename cat cd chdir cksum cmp comm cut date df diff dir dirname du echo egrep
  exit expr false fgrep file fmt fold free getent grep groups head help hexdump hostname id info jq
  kill killall ls lsof md5sum nl nproc od pgrep pkill popd ps pushd pwd readlink realpath return rev
  seq sha1sum sha256sum sha512sum sleep stat strings tac tail tldr tr tree true type uname uptime wc
  whatis whereis which whoami xxd zgrep: looks
printf test wait: looks calculates
fd fdfind find: looks executes
rg: looks perhaps=--pre,--hostname-bin
man: looks perhaps=-P,--pager,-H,--html
aws az base64 black brew bzip2 chgrp chmod chown column composer csplit curl dd declare eslint
  export gcloud gem gh glab gunzip gzip helm history join journalctl local mkdir mkfifo mktemp paste
  patch pip pip3 prettier readonly rm rmdir ruff rustup set shift shred sponge svn systemctl tee
  terraform touch truncate typeset ulimit umask uniq unlink unzip wget xz zstd: keeps
conda pdm pipx poetry uv: keeps carries=run
mypy pytest tsc: keeps project
cp mv: keeps copies
pnpm yarn: keeps project script=-c,--call carries=exec,x,dlx
unset: keeps calculates
install: keeps copies perhaps=--strip-program
rsync: keeps copies perhaps=-e,--rsh,--rsync-path
git: keeps listed carries=run,foreach
tar: keeps listed
  perhaps=-I,-F,--to-command,--use-compress-program,--checkpoint-action,--info-script,--new-volume-script,--rsh-command
npm: keeps listed project script=-c,--call carries=exec,x,dlx
ln: keeps names
sort: keeps perhaps=--compress-program
split: keeps perhaps=--filter
zip: keeps perhaps=-TT,--unzip-command
dotnet flake8 go gradle gradlew mvn mvnw rustfmt swift: project
deno lua make node nodejs perl php python ruby: project interprets
bun: project interprets carries=exec,x,dlx
cargo: project sometimes=watch
! - builtin busybox caffeinate catchsegv choom chpst chronic chrt cpulimit cross-env daemonize
  dbus-run-session dumb-init eatmydata fakeroot gtimeout ionice linux32 linux64 ltrace nice nocache
  nocorrect noglob nohup numactl pkexec prlimit proxychains proxychains4 repeat rlwrap run0
  ssh-agent stdbuf taskset timeout tini torsocks toybox unbuffer unshare valgrind {: runs
bwrap coproc firejail hash nsenter proot setarch setpriv start-stop-daemon systemd-run: runs any
envdir faketime gosu s6-setuidgid setuidgid su-exec: runs first
entr hyperfine nix-shell sg watch: runs text
screen tmux xvfb-run: runs any text
ssh: runs code first text reads
chroot: runs first reads
flock: runs first script=-c,--command
env: runs flags=0iv script=-S,--split-string,--command
time: runs flags=apv
strace: runs flags=cCdDfFiqtTvxyYzZ
setsid: runs flags=cfw
exec: runs flags=cl
command: runs flags=p
xargs: runs interprets flags=0oprtx
sudo: runs reads flags=AbEeHiKknPSsVv
doas: runs reads flags=Lns
runuser: runs script=-c,--command
parallel: runs text interprets
capsh: runs text script=-c,--command
alias bind complete expect mapfile pwsh readarray trap: code text
compgen enable eval fc gawk mawk nawk: code
. at batch crontab source: code reads
getopts let read: code calculates
csh fish tcsh: code text reads
gdb: code any interprets
awk: code interprets
su: code reads script=-c,--command
script: code script=-c,--command
ash bash dash ksh mksh rbash sh yash zsh: shell reads script=-c,--command
direnv: first carries=exec
newgrp: reads
ed emacs ex gmake nvim osascript tclsh vi vim: interprets
scp: copies
link: names
npx: script=-c,--call carries=
asdf bundle bundler nodenv pyenv rbenv: carries=exec
hatch mamba micromamba pipenv rye: carries=run
bunx pnpx uvx: carries=
nix: carries=-c,--command sometimes=run
mise: carries=exec,x,dlx
perf: carries=stat,record,trace
crictl docker docker-compose kubectl lxc nerdctl oc podman vagrant:
  sometimes=debug,exec,run,shell,ssh
"""
_EXECUTES: Final = ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch")
NUMBER: Final = re.compile(r"-?(\d+(\.\d*)?|\.\d+)[a-zA-Z]?|0x[\da-fA-F]+|\d+([,-]\d+)+|inf")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
#: options of shells of which the value is no script's name.
_OF_SHELLS: Final = re.compile(r"[-+]\w*[oO]|--rcfile|--init-file")
#: options of git behind which a shell's line follows.
_OF_GIT: Final = re.compile(r"-x|-u|--exec|--extcmd|--(?:upload|receive)-pack|--\w+-filter")
#: options of git that take a text or a pattern.
_TEXTS_OF_GIT: Final = re.compile(
    r"--(?:grep|author|committer|format|pretty|message|date|since|until|after|before|trailer)="
)
#: the most pairs of folder and file of a copying command that are listed; of more, it may replace
#: anything.
_MOST_PAIRS: Final = 4000
#: options of copying programs: the next word is the folder; the same word has it; the last name is
#: that of the copy, and not a folder.
_TAKES_TARGET: Final = re.compile(r"-\w*t|--target-directory")
_TARGET: Final = re.compile(r"-[a-su-zA-Z]*t(.+)|--target-directory=(.+)", re.DOTALL)
_AS_TARGET: Final = re.compile(r"-\w*T|--no-target-directory")


def _read() -> dict[str, dict[str, list[str]]]:
    """Return the columns of each program, with their values."""
    found = {}
    for row in _TABLE.replace("\n  ", " ").strip().splitlines():
        names, _, columns = row.rpartition(": ")
        pairs = [each.partition("=") for each in columns.split()]
        values = {key: value.split(",") if value else [] for key, _, value in pairs}
        found.update(dict.fromkeys(names.split(), values))
    return found


_PROGRAMS: Final = _read()


def base(name: str) -> str:
    """Return a program's name without its folder."""
    return name.rpartition("/")[2]


def has(name: str, column: str) -> bool:
    """Return True if a program is known to do this."""
    return column in _PROGRAMS.get(name, ())


def _values(name: str, column: str) -> list[str]:
    return _PROGRAMS.get(name, {}).get(column, [])


# --- what a command does -------------------------------------------------------------------------


def is_wrapper(words: tuple[str, ...]) -> bool:
    """Return True if the first words of a command do not tell what runs."""
    name = base(words[0])
    if _only_says(words):
        return False
    if not name or any(has(name, each) for each in ("runs", "code", "shell")):
        return True
    return has(name, "calculates") and any("$(" in word or "`" in word for word in words)


def is_guessed(words: tuple[str, ...]) -> bool:
    """Return True for a program of which it is only guessed that one of its words is a script."""
    name = base(words[0])
    return name == "git" or has(name, "perhaps") or has(name, "calculates")


def _only_says(words: tuple[str, ...]) -> bool:
    """Return True for `command -v NAME`, which says what would run."""
    return words[:1] == ("command",) and bool(re.match(r"-p?[vV]", "".join(words[1:2])))


def _is_runner(name: str) -> bool:
    """Return True for a program that runs others, such as `env`: `run_by` returns what it runs."""
    loads = name.startswith(("ld-linux", "ld-musl", "ld.so"))
    return loads or has(name, "runs") or has(name, "carries")


def only_reads(words: tuple[str, ...]) -> bool:
    """Return True for a command that changes nothing that its words name."""
    return has(base(words[0]), "looks")


def may_run_any(words: tuple[str, ...]) -> bool:
    """Return True for a command of which it is not known which of its words it runs."""
    name = base(words[0])
    if has(name, "sometimes"):
        return not set(_values(name, "sometimes")).isdisjoint(words)
    return not (has(name, "looks") or has(name, "keeps") or _is_runner(name))


def interprets(words: tuple[str, ...]) -> bool:
    """Return True for a command that may run what it reads, in a language of its own."""
    return has(base(words[0]).rstrip("0123456789."), "interprets")


def gives_a_name(words: tuple[str, ...]) -> bool:
    """Return True for a command that gives a file a second name: a program, perhaps."""
    return copies(words) or has(base(words[0]), "names")


def copies(words: tuple[str, ...]) -> bool:
    """Return True for a command that copies or moves files into a folder."""
    return has(base(words[0]), "copies")


# --- what a command runs -------------------------------------------------------------------------


def run_by(words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Give every command that a runner may run: which words are its own is not always known.

    True goes with a command whose first word is more likely the runner's own.
    """
    name = base(words[0])
    if has(name, "any"):
        yield from ((words[at:], True) for at in range(1, len(words)))
    elif name in ("timeout", "gtimeout"):
        yield from ((each, False) for each in [_behind_duration(words)] if each)
    elif _is_runner(name) and not _only_says(words):
        signs = _values(name, "carries")
        for at in [at for at, word in enumerate(words) if word in signs] if signs else [0]:
            yield from _behind(words, at + 1, first_is_own=has(name, "first"))
    for at, word in enumerate(words) if has(name, "executes") else ():
        if word in _EXECUTES and words[at + 1 :]:
            yield words[at + 1 :], False


def _behind_duration(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that `timeout` runs: those behind its options and the duration."""
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        at += 2 if words[at] in ("-s", "-k", "--signal", "--kill-after") else 1
    return words[at + 1 + (words[at : at + 1] == ("--",)) :]


def _behind(
    words: tuple[str, ...], begin: int, *, first_is_own: bool
) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Give each command that may begin at the place `begin` or later, as `run_by` does.

    The last one begins with the first word that can't be the runner's own. `first_is_own`: even
    the first such word is.
    """
    flags = "".join(_values(base(words[0]), "flags"))
    for at in range(begin, len(words)):
        before = words[at - 1] if at > begin else ""
        valued = before.startswith("-") and not (flags and re.fullmatch(f"-[{flags}]+", before))
        own = valued or words[at].startswith("-") or words[at] in ("!", "{")
        own = own or bool(_ASSIGNMENT.match(words[at]) or NUMBER.fullmatch(words[at]))
        yield words[at:], own or first_is_own
        if not own and not first_is_own:
            return
        first_is_own = first_is_own and own


def scripts_of(words: tuple[str, ...]) -> Iterator[str]:
    """Give every text among the words that is run as a script."""
    name = base(words[0])
    yield from _given(words, _values(name, "script"), has(name, "shell"))
    yield from _given(words, _values(name, "perhaps"), False)
    if name == "eval" or has(name, "text"):
        own = next((at for at, word in enumerate(words) if at and not word.startswith("-")), 1)
        yield " ".join(words[own:])
    if has(name, "text"):
        yield from (word.partition("=")[2] if name == "alias" else word for word in words[1:])
    if has(name, "calculates"):
        yield from (word for word in words if "$(" in word or "`" in word)
    if name == "git":
        yield from _scripts_of_git(words)


def _given(words: tuple[str, ...], options: list[str], shell: bool) -> Iterator[str]:
    """Give what these options are given: in the same word, or in one behind it.

    Other options may stand between them. `shell`: so may a word that is the value of one.
    """
    for at, word in enumerate(words) if options else ():
        value = next((each[1] for option in options if (each := _given_by(option, word))), None)
        if at and value is not None:
            yield value.removeprefix("=").removeprefix("exec=")
            behind = words[at + 1 :]
            own = next((n for n, each in enumerate(behind) if each[:1] not in ("-", "+")), 0)
            yield from behind[: own + 1 + shell]


def _given_by(option: str, word: str) -> re.Match[str] | None:
    """Return a match of a word that is this option, group 1 its value in the same word."""
    if len(option) == 2:  # short ones may stand together
        return re.match(rf"-\w*?{option[1]}(.*)", word, re.DOTALL)
    name = word.partition("=")[0]
    long = len(name) > 2 and name.startswith("--") and option.startswith(name)
    return re.match(r"[^=]*(.*)", word, re.DOTALL) if long or name == option else None


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
        if at and (_OF_GIT.fullmatch(words[at - 1]) or words[at - 1] in _values("git", "carries")):
            yield word


def reads_code(words: tuple[str, ...]) -> bool:
    """Return True for a command that runs what it reads: what it is given to read is code."""
    name = base(words[0])
    if not has(name, "reads"):
        return False
    if name in ("at", "batch", "crontab"):
        return True
    shell = has(name, "shell")
    given = [
        word
        for before, word in pairwise(words)
        if word[:1] not in ("-", "+") and not (shell and _OF_SHELLS.fullmatch(before))
    ]
    streamed = any(sign in word for word in given for sign in ("/dev/", "/proc/", "<("))
    if name in ("source", ".", "ssh"):
        return streamed or (name == "ssh" and len(given) == 1)
    scripted = any(re.fullmatch(r"-[a-zA-Z]*c", word) for word in words[1:])
    return (not given or "-s" in words or streamed) and not scripted


# --- what a command writes -----------------------------------------------------------------------


def written_by_copying(words: tuple[str, ...]) -> Iterator[str]:
    """Give the path of each file and folder that a copying command makes, replaces or takes away.

    A command that copies all that a folder has may also replace the `.git` where it copies to.
    """
    name = base(words[0])
    named = [word for word in words[1:] if not word.startswith("-")]
    targets = [word for before, word in pairwise(words) if _TAKES_TARGET.fullmatch(before)]
    targets += [found[1] or found[2] for word in words if (found := _TARGET.fullmatch(word))]
    whole = any(_AS_TARGET.match(word) for word in words)
    if len(targets) * len(named) > _MOST_PAIRS:
        yield from (f"{target}/.git/config" for target in targets[:1])
        return
    pairs = product(dict.fromkeys([*targets, *named[-1:]]), dict.fromkeys(named))
    for target, source in (pair for pair in pairs if pair[0] != pair[1]):
        last = source.rstrip("/").rpartition("/")[2]
        if whole or last in ("", ".", "..") or (name == "rsync" and source.endswith("/")):
            yield from (target, f"{target}/.git")
        else:
            yield f"{target}/{last}"
        if name == "mv":
            yield source
