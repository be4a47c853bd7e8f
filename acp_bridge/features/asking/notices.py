"""The sentences about a question beside the session."""

from __future__ import annotations

from typing import Final

from acp_bridge.core.updates.wording import visible, words

ASK_WHAT: Final = "Ask what? `/queue ask QUESTION` is answered beside the session."
CANNOT_ASK: Final = (
    "this agent can't be asked beside the session: it has no forks. Ask it in a prompt"
)


def answered_beside(answer: str) -> str:
    """Return the notice of the answer to `/queue ask`: the agent's words, each line as a quote."""
    quote = "\n".join(f"> {visible(line)}" for line in answer.splitlines())
    return f"[acp-bridge] Asked beside the session, which keeps nothing of this:\n\n{quote}"


def not_answered(why: str) -> str:
    """Return the notice that `/queue ask` has no answer."""
    return f"[acp-bridge] Not answered: {words(why)}."
