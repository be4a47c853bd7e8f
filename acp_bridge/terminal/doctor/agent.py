"""Checks the agent: where its program is, whether it opens a session, what it says of itself.

The agent is started as the bridge does it. Its session gets no prompt, and is closed and deleted as
far as the agent can do that; then its whole process tree is killed. No login is tried. The built-in
agent is asked for no session: it refuses none, and makes its folder for the first.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskGroup

from acp_bridge.core import errors
from acp_bridge.core.agents.connection import AgentCommand, Connection, OfSession
from acp_bridge.core.agents.failed_start import NotReady
from acp_bridge.core.agents.link import Link, Owner
from acp_bridge.core.agents.process_pool import ProcessPool, Sharing
from acp_bridge.core.agents.spoken_version import SpokenVersion
from acp_bridge.core.agents.stderr import cut
from acp_bridge.core.clients.handshake import hello
from acp_bridge.core.ends import Ends
from acp_bridge.core.keys.masking import Mask
from acp_bridge.core.protocol import (
    SESSION_CLOSE,
    SESSION_DELETE,
    SESSION_NEW,
    ErrorCode,
    Json,
    can_own,
    has,
    objects,
)
from acp_bridge.core.records import replace
from acp_bridge.core.runtime import waits
from acp_bridge.core.session.opening import Opening, Workspace, in_time
from acp_bridge.core.sessions.pool import Pool
from acp_bridge.core.settings import Settings
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.features.asking.ask import can_ask
from acp_bridge.terminal.doctor.findings import Finding, Subject, error, ok, warning
from acp_bridge.versions.ends import agent_of_version_2

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

#: how a session is ended: the ability that an agent needs for it, and the method.
_ENDINGS: Final = (("close", SESSION_CLOSE), ("delete", SESSION_DELETE))


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


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a trial of an agent."""

    #: why it did not come to a session; None if it did.
    error: RpcError | None = None
    #: its answer to `initialize`, as version 1 has it; None if it gave none.
    result: Json | None = None
    #: how many seconds after the start the answer came.
    seconds: float = 0.0
    #: the first line on stdout that is no message.
    noise: str | None = None
    #: the version of ACP that was spoken.
    version: int = 0
    #: it has opened a session.
    opened: bool = False


class _Source:
    """Makes the links of the trial's processes."""

    def __init__(self, tasks: TaskGroup, command: AgentCommand) -> None:
        self.tasks, self.command = tasks, command
        self.processes: ProcessPool[OfSession] = ProcessPool()

    def new_link(self, owner: Owner, name: str, *, parked: bool = False) -> Link:
        return Link(Connection(self.command, name, self.processes), owner, name, parked=parked)

    #: it has one process, which no sessions share.
    shares = Sharing.NEVER


async def try_agent(settings: Settings) -> Trial:
    """Start an agent, open a session in it as the bridge does, end it; returns how that went.

    The session's folder is the one in which agents start: an agent may look at what stands there,
    and refuse a session for it.
    """
    spoken = SpokenVersion(settings.agent_protocol)
    command = AgentCommand(
        settings.command,
        hello("acp-bridge doctor"),
        version=spoken,
        folder=settings.folder,
        name=settings.agent_name,
        keys_in=settings.home,
        ours=settings.ours,
        ends=Ends(agent=agent_of_version_2),
    )
    async with anyio.create_task_group() as tasks:
        pool = Pool(_Source(tasks, command), lambda: None, settings.start_timeout)
        trial, began = Trial(), anyio.current_time()
        try:
            link = await pool.ready()
            seconds = anyio.current_time() - began
            trial = Trial(None, link.initialized, seconds, link.connection.noise, spoken.asks)
            if not settings.builtin:
                await pool.take_for(partial(_open_and_end, settings))
                trial = replace(trial, opened=True)
        except RpcError as error:
            trial = replace(trial, error=error)
        finally:
            with anyio.CancelScope(shield=True):  # bounded
                await pool.close(waits.CLOSE_GRACE)
    return trial


async def _open_and_end(settings: Settings, link: Link) -> None:
    """Open a session in a process and end both; raises RpcError if it opens none."""
    try:
        opening = Opening(link, Workspace(settings.folder or os.getcwd()))
        await in_time(link, SESSION_NEW, settings.request_timeout, opening.new)
        with anyio.move_on_after(waits.UNDO):
            for ability, method in _ENDINGS:
                if link.can("sessionCapabilities", ability):
                    with suppress(RpcError):
                        await link.ask(method, {"sessionId": link.agent_session_id})
    finally:
        with anyio.CancelScope(shield=True):  # bounded
            await link.close(waits.CLOSE_GRACE)
