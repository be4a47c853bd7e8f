"""Updates as an agent sends them, and transcripts as a journal gives them back."""

import json
from typing import Any

from acp_bridge.core.journal import SessionJournal
from acp_bridge.core.protocol import without_prompt_id

Params = dict[str, Any]


def chunk(text: str, message: str | None = None, kind: str = "agent_message_chunk") -> Params:
    """The params of one token, without the session's id."""
    update = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
    return {"update": update if message is None else {**update, "messageId": message}}


def tool(call: str, status: str = "completed") -> Params:
    return {"update": {"sessionUpdate": "tool_call_update", "toolCallId": call, "status": status}}


def lines(*updates: Params) -> bytes:
    """One read of the agent's pipe."""
    return b"\n".join(json.dumps(update).encode() for update in updates)


def text_of(params: Params) -> str:
    return str(params["update"]["content"]["text"])


async def transcript(session: SessionJournal) -> list[Params]:
    """All that a load replays."""
    return [without_prompt_id(each) async for page in session.replay() for each in page]
