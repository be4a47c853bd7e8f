"""Converts a history into messages for a model, in the form of chat completions.

Invariants
- The messages are well formed for any history: every tool call is followed by its result, in order,
  a call without one by "interrupted by the user" (invariants C17, K2); no text is blank.
- No odd answer of a model makes a provider refuse all later requests.
- The same entries give the same messages, so that a reload gives the model what it had.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

from pydantic_core import from_json

from agent.content.blocks import content_of, image_part
from agent.conversation.entries import INTERRUPTED, Answer, Call, Entry, Note, Prompt, Summary
from agent.model import NOTE, TOOL_IMAGES, Message, ToolCall

PLANNING = "(The session is in plan mode: look around, change nothing, and answer with a plan.)"
PLANNED = "(The session is no longer in plan mode.)"
GONE = "(Tools that you called before are not there any more, and nothing stands for them: {}.)"
BACK = "(Tools that were not there are there again: {}.)"
TRIMMED = "(This result was left out to save room. Call the tool again if it is needed.)"
_UNSEEN = "(An image came with this, which this model can't see.)"
_SUMMARY = "The conversation before this was replaced by this summary of it:\n\n"
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 64


def sendable(call: ToolCall) -> ToolCall:
    """Returns the call in a form that every provider accepts.

    Its name has only letters that all allow, and its arguments are a JSON object.
    """
    name = _NOT_IN_NAMES.sub("_", call.name)[:_LONGEST_NAME] or "unnamed"
    return ToolCall(call.id, name, _object(call.arguments))


def parsed(arguments: str) -> Any:
    """Returns the JSON value of a call's arguments, or their text if they are not valid JSON."""
    try:
        return from_json(arguments.encode() or b"{}", allow_inf_nan=False)
    except ValueError:  # malformed JSON, or half a surrogate pair
        return arguments.encode(errors="replace").decode()


def _object(arguments: str) -> str:
    if isinstance(parsed(arguments), dict):
        return arguments or "{}"
    return json.dumps({"invalid": arguments})


def messages_of(
    system: str | None, entries: Sequence[Entry], summary: Summary | None, *, images: bool
) -> Iterator[Message]:
    if system and system.strip():
        yield {"role": "system", "content": system}
    if summary is not None:
        yield {"role": "user", "content": _SUMMARY + summary.text}
        for prompt in summary.prompts:
            yield from messages_of_entry(prompt, images=images)
        entries = entries[summary.entries :]
    for entry in entries:
        yield from messages_of_entry(entry, images=images)


def messages_of_entry(entry: Entry, *, images: bool) -> Iterator[Message]:
    if entry.refused:
        return
    if isinstance(entry, Prompt):
        yield _prompt(entry, images)
        return
    if isinstance(entry, Note):
        yield {"role": "user", "content": f"{NOTE} {entry.text}"}
        return
    text = entry.said("text")
    if not entry.calls and not text.strip():
        return  # an interruption after a thought leaves an empty answer, which providers refuse
    yield _said(entry, text)
    seen: list[str] = []
    for call in entry.calls:
        yield {"role": "tool", "tool_call_id": call.call.id, "content": result_text(call, images)}
        if call.outcome is not None and not call.trimmed:
            seen += call.outcome.images
    if images and seen:
        shown = {"type": "text", "text": TOOL_IMAGES}
        yield {"role": "user", "content": [shown, *map(image_part, seen)]}


def result_text(call: Call, images: bool) -> str:
    if call.outcome is None:
        return INTERRUPTED
    if call.trimmed:
        return TRIMMED
    text = call.outcome.text
    if call.outcome.images and not images:
        text = f"{text}\n{_UNSEEN}"
    return text if text.strip() else "(no output)"


def _prompt(prompt: Prompt, images: bool) -> Message:
    if images not in prompt.contents:  # cached: checking an image takes milliseconds
        given = content_of(
            [*prompt.blocks, *_about_mode(prompt), *_about_tools(prompt)], images=images
        )
        prompt.contents[images] = given or "(nothing)"
    return {"role": "user", "content": deepcopy(prompt.contents[images])}


def _about_mode(prompt: Prompt) -> Iterator[dict[str, Any]]:
    if prompt.mode == "plan":
        yield {"type": "text", "text": PLANNING}
    elif prompt.mode_before == "plan":
        yield {"type": "text", "text": PLANNED}


def _about_tools(prompt: Prompt) -> Iterator[dict[str, Any]]:
    before, now = set(prompt.gone_before), set(prompt.gone)
    if gone := ", ".join(sorted(now - before)):
        yield {"type": "text", "text": GONE.format(gone)}
    if back := ", ".join(sorted(before - now)):
        yield {"type": "text", "text": BACK.format(back)}


def _said(answer: Answer, text: str) -> Message:
    message: Message = {"role": "assistant", "content": text if text.strip() else ""}
    if reasoning := answer.said("reasoning"):
        message["reasoning_content"] = reasoning
    if answer.calls:
        message["tool_calls"] = [_tool_call(call.call) for call in answer.calls]
    if answer.provider is not None:
        message["provider"] = dict(answer.provider)
    return message


def _tool_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}
