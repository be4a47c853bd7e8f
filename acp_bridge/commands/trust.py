"""`acp-bridge trust`: asks a person on a terminal whether the hooks of a project may run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from acp_bridge.agents import origin
from acp_bridge.cli.harmless import exact
from acp_bridge.cli.options import data_folder
from acp_bridge.cli.parser import Parser
from acp_bridge.hooks import config, read, trust
from acp_bridge.hooks.definitions import Hook
from acp_bridge.hooks.places import PROJECT_FILE, RECORDS

_USAGE: Final = """\
acp-bridge trust [--home FOLDER] FOLDER
acp-bridge trust [--home FOLDER] --list
acp-bridge trust [--home FOLDER] --remove FOLDER"""
_ABOUT: Final = """\
Show the hooks of a project (FOLDER/.acp_bridge/hooks.toml) and every file of the project that
their commands name, and ask if they may run in sessions that work in that folder. They may as long
as none of these files changes.

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
    parser.add_argument("--remove", metavar="FOLDER", help="trust a project's hooks no more")
    parser.add_home("where that is kept (ACP_BRIDGE_HOME)")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run `acp-bridge trust`; returns the exit code.

    Raises SystemExit for wrong usage and for help.
    """
    given = parser().parse_args(arguments)
    home = data_folder(given.home)
    if not given.list and origin.runs_in_agent():
        return _fail("an agent can't change which hooks are trusted: use a terminal of your own", 1)
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
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)):
        return _fail("only a person at a terminal can trust hooks: stdin and stdout must be one")
    path = folder / PROJECT_FILE
    try:
        loaded = read.load(path, project=True)
        if loaded is None:
            return _fail(f"there is no {path}", 1)
        content, hooks = loaded
        files = trust.hashes(folder, content, hooks)
    except config.BadHooks as bad:
        return _fail(f"{path}: {bad}", 1)
    except trust.NotTrustable as why:
        return _fail(f"{folder}: {why}", 1)
    print(_shown(folder, hooks, files))
    if not _says_yes():
        print("Not trusted: only the whole word yes is consent.")
        return 1
    # The hashes of the files as they were shown are recorded: a change meanwhile ends the trust.
    trust.write_record(home, trust.Record(str(folder), files))
    print(f"Trusted, until one of these files changes. The record is in {home / RECORDS}.")
    return 0


def _shown(folder: Path, hooks: Sequence[Hook], files: dict[str, str]) -> str:
    lines = [f"The hooks of {exact(str(folder))}", ""]
    for hook in hooks:
        matcher = f" ({exact(hook.matcher)})" if hook.matcher else ""
        lines.append(f"  {hook.event}{matcher}, at most {hook.timeout:g} s:")
        lines += [f"      {exact(line)}" for line in hook.shown.split("\n")]
    lines += ["", "Files that are trusted as they are now:", ""]
    lines += [f"  {digest[:16]}  {exact(name)}" for name, digest in files.items()]
    lines += ["", "What these start in turn (a Makefile, tests) is not looked at.", ""]
    return "\n".join(lines)


def _says_yes() -> bool:
    try:
        return input("May they run in sessions in this folder? [yes/no] ").strip() == "yes"
    except (EOFError, KeyboardInterrupt):
        print()
        return False


def _list(home: Path) -> int:
    found = trust.records(home)
    for record in found:
        differs = _differs(Path(record.folder), record)
        print(f"{exact(record.folder)}{'' if not differs else '  (off: ' + differs + ')'}")
    if not found:
        print("No project's hooks are trusted.")
    return 0


def _differs(folder: Path, record: trust.Record) -> str:
    try:
        loaded = read.load(folder / PROJECT_FILE, project=True)
        if loaded is None:
            return "the file is gone"
        now = trust.hashes(folder, *loaded)
    except (config.BadHooks, trust.NotTrustable) as why:
        return exact(str(why))
    names = ", ".join(trust.changed(record.files, now))
    return f"{exact(names)} changed" if names else ""


def _remove(home: Path, folder: str) -> int:
    try:
        trust.record_path(home, folder).unlink()
    except FileNotFoundError:
        return _fail(f"the hooks of {folder} are not trusted", 1)
    print(f"The hooks of {exact(folder)} are trusted no more.")
    return 0


def _real(name: str) -> str:
    return os.path.realpath(os.path.expanduser(name))


def _fail(why: str, code: int = 2) -> int:
    sys.stderr.write(f"acp-bridge: {exact(why)}\nTry 'acp-bridge trust --help'.\n")
    return code
