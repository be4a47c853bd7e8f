"""Reads a hook's answer from its exit code and its output. SANS-IO.

- Exit code 0: what it printed counts: a JSON object or, where the agent can be told, plain text.
- Exit code 2: no; the text on stderr says why.
- Anything else, a timeout, a crash, an output that is not understood: the hook has failed. It has
  said nothing then, and above all it has not allowed anything (invariant C18).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from acp_bridge.features.hooks.definitions import HookEvent

#: how many characters of a hook's text are used.
TEXT: Final = 10_000
NO_REASON: Final = "it gave no reason"
#: the events whose hooks may print plain text for the agent.
_TELL: Final = frozenset({HookEvent.PROMPT, HookEvent.SESSION_START})
_BLOCKS: Final = frozenset({HookEvent.PROMPT, HookEvent.TURN_END})


class Permission(Enum):
    """The answer of hooks to a permission that the agent asks for."""

    ALLOW = "allow"
    DENY = "deny"
    #: the person is asked.
    ASK = "ask"


#: the same, the strictest last.
_PERMISSIONS: Final = ("allow", "ask", "deny")


@dataclass(frozen=True, slots=True)
class Ran:
    """How a hook ended: `problem` if it did not end by itself, else its exit code."""

    exit_code: int = 0
    stdout: str = ""
    stderr: str = ""
    problem: str | None = None
    #: the end of its output is missing, since it printed too much.
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of one hook; every field is empty if the hook says nothing."""

    #: the reason why the prompt is refused, or the feedback that sends the agent back to work.
    block: str | None = None
    #: the text that the agent gets with the prompt.
    context: str = ""
    permission: Permission | None = None
    reason: str = ""
    #: the reason why the hook has failed.
    problem: str | None = None


class _Odd(Exception):
    """The output is not understood; the text says why."""


def interpret(event: HookEvent, ran: Ran) -> Verdict:
    """Return the answer of a hook for `event`, by the way in which it ended."""
    if ran.problem is not None:
        return Verdict(problem=ran.problem)
    if ran.exit_code == 2:
        return _no(event, ran.stderr.strip()[:TEXT])
    if ran.exit_code != 0:
        first = next(iter(ran.stderr.strip().splitlines()), "")[:200]
        return Verdict(problem=f"exit code {ran.exit_code}" + (f": {first}" if first else ""))
    output = ran.stdout.strip()
    if not output:
        return Verdict()
    try:
        if ran.cut and (output.startswith("{") or event is HookEvent.PERMISSION):
            raise _Odd("it printed too much")
        if output.startswith("{"):
            return _of_object(event, _read(output))
        if event is HookEvent.PERMISSION:
            raise _Odd("its output is no JSON object")
    except _Odd as odd:
        return Verdict(problem=str(odd))
    return Verdict(context=output[:TEXT] if event in _TELL else "")


def decide(verdicts: Iterable[Verdict]) -> tuple[Permission | None, str]:
    """Return the decision of several hooks about a permission, and the reason of a refusal.

    A refusal wins; a hook that has failed, or wants the person asked, outweighs those that
    allow (invariant C18). None: all have ended well, and none says anything of the permission.
    """
    said = list(verdicts)
    for verdict in said:
        if verdict.permission is Permission.DENY:
            return Permission.DENY, verdict.reason
    wants = {verdict.permission for verdict in said} - {None}
    failed = any(verdict.problem is not None for verdict in said)
    if failed or Permission.ASK in wants:
        return Permission.ASK, ""
    return (Permission.ALLOW if wants else None), ""


def _no(event: HookEvent, why: str) -> Verdict:
    if event is HookEvent.PERMISSION:
        return Verdict(permission=Permission.DENY, reason=why or NO_REASON)
    if event is HookEvent.PROMPT:
        return Verdict(block=why or NO_REASON)
    if event is HookEvent.TURN_END:
        return Verdict(block=why) if why else Verdict(problem="exit code 2, and no text on stderr")
    return Verdict(problem=f"exit code 2{': ' if why else ''}{why[:200]}")


def _read(output: str) -> dict[str, Any]:
    try:
        found = json.loads(output)
    except (ValueError, RecursionError):
        raise _Odd("its output is no JSON object") from None
    assert isinstance(found, dict)  # it begins with a brace
    return found


def _of_object(event: HookEvent, found: dict[str, Any]) -> Verdict:
    own = found.get("hookSpecificOutput", {})
    if not isinstance(own, dict):
        raise _Odd("hookSpecificOutput is no object")
    reason = _text(found, "reason")
    if event is HookEvent.PERMISSION:
        return _of_permission(found, own, reason)
    context = _text(own, "additionalContext") or _text(found, "additionalContext")
    if event not in _BLOCKS:
        return Verdict(context=context)
    decision = found.get("decision")
    if decision not in (None, "approve", "block"):
        raise _Odd(f"decision is {decision!r:.40}, and not 'block'")
    stops = found.get("continue") is False
    if stops and event is HookEvent.TURN_END:
        return Verdict()
    if decision == "block" and event is HookEvent.TURN_END and not reason:
        raise _Odd("decision is 'block', and no reason is given")
    if stops or decision == "block":
        return Verdict(block=reason or _text(found, "stopReason") or NO_REASON)
    return Verdict(context=context)


def _of_permission(found: dict[str, Any], own: dict[str, Any], reason: str) -> Verdict:
    """Return what an object says of a permission: of several decisions in it the strictest."""
    said = [each.get("permissionDecision") for each in (own, found)]
    for decision in (own.get("decision"), found.get("decision")):
        if isinstance(decision, dict):  # of Claude Code's PermissionRequest
            reason = _text(decision, "message") or reason
            decision = decision.get("behavior")
        said.append({"approve": "allow", "block": "deny"}.get(str(decision), decision))
    if found.get("continue") is False:
        said.append("deny")
    words = [each for each in said if each is not None]
    for word in words:
        if not isinstance(word, str) or word not in _PERMISSIONS:
            raise _Odd(f"permissionDecision is {word!r:.40}, and not 'allow', 'deny' or 'ask'")
    if not words:
        return Verdict()
    why = _text(own, "permissionDecisionReason") or _text(found, "permissionDecisionReason")
    strictest = max(words, key=_PERMISSIONS.index)
    return Verdict(permission=Permission(strictest), reason=why or reason or NO_REASON)


def _text(holder: dict[str, Any], key: str) -> str:
    found = holder.get(key)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise _Odd(f"{key} is no text")
    return found.strip()[:TEXT]
