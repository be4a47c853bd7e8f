"""Starts an agent as the bridge does, initializes it, and kills its whole process tree.

No session is opened and no login tried, since these would change something at the agent.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

from acp_bridge.agents.process import AgentProcess, Exit, StartFailed
from acp_bridge.agents.stderr import KEPT
from acp_bridge.bridge_client.connection import Connection, Tap, hello
from acp_bridge.bridge_client.listener import NullListener
from acp_bridge.protocol import INITIALIZE, VERSION
from acp_bridge.runtime import waits
from acp_bridge.versions import v2
from acp_bridge.versions.agent_handshake import initialize_to_v2, initialized_to_v1
from acp_bridge.wire.jsonrpc import Answer, Err, Ok, RpcError
from acp_bridge.wire.stdio import Reader, Writer

#: bytes at the beginning of stdout in which a line that is no message is looked for.
_HEAD: Final = 64 * 1024
#: seconds to wait for the exit of a process that has closed its stdout.
_LAST_MOMENT: Final = waits.CUT_OFF_GRACE


@dataclass(slots=True)
class Trial:
    """The result of a trial of an agent; without `answer`, `failed` and `ended` it was too slow."""

    #: why the agent did not start, in words for the user.
    failed: str | None = None
    #: the answer to `initialize`.
    answer: Answer | None = None
    #: how many seconds after the start the answer came.
    seconds: float = 0.0
    #: stdout was closed without an answer.
    ended: bool = False
    #: how the process exited after that, if it has.
    exit: Exit | None = None
    #: the first line on stdout that is not JSON.
    noise: str | None = None
    #: the version of ACP that the agent was asked for.
    version: int = VERSION
    stderr: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT))

    @property
    def result(self) -> Any:
        """The result of `initialize`; None if there is none."""
        return self.answer.result if isinstance(self.answer, Ok) else None

    @property
    def error(self) -> RpcError | None:
        """The error that answered `initialize`; None if there is none."""
        return self.answer.error if isinstance(self.answer, Err) else None


async def try_agent(
    command: Sequence[str], within: float, folder: str | None = None, version: int = VERSION
) -> Trial:
    """Start an agent, send `initialize`, wait `within` seconds for an answer, and kill its tree.

    `version`: the version of ACP that is asked for. An answer of version 2 is recorded as one of
    version 1.
    """
    trial = Trial(version=version)
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
            with anyio.CancelScope(shield=True):  # both are bounded
                writer.close()
                await process.close(waits.CLOSE_GRACE)
                reader.close()
            tasks.cancel_scope.cancel()
    return trial


async def _initialize(trial: Trial, process: AgentProcess, connection: Connection) -> None:
    """Send `initialize` and note the answer in `trial`, or how the agent ended without one."""
    said = hello("acp-bridge doctor")
    is_v2 = trial.version == v2.VERSION
    sent = connection.send(INITIALIZE, initialize_to_v2(said) if is_v2 else said)
    await sent.answered.wait()
    if not sent.lost:
        trial.answer = sent.answer
        if is_v2 and v2.answers_as_v2(trial.result):
            trial.answer = Ok(initialized_to_v1(trial.result))
        return
    trial.ended = True
    with anyio.move_on_after(_LAST_MOMENT):
        trial.exit = await process.wait_exit()


def _noted_by(trial: Trial) -> Tap:
    """Return a tap that notes in `trial` the agent's first line that is not a message."""
    looked_at = 0

    def look(direction: str, line: bytes) -> None:
        nonlocal looked_at
        if direction == "in" and trial.noise is None and looked_at < _HEAD:
            looked_at += len(line) + 1
            trial.noise = noise_in(line)

    return look


def noise_in(line: bytes) -> str | None:
    """Return a line as text if it is not a JSON object or list; None if it is, or is empty."""
    try:
        is_message = not line.strip() or isinstance(json.loads(line), dict | list)
    except (ValueError, RecursionError):
        is_message = False
    return None if is_message else line.decode(errors="replace").strip()
