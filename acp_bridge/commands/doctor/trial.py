"""Starts an agent as the bridge does, asks it to initialize, and ends it with its whole tree.

Nothing else is asked: a session, or a login, would change something at the agent.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

from acp_bridge.agents.process import AgentProcess, Exit, StartFailed
from acp_bridge.bridge_client.connection import Connection, Tap, hello
from acp_bridge.bridge_client.listener import NullListener
from acp_bridge.protocol import INITIALIZE
from acp_bridge.runtime import waits
from acp_bridge.wire.jsonrpc import Answer, Err, Ok, RpcError
from acp_bridge.wire.stdio import Reader, Writer

#: lines of stderr that are kept: enough for a whole private key, which is masked as a whole.
_LINES: Final = 200
#: bytes of stdout in which a line that is no message is looked for.
_HEAD: Final = 64 * 1024
#: seconds. Where stdout has ended, the process is about to.
_LAST_MOMENT: Final = waits.CUT_OFF_GRACE


@dataclass(slots=True)
class Trial:
    """How a trial went. If `answer`, `failed` and `ended` are unset, the agent was too slow."""

    #: why it did not start, in words for the user.
    failed: str | None = None
    #: the answer to `initialize`, and seconds from the start to it.
    answer: Answer | None = None
    seconds: float = 0.0
    #: it has closed its stdout without an answer, and how the process ended, if it has.
    ended: bool = False
    exit: Exit | None = None
    #: the first line on its stdout that was no JSON.
    noise: str | None = None
    stderr: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES))

    @property
    def result(self) -> Any:
        """The result of `initialize`; None if there is none."""
        return self.answer.result if isinstance(self.answer, Ok) else None

    @property
    def error(self) -> RpcError | None:
        """The error that `initialize` was answered with."""
        return self.answer.error if isinstance(self.answer, Err) else None


async def try_agent(command: Sequence[str], within: float, folder: str | None = None) -> Trial:
    """Start an agent, ask it to initialize within so many seconds, and end it."""
    trial = Trial()
    async with anyio.create_task_group() as tasks:
        began = anyio.current_time()
        try:
            process = await AgentProcess.start(
                tasks, command, folder=folder, on_stderr=trial.stderr.append
            )
        except StartFailed as failed:
            trial.failed = str(failed)
            return trial
        stdin, stdout = process.take_pipes()
        writer, reader = Writer(stdin), Reader(stdout)
        connection = Connection((reader, writer), NullListener(), tap=_noted_by(trial))
        tasks.start_soon(connection.run)
        try:
            with anyio.move_on_after(within):
                await _initialize(trial, process, connection)
            trial.seconds = anyio.current_time() - began
        finally:
            with anyio.CancelScope(shield=True):  # each of these is bounded
                writer.close()
                await process.close(waits.CLOSE_GRACE)
                reader.close()
            tasks.cancel_scope.cancel()
    return trial


async def _initialize(trial: Trial, process: AgentProcess, connection: Connection) -> None:
    """Return when the agent has answered, or can't any more."""
    sent = connection.send(INITIALIZE, hello("acp-bridge doctor"))
    await sent.answered.wait()
    if not sent.lost:
        trial.answer = sent.answer
        return
    trial.ended = True
    with anyio.move_on_after(_LAST_MOMENT):
        trial.exit = await process.wait_exit()


def _noted_by(trial: Trial) -> Tap:
    """Return a tap that notes the agent's first line that is no message."""
    looked_at = 0

    def look(direction: str, line: bytes) -> None:
        nonlocal looked_at
        if direction == "in" and trial.noise is None and looked_at < _HEAD:
            looked_at += len(line) + 1
            trial.noise = noise_in(line)

    return look


def noise_in(line: bytes) -> str | None:
    """Return the text of a line that is no JSON object or list; None if it is one, or empty."""
    try:
        is_message = not line.strip() or isinstance(json.loads(line), dict | list)
    except (ValueError, RecursionError):
        is_message = False
    return None if is_message else line.decode(errors="replace").strip()
