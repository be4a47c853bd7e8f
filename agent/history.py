"""What was said in a session, folded from the records of its transcript. No I/O.

Invariants
- The live history and a reloaded one are the same: both come from `fold` alone.
- `messages` is well formed after any prefix of the records: every tool call has a result, a
  dangling one "interrupted by the user" (HAZARDS C17, K2).
- `replay` shows messages, not tokens, and ends every tool card that was opened (C16).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agent.model import Message, PartKind, ToolCall

Record: TypeAlias = dict[str, Any]
Update: TypeAlias = dict[str, Any]

INTERRUPTED = "interrupted by the user"
_TITLE_LENGTH = 60


@dataclass(slots=True)
class Outcome:
    status: str
    text: str
    raw: Any = None


@dataclass(slots=True)
class Call:
    """A tool call with the card it was shown as; `outcome` is None while it runs."""

    call: ToolCall
    card: dict[str, Any]
    outcome: Outcome | None = None


@dataclass(slots=True)
class Prompt:
    blocks: list[dict[str, Any]]
    text: str


@dataclass(slots=True)
class Answer:
    """One completion: runs of text and reasoning as they came, then calls."""

    runs: list[tuple[PartKind, list[str]]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def said(self, kind: PartKind) -> str:
        return "".join(token for run, tokens in self.runs if run == kind for token in tokens)


class History:
    def __init__(self) -> None:
        self._entries: list[Prompt | Answer] = []
        self._calls: dict[str, Call] = {}

    @property
    def title(self) -> str | None:
        """The first line of the first prompt, shortened; None before it."""
        first = next((e for e in self._entries if isinstance(e, Prompt)), None)
        return None if first is None else title_of(first.text)

    @property
    def message_id(self) -> str:
        """Of the message said last: its place in the history, so that a replay gives the same."""
        return _message_id(len(self._entries) - 1)

    @property
    def calls(self) -> int:
        """How many tool calls there were so far."""
        return len(self._calls)

    def fold(self, record: Record) -> None:
        """Take one record in; one that is unknown or not well formed changes nothing."""
        match record:
            case {"t": "text" | "reasoning" as kind, "d": str(token)}:
                self._say(kind, token)
            case {"t": "user", "blocks": [*blocks]}:
                self._entries.append(Prompt(blocks, text_of(blocks)))
            case {
                "t": "call",
                "id": str(call_id),
                "name": str(name),
                "arguments": str(arguments),
                "card": {"toolCallId": str(card_id), "title": str()} as card,
            }:
                self._calls[card_id] = entry = Call(ToolCall(call_id, name, arguments), card)
                self._answer(open_to_calls=True).calls.append(entry)
            case {"t": "result", "card": str(card_id), "status": str(status), "text": str(text)}:
                if card_id in self._calls:
                    self._calls[card_id].outcome = Outcome(status, text, record.get("raw"))

    def messages(self) -> list[Message]:
        """What a model is given."""
        return [message for entry in self._entries for message in _messages(entry)]

    def replay(self, *, running: bool = False) -> list[Update]:
        """The session updates that show it all again, as it is now.

        `running`: a turn goes on, and will itself end the cards that it has open.
        """
        shown: list[Update] = []
        for number, entry in enumerate(self._entries):
            goes_on = running and entry is self._entries[-1]
            shown.extend(_replay(entry, _message_id(number), goes_on))
        return shown

    def _say(self, kind: PartKind, token: str) -> None:
        runs = self._answer().runs
        if not runs or runs[-1][0] != kind:
            runs.append((kind, []))
        runs[-1][1].append(token)

    def _answer(self, *, open_to_calls: bool = False) -> Answer:
        """The answer being given: a new one after a prompt, or once there are calls to run."""
        last = self._entries[-1] if self._entries else None
        if isinstance(last, Answer) and (not last.calls or open_to_calls):
            return last
        answer = Answer()
        self._entries.append(answer)
        return answer


def title_of(text: str) -> str:
    """A session's title, made of its first prompt."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _TITLE_LENGTH else line[: _TITLE_LENGTH - 1] + "…"


def text_of(blocks: list[dict[str, Any]]) -> str:
    """Content blocks (wire form) as the text that a model reads."""
    return "\n".join(_block_text(block) for block in blocks)


def chunk(kind: str, block: dict[str, Any], message_id: str) -> Update:
    return {"sessionUpdate": kind, "content": block, "messageId": message_id}


def text_chunk(kind: PartKind, text: str, message_id: str) -> Update:
    update = "agent_message_chunk" if kind == "text" else "agent_thought_chunk"
    return chunk(update, {"type": "text", "text": text}, message_id)


def card_start(card: dict[str, Any]) -> Update:
    return {"sessionUpdate": "tool_call", "status": "pending", **card}


def card_end(card_id: str, outcome: Outcome) -> Update:
    update = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": card_id,
        "status": outcome.status,
        "content": [{"type": "content", "content": {"type": "text", "text": outcome.text}}],
    }
    if outcome.raw is not None:
        update["rawOutput"] = outcome.raw
    return update


def _message_id(number: int) -> str:
    return f"m{number}"


def _block_text(block: dict[str, Any]) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource_link", "uri": str(uri), "name": str(name)}:
            return f"[{name}]({uri})"
        case {"type": "resource", "resource": {"uri": uri, "text": str(text)}}:
            return f'<resource uri="{uri}">\n{text}\n</resource>'
        case {"type": "resource", "resource": {"uri": uri}}:
            return f'<resource uri="{uri}">binary</resource>'
    return "(content that this agent does not read)"


def _messages(entry: Prompt | Answer) -> Iterator[Message]:
    if isinstance(entry, Prompt):
        yield {"role": "user", "content": entry.text}
        return
    message: Message = {"role": "assistant", "content": entry.said("text")}
    if reasoning := entry.said("reasoning"):
        message["reasoning_content"] = reasoning
    if entry.calls:
        message["tool_calls"] = [_tool_call(call.call) for call in entry.calls]
    yield message
    for call in entry.calls:
        content = INTERRUPTED if call.outcome is None else call.outcome.text
        yield {"role": "tool", "tool_call_id": call.call.id, "content": content}


def _tool_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _replay(entry: Prompt | Answer, message_id: str, goes_on: bool) -> Iterator[Update]:
    if isinstance(entry, Prompt):
        for block in entry.blocks:
            yield chunk("user_message_chunk", block, message_id)
        return
    for kind, tokens in entry.runs:
        yield text_chunk(kind, "".join(tokens), message_id)
    for call in entry.calls:
        yield card_start(call.card)
        if call.outcome is not None or not goes_on:
            outcome = call.outcome or Outcome("failed", INTERRUPTED)
            yield card_end(call.card["toolCallId"], outcome)
