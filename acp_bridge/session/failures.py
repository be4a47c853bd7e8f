"""What breaks inside a session breaks nobody's answer (invariants P6, Q9)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from acp_bridge import errors
from acp_bridge.machine import effects as ef
from acp_bridge.machine import events as ev
from acp_bridge.wire.jsonrpc import Err


def instead_of(effect: ef.Effect, exc: Exception) -> list[ev.Event]:
    """Log that an effect failed; returns what the machine is told if a prompt waits for more."""
    error = errors.internal(exc, f"{type(effect).__name__} failed")
    match effect:
        case ef.Commit(key):
            return [ev.CommitFailed(key, error.message)]
        case ef.SendPrompt(epoch, key):  # sending is the last thing done: the agent has nothing
            return [ev.AgentAnswered(epoch, key, Err(error))]
        case ef.RunHooks(key):
            return [ev.HooksDone(key)]
    return []


async def contained(
    work: Callable[..., Awaitable[None]], args: tuple[object, ...], failed: Callable[[], None]
) -> None:
    """Do a piece of work; if it fails, that is logged, and `failed` is called."""
    what = getattr(work, "__qualname__", "work")
    try:
        await work(*args)
    except Exception as exc:
        errors.internal(exc, f"{what} failed")
        try:
            failed()
        except Exception as worse:  # it must not end the other sessions
            errors.internal(worse, f"{what} failed, and so did what is done then")
