"""Decides whether a tool call may run: by the session's mode, or by asking the user.

Invariants
- Only a chosen allow option allows. A missing, unknown or failed answer is no consent (invariant
  C18).
- An "always" answer holds for one session, and for exactly what its option named: the same kind of
  access and the same grant, inside the session's folders or outside of them. A grant for a folder
  does not include the folders below it, and one for a command or a server's tool holds only where
  it was given; a rejection holds everywhere. It is kept with the session (invariant R13).
- A call that only a person may allow is asked whatever the mode, and never allowed for later calls.
- Calls may ask at the same time. Each waits for its own answer, and no lock is held meanwhile
  (invariant P10).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Literal

from agent.client import Client, ClientError
from agent.conversation.decisions import Key
from agent.tools import Action, AnyTool, ToolError

logger = logging.getLogger(__name__)

Mode = Literal["ask", "plan", "edit", "auto"]
#: the id of each mode, with its name and its description
MODES: dict[Mode, tuple[str, str]] = {
    "ask": ("Ask", "Reads freely; asks before every edit and command."),
    "plan": ("Plan", "Reads only: no edit and no command is run."),
    "edit": ("Edit", "Reads and edits freely; asks before every command."),
    "auto": ("Auto", "Reads, edits and runs commands without asking."),
}

_FREE = {
    "ask": {"none", "read"},
    "plan": {"none", "read"},
    "edit": {"none", "read", "edit"},
    "auto": {"none", "read", "edit", "execute"},
}
_PLANNING = (
    "Not run: the session is in plan mode, in which files are only read. Say what you would do; "
    "the user changes the mode when it is to be done."
)


class PromptCancelled(Exception):
    """The client answered a permission request by saying that the prompt is cancelled."""


class Rejected(ToolError):
    """The user was asked and did not allow the call."""


class Permissions:
    """The "always" answers of one session, and its mode.

    `always`: earlier answers by what they hold for; True means allowed. `keep` is called with each
    new one, to record it.
    """

    def __init__(
        self,
        always: Mapping[Key, bool] | None = None,
        keep: Callable[[Key, bool], None] = lambda key, allow: None,
    ) -> None:
        #: a change applies to calls that are checked from then on
        self.mode: Mode = "ask"
        self._always = dict(always or {})
        self._keep = keep

    async def check(
        self, tool: AnyTool, action: Action, card: dict[str, Any], client: Client
    ) -> None:
        """Returns if the call may run, after asking the user if needed.

        `card`: the call as the user is shown it (an ACP tool call). Raises Rejected if the user was
        asked and did not allow it, and ToolError if it was refused without asking: by plan mode, or
        by an earlier "always reject", which holds in every mode. Raises PromptCancelled.
        """
        free = tool.access in _FREE[self.mode]
        if self.mode == "plan" and not free:
            raise ToolError(_PLANNING)
        key = (tool.access, action.outside, action.grant.within, *action.grant.key)
        anywhere = (tool.access, action.outside, "", *action.grant.key)
        wider = (*anywhere[:3], *action.grant.rejected_by)
        if False in (self._always.get(anywhere), self._always.get(wider)):
            raise ToolError("The user said to reject this always.")
        asked = action.outside or (action.shows_keys and self.mode != "auto")
        settled = tool.access == "none" or self._always.get(key) or (free and not asked)
        if settled and not action.only_person:
            return
        options = _options(action.grant.name)
        if action.only_person:  # an answer for later calls would not be asked for
            options = [each for each in options if each["kind"] != "allow_always"]
        chosen = await self._ask(options, card, client)
        if chosen == "allow_always":
            self._remember(key, True)
        elif chosen == "reject_always":
            self._remember(anywhere, False)
        if chosen not in ("allow_once", "allow_always"):
            raise Rejected("The user did not allow it.")

    def _remember(self, key: Key, allow: bool) -> None:
        self._always[key] = allow
        self._keep(key, allow)

    async def _ask(
        self, options: list[dict[str, Any]], card: dict[str, Any], client: Client
    ) -> str:
        try:
            chosen = await client.ask(card, options)
        except ClientError as error:
            logger.warning("permission was not given: the request failed", exc_info=True)
            raise Rejected(error.explain("The user did not allow it")) from error
        if chosen is None:
            raise PromptCancelled
        if chosen not in [each["optionId"] for each in options]:
            raise Rejected("The user did not allow it.")
        return chosen


def _options(grant: str) -> list[dict[str, Any]]:
    return [
        {"optionId": "allow_once", "name": "Allow once", "kind": "allow_once"},
        {
            "optionId": "allow_always",
            "name": f"Always allow {grant} in this session",
            "kind": "allow_always",
        },
        {"optionId": "reject_once", "name": "Reject once", "kind": "reject_once"},
        {
            "optionId": "reject_always",
            "name": f"Always reject {grant} in this session",
            "kind": "reject_always",
        },
    ]
