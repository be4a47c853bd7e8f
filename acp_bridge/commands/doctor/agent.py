"""Checks the agent: where its program is, whether it starts, and what it says of itself."""

from __future__ import annotations

import os
import shutil
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Final

from acp_bridge.agents.process import NOT_FOUND
from acp_bridge.agents.spoken_version import may_be_of_version
from acp_bridge.agents.stderr import cut, end_of
from acp_bridge.commands.doctor.findings import Finding, Subject, error, ok, warning
from acp_bridge.commands.doctor.trial import Trial, try_agent
from acp_bridge.commands.terminal.masking import Mask
from acp_bridge.protocol import VERSION, ErrorCode, Json, can_ask, can_own, has, objects
from acp_bridge.settings import AgentProtocol
from acp_bridge.versions import v2
from acp_bridge.wire.jsonrpc import Err, Ok, RpcError

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
    """Find the agent's program, start and initialize it, end it; return the findings."""
    settings = subject.settings
    if subject.hindrance is not None:
        return [error(subject.hindrance)]
    program = settings.command[0]
    place = found_at(program, subject.env.get("PATH", ""))
    if place is None:
        return [missing(program, subject.env.get("PATH", ""))]
    trial = await try_agent(settings.command, settings.start_timeout)
    if _has_other_version(trial) and settings.agent_protocol is not AgentProtocol.V1:
        again = await try_agent(settings.command, settings.start_timeout, version=v2.VERSION)
        trial = again if again.result is not None else trial
    trial = masked(trial, subject.mask)
    where = ok(
        f"the program of {settings.agent_name} is {place}", agent=settings.agent_name, program=place
    )
    found = started(trial, settings.start_timeout)
    return [where, *(each for each in found if not (settings.builtin and "logins" in each.data))]


def _has_other_version(trial: Trial) -> bool:
    """Return True if an agent's answer to version 1 says that it may speak only version 2."""
    if trial.error is not None:
        return may_be_of_version(VERSION, trial.error)
    answer = trial.result
    return isinstance(answer, dict) and answer.get("protocolVersion") == v2.VERSION


def found_at(program: str, path: str) -> str | None:
    """Return the path of an executable program, looked up in `path`; None if there is none."""
    return shutil.which(program, path=path)


def missing(program: str, path: str) -> Finding:
    """Return the error finding for a program that can't be executed, with what to do."""
    places = [Path(program)] if "/" in program else [Path(p, program) for p in path.split(":") if p]
    there = next((place for place in places if place.is_file()), None)
    if there is not None:
        return error(f"{there} is not executable", f"chmod +x {there}")
    if "/" in program:
        return error(f"{program} is not there", "correct the path, or install the agent")
    return error(
        f"{program} is not found in the PATH",
        "install the agent, or give the whole path of its program after --",
    )


def masked(trial: Trial, mask: Mask) -> Trial:
    """Return a trial with all secrets masked; masking must come before texts are cut to length."""
    answer = trial.answer
    if isinstance(answer, Ok):
        answer = Ok(mask.value(answer.result))
    elif isinstance(answer, Err):
        told = answer.error
        text, data = mask.text(told.message), mask.value(told.data)
        answer = Err(RpcError.received(told.code, text, data))
    return replace(
        trial,
        answer=answer,
        noise=trial.noise and mask.text(trial.noise),
        stderr=deque(mask.text("\n".join(trial.stderr)).split("\n")),
    )


def started(trial: Trial, within: float) -> list[Finding]:
    """Return the findings about an agent that was tried; `within`: its start timeout in seconds."""
    heard = [*_noise(trial)]
    if trial.failed is not None:
        # A program that was found and "is not found" at its start lacks its interpreter.
        is_missing = trial.failed.startswith(NOT_FOUND)
        hint = "does the interpreter exist that its first line names?" if is_missing else ""
        return [error(f"it does not start: {trial.failed}", hint), *heard]
    if trial.error is not None:
        return [*_refused(trial.error), *heard, *_stderr(trial)]
    if trial.answer is None:
        return [_silent(trial, within), *heard, *_stderr(trial)]
    return [*_introduced(trial), *heard]


def _silent(trial: Trial, within: float) -> Finding:
    hint = "run the same command in a terminal and read what it says"
    if not trial.ended:
        return error(
            f"it has not answered `initialize` within {within:g} s",
            "does it speak ACP on stdin and stdout? Many need an argument for that, such as"
            " 'acp' or '--acp'",
        )
    if trial.exit is None:
        return error("it closed its stdout before it had answered `initialize`", hint)
    how = trial.exit.describe()
    return error(f"it ended before it had answered `initialize` ({how})", hint)


def _refused(refusal: RpcError) -> list[Finding]:
    details = refusal.data.get("details") if isinstance(refusal.data, dict) else None
    why = f"{refusal.message}" + (f": {details}" if details not in (None, refusal.message) else "")
    if refusal.code == ErrorCode.AUTH_REQUIRED:
        return [warning(f"it wants a login before anything else: {cut(why)}", "log in at it")]
    return [
        error(
            f"it answered `initialize` with an error: {cut(why)}",
            "is it a version that speaks ACP 1?",
            code=refusal.code,
        )
    ]


def _introduced(trial: Trial) -> list[Finding]:
    result, ms = trial.result, round(1000 * trial.seconds)
    version = result.get("protocolVersion") if isinstance(result, dict) else None
    if version != VERSION or isinstance(version, bool):
        spoken = version if isinstance(version, int) else "something else"
        return [
            error(
                f"it does not speak ACP version {VERSION}, but {spoken}",
                "update acp-bridge or the agent, so that both speak one version",
                initializeMs=ms,
            ),
            *_stderr(trial),
        ]
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
            f"it writes what is no JSON on its stdout: {cut(trial.noise)}",
            "acp-bridge drops such lines; other clients may not. Its log belongs on stderr",
        )
    ]


def _stderr(trial: Trial) -> list[Finding]:
    lines = end_of(trial.stderr)
    if not lines:
        return [ok("it has written nothing to stderr")]
    return [ok("\n  ".join(["the end of its stderr:", *lines]))]
