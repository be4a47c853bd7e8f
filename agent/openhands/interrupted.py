"""Finds the interrupted message that an ACP agent in the agent-server would get again (sans-IO).

The server takes an interrupted message of such an agent for one that is still to be sent: with the
next message the agent would get it first, although it was answered `cancelled` (invariant C1).
"""

from __future__ import annotations

from agent.openhands.events import Json, Status, status_of

_ACP_AGENT = "ACPAgent"
#: the member of the agent's state with the id of the last message that it has completed
_DONE = "acp_last_prompt_user_message_id"


def left_over(state: Json) -> str | None:
    """Returns the id of the interrupted message that the agent would get again with the next one.

    Returns None if there is none. `state`: the conversation's state.
    """
    agent, last = state.get("agent"), state.get("last_user_message_id")
    if not isinstance(agent, dict) or agent.get("kind") != _ACP_AGENT or not isinstance(last, str):
        return None
    if status_of(state.get("execution_status")) not in (Status.PAUSED, Status.ERROR):
        return None
    of_agent = state.get("agent_state")
    done = of_agent.get(_DONE) if isinstance(of_agent, dict) else None
    return None if done == last else last
