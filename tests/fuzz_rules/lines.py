"""Makes lines near the border of what the rules read: most are well formed, or nearly so."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable, Sequence
from typing import Final

#: what is put into a line, or in the place of one of its characters.
_SIGNS: Final = [*" \t\n\\'\"$`*?[]{}()<>&|;!#~=^%:@-0123456789/.", "é", "中", "\xa0", " \n\\"]
_PLAIN: Final = (
    *("a.txt", "README.md", "x", "nosuch", "ü.txt", "src/a.py", "src", "tests", "src/sub/c.py"),
    *("out", "2", "10", "-", "--", "-n", "-a", "-la", "-2", "-n5", "HEAD~1", "HEAD^", "stash@{0}"),
    *("a=b", "k:v", "50%", "+x", ",", "{}", "^x", "x=~", "a~", "~", "~/x", "src/../x", "../home/x"),
    *(
        "]",
        "[",
        "] ]",
        "[ ]",
        "!",
        "}",
        "#x",
        "x#y",
        "evil",
        "./evil",
        "away/secret",
        "in/x",
        "@x",
        "=ls",
    ),
)
_OF_SRC: Final = (
    *("src/a.py", "src/b.py", "src/sub/c.py", "src/x", "src/nosuch", "src/../x", "src/../../x"),
    *("src/sub/../a.py", "src/away/x", "src/./x", "src/../home/x", "src/sub/..", "src/away/secret"),
    *("src/.*/x", "src/.*/.*/x", "src/sub/.?/x", "src/.[.]/x", "src/[.]*/x", "src/sub/..*"),
)
_GLOBS: Final = (
    *("*", "*.txt", "src/*.py", "src/*", "src/**", "src/**/c.py", "?", "[a-z]", "[!a]*", "*.no"),
    *("src/[ab].py", "s*/x", "-*", "*evil", "~/*", "ü*", ".*", "src/.*", "[0-9]*", "src/**/x*"),
    *("src/.*/src/x", "src/secre[^a]", "src/secre[^t]", "src/secre[A-Z]", "src/secre[!x]"),
    *("pus[^h]", "pus[^x]", "pus?", ".*/home/secre?", "src/sub/.?/a.py"),
)
_QUOTED: Final = (
    *("a b", "it's", 'say "x"', "", "$x", "`x`", "$(evil)", "; evil", "a\nb", "\\", "a\\nb", "#"),
    *("*", "~", "(x)", "rm calls", "&& evil", "| other", "x\\", "]", "!x", "$?", "é ü", "{a,b}"),
)
_TARGETS: Final = (
    *("out/f", "out/g", "out/new", "/dev/null", "out/../x", "out/link/y", "src/x", "~/x", "2", "-"),
    *("'out/a b'", "out/*", "&1", "out/10", "$f", '"out/f"', "out/ü", "./~", "out/~", "out/=x"),
)
_FOLDERS: Final = (
    *("src", "tests", "src/sub", "..", ".", "src/..", "'sub dir'", "nosuch", "away", "in", "-"),
    *("in/..", "~", "src tests", "./src", "out/link", "src/away", "/", "sub\\ dir", "s*"),
)
_ASSIGNED: Final = (
    *("CI=1", "LC_ALL=C", "NO_COLOR=", "GIT_PAGER=cat", "PAGER=", "TZ=Europe/Berlin", "LANG=C"),
    *(
        "GIT_PAGER=evil",
        "PAGER=./evil",
        "PATH=.",
        "IFS=x",
        "x=1",
        "CI='a b'",
        "TERM=é",
        "PAGER=cat",
    ),
)
_OPTIONS: Final = {
    "git": (
        *("rebase main", "rebase -qx evil", "rebase -q", "rebase -xevil", "rebase -i x", "log -n5"),
        *("rebase --exec evil", "status -s", "log --oneline", "diff", "-C src log", "-C .. log"),
        *("--no-pager log", "log -O./evil", "commit -m", "add", "show HEAD", "push log", "branch"),
        *("clone -u evil", "grep -nO./evil", "log -S x", "rebase -rx 'evil x'", "-P diff", "stash"),
    ),
    "tar": (
        *("-tf x", "tf x", "-tzf x", "-tf x -Ievil", "-tf x -I evil", "-tvf x", "xf x", "-t -f x"),
        *(
            "-tf x -v",
            "-tf x --exclude=y",
            "-tf x -vIevil",
            "-tf x --to-command=evil",
            "-tf x -Fevil",
        ),
    ),
    "sort": ("-n", "-rn", "-k2,2n", "-t:", "-o out/f", "-uoout/f", "--compress-program=evil"),
    "find": (". -name", "src -type f", ". -exec evil", ". -delete", "-x", ". ! -name"),
    "grep": ("-n x", "-rn 'a b'", "-c x", "-e", "--include='*.py' x", "-q x", "-- -x"),
    "python3": ("", "src/a.py", "-u src/a.py -c evil", "-c evil", "-"),
    "nl": ("", "-ba"),
    "head": ("-n 2", "-2", "-c5", "", "-n"),
    "test": ("-f", "-d", "-n", "!", "x ="),
}
_PROGRAMS: Final = (
    *("ls", "cat", "echo", "head", "grep", "nl", "wc", "git", "git", "tar", "sort", "find"),
    *("test", "pwd", "true", "false", "printf", "python3", "echo", "ls", "cat", "nl", "git"),
)
_JOINTS: Final = ("; ", " && ", " || ", "\n", ";", "&&", " ;\n", "||", " \n", "\n\n", " && \n")
_ODD_JOINTS: Final = (
    " \n\\",
    "\t\n\n\\",
    " \\\n",
    " & ",
    " |& ",
    "\\\n;",
    " ;; ",
    " #\n",
    "\n#x'\n",
)
_NAMES: Final = ("f", "d", "file", "x1", "name", "path", "i", "word", "IFS")
_DELIMITERS: Final = ("EOF", "E", "END_")
_BODY: Final = (
    *(
        "a fix",
        "",
        "it's (so)",
        "(",
        ")",
        '"',
        "EOF",
        "E",
        " EOF",
        "EOF ",
        "evil x",
        "rm x",
        "END_",
    ),
    *(
        "$(evil)",
        "`evil`",
        "\\",
        "a\\",
        "#",
        ')"; evil',
        "$x",
        "'",
        "é",
        "\tEOF",
        "EOF)",
        "<<E",
        "}",
    ),
)
_WRAPPERS: Final = ("timeout 5", "nice", "nohup", "time", "nice -n 5", "timeout -s 9 5", "time -p")


class Lines:
    """Lines that follow from a seed."""

    def __init__(self, seed: str) -> None:
        self._rng = random.Random(seed)
        self._loops: list[str] = []

    def line(self) -> str:
        """Return the next line; often with some characters changed."""
        self._loops = []
        text = self._list(0)
        for _ in range(self._rng.choice((0, 0, 0, 0, 0, 0, 1, 1, 2, 3))):
            text = self._changed(text)
        return text

    def _one(self, of: Sequence[str]) -> str:
        return self._rng.choice(of)

    def _is(self, share: float) -> bool:
        return self._rng.random() < share

    def _changed(self, text: str) -> str:
        at = self._rng.randrange(len(text) + 1)
        match self._rng.randrange(4):
            case 0:
                return text[:at] + self._one(_SIGNS) + text[at:]
            case 1:
                return text[:at] + text[at + 1 :]
            case 2:
                return text[:at] + text[at : at + 1] + text[at:]
            case _:
                return text[:at] + self._one(_SIGNS) + text[at + 1 :]

    # --- lists -----------------------------------------------------------------------------

    def _list(self, depth: int) -> str:
        pieces = [self._pipeline(depth)]
        for _ in range(self._rng.choice((0, 0, 0, 1, 1, 2) if not depth else (0, 0, 1))):
            pieces += [self._one(_ODD_JOINTS if self._is(0.04) else _JOINTS), self._pipeline(depth)]
        comment = self._one((" # x", " #'", "\n# $(evil)\n", " #x\nls")) if self._is(0.03) else ""
        return "".join(pieces) + comment

    def _pipeline(self, depth: int) -> str:
        found = [self._command(depth)]
        while self._is(0.15):
            found.append(self._simple())
        return "! " * self._is(0.04) + self._one((" | ", "|", " |\n")).join(found)

    def _command(self, depth: int) -> str:
        forms: list[tuple[int, Callable[[], str]]] = [(62, self._simple), (10, self._moved)]
        if depth < 2:
            inner = depth + 1
            forms += [
                (6, lambda: f"{self._one(_WRAPPERS)} {self._simple()}"),
                (5, lambda: self._script(inner)),
                (7, lambda: self._loop(inner)),
                (5, lambda: self._choice(inner)),
                (6, self._given),
            ]
        weights = [weight for weight, _ in forms]
        return self._rng.choices([form for _, form in forms], weights)[0]()

    def _moved(self) -> str:
        to = self._one(_FOLDERS[:3] if self._is(0.7) else _FOLDERS)
        before = self._one(("false && ", "test -f nosuch && ", "")) if self._is(0.4) else ""
        behind = self._one((" && ", "; ", "\n")) + self._simple()
        return f"{before}cd {to}{behind if self._is(0.7) else ''}"

    def _script(self, depth: int) -> str:
        text = self._list(depth)
        if self._is(0.3):
            escaped = "".join(f"\\{each}" if each in '\\"$`' else each for each in text)
            quoted = f'"{escaped}"'
        else:
            quoted = f"'{text}'" if "'" not in text and self._is(0.8) else shlex.quote(text)
        return f"{self._one(('sh', 'bash', 'zsh', 'dash', '/bin/sh', '/bin/bash'))} " + (
            f"{self._one(('-c', '-c', '-lc', '-ec'))} {quoted}"
        )

    def _loop(self, depth: int) -> str:
        name = self._one(_NAMES[:5] if self._is(0.9) else _NAMES)
        words = [self._looped() for _ in range(self._rng.choice((0, 1, 1, 2, 3)))]
        self._loops.append(name)
        body = self._list(depth)
        self._loops.pop()
        by = self._one(("; ", "\n", ";"))
        return f"for {name} in {' '.join(words)}{by}do {body}{self._one(('; ', chr(10)))}done"

    def _looped(self) -> str:
        if self._is(0.45):
            return self._one(("ls", "cat", "other", "evil", "echo", "'ls x'"))
        return self._word()

    def _choice(self, depth: int) -> str:
        test = self._one(
            (f"[ -f {self._word()} ]", f'[ "$?" = {self._one("01")} ]', self._simple())
        )
        other = f"; else {self._simple()}" if self._is(0.3) else ""
        other = f"; elif {self._simple()}; then {self._simple()}{other}" if self._is(0.1) else other
        return f"if {test}; then {self._list(depth)}{other}; fi"

    def _given(self) -> str:
        """Return a commit with its message in the body of a here-document."""
        end = self._one(_DELIMITERS)
        of = (*_BODY, f"(\n{end})\n$(evil)", f"{end}) ; evil", f"x {end}", f"{end}\\", f" {end}\t")
        body = "".join(f"{self._one(of)}\n" for _ in range(self._rng.randrange(5)))
        sign = self._one(("'", "'", '"'))
        start = f"<<{sign}{end}{sign}"
        if self._is(0.1):
            start = self._one((f"<<{end}", f"<<-'{end}'", f"<<\\{end}", f"<< '{end}'"))
        program = self._one(("git commit -m ", "echo "))
        return f'{program}"$(cat {start}\n{body}{end}{self._one(chr(10) * 4 + " ")})"'

    # --- simple commands -------------------------------------------------------------------

    def _simple(self) -> str:
        if self._is(0.03):
            return f"[ {self._one(('-f', '-d', '!', ''))} {self._word()} ]"
        name = self._one(_PROGRAMS)
        if self._loops and self._is(0.2):
            name = f'"${self._loops[-1]}"'
        pieces = [self._one(_ASSIGNED)] if self._is(0.04) else []
        pieces += [name] if not self._is(0.02) else [f"\\{name}"]
        if name in _OPTIONS and (name in ("git", "tar") or self._is(0.4)):
            pieces.append(self._one(_OPTIONS[name]))
        words = self._rng.choice((0, 1, 1, 2, 3)) if name not in ("pwd", "true", "false") else 0
        pieces += [self._operand(name) for _ in range(words)]
        while self._is(0.1):
            pieces.insert(self._rng.randrange(len(pieces) + 1), self._redirect())
        return self._one((" ", " ", " ", " ", "  ", "\t", " \\\n")).join(pieces)

    def _operand(self, name: str) -> str:
        if name == "nl" and self._is(0.85):
            return self._one(_OF_SRC)
        return self._word()

    def _word(self) -> str:
        if self._loops and self._is(0.25):
            f = self._loops[-1]
            return self._one((*[f'"${f}"'] * 4, f'"${{{f}}}"', f'"x ${f}"', f"${f}", f'"${f}/x"'))
        match self._rng.randrange(12):
            case 0 | 1:
                return self._quoted(self._one(_QUOTED))
            case 2:
                return self._one(_GLOBS)
            case 3:
                return self._one(
                    ('"$?"', "'*'.txt", "a'b'\"c\"", "\\*", "x\\ y", '"a"*', "''x", "\\~")
                )
            case 4:
                return self._quoted(self._one(_PLAIN))
            case _:
                return self._one(_PLAIN[:10] if self._is(0.6) else _PLAIN)

    def _quoted(self, text: str) -> str:
        match self._rng.randrange(3):
            case 0:
                return shlex.quote(text)
            case 1:
                return '"' + "".join(f"\\{each}" * (each in '\\"$`') or each for each in text) + '"'
            case _:
                return f"'{text}'" if "'" not in text else f'"{text}"'

    def _redirect(self) -> str:
        if self._is(0.25):
            return self._one(
                ("2>&1", ">&2", "1>&2", "2>/dev/null", "<& -", "<&0", ">&-", "<& -push", "<& -x")
            )
        number = self._one((*[""] * 8, "1", "2", "0", "10", "-2", "3", "00"))
        sign = self._one((*[">"] * 6, ">>", ">>", "<", ">|", "<>", ">&", "<&", "&>", "> ", "< "))
        return f"{number}{sign}{self._one(_TARGETS[:4] if self._is(0.75) else _TARGETS)}"
