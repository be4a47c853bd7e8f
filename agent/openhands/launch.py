"""Creates a conversation on the server, with its agent profile, folder and confirmation policy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from acp_bridge.core.protocol import as_object
from agent.errors import invalid_params, unknown_session
from agent.openhands.confirmation import MODES
from agent.openhands.events import Json
from agent.openhands.problems import Kind, ServerProblem, one_line
from agent.openhands.server import Server
from agent.session.session_params import SessionParams

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


async def check_extras(server: Server, params: SessionParams) -> None:
    """Raises RequestError for further folders, and for an MCP server that the settings lack.

    A conversation has the MCP servers of its profile and of the server's settings. So each one that
    a client names must be in the settings, under the same name. Raises ServerProblem.
    """
    if params.extra_roots:
        raise invalid_params("additionalDirectories: a conversation of OpenHands has one folder")
    if not params.mcp_servers:
        return
    settings = as_object((await server.settings()).get("agent_settings"))
    known = as_object(settings.get("mcp_config"))
    known = as_object(known.get("mcpServers")) or known
    names = [
        str(each.get("name", "?"))
        for each in params.mcp_servers
        if not _is_same(each, as_object(known.get(str(each.get("name")))))
    ]
    if names:
        text = "mcpServers: the agent-server can't be given these for one session, and its settings"
        raise invalid_params(one_line(f"{text} don't have them: {', '.join(names)}"))


def _is_same(wanted: Json, known: Json) -> bool:
    """Returns True if `known` is enabled and has the URL, or the command line, of `wanted`."""
    if not known or known.get("enabled") is False:
        return False
    if "url" in wanted:
        return bool(wanted["url"] == known.get("url"))
    arguments = list(wanted.get("args") or ())
    return wanted.get("command") == known.get("command") and arguments == (known.get("args") or [])


async def begin(
    server: Server, conversation_id: str, params: SessionParams, profile: str | None
) -> Json:
    """Creates the conversation and returns the server's description of it.

    Raises ServerProblem, and RequestError for a parameter that the server can't take.
    """
    profiles = await server.agent_profiles()
    await _check_folder(server, str(params.cwd))
    request = {
        "conversation_id": conversation_id,
        "agent_profile_id": _profile_id(profiles, profile),
        "workspace": {"kind": "LocalWorkspace", "working_dir": str(params.cwd)},
        "confirmation_policy": _policy(await server.settings()),
    }
    try:
        return await server.create(request)
    except ServerProblem as problem:
        if problem.kind is not Kind.UNSURE:
            raise
        try:
            return await server.info(conversation_id)  # the conversation may have been created
        except ServerProblem:
            raise problem from None


async def _check_folder(server: Server, path: str) -> None:
    try:
        await server.check_folder(path)
    except ServerProblem as problem:
        if problem.kind is Kind.GONE:
            raise invalid_params(f"cwd: the agent-server has no folder {path}") from problem
        if problem.kind is Kind.NOT_ALLOWED:
            raise invalid_params(f"cwd: the agent-server may not read {path}") from problem
        if problem.kind is Kind.REFUSED:
            raise invalid_params(f"cwd: no folder on the agent-server: {path}") from problem
        raise


def _profile_id(listed: Json, wanted: str | None) -> str:
    profiles: Sequence[Any] = found if isinstance(found := listed.get("profiles"), list) else []
    known = {
        str(each.get("name")): str(each.get("id"))
        for each in profiles
        if isinstance(each, dict) and each.get("id")
    }
    if wanted is None:
        active = listed.get("active_agent_profile_id")
        if isinstance(active, str):
            return active
        raise ServerProblem(Kind.REFUSED, "The agent-server has no active agent profile.")
    if wanted in known:
        return known[wanted]
    names = ", ".join(sorted(known)) or "none"
    text = f"The agent-server has no agent profile {wanted!r}; it has: {names}."
    raise ServerProblem(Kind.REFUSED, one_line(text))


def _policy(settings: Json) -> Json:
    """Returns the policy with which the server's own clients begin a conversation."""
    chosen = settings.get("conversation_settings")
    if not isinstance(chosen, dict) or chosen.get("confirmation_mode") is not True:
        return MODES["never"][2]
    return MODES["risky" if chosen.get("security_analyzer") == "llm" else "always"][2]


def check_id(session_id: str) -> None:
    """Raises RequestError for an id that no conversation can have; ids become part of a URL."""
    if not _ID.fullmatch(session_id):
        raise unknown_session()


def check_cwd(info: Json, params: SessionParams) -> None:
    """Raises RequestError if the conversation works in another folder."""
    if (folder := folder_of(info)) != str(params.cwd):
        raise invalid_params(f"cwd: this conversation's folder is {folder}")


def folder_of(info: Json) -> str:
    return str(as_object(info.get("workspace")).get("working_dir") or "")
