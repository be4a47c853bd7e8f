"""Turns a prompt's outcome into the client's answer and the journal's row."""

from __future__ import annotations

from typing import Final, assert_never

from acp_bridge.core import errors
from acp_bridge.core.agents.failed_start import NOT_READY, NotReady
from acp_bridge.core.agents.process import Exit
from acp_bridge.core.journal import DROPPED, GONE, INTERRUPTED, TAKEN, UNRECORDED, WAL_GONE, ForUser
from acp_bridge.core.machine.effects import (
    Cancelled,
    Done,
    Failed,
    Failure,
    Outcome,
    Refused,
    Replied,
)
from acp_bridge.core.protocol import PROMPT_REQUIRED, STOP_REASON, Json, own_meta, with_own_meta
from acp_bridge.core.wire.jsonrpc import UNSET, Answer, Err, Ok, RpcError


def of_outcome(outcome: Outcome, agents: object = None) -> Answer:
    """Return the answer to `session/prompt` for an outcome.

    `agents`: the agent's own answer to a prompt that was cancelled. All of it but the stop reason
    is passed on: the tokens that were used, for example.
    """
    match outcome:
        case Replied(Ok() | Err() as answer):
            return answer
        case Replied(odd):
            return Err(
                errors.internal(TypeError(type(odd)), "the agent's answer was not understood")
            )
        case Cancelled():
            more = agents.result if isinstance(agents, Ok) else None
            return Ok({**(more if isinstance(more, dict) else {}), "stopReason": "cancelled"})
        case Done():
            return Ok({"stopReason": "end_turn"})
        case Refused():
            return Ok({"stopReason": "refusal"})
        case Failed(why, detail):
            return Err(_failure(why, detail))
        case _:
            assert_never(outcome)


def of_wait(outcome: Outcome) -> Answer:
    """Return the answer to `/queue wait` for the outcome of the prompt that it waited for."""
    answer = of_outcome(outcome)
    if isinstance(answer, Err) or isinstance(outcome, Cancelled):
        return answer
    return of_outcome(Done())


def _is_for_user(detail: object) -> bool:
    return isinstance(detail, ForUser) or detail in (GONE, TAKEN, WAL_GONE)


def _failure(why: Failure, detail: object) -> RpcError:
    match why:
        case Failure.JOURNAL if _is_for_user(detail):
            return errors.agent_trouble(f"the prompt was not taken: {detail}")
        case Failure.JOURNAL:
            return errors.agent_trouble("the prompt could not be written to the journal: not taken")
        case Failure.NOT_BEGUN if _is_for_user(detail):
            return errors.agent_trouble(f"the prompt was not sent: {detail}")
        case Failure.NOT_BEGUN:
            return errors.agent_trouble("the journal can't be written, so the prompt was not sent")
        case Failure.AGENT_DIED:
            how = detail.describe() if isinstance(detail, Exit) else "it is gone"
            return errors.agent_trouble(
                f"the agent ended during the turn ({how}); the session goes on, the prompt is not"
                " sent again"
            )
        case Failure.TAKEN:
            return errors.agent_trouble(f"the turn was ended: {detail}")
        case Failure.NEEDS_AUTH:
            return detail if isinstance(detail, RpcError) else errors.auth_required()
        case Failure.CLOSED:
            return errors.unknown_session()
        case Failure.KEPT:
            return errors.agent_trouble(
                "the session was closed for all before this prompt ran; it is kept: load the"
                " session, and `/queue run` runs it"
            )
        case Failure.NO_TURN | Failure.NOT_JOINED | Failure.PERHAPS_UNREAD:
            return errors.agent_trouble(_NOT_JOINED[why])
        case Failure.NO_AGENT:
            return _not_ready(detail)
        case _:
            assert_never(why)


def _not_ready(detail: object) -> RpcError:
    """Return the error of a prompt for which there was no agent."""
    if isinstance(detail, NotReady):
        return detail.as_own()
    why_not = f"it ended ({detail.describe()})" if isinstance(detail, Exit) else detail
    told = f": {why_not}" if why_not else " in time"
    return errors.agent_trouble(f"{NOT_READY}{told}")


#: why a prompt that was to join a turn did not.
_NOT_JOINED: Final = {
    Failure.NO_TURN: "the turn that these words were for has ended",
    Failure.NOT_JOINED: (
        "the agent ended during the turn that these words were to join; they are left over:"
        " `/queue run` runs them"
    ),
    Failure.PERHAPS_UNREAD: (
        "the agent took these words into a turn that then ended without another word; it has"
        " perhaps not read them, and they are left over: `/queue run` sends them again"
    ),
}


#: the answer to `_session/steering` of words that are for a turn that runs, and for no other.
NO_TURN: Final[Json] = {"outcome": PROMPT_REQUIRED, "reason": "noRunningTurn"}


def of_steering(outcome: str, delivery: str) -> Answer:
    """Return the answer to `_session/steering`: `outcome` in its own words, `delivery` in ours."""
    return Ok(with_own_meta({"outcome": outcome}, {"delivery": delivery}))


def of_words_unsent(outcome: Outcome) -> Answer:
    """Return the answer to `_session/steering` of words that ended before the agent took them."""
    match outcome:
        case Failed(Failure.NO_TURN):
            return Ok(NO_TURN)
        case Failed(Failure.NOT_JOINED | Failure.KEPT):  # they are left over, and may run
            return of_outcome(outcome)
        case _:
            return of_steering("failed", "queued")


def says_why_not_ready(outcome: Outcome) -> bool:
    """Return True when the answer says why no agent takes the session."""
    return isinstance(outcome, Failed) and outcome.why in (Failure.NO_AGENT, Failure.NEEDS_AUTH)


def for_journal(answer: object) -> Json | None:
    """Return the journal's form of an agent's answer; None if the agent has not answered."""
    match answer:
        case Ok(result):
            return result if isinstance(result, dict) else {"result": result}
        case Err(error):
            return {"error": error.to_wire()}
        case _:
            return None


def kept(outcome: Outcome, agents: object = None) -> Json:
    """Return the journal's form of the answer for an outcome; `agents`: as for `of_outcome`."""
    return for_journal(of_outcome(outcome, agents)) or {}


def for_clients(answer: Answer) -> Json:
    """Return how a prompt ended for clients that did not ask it: `stopReason`, or `error`."""
    if isinstance(answer, Err):
        return {"error": answer.error.to_wire()}
    return {"stopReason": in_short(answer)}


def as_told(told: Json | None) -> Answer:
    """Return the answer that a prompt was given, from the journal's form of it.

    `told` is None if the journal can't read it, or has none.
    """
    match told:
        case None | {"unrecorded": True} if told in (None, UNRECORDED):
            return Err(errors.agent_trouble(_ANSWER_LOST))
        case {"interrupted": True} if told == INTERRUPTED:
            return Err(errors.agent_trouble(_INTERRUPTED))
        case {"dropped": True} if told == DROPPED:
            return of_outcome(Cancelled())
        case {"error": {"code": int(code), "message": str(message), **more}} if len(told) == 1:
            return Err(RpcError.received(code, message, more.get("data", UNSET)))
        case {"result": result} if len(told) == 1:
            return Ok(result)
        case _:
            return Ok(told)


_ANSWER_LOST: Final = (
    "this prompt was taken before, and its answer can't be read any more; it is not sent again"
)
_INTERRUPTED: Final = "this prompt was interrupted by the end of the bridge, and is not sent again"


def in_short(answer: Answer) -> object:
    """Return an answer in a few words, for the log."""
    if isinstance(answer, Err):
        return f"error {answer.error.code}"
    if not isinstance(answer.result, dict):
        return "?"
    return own_meta(answer.result).get(STOP_REASON) or answer.result.get("stopReason")
