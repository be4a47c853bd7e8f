"""The notices about files of rules: mistakes, changes, trust. SANS-IO."""

from __future__ import annotations

from collections.abc import Sequence

from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.core.updates.wording import as_code, named, trust, words


def bad_rules(file: str, why: Sequence[str]) -> str:
    """Return the notice of a file of rules that can't be used; `why`: each mistake in it."""
    told = words(why[0]) if len(why) == 1 else f"{len(why)} mistakes"
    lines = ["\n", *(f"- {words(each)}" for each in why)] if len(why) > 1 else []
    return (
        f"[acp-bridge] {as_code(file)}: {told}. Until that is mended, what it refused before"
        " is refused, and every other permission is asked of you."
    ) + "\n".join(lines)


def unjudged(why: str) -> str:
    """Return the notice that a call was not judged by the rules."""
    return (
        f"[acp-bridge] Your rules do not work now: {words(why)}. Until they do, only you can allow"
        " a call."
    )


def rules_changed(file: str, newly: list[str], use: str) -> str:
    """Return the notice of a file of rules that has changed.

    `newly`: what does not count of it; `use`: the words with which `permissions` lets it count.
    """
    how = _command(use)
    return (
        f"[acp-bridge] {as_code(file)} has changed since this session was opened. New `deny` and"
        f" `ask` rules apply now. These changes do not apply here yet: {named(newly, 10)}. To apply"
        f" them here, run {how} in a terminal. Sessions that you open later use the whole file."
    )


def rules_used(file: str, newly: list[str], use: str) -> str:
    """Return the notice of a changed file of rules that counts from now on; as `rules_changed`."""
    changes = f" These changes apply: {named(newly, 10)}." if newly else ""
    return f"[acp-bridge] {_command(use)} applied {as_code(file)} as it is now.{changes}"


def _command(words: str) -> str:
    return as_code(OWN_COMMANDS.line("permissions", words), 8_400)


def untrusted_rules(folder: str, *, changed: bool) -> str:
    """Return the notice of a project's rules that allow something and are not trusted."""
    since = ", since the file changed after you trusted it" if changed else ""
    return (
        "[acp-bridge] The `allow` rules of this project (`.acp_bridge/permissions.toml`) do not"
        f" count{since}: {trust(folder)} on a terminal shows them, and lets them count."
    )
