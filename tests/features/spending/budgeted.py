"""What tests of a session's budget share: an agent that the test plays, and what it costs."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from acp_bridge.core.protocol import BUILTIN_INFO, GO, USAGE_UPDATE
from acp_bridge.core.settings import Money
from acp_bridge.features.spending.account import Account
from acp_bridge.features.spending.budget import Budget
from tests.core.session.living import Living, first, living
from tests.core.session.memory import Json
from tests.core.session.played_agent import PlayedAgent

FIVE = Money(5, "USD")
SPENT = "[acp-bridge] The budget is spent: this session has cost "


def telling(info: Json | None = None) -> PlayedAgent:
    """Return an agent whose costs are totals of the session, or one of this name."""
    agent = first()
    agent.connection.initialized = {
        **agent.initialized,
        "agentInfo": info or {"name": BUILTIN_INFO},
    }
    return agent


def costs(agent: PlayedAgent, amount: object, currency: str = "USD") -> None:
    """Let the agent tell its cost."""
    cost = {"amount": amount, "currency": currency}
    agent.update(sessionUpdate=USAGE_UPDATE, used=1, size=2, cost=cost)


def limited(folder: Path, agent: PlayedAgent, **more: Any) -> AbstractAsyncContextManager[Living]:
    """A session with this agent that may cost 5 USD."""
    return living(folder, first=agent, budget=FIVE, sign_interval=1e9, **more)


def budget_of(here: Living) -> Budget:
    """Return what counts the costs of the session."""
    (account,) = (each for each in here.session.features.on if isinstance(each, Account))
    assert account.budget
    return account.budget


def said(here: Living, beginning: str = SPENT) -> list[str]:
    """Return the notices that begin like this."""
    return [text for text in here.texts() if text.startswith(beginning)]


def go(here: Living) -> None:
    """Say go as a client's button does."""
    here.session.pauses.take(here.request(GO))
