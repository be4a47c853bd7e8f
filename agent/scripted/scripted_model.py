r"""A model that needs no network: it says what a dialogue (agent.scripted.dialogue) tells it to.

It is deterministic: the messages alone decide the reply. A word is a token, in its usage too.
It has three more features for tests and measurements:
- `BENCH n=2000 gap=0 tag=A` in a prompt makes it say n words, `A<i>@<monotonic microseconds> `,
  gap milliseconds apart.
- `ACP_BRIDGE_MODEL_LOG=PATH` makes each call append one line of JSON, `{"messages", "tools"}`, so
  that a test can assert what the model was given.
- `ACP_BRIDGE_GATES=PATH` names a unix socket: at `gate: NAME` the model connects, writes `NAME\n`
  and waits for `go\n`. Without the variable gates are open.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import get_args

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Struct, field

from agent.model import (
    NOTE,
    TOOL_IMAGES,
    Completion,
    ErrorKind,
    Message,
    ModelError,
    ModelInfo,
    OnToken,
    Part,
    SpokenKind,
    Stop,
    ToolCall,
    ToolSpec,
    Usage,
)
from agent.scripted.dialogue import Dialogue, Reply, Step

_BENCH = re.compile(r"BENCH n=(\d+) gap=(\d+) tag=([A-Za-z]+)(?: tool=(\d+))?")
_WORD = re.compile(r"\s*\S+|\s+")
_PLACEHOLDER = re.compile(r"\{(user|history|result|i)\}")
_ESCAPE = re.compile(r"\\(n|\\)")
_KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)
#: bytes of the longest answer of a gate keeper; it is "go\n"
_GATE_ANSWER_BYTES = 16


class ScriptedModel:
    """A model that speaks a dialogue.

    `info`: what it announces of itself; None: what the dialogue's header says.
    """

    def __init__(
        self, dialogue: Dialogue, id: str = "scripted", info: ModelInfo | None = None
    ) -> None:
        self.id = id
        self._dialogue = dialogue
        self._info = info or ModelInfo(dialogue.window, dialogue.images)

    async def info(self) -> ModelInfo:
        return self._info

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], on_token: OnToken
    ) -> Completion:
        _log_call(messages, tools)
        prompts = [text_of(messages[number]) for number in _prompts(messages)]
        asked = _asked(messages)
        speech = _Speech(messages, prompts, on_token)
        if prompts and (bench := list(_BENCH.finditer(prompts[-1]))):
            await speech.bench(bench[-1], asked)
        else:
            reply = self._dialogue.reply(prompts, asked)
            deaf = any(step.verb == "deaf" for step in reply)
            with anyio.CancelScope(shield=deaf):
                await speech.perform(reply)
        return speech.completion()


class _Speech(Struct):
    """Makes one completion, token by token."""

    messages: Sequence[Message]
    prompts: list[str]
    on_token: OnToken
    said: dict[SpokenKind, list[str]] = field(default_factory=lambda: {"text": [], "reasoning": []})
    calls: list[ToolCall] = field(default_factory=list)
    stop: Stop = "end_turn"
    #: seconds between two tokens
    pace: float = 0

    async def perform(self, reply: Reply) -> None:
        for step in reply:
            for i in range(step.times):
                await self._step(step, i)

    async def bench(self, directive: re.Match[str], asked: int) -> None:
        count, gap, tag, tool = directive.groups()
        if tool and asked == 0:
            await self._call('shell {"command": "echo acpbench"}')
            return
        for i in range(int(count)):
            if i and gap != "0":
                await anyio.sleep(int(gap) / 1000)
            await self._token("text", f"{tag}{i}@{time.monotonic_ns() // 1000} ")

    def completion(self) -> Completion:
        tokens = sum(len(parts) for parts in self.said.values())
        return Completion(
            text="".join(self.said["text"]),
            reasoning="".join(self.said["reasoning"]),
            tool_calls=tuple(self.calls),
            stop=self.stop,
            usage=Usage(input=sum(len(text_of(m).split()) for m in self.messages), output=tokens),
        )

    async def _step(self, step: Step, i: int) -> None:
        match step.verb:
            case "text":
                await self._say("text", self._filled(step.argument, i))
            case "think":
                await self._say("reasoning", self._filled(step.argument, i))
            case "token":
                await self._token("text", json.loads(step.argument))
            case "call":
                await self._call(step.argument)
            case "stop":
                self.stop = "refusal" if step.argument == "refusal" else "max_tokens"
            case "error":
                raise _error(self._filled(step.argument, i))
            case "delay":
                await anyio.sleep(float(step.argument) / 1000)
            case "pace":
                self.pace = float(step.argument) / 1000
            case "gate":
                await _pass_gate(step.argument)

    async def _say(self, kind: SpokenKind, text: str) -> None:
        said = self.said[kind]
        if said and not said[-1][-1:].isspace() and not text[:1].isspace():
            text = " " + text
        for word in _WORD.findall(text):
            if self.pace and said:
                await anyio.sleep(self.pace)
            await self._token(kind, word)

    async def _token(self, kind: SpokenKind, token: str | None) -> None:
        await self.on_token(Part(kind, token) if token is not None else None)
        if token:
            self.said[kind].append(token)

    async def _call(self, argument: str) -> None:
        name, _, arguments = argument.partition(" ")
        arguments = arguments.strip() or "{}"
        earlier = sum(len(m.get("tool_calls", ())) for m in self.messages)
        index = len(self.calls)
        for number, piece in enumerate(_WORD.findall(arguments)):
            told_name = name if number == 0 else ""
            await self.on_token(Part("tool_call", piece, index, told_name))
        self.calls.append(ToolCall(f"call_{earlier + index + 1}", name, arguments))

    def _filled(self, text: str, i: int) -> str:
        values = {
            "user": self.prompts[-1] if self.prompts else "",
            "history": "; ".join(self.prompts[:-1]) or "nothing yet",
            "result": next((text_of(m) for m in _backwards(self.messages, "tool")), ""),
            "i": str(i),
        }
        plain = _ESCAPE.sub(lambda m: "\n" if m[1] == "n" else "\\", text)
        return _PLACEHOLDER.sub(lambda m: values[m[1]], plain)


def _backwards(messages: Sequence[Message], role: str) -> Iterator[Message]:
    return (m for m in reversed(messages) if m["role"] == role)


def text_of(message: Message) -> str:
    """Returns the text of a message, without its images."""
    content = message.get("content", "")
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def _prompts(messages: Sequence[Message]) -> list[int]:
    """Returns the indexes of the messages that are prompts of the user."""
    user = (number for number, message in enumerate(messages) if message["role"] == "user")
    own = (TOOL_IMAGES, NOTE)
    return [number for number in user if not text_of(messages[number]).startswith(own)]


def _asked(messages: Sequence[Message]) -> int:
    """Returns how often the model has answered since the last prompt."""
    prompts = _prompts(messages)
    since = messages[prompts[-1] + 1 :] if prompts else messages
    return sum(message["role"] == "assistant" for message in since)


def _error(argument: str) -> ModelError:
    first, _, rest = argument.partition(" ")
    kind = next((kind for kind in _KINDS if kind == first), None)
    return ModelError(argument) if kind is None else ModelError(rest.strip() or first, kind)


def _log_call(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
    if path := os.environ.get("ACP_BRIDGE_MODEL_LOG"):
        with open(path, "a", encoding="utf-8") as log:
            log.write(json.dumps({"messages": list(messages), "tools": list(tools)}) + "\n")


async def _pass_gate(name: str) -> None:
    path = os.environ.get("ACP_BRIDGE_GATES")
    if not path:
        return
    async with await anyio.connect_unix(path) as keeper:
        await keeper.send(name.encode() + b"\n")
        answer = await BufferedByteReceiveStream(keeper).receive_until(b"\n", _GATE_ANSWER_BYTES)
        if answer != b"go":
            raise ModelError(f"gate {name}: unexpected answer {answer!r}")
