"""Asking the user before a tool runs.

Invariant: only a chosen allow option allows. No answer, an unknown one or a failed one is no
consent (HAZARDS C18).
"""

from __future__ import annotations

import logging
from typing import Any, Literal

from agent.client import Client, ClientError

logger = logging.getLogger(__name__)

Mode = Literal["ask", "auto"]
#: id -> (name, description)
MODES: dict[Mode, tuple[str, str]] = {
    "ask": ("Ask", "Ask before every command."),
    "auto": ("Auto", "Run commands without asking."),
}


class PromptCancelled(Exception):
    """The client answered a permission request with: the prompt is cancelled."""


class Permissions:
    """What the user allowed in one session, for as long as the process lives."""

    def __init__(self) -> None:
        self.mode: Mode = "ask"
        self._always: set[str] = set()

    async def allowed(self, tool: str, card: dict[str, Any], client: Client) -> bool:
        """Ask, if it has to be. Raises PromptCancelled."""
        if self.mode == "auto" or tool in self._always:
            return True
        try:
            chosen = await client.ask(card, _options(tool))
        except ClientError:
            logger.warning("permission was not given: the request failed", exc_info=True)
            return False
        if chosen is None:
            raise PromptCancelled
        if chosen == "allow_always":
            self._always.add(tool)
        return chosen in ("allow_once", "allow_always")


def _options(tool: str) -> list[dict[str, Any]]:
    return [
        {"optionId": "allow_once", "name": "Allow", "kind": "allow_once"},
        {
            "optionId": "allow_always",
            "name": f"Allow {tool} for the rest of this session",
            "kind": "allow_always",
        },
        {"optionId": "reject_once", "name": "Reject", "kind": "reject_once"},
    ]
