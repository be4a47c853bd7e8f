"""A client of version 2 in memory; every message of both directions is judged by the schema."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.core.sessions.agent import Agent, Json, until
from tests.core.sessions.bench import Bench, Served, bench
from tests.support.v2_schema import HELLO as BARE_HELLO
from tests.support.v2_schema import V2Connection

HELLO: Json = {**BARE_HELLO, "capabilities": {"elicitation": {"form": {}}}}
CWD: Json = {"cwd": "/w"}


class V2Editor(Served):
    """Speaks version 2, and judges what it is told."""

    def __init__(self, *, judged: bool = True) -> None:
        """`judged`: False for a test in which somebody breaks the schema on purpose."""
        super().__init__()
        self._judged = V2Connection(whole=True) if judged else None
        self._read = 0

    def says(self, message: Json) -> None:
        self.judge()
        if self._judged:
            self._judged.judge("client", {"jsonrpc": "2.0", **message})
        super().says(message)

    def judge(self) -> None:
        """Judge what has come since; raises `Refused`."""
        messages = self.messages
        for message in messages[self._read :]:
            if self._judged:
                self._judged.judge("agent", message)
        self._read = len(messages)

    async def handled(self) -> None:
        await self.refused("session/resume", {"sessionId": "nobody's", **CWD})

    # --- what it got ---------------------------------------------------------------------------

    def updates(self, session_id: str, *kinds: str) -> list[Json]:
        """Return the updates of a session, of these kinds, in order."""
        self.judge()
        params = [each["params"] for each in self.asked("session/update")]
        found = [each["update"] for each in params if each["sessionId"] == session_id]
        return [each for each in found if not kinds or each["sessionUpdate"] in kinds]

    def states(self, session_id: str) -> list[str]:
        """Return the states that were said, each with its stop reason."""
        found = self.updates(session_id, "state_update")
        return ["/".join(filter(None, (x["state"], x.get("stopReason")))) for x in found]

    async def idle(self, session_id: str, count: int = 1) -> None:
        """Wait until that many turns have ended."""
        await until(lambda: sum("idle/" in each for each in self.states(session_id)) >= count)

    async def ran(self, session_id: str, text: str) -> str:
        """Let a prompt run to its end; returns the id of its message."""
        before = sum("idle/" in each for each in self.states(session_id))
        answer = await self.result(self.prompt(session_id, text))
        await self.idle(session_id, before + 1)
        return str(answer["messageId"])

    async def resumed(self, session_id: str, **more: Any) -> Any:
        """Resume a session with a replay from its start."""
        params = {"sessionId": session_id, **CWD, "replayFrom": {"type": "start"}, **more}
        return await self.ask("session/resume", params)


class V2Bench:
    """A bridge whose first client speaks version 2."""

    def __init__(self, it: Bench, editor: V2Editor) -> None:
        self.it, self.editor = it, editor
        self.agent = it.agent

    async def new(self, editor: Served | None = None) -> str:
        """Make a session; returns its id."""
        answer = await (editor or self.editor).ask("session/new", CWD)
        return str(answer["sessionId"])

    async def joined(self) -> V2Editor:
        """Let one more client of version 2 join on a socket."""
        client = V2Editor()
        self.it.context.tasks.start_soon(self.it.bridge.join, client.read, client.way)
        await client.ask("initialize", HELLO)
        return client


@asynccontextmanager
async def v2_bench(
    home: Path, agent: Agent | None = None, *, judged: bool = True, **more: Any
) -> AsyncIterator[V2Bench]:
    """A bridge in memory, started by a client of version 2, and an agent of version 1."""
    editor = V2Editor(judged=judged)
    async with bench(home, agent, initialized=False, editor=editor, **more) as it:
        await editor.ask("initialize", HELLO)
        yield V2Bench(it, editor)
        await it.settled()
        editor.judge()
