"""Remembers the newest snapshot of the account's limits, and answers `quota/read` from it.

- The agent answers `quota/read`. While it has no process the newest snapshot is the answer, as the
  agent gave it: that of the session, or of all sessions of this bridge for a request without one.
- `updatedAt` says which of two snapshots is newer. From a new process the first one counts in any
  case: its clock may be another one.
- Snapshots are kept in memory alone, so they end with the bridge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from acp_bridge.core.agents.link import Link
from acp_bridge.core.clients.client import ClientRequest
from acp_bridge.core.protocol import QUOTA_READ, QUOTA_UPDATE, Json, without
from acp_bridge.core.session.feature import Feature, Parts, Plugin
from acp_bridge.core.settings import Settings


class Snapshots(Feature):
    """Remembers the snapshot of one session."""

    states = frozenset({QUOTA_UPDATE})

    def __init__(self, session: Parts) -> None:
        """The agent has reported nothing yet."""
        self._core = session.core
        self._to_agent = session.to_agent
        #: the newest snapshots of all sessions of the bridge: at `QUOTA_READ`.
        self._of_all = session.remembered
        self._newest: Json | None = None
        #: the process that reported it.
        self._from: Link | None = None
        self.answers = {QUOTA_READ: self._read}

    def note_state(self, link: Link, update: Json, *, announced: bool) -> Json:
        """Note the snapshot in a `quota_update`."""
        self._note(link, without(update, "sessionUpdate"))
        return update

    async def _read(self, request: ClientRequest, params: Json) -> Any:
        """Return the agent's answer, or the newest snapshot while it has no process."""
        if self._core.link is None and self._newest is not None:
            return self._newest
        link, answer = await self._to_agent.ask_beside(request, QUOTA_READ, params)
        if isinstance(answer, dict):
            self._note(link, answer)
        return answer

    def _note(self, link: Link, snapshot: Json) -> None:
        from acp_bridge.features.quotas.proposal import is_older  # few agents report limits

        if not isinstance(snapshot.get("pools"), list):
            return
        if link is not self._from or not is_older(snapshot, self._newest):
            self._newest, self._from = snapshot, link
        if not is_older(snapshot, self._of_all.get(QUOTA_READ)):
            self._of_all[QUOTA_READ] = snapshot


def made_for(session: Parts, settings: Settings) -> Sequence[Feature]:
    """Return what remembers the limits that a session's agent reports."""
    return [Snapshots(session)]


PLUGIN: Final = Plugin(made_for)
