"""Reads answers in the form of OpenAI's Responses.

The form: platform.openai.com/docs/api-reference/responses-streaming. It sends each text several
times: in pieces, then whole, then in its item, then in the whole response.

Invariants
- A text is told once, wherever it comes first; what a later event has more of it is added.
- What can't be read is left out, and the rest is used. An error is raised only when all that came
  with it was told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.loose import arguments, count, members, number, objects, words
from agent.model import Part
from agent.providers.chat_form import ChatForm
from agent.providers.failure import Failure, error_in, failure_in_stream
from agent.providers.partial_completion import Form, Tokens
from agent.providers.stops import read_end

#: what a text is, by the kind of its event, or by its type in an item
_TEXTS = {
    **dict.fromkeys(("output_text", "text", "input_text"), "text"),
    "refusal": "refusal",
    **dict.fromkeys(("reasoning_summary_text", "summary_text"), "summary"),
    **dict.fromkeys(("reasoning_text", "reasoning"), "reasoning"),
}
_CALLS = ("function_call_arguments", "custom_tool_call_input")
_CALL_ITEMS = ("function_call", "custom_tool_call")
#: the ends of a response, and the reason of each, if it names none
_ENDS = {"completed": "", "done": "", "incomplete": "max_tokens", "cancelled": "cancelled"}

_Place = tuple[str, Any, int]
_Parts = list[Part]


class ResponsesForm(Form):
    def __init__(self) -> None:
        super().__init__()
        #: the number of an item, by its id, and the item that came last
        self._items: dict[str, Any] = {}
        self._last: Any = 0
        #: the words that were told, by their place
        self._told: dict[_Place, str] = {}
        #: the number of a call, by that of its item
        self._calls: dict[Any, int] = {}
        #: reads chunks of chat completions, which some servers send here
        self._chat = ChatForm()
        self._chat.partial = self.partial

    def _read(self, event: Mapping[str, Any]) -> _Parts:
        kind = words(event.get("type")).removeprefix("response.")
        of, _, what = kind.rpartition(".")
        if event.get("choices"):
            return self._read_chat(event)
        if kind in _ENDS or (event.get("object") == "response" and not kind):
            return self._end(kind, members(event.get("response")) or event)
        if kind == "failed":
            response = members(event.get("response"))
            self.failure = failure_in_stream(response.get("error") or error_in(event) or "failed")
        elif of == "output_item":
            return self._read_item(self._item(event), members(event.get("item")))
        elif of in ("content_part", "reasoning_summary_part"):
            return self._read_part(self._item(event), _index(event), event.get("part"), of)
        elif of in _TEXTS:
            place = (_TEXTS[of], self._item(event), _index(event))
            if what == "delta":
                return self._add(place, event.get("delta"))
            return self._fill(place, event.get("refusal" if of == "refusal" else "text"))
        elif of in _CALLS:
            whole = event.get("arguments", event.get("input"))
            given = event.get("delta") if what == "delta" else whole
            return self._read_call(self._item(event), event, given, whole=what != "delta")
        elif (error := error_in(event)) is not None:
            self.failure = failure_in_stream(error)
        return []

    def _read_chat(self, event: Mapping[str, Any]) -> _Parts:
        parts = self._chat.read(event)
        self.whole, self.failure = self._chat.whole, self._chat.failure
        return parts

    def _item(self, event: Mapping[str, Any]) -> Any:
        """Returns what stands for an event's item: its number, else its id, else the last one."""
        id = words(event.get("item_id") or members(event.get("item")).get("id"))
        at = number(event.get("output_index"))
        found = at if at is not None else self._items.get(id, id or self._last)
        if id:
            self._items.setdefault(id, found)
        self._last = found
        return found

    def _read_item(self, at: Any, item: Mapping[str, Any]) -> _Parts:
        if item.get("type") in _CALL_ITEMS:
            given = item.get("arguments", item.get("input"))
            return self._read_call(at, item, given, whole=True)
        parts: _Parts = []
        content = item.get("content")
        for name, pieces in (("summary", item.get("summary")), ("content", content)):
            for index, piece in enumerate(pieces if isinstance(pieces, list) else [pieces]):
                kind = "reasoning" if item.get("type") == "reasoning" else "output_text"
                kind = "summary_text" if name == "summary" else kind
                parts += self._read_part(at, index, piece, kind)
        return parts

    def _read_part(self, at: Any, index: int, part: Any, kind: str) -> _Parts:
        """Reads a piece of an item; `kind`: what it is if its type doesn't say so."""
        usual = _TEXTS.get(kind, "summary" if kind.startswith("reasoning") else "text")
        found = _TEXTS.get(words(members(part).get("type")), usual)
        if usual == "reasoning":
            found = usual
        refusal = members(part).get("refusal")
        return self._fill((found, at, index), refusal if found == "refusal" else part)

    def _fill(self, place: _Place, whole: Any) -> _Parts:
        """Adds what a whole text has more than what was told of it."""
        told, text = self._told.get(place, ""), words(whole)
        return self._add(place, text[len(told) :]) if text.startswith(told) else []

    def _add(self, place: _Place, piece: Any) -> _Parts:
        text = words(piece)
        if not text:
            return []
        self._told[place] = self._told.get(place, "") + text
        if place[0] in ("summary", "reasoning"):
            return [self.partial.add_reasoning(text)]
        if place[0] == "refusal":
            self.partial.stop = "refusal"
        return [self.partial.add_text(text)]

    def _read_call(self, at: Any, call: Mapping[str, Any], given: Any, *, whole: bool) -> _Parts:
        id, name, piece = words(call.get("call_id")), words(call.get("name")), arguments(given)
        found = self._calls.get(at)
        if found is None or (id and self.partial.id_of(found) not in ("", id)):
            self._calls[at] = self.partial.calls
            return [self.partial.begin_call(id, name, piece)]
        if whole:
            told = self.partial.arguments_of(found)
            piece = piece[len(told) :] if piece.startswith(told) else ""
        return [self.partial.add_arguments(found, piece, id=id, name=name)]

    def _end(self, kind: str, response: Mapping[str, Any]) -> _Parts:
        """Reads a whole response: tells what was not told of it, and why it ended."""
        parts: _Parts = []
        for index, item in enumerate(objects(response.get("output"))):
            at = self._items.get(words(item.get("id")))
            if at is None and not self._is_told(item):
                at = index if self._has(index) else ("whole", index)
            parts += [] if at is None else self._read_item(at, item)
        if isinstance(usage := response.get("usage"), dict):
            self.partial.tokens = _tokens(usage)
        if error := response.get("error"):
            self.failure = failure_in_stream(error)
        status = words(response.get("status"))
        reason = words(members(response.get("incomplete_details")).get("reason"))
        end = read_end(reason or _ENDS.get(kind) or _ENDS.get(status, status))
        if end.broken:
            self.failure = self.failure or Failure("given_up", reason or status)
        if self.partial.stop != "refusal":
            self.partial.stop = end.stop
        self.whole, self.over = self.failure is None, True
        return parts

    def _is_told(self, item: Mapping[str, Any]) -> bool:
        """Returns True for an item that was told under another id."""
        if item.get("type") in _CALL_ITEMS:
            return self.partial.number_of(words(item.get("call_id"))) is not None
        text = words(item.get("content")) + words(item.get("summary"))
        return bool(text) and any(text == told for told in self._told.values())

    def _has(self, at: Any) -> bool:
        return at in self._calls or any(place[1] == at for place in self._told)


def _index(event: Mapping[str, Any]) -> int:
    """Returns the number of an event's text in its item."""
    return count(event.get("content_index", event.get("summary_index")))


def _tokens(usage: Mapping[str, Any]) -> Tokens:
    details = members(usage.get("input_tokens_details"))
    return Tokens(
        input=count(usage.get("input_tokens")),
        output=count(usage.get("output_tokens")),
        cached=count(details.get("cached_tokens")),
    )
