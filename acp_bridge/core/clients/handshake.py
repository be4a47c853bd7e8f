"""`initialize`: makes the answer for the client from that of the agent behind the bridge.

The bridge adds its own abilities: it lists, loads, resumes, closes and deletes sessions, whatever
the agent can do, and shows every client the sessions of subagents as that client can take them, so
agents are told of `subagents` in any case. They are also told of `session.quota`, and clients
that don't declare it are sent no such updates. The bridge takes out, for both sides, what it can't
carry: other forms of such sessions, and an index of sessions.

The agent's ways to log in are offered as they stand: the agent knows the client's abilities. A
remote client is offered none that needs a terminal, which would have to be one of this machine.
"""

from __future__ import annotations

from acp_bridge import __version__
from acp_bridge.core.protocol import (
    BUILTIN_INFO,
    CAN_CANCEL_ITEM,
    CAN_PAUSE,
    CAN_STEER,
    CANCEL_ITEM,
    GO,
    HOLD,
    METHODS,
    PAUSE,
    PROMPT_KEY,
    QUOTA,
    SUBAGENTS,
    TAKES_CURSORS,
    TOKENS,
    VERSION,
    Json,
    as_object,
    can_own,
    has,
    objects,
    own_meta,
    with_own_meta,
    without,
    without_client_name,
    without_machine,
    without_own_meta,
)

#: The built-in agent's answer, known without starting it (a test compares the two).
BUILTIN: Json = {
    "protocolVersion": VERSION,
    "agentCapabilities": {
        "loadSession": True,
        "promptCapabilities": {"image": True, "embeddedContext": True},
        "mcpCapabilities": {"http": True, "sse": True},
        "sessionCapabilities": {
            "list": {},
            "delete": {},
            "fork": {},
            "additionalDirectories": {},
            "resume": {},
            "close": {},
            "systemPrompt": {"mode": {"override": {}}},
        },
        "_meta": {"acp_bridge": {"pause": True, "ask": True}},
    },
    "agentInfo": {"name": BUILTIN_INFO, "title": "acp-bridge", "version": __version__},
    "authMethods": [
        {
            "id": "api-key",
            "name": "API key",
            "description": (
                "Set the environment variable of your model's provider, such as ANTHROPIC_API_KEY"
                " or OPENAI_API_KEY, or write NAME=value into keys.env in acp-bridge's data folder"
                " (ACP_BRIDGE_HOME); the file is read again without a restart."
                " `acp-bridge key` in a terminal asks for a key."
            ),
        }
    ],
    "_meta": CAN_STEER,
}
#: the `agentInfo` that a client gets when the agent gives none.
_OWN_INFO: Json = {"name": "acp-bridge", "title": "acp-bridge", "version": __version__}
#: capabilities that the bridge keeps back, as a member or in `_meta`, and in the list in
#: `_meta.jetbrains.air.capabilities`: subagents that have sessions of their own, which it carries
#: in ACP's form alone, an index of sessions, whose methods and rows have the agent's ids, and an
#: archive of sessions, which the bridge's own lists would not follow.
_KEPT_BACK = ("subagents", "sessionIndex", "archive")
_AIR_KEPT_BACK = ("nativeSubagentSessions", "sessionIndex")
#: members of `_meta` that name methods which the bridge answers itself. The agent's are left out: a
#: client gets them from the feature that answers those methods, if it is plugged in.
_BRIDGES_WORD = frozenset(CAN_STEER)
_OWN_SESSION_CAPABILITIES = ("list", "resume", "close", "delete")


def for_agent(params: Json, *, kept: bool = False, builtin: bool = False) -> Json:
    """Return the parameters of `initialize` for the agent: the client's, in our version.

    `kept`: work goes on without the client, so its files and terminals are not the agent's.
    `builtin`: the agent is the built-in one, which is asked for its tokens.
    """
    told = {**params, "protocolVersion": VERSION}
    if isinstance(can := params.get("clientCapabilities", {}), dict):
        can = without_client_name(_without_kept_back(can))
        if kept:
            can = without_machine(can)
        if builtin:
            can = with_own_meta(can, {**own_meta(can), TOKENS: True})
        can |= {"session": {**as_object(can.get("session")), QUOTA: {}}}
        told["clientCapabilities"] = can if _has_other_form(can) else {**can, SUBAGENTS: {}}
    return told


def _has_other_form(can: Json) -> bool:
    """Return True for a client of JetBrains, to which agents tell subagents in another form."""
    return as_object(as_object(can.get("_meta")).get("jetbrains")).get("air") is not None


def for_client(agent: Json, settings: Json) -> Json:
    """Return what a client is answered to `initialize`: the agent's answer, with the bridge's own.

    `settings` are added to the bridge's own members of `_meta`. What the agent says under a name of
    the bridge's is left out.
    """
    agent = _without_kept_back(agent)
    meta = as_object(without_own_meta(agent).get("_meta"))
    capabilities = _without_kept_back(as_object(agent.get("agentCapabilities")))
    session = _without_kept_back(as_object(capabilities.get("sessionCapabilities")))
    if not can_fork(capabilities):
        session.pop("fork", None)
    for name in _OWN_SESSION_CAPABILITIES:
        session.setdefault(name, {})
        session[name] = session[name] or {}
    own = {"version": __version__, "queue": True, PROMPT_KEY: True, TAKES_CURSORS: True}
    own |= settings
    own[METHODS] = _methods(capabilities)
    capabilities |= {"loadSession": True, "sessionCapabilities": session}
    capabilities = with_own_meta(capabilities, own)
    info = as_object(agent.get("agentInfo"))
    if not isinstance(info.get("version", ""), str):
        info = without(info, "version")
    ways = [each for each in objects(agent.get("authMethods")) if isinstance(each.get("id"), str)]
    return {
        **agent,
        "agentCapabilities": capabilities,
        "agentInfo": {"version": "", **info} if isinstance(info.get("name"), str) else _OWN_INFO,
        "authMethods": [{"name": each["id"], **each} for each in ways],
        "_meta": {name: meta[name] for name in meta if name not in _BRIDGES_WORD},
    }


def for_remote(agent: Json) -> Json:
    """Return the agent's answer without the ways to log in that need a terminal."""
    ways = objects(agent.get("authMethods"))
    return {**agent, "authMethods": [way for way in ways if not _needs_a_terminal(way)]}


def _needs_a_terminal(way: Json) -> bool:
    return way.get("type") == "terminal" or "terminal-auth" in as_object(way.get("_meta"))


def _without_kept_back(can: Json) -> Json:
    """Return a copy of one side's capabilities without those that are kept back, in any form.

    What a client does not declare an agent does not begin, and the other way round.
    """
    told = {name: value for name, value in can.items() if name not in _KEPT_BACK}
    if not isinstance(meta := told.get("_meta"), dict):
        return told
    told["_meta"] = meta = {name: value for name, value in meta.items() if name not in _KEPT_BACK}
    match meta:
        case {"jetbrains": {"air": {"capabilities": list(named)} as air} as jetbrains}:
            left = [name for name in named if name not in _AIR_KEPT_BACK]
            meta["jetbrains"] = {**jetbrains, "air": {**air, "capabilities": left}}
    return told


def _methods(capabilities: Json) -> list[str]:
    """Return core's methods of the bridge's own that go with this agent (docs/extension.md)."""
    optional = {
        PAUSE: can_own(capabilities, CAN_PAUSE),
        CANCEL_ITEM: can_own(capabilities, CAN_CANCEL_ITEM),
    }
    return [HOLD, GO, *(method for method, able in optional.items() if able)]


def can_fork(capabilities: object) -> bool:
    """Return True when an agent can fork a session, and open the fork in another process."""
    given_back = has(capabilities, "loadSession") or has(
        capabilities, "sessionCapabilities", "resume"
    )
    return given_back and has(capabilities, "sessionCapabilities", "fork")


def name_of(agent: Json) -> str | None:
    """Return the name that the agent gives itself in its answer to `initialize`, or None."""
    name = as_object(agent.get("agentInfo")).get("name")
    return name if isinstance(name, str) and name else None


def hello(name: str, own: Json | None = None, capabilities: Json | None = None) -> Json:
    """Return the parameters with which the client `name` initializes."""
    able = capabilities or {}
    return {
        "protocolVersion": VERSION,
        "clientCapabilities": with_own_meta(able, own) if own else able,
        "clientInfo": {"name": name, "version": __version__},
    }
