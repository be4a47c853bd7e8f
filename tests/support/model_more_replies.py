"""Two forms more that the model server speaks: OpenAI's Responses, and Gemini's."""

from __future__ import annotations

import itertools
import json
from typing import Any

from tests.support.model_replies import IDS, Call, Count, Json, More, Text, Think, sse


class ResponsesWriter:
    """OpenAI's Responses (platform.openai.com/docs/api-reference/responses-streaming)."""

    def __init__(self, body: Json) -> None:
        self.reason: str | None = None
        self.count = Count()
        self._response: Json = {
            "id": f"resp_{next(IDS)}",
            "object": "response",
            "created_at": 1700000000,
            "model": body.get("model"),
            "parallel_tool_calls": True,
            "tools": [],
            "tool_choice": "auto",
            "output": [],
        }
        self._numbers = itertools.count()
        self._items: list[Json] = []
        self._calls: list[Json] = []

    def begin(self) -> bytes:
        return self._event("created", response={**self._response, "status": "in_progress"})

    def write(self, step: Text | Think | Call | More) -> bytes:
        match step:
            case Text(words):
                begun, item = self._item("message", role="assistant", content=[])
                if not item["content"]:
                    item["content"] = [{"type": "output_text", "text": "", "annotations": []}]
                item["content"][0]["text"] += words
                return begun + self._delta("output_text", item, words, content_index=0)
            case Think(words):
                begun, item = self._item("reasoning", summary=[])
                return begun + self._delta("reasoning_summary_text", item, words, summary_index=0)
            case Call(name, arguments, id):
                id = id or f"call_{len(self._calls)}"
                space, _, name = name.rpartition(".")  # a tool in a namespace
                of = {"namespace": space} if space else {}
                begun, item = self._item("function_call", name=name, arguments="", call_id=id, **of)
                self._calls.append(item)
                return begun + self._argue(item, arguments)
            case More(call, arguments):
                return self._argue(self._calls[call], arguments)

    def end(self) -> bytes:
        done = [
            self._event("output_item.done", output_index=number, item=item)
            for number, item in enumerate(self._items)
        ]
        count = self.count
        usage = {
            "input_tokens": count.input,
            "input_tokens_details": {"cached_tokens": count.cached},
            "output_tokens": count.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": count.input + count.output,
        }
        whole = {**self._response, "status": "completed", "output": self._items, "usage": usage}
        return b"".join(done) + self._event("completed", response=whole)

    def _argue(self, item: Json, arguments: str) -> bytes:
        item["arguments"] += arguments
        return self._delta("function_call_arguments", item, arguments)

    def _item(self, type: str, **fields: Any) -> tuple[bytes, Json]:
        """A call is always a new one."""
        if self._items and self._items[-1]["type"] == type != "function_call":
            return b"", self._items[-1]
        item = {"id": f"item_{next(IDS)}", "type": type, "status": "in_progress", **fields}
        self._items.append(item)
        index = len(self._items) - 1
        return self._event("output_item.added", output_index=index, item={**item}), item

    def _delta(self, what: str, item: Json, delta: str, **fields: Any) -> bytes:
        place = {"item_id": item["id"], "output_index": self._items.index(item)}
        return self._event(f"{what}.delta", **place, delta=delta, **fields)

    def _event(self, type: str, **fields: Any) -> bytes:
        type = f"response.{type}"
        return sse({"type": type, "sequence_number": next(self._numbers), **fields}, type)


class GeminiWriter:
    """Google's `streamGenerateContent` (ai.google.dev/api/generate-content), which tells a call
    whole: `More` has no place in it."""

    def __init__(self, body: Json) -> None:
        self.reason: str | None = None
        self.count = Count()

    def begin(self) -> bytes:
        return b""

    def write(self, step: Text | Think | Call | More) -> bytes:
        match step:
            case Text(words):
                return self._part({"text": words})
            case Think(words):
                return self._part({"text": words, "thought": True})
            case Call(name, arguments):
                call = {"name": name, "args": json.loads(arguments or "{}")}
                return self._part({"functionCall": call, "thoughtSignature": "c2ln"})
            case More():
                raise AssertionError("Gemini tells a call whole")

    def end(self) -> bytes:
        count = self.count
        usage = {
            "promptTokenCount": count.input,
            "cachedContentTokenCount": count.cached,
            "candidatesTokenCount": count.output,
            "totalTokenCount": count.input + count.output,
        }
        return self._part({"text": ""}, finishReason=self.reason or "STOP", usageMetadata=usage)

    def _part(self, part: Json, *, finishReason: str = "", **fields: Any) -> bytes:
        candidate: Json = {"index": 0, "content": {"role": "model", "parts": [part]}}
        if finishReason:
            candidate["finishReason"] = finishReason
        return sse({"candidates": [candidate], **fields})
