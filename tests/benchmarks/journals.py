"""Long sessions on disk, to be loaded."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import anyio

from acp_bridge.core.journal import Journal, SessionJournal
from acp_bridge.core.wire.jsonrpc import encode
from acp_bridge.terminal.cli.naming import agent_name

#: a word that is said in few sessions.
RARE = "zebra"


def filled(home: Path, session_id: str, messages: int, agent: Sequence[str]) -> None:
    """Write a session of an agent with this command: a question and an answer by turns."""
    anyio.run(_fill, home, session_id, messages, agent_name(agent))


def many(home: Path, sessions: int, messages: int) -> None:
    """Write so many sessions; in every hundredth one stands the word that is in no other."""
    anyio.run(_fill_many, home, sessions, messages)


def edited(home: Path, session_id: str, messages: int, folder: Path) -> None:
    """Write a session in which every second message is an edit of a folder of git's."""
    texts = {f"file{n}.py": "".join(f"line {k}\n" for k in range(1000)) for n in range(50)}
    folder.mkdir(parents=True)
    _write(folder, texts)
    by = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
    for words in (("init", "-q"), ("add", "."), (*by, "commit", "-qm", "begin")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    anyio.run(_edit, home, session_id, messages, folder, texts)
    _write(folder, texts)


def _write(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).write_text(text)


async def _fill(home: Path, session_id: str, messages: int, agent: str) -> None:
    journal = Journal(home)
    session = await journal.create(session_id, cwd="/tmp", agent=agent)
    _talk(session, session_id, messages)
    await session.compact(messages)
    await journal.close()


async def _fill_many(home: Path, sessions: int, messages: int) -> None:
    journal = Journal(home)
    for number in range(sessions):
        session_id = uuid4().hex
        session = await journal.create(session_id, cwd="/tmp", agent="bench")
        _talk(session, session_id, messages, RARE if number % 100 == 0 else "")
        await session.compact(messages)
        await session.close()
    await journal.close()


def _talk(session: SessionJournal, session_id: str, messages: int, more: str = "") -> None:
    for number in range(messages // 2):
        words = {"type": "text", "text": f"question {number} " + "why " * 20}
        seq = session.accept(uuid4().hex, {"sessionId": session_id, "prompt": [words]})
        session.start_turn(seq)
        said = {"type": "text", "text": f"answer {number} " + "because " * 60 + more}
        chunk = {"update": {"sessionUpdate": "agent_message_chunk", "content": said}}
        session.record(seq, encode(chunk))
        session.end_prompt(seq, {"stopReason": "end_turn"}, {"stopReason": "end_turn"})


async def _edit(
    home: Path, session_id: str, messages: int, folder: Path, texts: dict[str, str]
) -> None:
    journal = Journal(home)
    session = await journal.create(session_id, cwd=str(folder), agent="bench")
    for turn in range(messages // 20):
        seq = session.accept(uuid4().hex, {"sessionId": session_id, "prompt": []})
        session.start_turn(seq)
        for number in range(10 * turn, 10 * turn + 10):
            name, old, new = f"file{number % 50}.py", f"line {turn}\n", f"line {turn}: {number}\n"
            texts[name] = texts[name].replace(old, new, 1)
            change = {"type": "diff", "path": str(folder / name), "oldText": old, "newText": new}
            said = {"type": "text", "text": "word " * 20}
            card = {"toolCallId": f"c{number}", "kind": "edit"}
            for update in (
                {"sessionUpdate": "agent_message_chunk", "content": said},
                {"sessionUpdate": "tool_call", **card, "title": name, "status": "pending"},
                {"sessionUpdate": "tool_call_update", **card, "status": "completed",
                 "content": [change]},
            ):  # fmt: skip
                session.record(seq, encode({"update": update}))
        session.end_prompt(seq, {"stopReason": "end_turn"}, {"stopReason": "end_turn"})
    await session.compact(messages)
    await journal.close()
