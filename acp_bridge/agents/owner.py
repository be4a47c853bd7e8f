"""Who an agent's process works for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from acp_bridge.agents.process import Exit
from acp_bridge.wire.peer import Call

if TYPE_CHECKING:
    from acp_bridge.agents.link import Link


class Owner(Protocol):
    """Who a process works for: the lobby at first, then a session."""

    def on_update(self, link: Link, params: dict[str, Any]) -> None:
        """A `session/update`."""

    def on_agent_request(self, link: Link, call: Call) -> None:
        """A request; answered later through `link.peer`."""

    def on_agent_notification(self, link: Link, method: str, params: Any) -> None:
        """Any other notification."""

    def on_batch_end(self, link: Link) -> None:
        """All that one read brought has been handed over."""

    async def room(self, link: Link) -> None:
        """Return when more may be read."""

    def on_gone(self, link: Link, exit_: Exit | None) -> None:
        """The process has ended and its output was read; its tree may still be dying."""

    def on_dead(self, link: Link) -> None:
        """No process of it is left."""
