"""The one map from what went wrong to what goes on the wire.

No library's text, traceback, secret or path, but that of the data folder where it can't be used,
leaves the process: an error that is not ours becomes -32603 with an opaque id, and the log has the
rest under that id.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable
from typing import Any, Final, TypeGuard
from uuid import uuid4

from acp_bridge.core.protocol import (
    ADDRESS,
    CURSOR,
    ELSEWHERE,
    MACHINE,
    REASON,
    ErrorCode,
    as_object,
)
from acp_bridge.core.wire.jsonrpc import Malformed, RpcError, dumps

log = logging.getLogger("acp_bridge")
_ORIGIN: Final = re.compile(r"https://([a-z0-9._-]{1,255}|\[[0-9a-f:.]{2,45}\])(:[0-9]{1,5})?")


def internal(exc: BaseException | None = None, what: str = "internal error") -> RpcError:
    """Return -32603 with the text `what` and an id; the log has `exc` under the same id."""
    error_id = uuid4().hex[:8]
    log.error("error id=%s %s", error_id, what, exc_info=exc)
    return RpcError(ErrorCode.INTERNAL_ERROR, f"{what} (the log has more under id {error_id})")


def contained(call: Callable[..., None], *args: object, what: str) -> None:
    """Call `call(*args)`; an exception of it is logged as `what`, not raised (invariant P6)."""
    try:
        call(*args)
    except Exception as exc:
        internal(exc, what)


def invalid(message: str, where: str | None = None) -> RpcError:
    """Return -32602 with `message`, behind the wrong parameter's name `where` if it is given."""
    text = f"{where}: {message}" if where else message
    return RpcError(ErrorCode.INVALID_PARAMS, text)


def wrong_cursor(message: str) -> RpcError:
    """Return -32602 for a cursor that can't be used; its `data` says that the cursor is why."""
    error = invalid(message)
    error.data = {**error.data, REASON: CURSOR}
    return error


def is_wrong_cursor(error: RpcError) -> bool:
    """Return True for an error that `wrong_cursor` has made, here or in another bridge."""
    return isinstance(error.data, dict) and error.data.get(REASON) == CURSOR


def held_elsewhere(message: str, machine: str, address: str | None) -> RpcError:
    """Return -32600: a bridge of another machine has the session.

    Its `data` names `machine`, and `address` if that is an https origin.
    """
    error = refused(message)
    error.data = {**error.data, REASON: ELSEWHERE, MACHINE: machine}
    if _is_origin(address):
        error.data[ADDRESS] = address
    return error


def _is_origin(text: object) -> TypeGuard[str]:
    """Return True for an https origin as browsers write it."""
    return isinstance(text, str) and _ORIGIN.fullmatch(text) is not None


def held_at(data: object) -> tuple[str, str | None] | None:
    """Return the machine and the origin (or None) that `held_elsewhere` put into an error's `data`.

    None for the `data` of any other error.
    """
    told = as_object(data)
    machine, address = told.get(MACHINE), told.get(ADDRESS)
    if told.get(REASON) != ELSEWHERE or not isinstance(machine, str):
        return None
    return machine, address if _is_origin(address) else None


def without_machine_named(data: Any) -> Any:
    """Return an error's `data` without what `held_elsewhere` adds; any other as it is."""
    if held_at(data) is None:
        return data
    return {name: data[name] for name in data if name not in (REASON, MACHINE, ADDRESS)}


def whole(message: str, data: object) -> str:
    """Return an error's message with the `details` in its `data`, by lines."""
    details = as_object(data).get("details")
    if not isinstance(details, str) or not details:
        return message
    has_it = re.search(rf"(?<!\w){re.escape(message)}(?!\w)", details)
    return details if has_it else f"{message}: {details}"


def details(data: object) -> str:
    """Return what the `data` of an agent's error say, for people; "" if they say nothing.

    That is a text, the text `details` or `message` of an object, or else all of it as JSON if a
    text stands in it: numbers alone are for programs.
    """
    if isinstance(data, dict):
        texts = (data.get(name) for name in ("details", "message"))
        data = next((each for each in texts if isinstance(each, str) and each), data)
    if isinstance(data, str):
        return data
    try:
        return dumps(data).decode() if _has_text(data) else ""
    except (ValueError, RecursionError):  # it is deeper than JSON can be written
        return ""


def _has_text(data: object) -> bool:
    if isinstance(data, dict | list):
        return any(map(_has_text, data.values() if isinstance(data, dict) else data))
    return isinstance(data, str) and bool(data.strip())


def unknown_session() -> RpcError:
    """Return -32002: there is no such session."""
    return RpcError(ErrorCode.RESOURCE_NOT_FOUND, "unknown session")


def unknown_method(method: str) -> RpcError:
    """Return -32601 for `method`, also if it is one of a capability that was not advertised."""
    return RpcError(ErrorCode.METHOD_NOT_FOUND, f"method not found: {method[:200]}")


def cancelled() -> RpcError:
    """Return -32800: the request was cancelled."""
    return RpcError(ErrorCode.REQUEST_CANCELLED, "request cancelled")


def auth_required() -> RpcError:
    """Return -32000: the client is to authenticate first."""
    return RpcError(ErrorCode.AUTH_REQUIRED, "authentication required")


def at_this_machine(error: RpcError) -> RpcError:
    """Return an error as a remote client gets it: one that wants a login names this machine."""
    if error.code != ErrorCode.AUTH_REQUIRED:
        return error
    where = f" (log in on {socket.gethostname()}, where the agent runs)"
    data = error.data
    if isinstance(data, dict) and isinstance(details := data.get("details"), str):
        data = {**data, "details": details.removesuffix(where) + where}
    return RpcError.received(error.code, error.message.removesuffix(where) + where, data)


def refused(message: str) -> RpcError:
    """Return -32600 with `message`: the request is not allowed now, or not to this client."""
    return RpcError(ErrorCode.INVALID_REQUEST, message)


def too_many_requests(open_: int) -> RpcError:
    """Return -32600: the agent has `open_` open requests, and may make no more."""
    return refused(
        f"{open_} requests of this agent wait for an answer: send more when some have one"
    )


def silent(method: str, seconds: float) -> RpcError:
    """Return -32603: the agent has not answered `method` within `seconds`."""
    return agent_trouble(f"the agent did not answer {method} within {seconds:g} s")


def spoiled_answer(line: Malformed) -> RpcError:
    """Return -32603: `line`, which was the agent's answer, is no message or is too long."""
    return agent_trouble(f"the agent's answer can't be read: {line.reason}")


def too_many_files(limit: int) -> RpcError:
    """Return -32603: a session finds no room among the `limit` files that may be open."""
    return RpcError(
        ErrorCode.INTERNAL_ERROR,
        f"no room for another session: the system lets this acp-bridge have {limit} files open"
        " (ulimit -n); close a session first",
    )


class AgentEnded(RpcError):
    """-32603: the agent's process has ended before it answered.

    `how`: its exit code or signal, empty if unknown. `killed`: another process has ended it.
    """

    def __init__(self, how: str, *, killed: bool) -> None:
        told = f" ({how})" if how else ""
        super().__init__(ErrorCode.INTERNAL_ERROR, f"the agent's process has ended{told}")
        self.killed = killed


def agent_trouble(message: str) -> RpcError:
    """Return -32603: the agent failed; `message` is one sentence of ours for the user."""
    return RpcError(ErrorCode.INTERNAL_ERROR, message)
