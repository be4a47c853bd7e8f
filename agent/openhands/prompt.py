"""Converts a prompt of ACP into a message for the server, or a command of this agent (sans-IO)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent.client import Update
from agent.content.blocks import Block, content_of
from agent.openhands.events import Json, Part

COMPACT: Final = "compact"
ASK: Final = "ask"
COMMANDS: Final[Update] = {
    "sessionUpdate": "available_commands_update",
    "availableCommands": [
        {"name": COMPACT, "description": "Make room: the server condenses the conversation"},
        {
            "name": ASK,
            "description": "Ask something that does not become part of the conversation",
            "input": {"hint": "your question"},
        },
    ],
}


@dataclass(frozen=True, slots=True)
class Message:
    """A prompt for the server.

    `parts`: the message as it comes back in its event; `content`: as it is sent. `command`: the
    name of a command of this agent, if the prompt is one; `argument`: the rest of the prompt.
    """

    parts: tuple[Part, ...]
    content: tuple[Json, ...]
    command: str = ""
    argument: str = ""


def message_of(blocks: Sequence[Block]) -> Message:
    parts: list[Part] = []
    content: list[Json] = []
    said = content_of(blocks)
    for each in [{"type": "text", "text": said}] if isinstance(said, str) else said:
        match each:
            case {"type": "text", "text": str(text)}:
                parts.append(Part(text))
                content.append({"type": "text", "text": text})
            case {"image_url": {"url": str(url)}}:
                parts.append(Part(image=url))
                content.append({"type": "image", "image_urls": [url]})
    command, argument = _command(parts)
    return Message(tuple(parts), tuple(content), command, argument)


def _command(parts: Sequence[Part]) -> tuple[str, str]:
    if len(parts) != 1 or not parts[0].text.startswith("/"):
        return "", ""
    name, _, rest = parts[0].text[1:].partition(" ")
    name, rest = name.strip(), rest.strip()
    if name == COMPACT or (name == ASK and rest):
        return name, rest
    return "", ""
