"""The sentences about hooks in a session."""

from __future__ import annotations

from typing import Final

from acp_bridge.core.updates.notices import OF_HOOK
from acp_bridge.core.updates.wording import as_code, code, trust, words

HOOKS_UNREAD: Final = (
    "[acp-bridge] The files of hooks could not be read in time: no hook runs in this session until"
    " it is opened again; every permission is asked of you."
)


def bad_hooks(file: str, why: str) -> str:
    """Return the notice of a file of hooks that can't be used."""
    return (
        f"[acp-bridge] {as_code(file)}: {words(why)}. No hook of this file runs until that is"
        " mended and the session is opened again; every permission is asked of you."
    )


def untrusted_hooks(folder: str) -> str:
    """Return the notice of a project whose hooks are not trusted."""
    return (
        "[acp-bridge] This project has hooks of its own (`.acp_bridge/hooks.toml`). They are off:"
        f" {trust(folder)} on a terminal shows them, and turns them on for sessions"
        " that are opened after that."
    )


def changed_hooks(files: list[str], folder: str) -> str:
    """Return the notice of trusted hooks that have changed."""
    named = ", ".join(map(as_code, files[:5])) + (" and more" if len(files) > 5 else "")
    return (
        f"[acp-bridge] The hooks of this project are off, since {named} changed after you trusted"
        f" them; every permission is asked of you. {trust(folder)} on a terminal turns"
        " them on again, for sessions that are opened after that."
    )


def hooks_count(file: str, hooks: list[tuple[str, str]], *, new: bool) -> str:
    """Return the notice of a file of hooks that is new to a session, or has changed since.

    `hooks`: their events and commands.
    """
    shown = [f"{event}: `{code(command)}`" for event, command in hooks]
    more = f", and {len(shown) - 10} more" if len(shown) > 10 else ""
    of = "Hooks" if new else "The hooks have changed"
    named = ", ".join(shown[:10]) + more
    return f"[acp-bridge] {of} of {as_code(file)} that run in this session: {named}."


def hooks_gone(file: str) -> str:
    """Return the notice of a file of hooks that a session has had, and that is gone."""
    return f"[acp-bridge] The hooks of {as_code(file)} are gone: none of them runs in this session."


def hook_failed(event: str, command: str, why: str) -> str:
    """Return the notice of a hook that has failed."""
    return f"[acp-bridge] A hook of {event} failed (`{code(command)}`): {words(why)}."


def rule_refused(title: str, rule: str) -> str:
    """Return the notice of a tool call that a rule has refused."""
    return f"[acp-bridge] Your rule refused {as_code(title)}: {words(rule)}"


def permission_refused(title: str, why: str) -> str:
    """Return the notice of a tool call that a hook has refused."""
    return f"[acp-bridge] A hook refused {as_code(title)}: {words(why, OF_HOOK)}"


def permission_allowed(about: str) -> str:
    """Return the notice of a tool call that a hook has allowed; `about`: its summary."""
    return f"[acp-bridge] A hook allowed: {as_code(about)}"


def feedback(text: str) -> str:
    """Return the prompt that sends the agent back to work; it says that a hook wrote it."""
    return f"[acp-bridge] Feedback of a hook at the end of the turn, not of the user:\n\n{text}"


def enough_feedback(text: str) -> str:
    """Return the notice of feedback that the agent is not given, after too much of it."""
    said = words(text, OF_HOOK)
    return f"[acp-bridge] Hooks have sent the agent back to work often enough. Not sent: {said}"
