"""`acp-bridge trust`: asks a person on a terminal whether a project's hooks and rules count."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acp_bridge.core.agents import origin
from acp_bridge.features.hooks import config, read, trust
from acp_bridge.features.hooks import places as hooks_places
from acp_bridge.features.hooks.definitions import Hook
from acp_bridge.features.rules import places as rules_places
from acp_bridge.features.rules.config import BadRules
from acp_bridge.features.rules.definitions import Only, Place
from acp_bridge.features.rules.session_rules import read_project
from acp_bridge.terminal.cli import consent
from acp_bridge.terminal.cli.harmless import exact
from acp_bridge.terminal.cli.options import data_folder
from acp_bridge.terminal.cli.parser import Parser

_Read = tuple[list[str], dict[str, str]]
"""The lines that show what a project's file would do, and a hash of each file to be trusted."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A file of a project that can be trusted: its hooks or its rules."""

    name: str
    file: str
    #: the name of the folder in the data folder that has the records of trusted files.
    records: str
    question: str
    read: Callable[[Path], _Read]


_USAGE: Final = """\
acp-bridge trust [--home FOLDER] FOLDER
acp-bridge trust [--home FOLDER] --list
acp-bridge trust [--home FOLDER] --remove FOLDER"""
_ABOUT: Final = """\
Show the hooks of a project (FOLDER/.acp_bridge/hooks.toml) and every file of the project that
their commands name, and ask if they may run in sessions that work in that folder; then each call
that its rules (FOLDER/.acp_bridge/permissions.toml) would allow, and ask if they may. They may as
long as none of these files changes.

Only a person at a terminal can say so; an agent can't."""


def parser() -> Parser:
    """Return the parser of the arguments of `acp-bridge trust`."""
    after = "exit code: 0 done, 1 not trusted, 2 wrong usage."
    parser = Parser("acp-bridge trust", _USAGE, _ABOUT, (), after, column=19)
    parser.add_argument("-h", "--help", action="help")
    parser.add_argument("folder", metavar="FOLDER", nargs="?")
    parser.add_argument(
        "--list",
        action="store_true",
        help="show what is trusted, and what of it has changed since",
    )
    parser.add_argument(
        "--remove", metavar="FOLDER", help="trust a project's hooks and rules no more"
    )
    parser.add_home("where that is kept (ACP_BRIDGE_HOME)")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run `acp-bridge trust`; returns the exit code.

    Raises SystemExit for wrong usage and for help.
    """
    given = parser().parse_args(arguments)
    home = data_folder(given.home)
    if not given.list and origin.runs_in_agent():
        return _fail("an agent can't change what is trusted: use a terminal of your own", 1)
    try:
        match given.list, given.remove, given.folder:
            case True, None, None:
                return _list(home)
            case False, str(name), None:
                return _remove(home, _real(name))
            case False, None, str(name):
                return _trust(home, Path(_real(name)))
    except OSError as error:
        return _fail(f"{error.filename or home}: {error.strerror}", 1)
    return _fail("name one folder, or --list, or --remove FOLDER")


def _trust(home: Path, folder: Path) -> int:
    why, code = consent.hindrance("change what is trusted", "trust a project")
    if why:
        return _fail(why, code)
    there = [part for part in (_HOOKS, _RULES) if os.path.lexists(folder / part.file)]
    if not there:
        return _fail(
            f"there is no {folder / hooks_places.PROJECT_FILE} and no {rules_places.PROJECT_FILE}",
            1,
        )
    return max([_ask(home, folder, part) for part in there])


def _ask(home: Path, folder: Path, part: _Part) -> int:
    """Show what a project's hooks or rules do, and record them as trusted if the person says yes.

    Returns the exit code.
    """
    try:
        shown, files = part.read(folder)
    except (config.BadHooks, BadRules) as bad:
        return _fail(f"{folder / part.file}: {bad}", 1)
    except trust.NotTrustable as why:
        return _fail(f"{folder}: {why}", 1)
    print("\n".join(shown))
    if not files:
        return 0
    if not consent.says_yes(part.question):
        print("Not trusted: only the whole word yes is consent.")
        return 1
    # The hashes of the files as they were shown are recorded: a change meanwhile ends the trust.
    trust.write_record(home, trust.Record(str(folder), files), part.records)
    print(f"Trusted, until one of these files changes. The record is in {home / part.records}.")
    return 0


def _read_hooks(folder: Path) -> _Read:
    loaded = read.load(folder / hooks_places.PROJECT_FILE, project=True)
    if loaded is None:
        raise config.BadHooks("the file is gone")
    content, hooks = loaded
    files = trust.hashes(folder, content, hooks)
    return _shown(folder, hooks, files), files


def _read_rules(folder: Path) -> _Read:
    found = read_project(
        folder / rules_places.PROJECT_FILE, Place(str(folder), home=os.path.expanduser("~"))
    )
    if found is None:
        raise BadRules("the file is gone")
    rules, files = found
    lines = [f"What the rules of {exact(str(folder))} would allow", ""]
    for only, rule in rules.allows:
        where = [f"{name} {value}" for name, value in _where(only) if value]
        lines.append(f"  {exact(rule.text)}" + (f"  ({exact(', '.join(where))})" if where else ""))
    if not rules.allows:
        return [*lines, "  nothing. What they deny and ask counts without your trust.", ""], {}
    return [*lines, ""], files


def _where(only: Only | None) -> list[tuple[str, str]]:
    return [("agent", only.agent), ("folder", only.folder)] if only else []


def _shown(folder: Path, hooks: Sequence[Hook], files: dict[str, str]) -> list[str]:
    lines = [f"The hooks of {exact(str(folder))}", ""]
    for hook in hooks:
        matcher = f" ({exact(hook.matcher)})" if hook.matcher else ""
        lines.append(f"  {hook.event}{matcher}, at most {hook.timeout:g} s:")
        lines += [f"      {exact(line)}" for line in hook.shown.split("\n")]
    lines += ["", "Files that are trusted as they are now:", ""]
    lines += [f"  {digest[:16]}  {exact(name)}" for name, digest in files.items()]
    return [*lines, "", "What these files start in turn (a Makefile, tests) is not covered.", ""]


def _list(home: Path) -> int:
    found = [
        (part, each) for part in (_HOOKS, _RULES) for each in trust.records(home, part.records)
    ]
    for part, record in found:
        differs = _differs(part, record)
        off = f"  (off: {differs})" if differs else ""
        print(f"{part.name} of {exact(record.folder)}{off}")
    if not found:
        print("No project is trusted.")
    return 0


def _differs(part: _Part, record: trust.Record) -> str:
    try:
        _, now = part.read(Path(record.folder))
    except (config.BadHooks, BadRules, trust.NotTrustable) as why:
        return exact(str(why))
    names = ", ".join(trust.changed(record.files, now))
    return f"{exact(names)} changed" if names else ""


def _remove(home: Path, folder: str) -> int:
    removed = []
    for part in (_HOOKS, _RULES):
        with suppress(FileNotFoundError):
            trust.record_path(home, folder, part.records).unlink()
            removed.append(part.name)
    if not removed:
        return _fail(f"neither hooks nor rules of {folder} are trusted", 1)
    print(f"The {' and '.join(removed)} of {exact(folder)} are trusted no more.")
    return 0


def _real(name: str) -> str:
    return os.path.realpath(os.path.expanduser(name))


def _fail(why: str, code: int = 2) -> int:
    sys.stderr.write(f"acp-bridge: {exact(why)}\nTry 'acp-bridge trust --help'.\n")
    return code


_HOOKS: Final = _Part(
    "hooks",
    hooks_places.PROJECT_FILE,
    hooks_places.RECORDS,
    "May they run in sessions in this folder?",
    _read_hooks,
)
_RULES: Final = _Part(
    "rules",
    rules_places.PROJECT_FILE,
    rules_places.RECORDS,
    "May they allow that in sessions in this folder?",
    _read_rules,
)
