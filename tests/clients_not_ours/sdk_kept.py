"""The Python SDK's client on a bridge that is kept: `python sdk_kept.py leaves | returns`.

It does and tells what sdk_kept.mjs does and tells, on asyncio alone.
"""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import acp
from acp.schema import AllowedOutcome, RequestPermissionResponse

GIVEN = json.loads(os.environ["GIVEN"])
#: seconds in which the bridge's process has ended, which takes 3 s at most, and wait() returned.
LATEST = 8


class Editor:
    """Collects what it is shown, and allows once what it is asked, or never answers."""

    def __init__(self, *, answers: bool) -> None:
        self.text = ""
        self.prompts: list[str] = []
        #: what the bridge itself says, which is none of the agent's words.
        self.notices: list[str] = []
        self.asked = 0
        self._answers = answers
        self._news = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        if kwargs.get("acp_bridge", {}).get("notice"):  # the SDK gives members of _meta by name
            self.notices.append(update.content.text)
        elif update.session_update == "agent_message_chunk":
            self.text += update.content.text
        elif update.session_update == "user_message_chunk":
            self.prompts.append(update.content.text)
        self._news.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **kwargs: Any
    ) -> Any:
        self.asked += 1
        if not self._answers:
            await asyncio.Future()
        option = next(option for option in options if option.kind == "allow_once")
        chosen = AllowedOutcome(outcome="selected", option_id=option.option_id)
        return RequestPermissionResponse(outcome=chosen)

    async def until_text(self, text: str) -> None:
        while text not in self.text:
            self._news.clear()
            await self._news.wait()


def _bridge(editor: Any) -> Any:
    command, *words = GIVEN["command"]
    return acp.spawn_agent_process(
        editor, command, *words, env=dict(os.environ), use_unstable_protocol=True
    )


def _tell(**message: Any) -> None:
    print(json.dumps(message), flush=True)


async def _line() -> str:
    """A line of stdin."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    return (await reader.readline()).decode().strip()


# --- how an editor ends what it has started: the waiter is all that it knows of -------------------


async def _kill_tree(process: Process, close: Callable[[], Awaitable[Any]]) -> None:
    for pid in (*_below(process.pid), process.pid):
        os.kill(pid, signal.SIGKILL)


async def _terminate(process: Process, close: Callable[[], Awaitable[Any]]) -> None:
    process.terminate()


async def _close_stdin(process: Process, close: Callable[[], Awaitable[Any]]) -> None:
    assert process.stdin
    process.stdin.close()


async def _close_and_kill(process: Process, close: Callable[[], Awaitable[Any]]) -> None:
    await close()
    process.kill()


async def _close_unheard_and_kill(process: Process, close: Callable[[], Awaitable[Any]]) -> None:
    closing = asyncio.ensure_future(close())
    await asyncio.sleep(0)  # so that it is written
    process.kill()
    with suppress(Exception, asyncio.CancelledError):
        await closing


ENDS = {
    "tree": _kill_tree,
    "SIGTERM": _terminate,
    "stdin": _close_stdin,
    "close, SIGKILL": _close_and_kill,
    "close and SIGKILL": _close_unheard_and_kill,
}


def _below(pid: int) -> list[int]:
    """The descendants of a process, those of a child before itself."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                child = int(stat.parent.name)
                found += [*_below(child), child]
    return found


async def leaves() -> None:
    editor = Editor(answers=False)
    async with _bridge(editor) as (connection, process):
        await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
        session = await connection.new_session(cwd=GIVEN["cwd"], mcp_servers=[])
        session_id = session.session_id
        prompts = []
        for text in GIVEN["prompts"]:
            words = [acp.text_block(text)]
            prompt = connection.prompt(session_id=session_id, prompt=words)
            prompts.append(asyncio.ensure_future(prompt))
            await asyncio.sleep(0)  # they are sent in this order
        _tell(session=session_id)
        await ENDS[await _line()](process, lambda: connection.close_session(session_id=session_id))
        _tell(exit=await asyncio.wait_for(process.wait(), LATEST))
        os._exit(0)


async def returns() -> None:
    editor = Editor(answers=True)
    async with _bridge(editor) as (connection, _):
        await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
        session_id = GIVEN["session"]
        await connection.load_session(session_id=session_id, cwd=GIVEN["cwd"], mcp_servers=[])
        await editor.until_text(GIVEN["until"])
        assert editor.asked == 1, "the open permission is asked again, once"
        await connection.cancel(session_id=session_id)  # the turn of one who is gone
        words = [acp.text_block(GIVEN["last"])]
        answer = await connection.prompt(session_id=session_id, prompt=words)
        assert answer.stop_reason == "end_turn"
        _tell(text=editor.text, asked=editor.prompts, notices=editor.notices)


asyncio.run({"leaves": leaves, "returns": returns}[sys.argv[1]]())
