"""One completion while it streams in, in any form of the wire.

Invariants
- Every method that adds something returns it as the part to be told, so that nothing is told that
  is not in the completion.
- A character whose halves come in two pieces is one character, in the second piece.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from agent.loose import mended, mended_json, objects, whole_characters
from agent.model import Completion, Part, Stop, ToolCall, Usage
from agent.providers.failure import Failure


class _Call(Struct):
    id: str
    name: str
    arguments: list[str] = field(default_factory=list)


class Tokens(Struct, frozen=True):
    """The token counts of a completion.

    `input` has all tokens that were read, including those `cached` and those `written` to the
    provider's cache. `cost`: USD, if the provider told it.
    """

    input: int
    output: int
    cached: int = 0
    written: int = 0
    cost: float | None = None


class PartialCompletion(Struct):
    """The text, reasoning and tool calls received so far."""

    stop: Stop = "end_turn"
    #: True if the provider says that the answer ended for a tool call
    ended_for_call: bool = False
    tokens: Tokens | None = None
    #: signed thoughts, in the form in which LiteLLM returns them to Claude
    thinking_blocks: list[dict[str, Any]] = field(default_factory=list)
    #: signed thoughts of other models, in OpenRouter's form
    reasoning_details: list[dict[str, Any]] = field(default_factory=list)
    #: the member in which the server sent its reasoning, in the form of chat completions
    reasoning_in: str = ""
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _calls: list[_Call] = field(default_factory=list)
    #: the half of a character that the last piece ended with, by its kind or the call's number
    _halves: dict[str | int, str] = field(default_factory=dict)

    @property
    def begun(self) -> bool:
        """True if the completion has anything yet that the user was shown."""
        return any(self._text) or any(self._reasoning) or bool(self._calls)

    @property
    def calls(self) -> int:
        return len(self._calls)

    @property
    def text(self) -> str:
        return "".join(self._text)

    def add_more(self, whole: str) -> list[Part]:
        """Adds what the whole text has more than what came in pieces; nothing if it is another."""
        told = self.text
        more = whole[len(told) :] if whole.startswith(told) else ""
        return [self.add_text(more)] if more else []

    def rest(self) -> list[Part]:
        """Adds what stands for characters whose second half has not come."""
        left, self._halves = self._halves, {}
        parts = []
        for of in left:
            if isinstance(of, int):
                parts.append(self.add_arguments(of, "\ufffd"))
            else:
                parts.append((self.add_text if of == "text" else self.add_reasoning)("\ufffd"))
        return parts

    def _whole(self, of: str | int, text: str) -> str:
        """Returns the piece of a text with whole characters; a half waits for the next piece."""
        if text.isascii() and of not in self._halves:
            return text
        whole, half = whole_characters(self._halves.pop(of, "") + text)
        if half:
            self._halves[of] = half
        return whole

    def add_text(self, text: str) -> Part:
        text = self._whole("text", text)
        self._text.append(text)
        return Part("text", text)

    def add_reasoning(self, text: str) -> Part:
        text = self._whole("reasoning", text)
        self._reasoning.append(text)
        return Part("reasoning", text)

    def begin_call(self, id: str, name: str, arguments: str = "") -> Part:
        """Adds a new tool call."""
        arguments, name = self._whole(len(self._calls), arguments), mended(name)
        self._calls.append(_Call(mended(id), name, [arguments]))
        return Part("tool_call", arguments, len(self._calls) - 1, name)

    def add_arguments(self, index: int, arguments: str, *, id: str = "", name: str = "") -> Part:
        """Adds a piece to the arguments of the call with this number.

        `id` and `name` are the call's if it has none yet.
        """
        call = self._calls[index]
        arguments, id, name = self._whole(index, arguments), mended(id), mended(name)
        call.arguments.append(arguments)
        call.id = call.id or id
        late, call.name = "" if call.name else name, call.name or name
        return Part("tool_call", arguments, index, late)

    def id_of(self, index: int) -> str:
        return self._calls[index].id

    def name_of(self, index: int) -> str:
        return self._calls[index].name

    def arguments_of(self, index: int) -> str:
        return "".join(self._calls[index].arguments)

    def number_of(self, id: str) -> int | None:
        """Returns the number of the call with this id; None if there is none."""
        return next((at for at, call in enumerate(self._calls) if call.id == id), None)

    def completion(self, usage: Usage | None, by: str, sender: str = "") -> Completion:
        """Returns the finished completion.

        `by`: the signer, who alone can read its signatures. `sender`: the server, which gets back
        the reasoning that it sent as `reasoning_content`.
        """
        signed: dict[str, Any] = {"by": by}
        if sender and self.reasoning_in == "reasoning_content":
            signed["reasoning_from"] = sender
        if self.thinking_blocks:
            signed["thinking_blocks"] = self.thinking_blocks
        if self.reasoning_details:
            signed["reasoning_details"] = self.reasoning_details
        calls = self._tool_calls()
        return Completion(
            text=self.text,
            reasoning="".join(self._reasoning),
            tool_calls=calls,
            stop=self.stop,
            usage=usage,
            provider=mended_json(signed) if len(signed) > 1 else None,
            announced=self.ended_for_call and not calls,
        )

    def _tool_calls(self) -> tuple[ToolCall, ...]:
        """Returns the calls, each with an id of its own, since results are matched by it.

        Not every server gives each call an id. A call without a name and arguments is none.
        """
        given: set[str] = set()
        calls = []
        for call in self._calls:
            if not call.name and not any(call.arguments):
                continue
            id = call.id if call.id and call.id not in given else f"call_{uuid.uuid4().hex}"
            given.add(id)
            calls.append(ToolCall(id, call.name, "".join(call.arguments) or "{}"))
        return tuple(calls)


class Form(ABC):
    """A parser of the events of one provider's answer. No I/O."""

    def __init__(self) -> None:
        self.partial = PartialCompletion()
        #: an error of the server's, once all that came before it is told
        self.failure: Failure | None = None
        #: True if something could not be read and was left out
        self.odd = False
        #: True once the answer is complete; its usage may still come
        self.whole = False
        #: True once no further event comes
        self.over = False

    def read(self, event: Any) -> list[Part]:
        """Returns the parts that an event adds to the completion.

        What can't be read in it is left out. Raises Failure for an error that the provider reports
        and that nothing came with, and nothing else.
        """
        events = [*objects(event)]
        parts = [part for each in events for part in self._read(each)]
        self.odd = self.odd or self._says_nothing(events)
        if self.failure is not None and not parts:
            raise self.failure
        return parts

    def _says_nothing(self, events: list[dict[str, Any]]) -> bool:
        """Returns True if there is nothing to read in what came as an event."""
        return not any(events)

    @abstractmethod
    def _read(self, event: Mapping[str, Any]) -> list[Part]:
        """Returns the parts that an object adds to the completion."""
