"""From an outcome to what the client and the journal are told of it."""

from __future__ import annotations

from typing import Any

from acp_bridge import errors
from acp_bridge import signals as sig
from acp_bridge.agents.process import Exit
from acp_bridge.wire.jsonrpc import Answer, Err, Ok, RpcError
from acp_bridge.wire.peer import Call, Peer

Json = dict[str, Any]


def respond(client: Peer, call: Call, answer: Answer) -> None:
    """Answer a request of the client."""
    match answer:
        case Ok(result):
            client.answer(call.id, result)
        case Err(error):
            client.fail(call.id, error)


def of_outcome(outcome: sig.Outcome) -> Answer:
    """The answer to `session/prompt`."""
    match outcome:
        case sig.Replied(answer) if isinstance(answer, Ok | Err):
            return answer
        case sig.Cancelled():
            return Ok({"stopReason": "cancelled"})
        case sig.Failed(why, detail):
            return Err(_failure(why, detail))
        case _:
            return Ok({"stopReason": "end_turn"})


def _failure(why: sig.Failure, detail: object) -> RpcError:
    match why:
        case sig.Failure.JOURNAL:
            return errors.agent_trouble("the prompt could not be written to the journal: not taken")
        case sig.Failure.AGENT_DIED:
            how = detail.describe() if isinstance(detail, Exit) else "it is gone"
            return errors.agent_trouble(
                f"the agent ended during the turn ({how}); the session goes on, the prompt is not"
                " sent again"
            )
        case sig.Failure.NEEDS_AUTH:
            return detail if isinstance(detail, RpcError) else errors.auth_required()
        case sig.Failure.CLOSED:
            return errors.unknown_session()
        case sig.Failure.NO_AGENT:
            why_not = detail.describe() if isinstance(detail, Exit) else detail
            told = f": {why_not}" if why_not else " in time"
            return errors.agent_trouble(f"the agent could not be made ready{told}")


def for_journal(answer: object) -> Json | None:
    """An answer as the journal keeps it; None for what is no answer."""
    match answer:
        case Ok(result):
            return result if isinstance(result, dict) else {"result": result}
        case Err(error):
            return {"error": error.to_wire()}
        case _:
            return None


def in_short(answer: Answer) -> object:
    """For the log."""
    if isinstance(answer, Err):
        return f"error {answer.error.code}"
    return answer.result.get("stopReason") if isinstance(answer.result, dict) else "?"
