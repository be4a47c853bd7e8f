"""Reads the parameters of an agent's messages, which may be odd. SANS-IO.

- A request to a person, or about the client's machine, that names no session is about the only one.
- A permission is about a tool call with an id, whatever the agent says of the call: rules, hooks
  and persons decide about it as about any other.
"""

from __future__ import annotations

from typing import Any, Final

from acp_bridge.core.protocol import (
    NOTICE,
    ON_THE_MACHINE,
    RAN,
    REQUEST_PERMISSION,
    Json,
    as_object,
    own_meta,
    with_own_meta,
    without_own_meta,
)
from acp_bridge.core.updates import odd_updates
from acp_bridge.core.wire.peer import Call

#: the marks on updates that only an agent of this project may set: another one could speak with
#: the bridge's voice.
_OUR_AGENT_MARKS: Final = (NOTICE, RAN)


def as_named(params: Any, *, translated: bool, ours: bool) -> Any:
    """Return an agent's parameters under the protocol's names, without the bridge's marks.

    `translated`: they come from a translator, whose marks stay. `ours`: the agent belongs to
    acp-bridge, so the marks stay that are its own to say.
    """
    if not isinstance(params, dict):
        return params
    if "session_id" in params:
        params = odd_updates.in_camel_case(params)
    if "_meta" not in params or translated:
        return params
    told = own_meta(params) if ours else {}
    kept = {name: told[name] for name in _OUR_AGENT_MARKS if isinstance(told.get(name), bool)}
    return with_own_meta(params, kept) if kept else without_own_meta(params)


def of_request(call: Call, only_session: str | None) -> Call:
    """Return an agent's request in the protocol's form.

    `only_session`: the agent's id of the session that its process has; None if it has several.
    """
    permits = call.method == REQUEST_PERMISSION
    if not permits and not isinstance(call.params, dict):
        return call
    params: Json = as_object(call.params)
    named = isinstance(params.get("sessionId"), str) or "requestId" in params
    if only_session and not named and (permits or call.method.startswith(ON_THE_MACHINE)):
        params = {**params, "sessionId": only_session}
    asked = params.get("toolCall")
    if permits and not isinstance(odd_updates.id_of(as_object(asked)), str):
        asked = {**as_object(asked), "toolCallId": f"permission-{call.id}"}
    if isinstance(asked, dict):
        params = {**params, "toolCall": without_own_meta(odd_updates.call(asked))}
    return Call(call.id, call.method, params)
