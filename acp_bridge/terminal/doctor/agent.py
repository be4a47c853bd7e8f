"""Checks the agent: where its program is, whether it opens a session, what it says of itself."""

from __future__ import annotations

import os
import shutil
from typing import Final

from acp_bridge.core import errors
from acp_bridge.core.agents.failed_start import NotReady
from acp_bridge.core.agents.stderr import cut
from acp_bridge.core.keys.masking import Mask
from acp_bridge.core.protocol import ErrorCode, Json, can_own, has, objects
from acp_bridge.core.records import replace
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.features.asking.ask import can_ask
from acp_bridge.terminal.doctor.findings import Finding, Subject, error, ok, warning
from acp_bridge.terminal.doctor.trial import Trial, try_agent

AREA: Final = "agent"
#: seconds until the answer to `initialize`; a slower agent gets a remark.
_SLOW: Final = 10.0
#: what is said of an agent's abilities, by the path of the member in its capabilities.
_ABILITIES: Final = {
    "load": ("loadSession",),
    "resume": ("sessionCapabilities", "resume"),
    "list": ("sessionCapabilities", "list"),
    "close": ("sessionCapabilities", "close"),
    "delete": ("sessionCapabilities", "delete"),
    "fork": ("sessionCapabilities", "fork"),
    "images": ("promptCapabilities", "image"),
    "audio": ("promptCapabilities", "audio"),
    "embedded context": ("promptCapabilities", "embeddedContext"),
    "MCP over HTTP": ("mcpCapabilities", "http"),
    "MCP over SSE": ("mcpCapabilities", "sse"),
}


async def check(subject: Subject) -> list[Finding]:
    """Find the agent's program, start it, open a session, end it; return the findings."""
    settings = subject.settings
    if subject.hindrance is not None:
        return [error(subject.hindrance)]
    trial = masked(await try_agent(settings), subject.mask)
    found = started(trial)
    if (place := shutil.which(settings.command[0], path=subject.env.get("PATH", ""))) is not None:
        text = f"the agent's name is {settings.agent_name}, its program is {place}"
        found = [ok(text, agent=settings.agent_name, program=place), *found]
    return [each for each in found if not (settings.builtin and "logins" in each.data)]


def masked(trial: Trial, mask: Mask) -> Trial:
    """Return a trial with all secrets masked in what the agent has answered."""
    noise = trial.noise and mask.text(trial.noise)
    return replace(trial, result=mask.value(trial.result), noise=noise)


def started(trial: Trial) -> list[Finding]:
    """Return the findings about an agent that was tried."""
    introduced = [] if trial.result is None else _introduced(trial)
    return [*introduced, *_session(trial), *_noise(trial)]


def _session(trial: Trial) -> list[Finding]:
    """Return what is found about the session that the agent was asked for, if it was."""
    match trial.error:
        case None:
            return [ok("it opened a session; no prompt was sent")] if trial.opened else []
        case NotReady(trouble=trouble):
            text = "\n  ".join([trouble.what, *trouble.lines])
            return [error(text, trouble.advice, code=trial.error.code)]
        case RpcError(code=ErrorCode.AUTH_REQUIRED, message=why):
            return [warning(f"the agent wants a login: {cut(why)}", "use its own command for that")]
        case other:
            return [error(cut(errors.whole(other.message, other.data)))]


def _introduced(trial: Trial) -> list[Finding]:
    result, ms = trial.result or {}, round(1000 * trial.seconds)
    info = result.get("agentInfo")
    said = [info.get(key) for key in ("name", "version")] if isinstance(info, dict) else []
    who = " ".join(str(each) for each in said if each) or "an agent without a name"
    data: Json = {"initializeMs": ms, "protocolVersion": trial.version, "agentInfo": cut(who)}
    answered = f"{cut(who)} answered `initialize` after {ms} ms, in ACP version {trial.version}"
    if trial.seconds < _SLOW:
        first = ok(answered, **data)
    else:
        first = warning(answered, "--spare keeps one ready for the next session", **data)
    return [first, _abilities(result.get("agentCapabilities")), *_logins(result)]


def _abilities(capabilities: object) -> Finding:
    can = [name for name, path in _ABILITIES.items() if has(capabilities, *path)]
    can += ["pause"] if can_own(capabilities, "pause") else []
    can += ["questions beside a session"] if can_ask(capabilities) else []
    told = f"it has: {', '.join(can) or 'nothing beyond prompts'}"
    if "load" in can or "resume" in can:
        return ok(told, abilities=can)
    return warning(
        f"{told}. It can neither load nor resume a session",
        "after a restart it does not remember what was said; the session tells so",
        abilities=can,
    )


def _logins(result: Json) -> list[Finding]:
    methods = result.get("authMethods")
    listed = objects(methods)
    if not listed:
        return [ok("it offers no login", logins=[])]
    ways = [_way(each) for each in listed]
    return [
        ok(
            "if it wants a login, which only a session shows: " + "; ".join(ways),
            logins=[str(each.get("id")) for each in listed],
        )
    ]


def _way(method: Json) -> str:
    """Return how a user logs in by one of the agent's `authMethods`, in words."""
    name = cut(str(method.get("name") or method.get("id") or "a login"))
    match method.get("type"):
        case "terminal":
            return f"{name} (in a terminal: the client runs the agent with arguments of its own)"
        case "env_var":
            told = [str(each.get("name")) for each in objects(method.get("vars"))]
            unset = [each for each in told if not os.environ.get(each)]
            state = f"missing here: {', '.join(unset)}" if unset else "all set here"
            return f"{name} (environment variables, {state})"
    about = method.get("description")
    return f"{name} ({cut(about)})" if isinstance(about, str) and about else name


def _noise(trial: Trial) -> list[Finding]:
    if trial.noise is None:
        return []
    return [
        warning(
            f"it writes what is not ACP to its stdout: {cut(trial.noise)}",
            "acp-bridge drops such lines; other clients may not. Its log belongs on stderr",
        )
    ]
