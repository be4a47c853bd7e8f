"""Keeps parameters with a session, so that each process of its agent is given them.

Plugins name them: they are parameters of the requests that open a session (`feature.Plugin.keeps`).
"""

from __future__ import annotations

from typing import Final

from acp_bridge.core import errors
from acp_bridge.core.journal import SessionJournal
from acp_bridge.core.protocol import Json
from acp_bridge.core.records import replace
from acp_bridge.core.session.opening import Workspace

#: why a load is refused that names another folder, say, than the session has.
OTHER: Final = "the session is open with another one"
#: the journal's key.
_KEY: Final = "params"


class KeptParams:
    """The parameters that are kept with one session."""

    def __init__(self, journal: SessionJournal, names: frozenset[str]) -> None:
        """`names`: those of all plugins. Raises JournalError."""
        self._journal, self._names = journal, names
        kept = journal.get(_KEY) if names else None
        self._kept: Json = kept if isinstance(kept, dict) else {}

    def _changed(self, given: Json) -> list[str]:
        """Return the names of the kept parameters that a request gives with another value."""
        names = self._names & given.keys()
        return [name for name in names if given[name] != self._kept.get(name)]

    def check(self, given: Json) -> None:
        """Raise RpcError if a request's parameters say something else than is kept."""
        if other := self._changed(given):
            raise errors.invalid(OTHER, other[0])

    def added(self, workspace: Workspace) -> Workspace:
        """Return the workspace with what is kept, after it was kept. Raises JournalError."""
        given = {**workspace.kept, **workspace.extra}
        if changed := self._changed(given):
            kept = {**self._kept, **{name: given[name] for name in changed}}
            self._journal.set(_KEY, kept)
            self._kept = kept
        return replace(workspace, kept=self._kept)
