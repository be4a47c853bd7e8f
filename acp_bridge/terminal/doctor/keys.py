"""Checks the keys and the model of the built-in agent.

With `--online` the model is sent a request.
"""

from __future__ import annotations

from typing import Final

from acp_bridge.core.protocol import Json
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.terminal.doctor.findings import Finding, Subject, error, ok, warning
from acp_bridge.terminal.key.report import FoundKey, NoReport, Report, report, troubles

AREA: Final = "keys and model"
#: the variable with the key of an OpenHands agent-server (`--openhands`).
SERVER_KEY: Final = "OPENHANDS_SESSION_API_KEY"
_DEMO: Final = "demo"


async def check(subject: Subject) -> list[Finding]:
    """Check the keys and the model that the agent starts with; return the findings."""
    if not subject.own_agent:
        return [ok("the agent has keys of its own; acp-bridge needs none for it")]
    if subject.hindrance is not None:
        return [ok("not looked at, since the agent can't be started")]
    online = subject.online and subject.settings.builtin
    try:
        found = await report(subject.settings.home, subject.model, online=online)
    except NoReport as why:
        return [
            error(str(why), "correct the setting, or install this acp-bridge again from its clone")
        ]
    findings = [keys(found, built_in=subject.settings.builtin)]
    findings += map(_trouble, troubles(found) if subject.home_usable else ())
    findings += addresses(found)
    if subject.settings.builtin:
        findings += [model(found), *answered(found)]
    return findings


def _trouble(text: str) -> Finding:
    what, _, then = text.partition(": ")
    return warning(what, then)


def keys(found: Report, *, built_in: bool) -> Finding:
    """Return the finding that names the keys found; never a key itself."""
    there = [key for key in found.keys if not key.is_address]
    if not built_in:
        there = [key for key in there if key.name == SERVER_KEY]
    data: Json = {
        "keys": [{"name": key.name, "from": key.origin} for key in there],
        "file": found.file,
    }
    if there:
        return ok(", ".join(map(_named, there)), **data)
    if not built_in:
        hint = f"if the agent-server wants one: {OWN_COMMANDS.line('key', SERVER_KEY)}"
        return ok("no key of the agent-server", hint, **data)
    return ok(f"no key, neither in the environment nor in {found.file}", **data)


def _named(key: FoundKey) -> str:
    return f"{key.name} ({key.origin})"


def addresses(found: Report) -> list[Finding]:
    """Return a finding for each variable that redirects a provider's requests to another server."""
    return [
        ok(f"requests to {key.provider} go to the address in {_named(key)}")
        for key in found.keys
        if key.is_address
    ]


def model(found: Report) -> Finding:
    """Return the finding on whether the model of new sessions can be used."""
    data: Json = {"model": found.model, "models": found.models, "litellm": found.litellm}
    why = "as you named it" if found.named else "the first whose key is there"
    if found.litellm is None and not found.model.startswith((_DEMO, "scripted:")):
        return error("LiteLLM is not installed, which models need", **data)
    if found.problem is not None:
        return error(f"the model {found.model} can't be used: {found.problem}", **data)
    if found.model == _DEMO and not found.named:
        return warning(
            "no key of a provider is there: sessions are a demo, with prepared answers",
            f"{OWN_COMMANDS.line('key')} asks for one;"
            " a model on a server of yours needs --model alone",
            **data,
        )
    return ok(f"{found.model} ({why}), one of {found.models} to choose from", **data)


def answered(found: Report) -> list[Finding]:
    """Return the finding on how the model answered the request of `--online`, in a list.

    The list is empty if no request was sent, or if the model can't be used, as `model` says.
    """
    if found.online is None or found.problem is not None:
        return []
    if found.model.startswith((_DEMO, "scripted:")):
        return [ok("there is no model to ask: nothing was sent")]
    if (problem := found.online.get("problem")) is not None:
        return [error(f"the model did not answer: {problem}", online=False)]
    ms = found.online.get("ms")
    return [ok(f"{found.model} answered a request after {ms} ms", online=True, answerMs=ms)]
