"""Events as the agent-server tells them, made short."""

import itertools
from typing import Any

from agent.openhands.events import Event, Json, read

_numbers = itertools.count(1)


def raw(kind: str, event_id: str = "", **members: Any) -> Json:
    return {"id": event_id or f"event-{next(_numbers)}", "kind": kind, **members}


def user(text: str, event_id: str = "") -> Json:
    content = [{"type": "text", "text": text, "cache_prompt": False}]
    message = {"role": "user", "content": content}
    return raw("MessageEvent", event_id, source="user", llm_message=message)


def agent(text: str, event_id: str = "", thought: str | None = None) -> Json:
    message: Json = {"role": "assistant", "content": [{"type": "text", "text": text}]}
    if thought is not None:
        message["reasoning_content"] = thought
    return raw("MessageEvent", event_id, source="agent", llm_message=message)


def delta(text: str | None = None, thought: str | None = None, event_id: str = "") -> Json:
    given = {"content": text, "reasoning_content": thought}
    told = {name: value for name, value in given.items() if value is not None}
    return raw("StreamingDeltaEvent", event_id, source="agent", **told)


def status(value: str) -> Json:
    return field("execution_status", value)


def field(key: str, value: Any) -> Json:
    return raw("ConversationStateUpdateEvent", source="environment", key=key, value=value)


def snapshot(value: str = "finished", message: str | None = None, **members: Any) -> Json:
    state = {"execution_status": value, "last_user_message_id": message, **members}
    return field("full_state", state)


def action(
    event_id: str,
    kind: str = "TerminalAction",
    *,
    tool: str = "terminal",
    call: str = "",
    said: str = "",
    **values: Any,
) -> Json:
    return raw(
        "ActionEvent",
        event_id,
        source="agent",
        thought=[{"type": "text", "text": said}] if said else [],
        action={"kind": kind, **values},
        tool_name=tool,
        tool_call_id=call or f"call-{event_id}",
        tool_call={"id": call, "name": tool, "arguments": "{}"},
    )


def result(of: str, text: str = "", *, failed: bool = False, **values: Any) -> Json:
    content = [{"type": "text", "text": text}]
    observation = {"kind": "TerminalObservation", "content": content, "is_error": failed, **values}
    return raw(
        "ObservationEvent",
        source="environment",
        action_id=of,
        tool_call_id=f"call-{of}",
        tool_name="terminal",
        observation=observation,
    )


def refusal(of: str, reason: str = "no") -> Json:
    return raw(
        "UserRejectObservation",
        source="environment",
        action_id=of,
        tool_call_id=f"call-{of}",
        tool_name="terminal",
        rejection_reason=reason,
    )


def error_of(call: str, text: str = "interrupted") -> Json:
    members = {"tool_call_id": call, "tool_name": "terminal", "error": text}
    return raw("AgentErrorEvent", source="agent", **members)


def failure(code: str = "LLMBadRequestError", detail: str = "the model says no") -> Json:
    return raw("ConversationErrorEvent", source="environment", code=code, detail=detail)


def event(told: Json) -> Event:
    found = read(told)
    assert found is not None
    return found
