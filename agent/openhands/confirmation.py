"""The server's confirmation: its policies as modes, and one question about all waiting actions.

The server takes one answer for all actions, so they are asked about together, each by its name.
"""

from __future__ import annotations

from typing import Any, Final

from agent.openhands.cards import contents, described, planned, title
from agent.openhands.events import Action, Json, Part

ALLOW: Final = "allow"
REJECT: Final = "reject"
_OPTIONS: Final = (
    {"optionId": ALLOW, "name": "Allow", "kind": "allow_once"},
    {"optionId": REJECT, "name": "Reject", "kind": "reject_once"},
)
#: by the mode's id: its name, its description, the policy
MODES: Final[dict[str, tuple[str, str, Json]]] = {
    "always": (
        "Always ask",
        "Every action waits for your answer",
        {"kind": "AlwaysConfirm"},
    ),
    "risky": (
        "Ask for risky actions",
        "Actions of high or unknown risk wait for your answer",
        {"kind": "ConfirmRisky"},
    ),
    "never": (
        "Never ask",
        "Every action runs at once",
        {"kind": "NeverConfirm"},
    ),
}


def question(actions: tuple[Action, ...]) -> tuple[Json, list[Json]]:
    """Returns the tool call and the options of a permission request for all these actions."""
    first = actions[0]
    if len(actions) == 1:
        return {**described(first), "status": "pending"}, list(_OPTIONS)
    names = [title(action) for action in actions]
    content = [
        block
        for number, action in enumerate(actions, 1)
        for block in (*contents([Part(f"{number}. {title(action)}")]), *planned(action))
    ]
    call: dict[str, Any] = {
        "toolCallId": first.id,
        "title": f"{len(actions)} actions: {'; '.join(names)}",
        "kind": "other",
        "status": "pending",
        "content": content,
        "rawInput": {"actions": [dict(action.values) for action in actions]},
    }
    return call, list(_OPTIONS)


def is_consent(answer: str) -> bool:
    return answer == ALLOW


def mode_of(policy: object) -> str | None:
    """Returns the mode for a policy; None if there is none."""
    kind = policy.get("kind") if isinstance(policy, dict) else None
    return next((mode for mode, (_, _, known) in MODES.items() if known["kind"] == kind), None)
