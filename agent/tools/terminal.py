"""Runs a command in a terminal of the client's, which shows it as it runs.

Invariants
- A terminal that was made is released, whatever happens, and its command killed first if it still
  runs. The client ends what a command has left in the background.
- A command is not run twice, and not against the client's will: it is run without a terminal only
  if the client has no terminals after all. A refusal is final.
- Every wait for the client is bounded.
"""

from __future__ import annotations

import contextlib
from typing import Any

import anyio
import anyio.lowlevel

from agent.client import Client, ClientError, NotOffered
from agent.tools import Show, ToolError
from agent.tools.bounded_output import Bounded
from agent.tools.process import Command, Ended

#: seconds for the client to create a terminal; it may have to load the folder's environment first
_CREATE = 30
#: seconds to wait for the terminal's id after a cancellation; nobody can release it without its id
_LATE = 1
#: seconds for an answer about a command that has ended
_ANSWER = 5
#: seconds for the client to kill or release a terminal
_CLEAN = 0.5


class NoTerminal(Exception):
    """The client has no terminals, so the command has not begun."""


async def run_in_terminal(command: Command, client: Client, show: Show) -> Ended:
    """Runs the command to its end or its timeout.

    Raises NoTerminal if the client has no terminals, ToolError if it refuses to make one or fails
    later.
    """
    terminal_id = await _create(command, client)
    ended = False
    try:
        await show([{"type": "terminal", "terminalId": terminal_id}])
        status = await _wait(terminal_id, command.timeout, client)
        ended = True
        with anyio.fail_after(_ANSWER):
            told = await client.terminal_output(terminal_id)
    except (ClientError, TimeoutError) as error:
        problem = "The editor's terminal failed; the command may have done a part of its work"
        told_why = error.explain(problem) if isinstance(error, ClientError) else f"{problem}."
        raise ToolError(told_why) from error
    finally:
        await _release(terminal_id, client, kill=not ended)
    text, truncated = _bounded(told, command)
    if status is None:
        return Ended(text, truncated, None, "SIGKILL", True, terminal_id)
    return Ended(text, truncated, status["exitCode"], status["signal"], False, terminal_id)


async def _create(command: Command, client: Client) -> str:
    """Creates the terminal and returns its id.

    After a cancellation it waits `_LATE` seconds for the id, to release the terminal. Raises
    NoTerminal, ToolError.
    """
    terminal_id = ""
    refusal: ClientError | None = None
    try:
        async with anyio.create_task_group() as tasks:
            deadline = anyio.current_time() + _CREATE
            with anyio.CancelScope(deadline=deadline, shield=True) as patience:
                tasks.start_soon(_shorten_when_cancelled, patience)
                try:
                    limit = command.limit + command.secrets.longest
                    terminal_id = await client.create_terminal(
                        "/bin/sh", ["-c", command.text], str(command.cwd), limit
                    )
                except ClientError as error:
                    refusal = error
            tasks.cancel_scope.cancel()
        # The client may have refused because of a cancellation: the command must not run then
        # (invariant C3).
        await anyio.lowlevel.checkpoint_if_cancelled()
    except anyio.get_cancelled_exc_class():
        if terminal_id:
            await _release(terminal_id, client, kill=True)
        raise
    if isinstance(refusal, NotOffered):
        raise NoTerminal from refusal
    if refusal is not None:
        raise ToolError(refusal.explain("The editor refused to run the command")) from refusal
    if not terminal_id:
        raise ToolError(f"The editor did not open a terminal within {_CREATE} s.")
    return terminal_id


async def _shorten_when_cancelled(patience: anyio.CancelScope) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        patience.deadline = min(patience.deadline, anyio.current_time() + _LATE)


async def _wait(terminal_id: str, seconds: float, client: Client) -> dict[str, Any] | None:
    """Waits for the command's end and returns its exit status as the client tells it.

    Returns None if it was killed after `seconds`. Raises ClientError, TimeoutError.
    """
    with anyio.move_on_after(seconds):
        return await client.wait_for_terminal(terminal_id)
    with anyio.fail_after(_ANSWER):
        await client.kill_terminal(terminal_id)
    return None


async def _release(terminal_id: str, client: Client, *, kill: bool) -> None:
    requests = [client.kill_terminal] * kill + [client.release_terminal]
    with anyio.CancelScope(shield=True):
        for request in requests:
            with contextlib.suppress(ClientError), anyio.move_on_after(_CLEAN):
                await request(terminal_id)


def _bounded(told: dict[str, Any], command: Command) -> tuple[str, bool]:
    """Returns the output within the command's limit, and True if some of it is missing."""
    text: str = told["output"]
    if told["truncated"]:  # cut by the client, perhaps in the middle of a secret
        text = command.secrets.mask_part(text, command.secrets.longest)
    # The client may return more than was asked for.
    output = Bounded(command.limit // 2, command.secrets)
    output.add(text.encode("utf-8", "replace"))
    if told["truncated"]:
        return f"[the editor kept only a part of the output]\n{output.text()}", True
    return output.text(), output.truncated
