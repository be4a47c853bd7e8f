"""The sentences that the bridge says of a session's budget. SANS-IO.

They are shown as notices (`updates.notices`).
"""

from __future__ import annotations

from typing import Final

from acp_bridge.core.updates.wording import as_code, code

STOPPING: Final = "[acp-bridge] Stopping what the agent does: the session's budget is spent."


def amount(number: float) -> str:
    """Return an amount with up to four decimals, nine if it is small, without trailing zeros."""
    digits = 4 if number >= 0.01 else 9
    return f"{number:.{digits}f}".rstrip("0").rstrip(".")


def nearly_spent(cost: float, limit: float, currency: str) -> str:
    """Return the notice of a session that has cost most of what it may."""
    return (
        f"[acp-bridge] This session has cost {amount(cost)} of the {amount(limit)} {currency} that"
        " it may cost (`--budget`)."
    )


def is_spent(cost: float, limit: float, more: float, currency: str) -> str:
    """Return the notice of a session that is held for its budget; `more`: what a go adds."""
    return (
        f"[acp-bridge] The budget is spent: this session has cost {amount(cost)} {currency}, and"
        f" may cost {amount(limit)}. Nothing more starts until `/queue go`, which lets it cost"
        f" another {amount(more)} {currency}."
    )


def never_told(budget: float, currency: str) -> str:
    """Return the notice of a budget that can't be kept: the agent is known to tell no cost."""
    return (
        f"[acp-bridge] The budget of {amount(budget)} {currency} can't be kept: this agent tells no"
        " cost that can be counted, so nothing is stopped or held for it."
    )


def not_told(budget: float, currency: str) -> str:
    """Return the notice of a turn that has ended, and of which no cost can be counted."""
    return (
        "[acp-bridge] The agent has told no cost of this turn that can be counted. While it tells"
        f" none, nothing is stopped or held for the budget of {amount(budget)} {currency}."
    )


def other_currency(told: str, budget: float, currency: str) -> str:
    """Return the notice of costs in another currency than the budget's."""
    return (
        f"[acp-bridge] The agent tells costs in {as_code(code(told))}, which don't count for the"
        f" budget of {amount(budget)} {currency}: nothing is converted."
    )
