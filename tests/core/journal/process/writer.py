"""A bridge's journal in a process of its own, to be killed: `writer HOME SESSION HOW`.

Prints `ready`, then the number of each record once it is committed.
"""

import json
import os
import resource
import sys
from pathlib import Path

import anyio

from acp_bridge.core.journal import Journal, JournalError, SessionJournal


def line(number: int) -> bytes:
    content = {"type": "text", "text": f"{number} "}
    return json.dumps(
        {"update": {"sessionUpdate": "agent_message_chunk", "content": content}}
    ).encode()


def tell(word: object) -> None:
    os.write(1, f"{word}\n".encode())


async def stream(session: SessionJournal) -> None:
    """Turns of 300 records, each compacted while the next one streams."""
    number = 0
    async with anyio.create_task_group() as tasks:
        while True:
            seq = session.accept(f"prompt{number}", {"prompt": number})
            await session.sync()
            session.start_turn(seq)
            for _ in range(300):
                session.record(seq, line(number))
                tell(number)
                number += 1
                if number % 10 == 0:
                    await anyio.lowlevel.checkpoint()
            session.end_prompt(seq, {"stopReason": "end_turn"}, None)
            tasks.start_soon(session.compact, seq)
            tasks.start_soon(session.checkpoint)


def fill(session: SessionJournal) -> None:
    """Records until files may not grow, then goes on when they may again."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    number = 0
    while not session.behind:
        session.record(1, line(number))
        number += 1
    tell(number)
    for _ in range(3):
        try:
            session.accept("refused", {})
        except JournalError:
            continue
        tell("accepted")
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    session.record(1, line(number))
    tell("went on")


async def main(home: Path, session_id: str, how: str) -> None:
    journal = Journal(home)
    session = await journal.create(session_id, cwd="/project", agent="demo")
    tell("ready")
    if how == "stream":
        await stream(session)
    if how == "fill":
        fill(session)
    await journal.close()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2], sys.argv[3])
