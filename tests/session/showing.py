"""What a session says, and what a client in memory has read of it."""

from typing import Any

from acp_bridge.protocol import text_chunk
from tests.session.memory import ClientEnd, Json


def said(text: str, message_id: str = "m", **more: Any) -> Json:
    """Return an update with a piece of a message."""
    return {"update": text_chunk("agent_message_chunk", text, message_id), **more}


def texts(client: ClientEnd) -> list[str]:
    """Return the texts that the client was shown since it was looked at last."""
    return [m["params"]["update"]["content"]["text"] for m in client.sent.take()]
