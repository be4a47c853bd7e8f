"""What must hold of whatever a bridge said, in every test that starts one."""

import json
from collections import Counter
from typing import Any

from tests.support.recording import Message, Record, Recording

PROMPT = "session/prompt"
ENDED = ("completed", "failed")


def judge(recording: Recording, said: str) -> None:
    """What must hold of every line that a bridge wrote, to its client and to its log (`said`)."""
    judge_lines(recording, said)
    judge_answers(recording)
    judge_cards(recording)
    judge_ends(recording)


def judge_lines(recording: Recording, said: str) -> None:
    """A message each, and nothing in the log that somebody should have caught."""
    own = [line for line in said.splitlines() if "agent.stderr" not in line]
    said = "\n".join(own)
    bad = min((at for at in (said.find("Traceback"), said.find(" ERROR ")) if at >= 0), default=-1)
    assert bad < 0, said[max(0, bad - 300) :]
    lines = [record for record in recording if record.direction == "in"]
    for number, record in enumerate(lines):
        torn = f"{record.raw[:200]!r} ... {record.raw[-200:]!r}, {len(record.raw)} bytes"
        where = f"{number + 1} of {len(lines)}"
        assert record.message is not None, f"not a JSON object, line {where}: {torn}"
        assert record.message["jsonrpc"] == "2.0"


def judge_answers(recording: Recording) -> None:
    """Every answer is to a request, and no request has two. (invariant Q9)"""
    sent = (each for r in recording if r.direction == "out" for each in _messages(r))
    asked = Counter(json.dumps(each.get("id")) for each in sent if _is_request(each))
    answered = Counter(_id(r) for r in recording if r.direction == "in" and _is_response(r))
    twice = {key: count for key, count in answered.items() if count > asked[key]}
    assert not {key for key in twice if json.loads(key) is not None}


def judge_cards(recording: Recording) -> None:
    """A tool card has one end, and nothing opens it again. (invariant C16)"""
    ended: set[tuple[str, str]] = set()
    for record in recording:
        if _asks_for_replay(record):
            ended.clear()  # a replay shows them once more
        for session_id, update in _updates(record):
            if not update["sessionUpdate"].startswith("tool_call"):
                continue
            if "toolCallId" not in update:
                continue  # what a hostile agent says passes as it is
            card = (session_id, update["toolCallId"])
            assert not (card in ended and "status" in update), f"{card} goes on after its end"
            if update.get("status") in ENDED:
                ended.add(card)


def judge_ends(recording: Recording) -> None:
    """Nothing of a cancelled turn follows its answer. (invariant C6)"""
    prompts = {_id(r): r.message for r in recording if _method(r) == PROMPT}
    seen: dict[str, set[str]] = {}
    dead: dict[str, set[str]] = {}
    for record in recording:
        if _asks_for_replay(record):
            seen.clear()
            dead.clear()
        for session_id, update in _updates(record):
            ids = {str(update[key]) for key in ("toolCallId", "messageId") if key in update}
            assert not ids & dead.get(session_id, set()), f"after the cancelled answer: {update}"
            seen.setdefault(session_id, set()).update(ids)
        if record.direction == "in" and stop_reason(record.message or {}) == "cancelled":
            prompt = prompts[_id(record)]
            assert prompt is not None
            session_id = prompt["params"]["sessionId"]
            dead.setdefault(session_id, set()).update(seen.get(session_id, set()))


def _method(record: Record) -> str | None:
    return record.message.get("method") if record.message else None


def _asks_for_replay(record: Record) -> bool:
    """Whichever version the client speaks."""
    params = (record.message or {}).get("params")
    replays = isinstance(params, dict) and params.get("replayFrom") is not None
    return record.direction == "out" and (_method(record) == "session/load" or replays)


def _messages(record: Record) -> list[Message]:
    """The message of a line, or those of a list."""
    if record.message is not None:
        return [record.message]
    try:
        told = json.loads(record.raw)
    except (ValueError, RecursionError):
        return []
    return [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []


def _is_request(message: Message) -> bool:
    """Or meant as one."""
    return "id" in message and not {"result", "error"} & message.keys()


def _is_response(record: Record) -> bool:
    return record.message is not None and "method" not in record.message


def _id(record: Record) -> str:
    return json.dumps(record.message.get("id") if record.message else None)


def _updates(record: Record) -> list[tuple[str, Message]]:
    if record.direction == "out" or _method(record) != "session/update":
        return []
    assert record.message is not None
    params = record.message["params"]
    return [(params["sessionId"], params["update"])]


def stop_reason(answer: Message) -> Any:
    """Of a whole response; None for an error, or for what is none."""
    result = answer.get("result")
    return result.get("stopReason") if isinstance(result, dict) else None
