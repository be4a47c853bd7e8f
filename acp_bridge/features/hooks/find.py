"""Finds the hooks of a session: those of the data folder, then those of its project.

A session without any costs a look at three names, and nothing more is imported.
"""

from __future__ import annotations

import os
from pathlib import Path

import anyio

from acp_bridge.core import errors
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.threads import NoThread, in_thread
from acp_bridge.features.hooks import notices
from acp_bridge.features.hooks.found import FoundHooks
from acp_bridge.features.hooks.places import OWN_FILE, PROJECT_FILE, RECORDS


async def look(home: Path, cwd: str) -> FoundHooks | None:
    """Return the result of `find`; if that fails or takes too long, hooks that can't be read."""
    try:
        with anyio.move_on_after(waits.HOOKS_READ):
            return await in_thread(find, home, cwd, abandon_on_cancel=True)
    except NoThread:
        pass
    except Exception as error:
        errors.internal(error, "the hooks of a session can't be read")
    return FoundHooks(notices=(notices.HOOKS_UNREAD,), person_asked=True)


def may_be_there(path: str | Path) -> bool:
    """Return True unless it is known that nothing has this path: nobody may look there, say."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def find(home: Path, cwd: str) -> FoundHooks | None:
    """Return the hooks of a session in `cwd`, with notices about them; None if there is neither."""
    folder = os.path.realpath(cwd)
    own, project = os.path.join(home, OWN_FILE), os.path.join(folder, PROJECT_FILE)
    trusts = os.path.isdir(os.path.join(home, RECORDS))
    if not (trusts or may_be_there(own) or may_be_there(project)):
        return None
    from acp_bridge.features.hooks.read import read

    return read(home, Path(folder))
