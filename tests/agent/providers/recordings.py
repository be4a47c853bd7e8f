"""Answers of models, event by event, in the forms in which providers stream them.

They are as the providers send them, with the members that nobody reads; ids and words are short.
"""

from __future__ import annotations

from typing import Any

Events = list[dict[str, Any]]


def chat(*deltas: dict[str, Any], end: str | None = None, **more: Any) -> Events:
    """Chunks of chat completions."""
    frame: dict[str, Any] = {
        "id": "chatcmpl-9",
        "object": "chat.completion.chunk",
        "created": 1764200000,
        "model": "gpt-5.2-2025-12-11",
        "service_tier": "default",
        "system_fingerprint": None,
    }
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None} for delta in deltas
    ]
    if end is not None:
        choices.append({"index": 0, "delta": {}, "logprobs": None, "finish_reason": end})
    events: Events = [{**frame, "choices": [choice], "usage": None} for choice in choices]
    if more:
        events.append({**frame, "choices": [], **more})
    return events


USAGE = {
    "prompt_tokens": 112,
    "completion_tokens": 42,
    "total_tokens": 154,
    "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 20, "audio_tokens": 0},
}


def call(index: int, arguments: str, id: str | None = None, name: str | None = None) -> Any:
    function = {"arguments": arguments, **({"name": name} if name else {})}
    begun = {"id": id, "type": "function"} if id else {}
    return {"tool_calls": [{"index": index, **begun, "function": function}]}


CHAT: dict[str, Events] = {
    "OpenAI": chat(
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "I look"},
        {"content": " into it: é→"},
        call(0, "", "call_a", "read_file"),
        call(0, '{"path"'),
        call(0, ': "x"}'),
        call(1, '{"query": "y"}', "call_b", "search"),
        end="tool_calls",
        usage=USAGE,
    ),
    "OpenAI, a refusal": chat(
        {"role": "assistant", "content": None, "refusal": ""},
        {"refusal": "I can't"},
        {"refusal": " help with that."},
        end="stop",
        usage=USAGE,
    ),
    "a filter": chat({"role": "assistant", "content": "Well"}, end="content_filter"),
    "DeepSeek": chat(
        {"role": "assistant", "content": None, "reasoning_content": ""},
        {"content": None, "reasoning_content": "The user"},
        {"content": None, "reasoning_content": " wants x."},
        {"content": "Yes", "reasoning_content": None},
        {"content": ", x.", "reasoning_content": None},
        end="stop",
        usage={**USAGE, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 48},
    ),
    "Mistral": chat(
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}],
        },
        {"content": [{"type": "text", "text": "Well"}]},
        {"content": ", x."},
        end="length",
        usage=USAGE,
    ),
    "OpenRouter": chat(
        {
            "role": "assistant",
            "content": "",
            "reasoning": "Hm",
            "reasoning_details": [
                {"type": "reasoning.text", "text": "Hm", "format": "unknown", "index": 0}
            ],
        },
        {"content": "Well", "reasoning": None, "reasoning_details": []},
        {"content": "."},
        end="stop",
        usage={**USAGE, "cost": 0.0012},
    ),
    "Groq": chat(
        {"role": "assistant", "content": "", "reasoning": "Hm"},
        {"content": "Well."},
        end="stop",
        x_groq={"id": "req_1", "usage": USAGE},
    ),
}


def messages(*blocks: tuple[dict[str, Any], list[dict[str, Any]]], end: str) -> Events:
    """Events of Anthropic's messages."""
    usage = {
        "input_tokens": 10,
        "cache_creation_input_tokens": 5,
        "cache_read_input_tokens": 90,
        "output_tokens": 1,
        "service_tier": "standard",
    }
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5-20250929",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    events: Events = [{"type": "message_start", "message": message}, {"type": "ping"}]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": end, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 42}})
    return [*events, {"type": "message_stop"}]


def text_delta(text: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": text}


def json_delta(piece: str) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": piece}


MESSAGES: dict[str, Events] = {
    "Claude": messages(
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [
                {"type": "thinking_delta", "thinking": "Hm, "},
                {"type": "thinking_delta", "thinking": "x."},
                {"type": "signature_delta", "signature": "c2ln"},
            ],
        ),
        ({"type": "text", "text": ""}, [text_delta("I look"), text_delta(" into it: é→")]),
        (
            {"type": "tool_use", "id": "toolu_a", "name": "read_file", "input": {}},
            [json_delta(""), json_delta('{"path"'), json_delta(': "x"}')],
        ),
        (
            {"type": "tool_use", "id": "toolu_b", "name": "search", "input": {}},
            [json_delta('{"query": "y"}')],
        ),
        end="tool_use",
    ),
    "a refusal": messages(({"type": "text", "text": ""}, [text_delta("No.")]), end="refusal"),
    "a text": messages(
        ({"type": "text", "text": ""}, [text_delta("Well"), text_delta(", x.")]), end="end_turn"
    ),
    "a limit": messages(({"type": "text", "text": ""}, [text_delta("We")]), end="max_tokens"),
}


def responses(*items: tuple[dict[str, Any], list[str]], end: str = "completed") -> Events:
    """Events of OpenAI's Responses; each item is whole, and comes with the pieces of its text."""
    base: dict[str, Any] = {"id": "resp_1", "object": "response", "created_at": 1764200000}
    events: Events = [
        {"type": "response.created", "response": {**base, "status": "in_progress", "output": []}}
    ]
    for index, (item, pieces) in enumerate(items):
        events += _item(index, item, pieces)
    usage = {
        "input_tokens": 112,
        "output_tokens": 42,
        "input_tokens_details": {"cached_tokens": 64},
    }
    whole = {**base, "status": end, "output": [item for item, _ in items], "usage": usage}
    if end == "incomplete":
        whole["incomplete_details"] = {"reason": "max_output_tokens"}
    events.append({"type": f"response.{end}", "response": whole})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _item(index: int, item: dict[str, Any], pieces: list[str]) -> Events:
    at = {"output_index": index, "item_id": item["id"]}
    begun = {**item, "content": [], "summary": [], "arguments": "", "status": "in_progress"}
    whole: dict[str, Any]
    match item["type"]:
        case "function_call":
            kind, whole = "function_call_arguments", {"arguments": item["arguments"]}
        case "reasoning":
            kind, whole = "reasoning_summary_text", {"text": item["summary"][0]["text"]}
            at = {**at, "summary_index": 0}
        case _:
            (part,) = item["content"]
            kind = part["type"]
            name = "refusal" if kind == "refusal" else "text"
            at, whole = {**at, "content_index": 0}, {name: part[name]}
    names = ("id", "type", "status", "role", "name", "call_id")
    begun = {name: value for name, value in begun.items() if name in names}
    events: Events = [
        {"type": "response.output_item.added", "output_index": index, "item": begun},
        *({"type": f"response.{kind}.delta", **at, "delta": piece} for piece in pieces),
        {"type": f"response.{kind}.done", **at, **whole},
    ]
    if "content_index" in at:
        events.append({"type": "response.content_part.done", **at, "part": item["content"][0]})
    return [*events, {"type": "response.output_item.done", "output_index": index, "item": item}]


def said(text: str, kind: str = "output_text") -> dict[str, Any]:
    """A message as an item."""
    part = {"type": kind, "refusal" if kind == "refusal" else "text": text}
    return {"id": "msg_1", "type": "message", "role": "assistant", "content": [part]}


def called(number: int, name: str, arguments: str) -> dict[str, Any]:
    """A call as an item."""
    ids = {"id": f"fc_{number}", "call_id": f"call_{number}"}
    return {**ids, "type": "function_call", "name": name, "arguments": arguments}


THOUGHT: dict[str, Any] = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Hm, x."}],
    "encrypted_content": "c2ln",
}
RESPONSES: dict[str, Events] = {
    "OpenAI": responses(
        (THOUGHT, ["Hm, ", "x."]),
        (said("I look into it: é→"), ["I look", " into it: é→"]),
        (called(0, "read_file", '{"path": "x"}'), ['{"path"', ': "x"}']),
        (called(1, "search", '{"query": "y"}'), ['{"query": "y"}']),
    ),
    "a refusal": responses((said("I can't help.", "refusal"), ["I can't", " help."])),
    "a limit": responses((said("We"), ["We"]), end="incomplete"),
    "nothing in pieces": responses(
        (THOUGHT, []), (said("Well, x."), []), (called(0, "read_file", '{"path": "x"}'), [])
    ),
}
