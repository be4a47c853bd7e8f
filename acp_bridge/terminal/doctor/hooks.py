"""Checks the files of hooks: the user's own, and that of the project in the working folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.features.hooks import config, read
from acp_bridge.features.hooks.definitions import Hook
from acp_bridge.features.hooks.places import OWN_FILE, PROJECT_FILE
from acp_bridge.terminal.doctor.findings import (
    Finding,
    Subject,
    error,
    in_home,
    ok,
    warning,
)

AREA: Final = "hooks"
_WHILE: Final = "correct it: until then none of its hooks runs, and none may allow anything"


async def check(subject: Subject) -> list[Finding]:
    """Check the hooks that a session in the working folder would have; return the findings."""
    return await in_home(subject, "the hooks", lambda: look(subject.settings.home, subject.env))


def look(home: Path, env: Mapping[str, str]) -> list[Finding]:
    """Read the files of hooks that exist; return the findings."""
    own, project = home / OWN_FILE, Path(os.path.abspath(PROJECT_FILE))
    found = [*_file(own, env, project=False)]
    if not (own.exists() and project.exists() and own.samefile(project)):
        found += _file(project, env, project=True)
    return found or [ok(f"none: there is no {own}", hooks=0)]


def _file(path: Path, env: Mapping[str, str], *, project: bool) -> Iterator[Finding]:
    try:
        hooks = read.hooks_in(path, project=project)
    except config.BadHooks as bad:
        yield error(f"{path} can't be used: {bad}", _WHILE)
        return
    if hooks is None:
        return
    many = f"{len(hooks)} hook{'' if len(hooks) == 1 else 's'}"
    run = f" ({OWN_COMMANDS.line('trust', '--list')} says if they run)" if project else ""
    yield ok(f"{path} has {many}{run}", hooks=len(hooks))
    for hook in hooks:
        if (program := _missing(hook, path.parent.parent if project else None, env)) is not None:
            yield warning(f"{path}: the program {program} of a {hook.event} hook is not there")


def _missing(hook: Hook, folder: Path | None, env: Mapping[str, str]) -> str | None:
    """Return the hook's program if it can't be found, else None.

    `folder`: the project's folder, in which its hooks run; None for a hook that runs in any folder,
    where a relative path can't be judged.
    """
    program = hook.words[0]
    if "/" in program and not os.path.isabs(program):
        if folder is None:
            return None  # each session has its own folder
        program = str(folder / program)
    return None if shutil.which(program, path=env.get("PATH", "")) else hook.words[0]
