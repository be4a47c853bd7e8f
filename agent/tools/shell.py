"""Runs a command in the session's folder.

It runs in a terminal of the client's if the client has them, otherwise in a process of the agent's
own.

Invariants
- When the call has ended or is cancelled, nothing of the command is left running;
  agent.tools.process and agent.tools.terminal say what each can promise.
- The model reads at most `LIMIT` bytes of output and a note, and is told how much is left out.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

from anyio import to_thread
from pydantic import BaseModel, Field

from acp_bridge.core.records import replace
from agent.tools import Access, Action, Show, ToolContext, ToolResult
from agent.tools.cards import code, visible
from agent.tools.command_grants import grant
from agent.tools.process import Command, Ended, run_process
from agent.tools.terminal import NoTerminal, run_in_terminal

logger = logging.getLogger(__name__)

#: bytes of output, half of them for the beginning and half for the end
LIMIT = 32 * 1024


class ShellArgs(BaseModel):
    command: str = Field(min_length=1, description="What /bin/sh -c is to run.")
    timeout: float = Field(
        default=120, gt=0, le=600, description="Seconds after which it is killed."
    )


class Shell:
    name = "shell"
    description = (
        "Run a shell command in the session's folder and read what it prints. It gets no input; "
        "what it leaves in the background is killed when it ends. Of output longer than "
        f"{LIMIT // 1024} KiB you get the beginning and the end."
    )
    kind = "execute"
    Args = ShellArgs
    access: Access = "execute"

    def title(self, args: ShellArgs) -> str:
        return f"`{visible(args.command)}`"

    def locations(self, args: ShellArgs, cwd: Path) -> list[dict[str, Any]]:
        return []

    async def prepare(self, args: ShellArgs, context: ToolContext) -> Action:
        command = Command(
            args.command, context.cwd, context.environment, args.timeout, LIMIT, context.secrets
        )
        named = await to_thread.run_sync(grant, args.command, context)
        return Action(partial(_run, command, context), replace(named, within=str(context.cwd)))


async def _run(command: Command, context: ToolContext, show: Show) -> ToolResult:
    if context.client.has_terminals:
        try:
            return _result(await run_in_terminal(command, context.client, show), command)
        except NoTerminal:
            logger.info("the client has no terminals; the command is run without one")
    return _result(await run_process(command, show), command)


def _result(ended: Ended, command: Command) -> ToolResult:
    raw: dict[str, Any] = {"exitCode": ended.exit_code}
    if ended.signal is not None:
        raw["signal"] = ended.signal
    raw |= {"output": ended.output, "truncated": ended.truncated}
    note = _note(ended, command.timeout)
    text = f"{ended.output.rstrip()}\n{note}" if ended.output and note else ended.output or note
    if ended.terminal_id is None:
        return ToolResult(text, raw, code(text) if text else ())
    # A client keeps showing a terminal after its release (ACP: docs/protocol/v1/terminals).
    return ToolResult(text, raw, ({"type": "terminal", "terminalId": ended.terminal_id},))


def _note(ended: Ended, timeout: float) -> str:
    """Returns a note on how the command ended; empty if its exit code is 0."""
    if ended.timed_out:
        return f"[killed after {timeout:g} s]"
    if ended.signal is not None:
        return f"[ended by {ended.signal}]"
    if ended.exit_code is None:
        return "[ended; the exit code is not known]"
    return f"[exit code {ended.exit_code}]" if ended.exit_code else ""
