"""Reads answers in the form of OpenAI's chat completions, which most providers speak.

Invariants
- What servers make of this form is read as what they mean: reasoning under other names or as
  content, calls that are numbered, named or cut in their own ways, a whole answer in place of a
  stream, usage in another place. What can't be read is left out, and the rest is used.
- An error is raised only when all that came with it was told.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from agent.loose import arguments, count, members, mended, number, objects, whole_json, words
from agent.model import Part
from agent.providers.failure import Failure, error_in, failure_in_stream
from agent.providers.partial_completion import Form, Tokens
from agent.providers.stops import read_end

_log = logging.getLogger(__name__)

#: the members in which servers send a model's reasoning; the first is the usual one
_REASONING = ("reasoning_content", "reasoning", "reasoning_text", "thinking", "thought")
#: the types of pieces of a content that are thoughts
_THOUGHTS = ("thinking", "reasoning", "thought")


class ChatForm(Form):
    def __init__(self) -> None:
        super().__init__()
        #: the number of a call in our answer, by the provider's number
        self._numbers: dict[int, int] = {}
        #: the kinds of pieces that were left out
        self._unknown: set[str] = set()

    def _says_nothing(self, events: list[dict[str, Any]]) -> bool:
        return not events  # an empty object is a usual chunk

    def _read(self, event: Mapping[str, Any]) -> list[Part]:
        usage = event.get("usage") or members(event.get("x_groq")).get("usage")
        if usage and isinstance(usage, dict):
            self.partial.tokens = _tokens(usage)
            self.over = self.whole and not event.get("choices")  # it comes last
        parts: list[Part] = []
        whole = event.get("object") == "chat.completion"
        for choice in objects(event.get("choices")):
            parts += self._read_choice(choice, whole=whole)
        # Words of an answer are no error's, unless it is named.
        if (event.get("error") or not parts) and (error := error_in(event)) is not None:
            self.failure = failure_in_stream(error)
        return parts

    def _read_choice(self, choice: Mapping[str, Any], *, whole: bool) -> list[Part]:
        parts: list[Part] = []
        if delta := choice.get("delta"):
            parts += self._read_delta(delta)
        elif (message := choice.get("message")) and self._repeats(message, whole=whole):
            parts += self._rest_of(message)
        elif message:
            parts += self._read_delta(message)
            self.whole = self.whole or (whole and bool(parts))
        elif text := words(choice.get("text")):
            parts.append(self.partial.add_text(text))
        reason = choice.get("finish_reason") or choice.get("stop_reason")
        if reason:
            self._end(reason)
        self.odd = self.odd or not (parts or reason or isinstance(choice.get("delta"), dict))
        return parts

    def _end(self, reason: Any) -> None:
        end = read_end(reason)
        if end.broken:
            self.failure = Failure("given_up", words(reason))
            return
        self.whole = True
        if self.partial.stop != "refusal":
            self.partial.stop = end.stop
            self.partial.ended_for_call = end.for_call

    def _repeats(self, message: Any, *, whole: bool) -> bool:
        """Returns True for a message that has all over again what was told in pieces."""
        same = words(members(message).get("content")) == self.partial.text
        return self.partial.begun and (whole or same)

    def _rest_of(self, message: Any) -> list[Part]:
        """Adds what a whole message has more than what was told in pieces."""
        parts = self.partial.add_more(words(members(message).get("content")))
        if not self.partial.calls:
            calls = objects(members(message).get("tool_calls"))
            parts += [self._read_call(call) for call in calls]
        return parts

    def _read_delta(self, delta: Any) -> list[Part]:
        if not isinstance(delta, dict):
            text = words(delta if isinstance(delta, str | list) else None)
            return [self.partial.add_text(text)] if text else []
        parts = []
        content = delta.get("content", delta.get("text"))
        if len(delta) == 1 and content and isinstance(content, str):  # nearly all are so
            return [self.partial.add_text(content)]
        if named := next((name for name in _REASONING if words(delta.get(name))), ""):
            self.partial.reasoning_in = self.partial.reasoning_in or named
            parts.append(self.partial.add_reasoning(words(delta[named])))
        for piece in content if isinstance(content, list) else [content] if content else []:
            parts += self._read_piece(piece)
        if refusal := words(delta.get("refusal")):
            self.partial.stop = "refusal"
            parts.append(self.partial.add_text(refusal))
        for call in (*objects(delta.get("tool_calls")), *objects(delta.get("function_call"))):
            parts.append(self._read_call(call))
        for block in objects(delta.get("thinking_blocks")):
            self._read_thinking_block(block)
        for detail in objects(delta.get("reasoning_details")):
            self._read_detail(detail)
        if content == "" and not parts:
            parts.append(self.partial.add_text(""))
        return parts

    def _read_piece(self, piece: Any) -> Iterator[Part]:
        """Yields the part of one piece of a content: a text, a thought as Mistral sends it.

        A piece of an unknown type counts by the text in it; one without text is named.
        """
        kind = words(members(piece).get("type"))
        text = words(piece)
        if kind in _THOUGHTS:
            yield self.partial.add_reasoning(text)
        elif text:
            yield self.partial.add_text(text)
        elif kind and kind != "text" and kind not in self._unknown:
            self._unknown.add(kind)
            yield Part(
                "notice",
                f"The model's answer has something that is not shown: {mended(kind[:40])}.",
            )

    def _read_call(self, call: Mapping[str, Any]) -> Part:
        function = members(call.get("function")) or call
        piece = arguments(function.get("arguments"))
        id, name = words(call.get("id")), words(function.get("name"))
        at = number(call.get("index"))
        found = self._call_of(at, id, name, piece)
        if found is None:
            found = self.partial.calls
            if at is not None:
                self._numbers[at] = found
            return self.partial.begin_call(id, name, piece)
        if at is not None:
            self._numbers.setdefault(at, found)
        told = self.partial.arguments_of(found)
        if piece and piece == told and (name or whole_json(told)):
            piece = ""  # the whole call again
        return self.partial.add_arguments(found, piece, id=id, name=name)

    def _call_of(self, at: int | None, id: str, name: str, piece: str) -> int | None:
        """Returns the number of the call that a piece continues; None if it begins one.

        A piece belongs to the call with its number, else to that with its id. If neither is known,
        a piece without a name belongs to the last call, unless it has a number or an id that the
        last call has not. A piece with a name begins a call, unless the call has none yet, or is
        the same by its id, or is not finished and nothing tells the two apart.
        """
        calls = self.partial
        known = self._numbers.get(at) if at is not None else None
        if known is None and id and (at is None or not name):
            known = calls.number_of(id)
        if known is None:
            last = calls.calls - 1
            numbered = last in self._numbers.values()
            if last < 0 or (at is not None and (id or numbered)):
                return None
            return last if not name or (at is None and not calls.name_of(last)) else None
        if not name or not calls.name_of(known):
            return known
        if id and calls.id_of(known):
            return known if id == calls.id_of(known) else None
        told = calls.arguments_of(known)
        another = name != calls.name_of(known) or (piece and piece != told)
        return None if another and whole_json(told) else known

    def _read_thinking_block(self, block: Mapping[str, Any]) -> None:
        """Adds a piece of a thinking block; the last piece of a block has its signature."""
        blocks = self.partial.thinking_blocks
        if block.get("type") != "thinking":
            blocks.append(dict(block))
            return
        if not blocks or blocks[-1].get("type") != "thinking" or blocks[-1].get("signature"):
            blocks.append({"type": "thinking", "thinking": ""})
        blocks[-1]["thinking"] += words(block.get("thinking"))
        if signature := words(block.get("signature")):
            blocks[-1]["signature"] = signature

    def _read_detail(self, piece: Mapping[str, Any]) -> None:
        """Adds a piece of OpenRouter's reasoning (openrouter.ai/docs, "Preserving reasoning")."""
        details = self.partial.reasoning_details
        place = (piece.get("type"), piece.get("index"))
        if not details or place != (details[-1].get("type"), details[-1].get("index")):
            details.append(dict(piece))
            return
        whole = details[-1]
        for name, value in piece.items():
            if name in ("text", "summary", "data"):
                whole[name] = words(whole.get(name)) + words(value)
            elif value is not None:
                whole[name] = value


def _tokens(usage: Mapping[str, Any]) -> Tokens:
    details = members(usage.get("prompt_tokens_details"))
    cost = usage.get("cost")
    is_cost = isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < 1e6
    return Tokens(
        input=count(usage.get("prompt_tokens")),
        output=count(usage.get("completion_tokens")),
        cached=count(details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")),
        written=count(details.get("cache_creation_tokens")),
        cost=float(cost) if is_cost and cost is not None else None,  # Perplexity's is an object
    )
