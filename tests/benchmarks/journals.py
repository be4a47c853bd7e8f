"""Long sessions on disk, to be loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import anyio

from acp_bridge.cli.naming import agent_name
from acp_bridge.journal import Journal
from acp_bridge.wire.jsonrpc import encode


def filled(home: Path, session_id: str, messages: int, agent: Sequence[str]) -> None:
    """Write a session of an agent with this command: a question and an answer by turns."""
    anyio.run(_fill, home, session_id, messages, agent_name(agent))


async def _fill(home: Path, session_id: str, messages: int, agent: str) -> None:
    journal = Journal(home)
    session = await journal.create(session_id, cwd="/tmp", agent=agent)
    for number in range(messages // 2):
        words = {"type": "text", "text": f"question {number} " + "why " * 20}
        seq = session.accept(uuid4().hex, {"sessionId": session_id, "prompt": [words]})
        session.start_turn(seq)
        said = {"type": "text", "text": f"answer {number} " + "because " * 60}
        chunk = {"update": {"sessionUpdate": "agent_message_chunk", "content": said}}
        session.record(seq, encode(chunk))
        session.end_prompt(seq, {"stopReason": "end_turn"}, {"stopReason": "end_turn"})
    await session.compact(messages)
    await journal.close()
