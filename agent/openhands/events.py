"""Parses the agent-server's events from JSON; no other module knows their field names.

Invariants
- Whatever an event holds, parsing it raises nothing: malformed parts are left out, and an event of
  an unknown kind is `Other`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from acp_bridge.core.protocol import as_object

Json: TypeAlias = dict[str, Any]


class Status(StrEnum):
    """The execution status of a conversation, as the server names it."""

    IDLE = "idle"
    RUNNING = "running"
    PAUSED = "paused"
    #: the run has ended because actions wait for a person's answer
    WAITING = "waiting_for_confirmation"
    FINISHED = "finished"
    ERROR = "error"
    STUCK = "stuck"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a message: a text, or an image as a URL."""

    text: str = ""
    image: str = ""


@dataclass(frozen=True, slots=True)
class UserMessage:
    id: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class AgentMessage:
    id: str
    text: str
    thought: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a message that the model is still writing; the server never stores it."""

    id: str
    text: str = ""
    thought: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """A tool call. `said`: what the model wrote before it; `values`: the tool's own parameters."""

    id: str
    call_id: str
    tool: str
    said: str = ""
    thought: str = ""
    kind: str = ""
    values: Mapping[str, Any] = field(default_factory=dict, compare=False)
    #: False if the server could not parse the call and won't run it
    runs: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a tool call: its observation, an error, or a person's refusal."""

    id: str
    call_id: str
    action_id: str = ""
    failed: bool = False
    parts: tuple[Part, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InnerCall:
    """A tool call of an ACP agent inside the conversation; each change is an event."""

    id: str
    call_id: str
    title: str
    kind: str
    status: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The complete state of the conversation."""

    id: str
    values: Mapping[str, Any]

    @property
    def status(self) -> Status | None:
        return status_of(self.values.get("execution_status"))


@dataclass(frozen=True, slots=True)
class StateField:
    """A changed field of the conversation's state."""

    id: str
    key: str
    value: Any

    @property
    def status(self) -> Status | None:
        return status_of(self.value) if self.key == "execution_status" else None


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of the conversation or the server, with the server's code and detail."""

    id: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """A person interrupted the run, and the call in flight with it."""

    id: str


@dataclass(frozen=True, slots=True)
class Condensed:
    """The history that the model is given was condensed."""

    id: str


@dataclass(frozen=True, slots=True)
class Other:
    id: str


Event: TypeAlias = (
    UserMessage
    | AgentMessage
    | Delta
    | Action
    | Result
    | InnerCall
    | Snapshot
    | StateField
    | Failure
    | Stopped
    | Condensed
    | Other
)


def status_of(value: object) -> Status | None:
    try:
        return Status(str(value))
    except ValueError:
        return None


def read(raw: object) -> Event | None:
    """Returns the event for a JSON value; None if it is no object or has no id."""
    if not isinstance(raw, dict) or not (event_id := _text(raw.get("id"))):
        return None
    match raw.get("kind"):
        case "MessageEvent":
            return _message(event_id, raw)
        case "StreamingDeltaEvent":
            return Delta(event_id, _text(raw.get("content")), _text(raw.get("reasoning_content")))
        case "ActionEvent":
            return _action(event_id, raw)
        case "ObservationEvent" | "AgentErrorEvent" | "UserRejectObservation":
            return _result(event_id, raw)
        case "ACPToolCallEvent":
            return _inner_call(event_id, raw)
        case "ConversationStateUpdateEvent":
            return _state(event_id, raw)
        case "ConversationErrorEvent" | "ServerErrorEvent":
            return Failure(event_id, _text(raw.get("code")), _text(raw.get("detail")))
        case "InterruptEvent":
            return Stopped(event_id)
        case "Condensation":
            return Condensed(event_id)
    return Other(event_id)


def _message(event_id: str, raw: Json) -> Event:
    message = as_object(raw.get("llm_message"))
    parts = _parts(message.get("content"))
    if message.get("role") == "user":
        return UserMessage(event_id, parts)
    if raw.get("source") != "agent":
        return Other(event_id)
    return AgentMessage(event_id, _joined(parts), _text(message.get("reasoning_content")))


def _action(event_id: str, raw: Json) -> Action:
    action = raw.get("action")
    call = as_object(raw.get("tool_call"))
    values = as_object(action)
    return Action(
        event_id,
        call_id=_text(raw.get("tool_call_id")),
        tool=_text(raw.get("tool_name")) or _text(call.get("name")),
        said=_joined(_parts(raw.get("thought"))),
        thought=_text(raw.get("reasoning_content")),
        kind=_text(values.get("kind")),
        values={key: value for key, value in values.items() if key != "kind"},
        runs=isinstance(action, dict),
    )


def _result(event_id: str, raw: Json) -> Result:
    values = as_object(raw.get("observation"))
    failed = raw["kind"] != "ObservationEvent" or values.get("is_error") is True
    said = _text(raw.get("error")) or _text(raw.get("rejection_reason"))
    parts = (Part(said),) if said else _parts(values.get("content"))
    return Result(
        event_id,
        call_id=_text(raw.get("tool_call_id")),
        action_id=_text(raw.get("action_id")),
        failed=failed,
        parts=parts,
        values=values,
    )


def _inner_call(event_id: str, raw: Json) -> InnerCall:
    status = "failed" if raw.get("is_error") is True else _text(raw.get("status"))
    values = {key: raw.get(key) for key in ("raw_input", "raw_output", "content")}
    title, kind = _text(raw.get("title")), _text(raw.get("tool_kind"))
    return InnerCall(event_id, _text(raw.get("tool_call_id")), title, kind, status, values)


def _state(event_id: str, raw: Json) -> Event:
    key, value = _text(raw.get("key")), raw.get("value")
    if key == "full_state":
        return Snapshot(event_id, as_object(value))
    return StateField(event_id, key, value)


def _parts(content: object) -> tuple[Part, ...]:
    """Returns the texts and images of a message's content."""
    found: list[Part] = []
    for block in content if isinstance(content, list) else ():
        match block:
            case {"text": str(text)}:
                found.append(Part(text))
            case {"image_urls": [*urls]}:
                found.extend(Part(image=url) for url in urls if isinstance(url, str))
    return tuple(found)


def _joined(parts: tuple[Part, ...]) -> str:
    return "\n".join(part.text for part in parts if part.text)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
