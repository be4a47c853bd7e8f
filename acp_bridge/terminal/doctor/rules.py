"""Checks the files of rules: the user's own, and that of the project in the working folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.features.hooks.find import may_be_there
from acp_bridge.features.rules.config import BadRules
from acp_bridge.features.rules.definitions import Place, Rules
from acp_bridge.features.rules.places import OWN_FILE, PROJECT_FILE
from acp_bridge.features.rules.session_rules import load, load_project
from acp_bridge.terminal.doctor.findings import (
    Finding,
    Subject,
    error,
    in_home,
    ok,
    warning,
)

AREA: Final = "rules"
_WHILE: Final = "correct it: until then its last good refusals hold, and all else is asked of you"


async def check(subject: Subject) -> list[Finding]:
    """Check the rules that a session in the working folder would have; return the findings."""
    settings = subject.settings
    own, named = settings.rules or settings.home / OWN_FILE, settings.rules is not None
    return await in_home(subject, "the rules", lambda: look(own, settings.home, named=named))


def look(own: Path, home: Path, *, named: bool) -> list[Finding]:
    """Read the files of rules that exist; return the findings.

    `own`: the user's file. `named`: the user has named it, so it must exist.
    """
    place = Place(os.getcwd(), home=os.path.expanduser("~"))
    project = Path(os.path.abspath(PROJECT_FILE))
    found = [
        *_file(own, lambda: (load(own, place)[0], "")),
        *_file(project, partial(load_project, project, place, home)),
    ]
    if named and not may_be_there(own):
        found.append(error(f"there is no {own}", "name another file with --rules, or none"))
    return found or [ok(f"none: there is no {own}", rules=0)]


def _file(path: Path, read: Callable[[], tuple[Rules | None, str]]) -> Iterator[Finding]:
    try:
        rules, untrusted = read()
    except BadRules as bad:
        yield from (error(f"{path} can't be used: {each}", _WHILE) for each in bad.each)
        return
    if rules is None:
        return
    count = len(rules.rules) + sum(len(each.rules) for each in rules.only)
    yield ok(f"{path} has {count} rule{'' if count == 1 else 's'} that count", rules=count)
    if untrusted:
        how = f"{OWN_COMMANDS.line('trust', 'FOLDER')} shows them, and lets them count"
        yield warning(f"{path}: its allow rules don't count, as it is not trusted", how)
