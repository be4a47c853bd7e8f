"""The hooks that were found for a session.

- A project's hooks are off unless the user trusts them as they are now.
- Hooks that can't be read, and trusted ones that have changed, might have refused something: while
  that is so no other hook's word is enough, and the person is asked (invariant C18).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct, field

from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.threads import NoThread, in_thread
from acp_bridge.features.hooks import notices
from acp_bridge.features.hooks.places import PROJECT_FILE

if TYPE_CHECKING:
    from acp_bridge.features.hooks.definitions import Hook


class Project(Struct, frozen=True):
    """A project whose hooks run, and the hashes under which they were trusted."""

    folder: Path
    trusted: dict[str, str]

    async def look_again(self, cwd: str) -> list[str]:
        """Return the result of `changes`; a folder that does not answer in time has changed."""
        with anyio.move_on_after(waits.HOOKS_READ), suppress(NoThread):
            return await in_thread(self.changes, cwd, abandon_on_cancel=True)
        return [PROJECT_FILE]

    def changes(self, cwd: str) -> list[str]:
        """Return the names of the files that have changed since the user trusted them.

        If one can't be read, or if `cwd`, where the hooks would run, leads to another folder now,
        that is `PROJECT_FILE` alone.
        """
        from acp_bridge.features.hooks import config, trust

        if os.path.realpath(cwd) != str(self.folder):
            return [PROJECT_FILE]
        try:
            content = trust.read_file(self.folder / PROJECT_FILE)
            hooks = config.parse(content.decode(), project=True)
            now = trust.hashes(self.folder, content, hooks)
        except (OSError, ValueError, config.BadHooks, trust.NotTrustable):
            return [PROJECT_FILE]
        return trust.changed(self.trusted, now)


class FoundHooks(Struct, frozen=True):
    """The hooks of one session, in the order in which they run."""

    hooks: tuple[Hook, ...] = ()
    project: Project | None = None
    #: notices about the hooks, which the session shows once.
    notices: tuple[str, ...] = ()
    #: a hook that may not run, or can't be read, might refuse a permission: the person is asked.
    person_asked: bool = False
    #: by the path of each file of hooks, its hash; None for one that can't be used, of which
    #: `notices` tell.
    files: Mapping[str, str | None] = field(default_factory=dict)

    def news(self, named: Mapping[str, str | None]) -> list[str]:
        """Return notices of the files whose hash is not that in `named`, which was told last."""
        said = []
        for path in sorted({*named, *self.files}):
            now = self.files.get(path)
            of = [each for each in self.hooks if each.project == (path == PROJECT_FILE)]
            changed = now is not None and now != named.get(path)
            if path not in self.files or (changed and path in named and not of):
                said.append(notices.hooks_gone(path))
            elif changed and of:
                shown = [(each.event.value, each.shown) for each in of]
                said.append(notices.hooks_count(path, shown, new=path not in named))
        return said
