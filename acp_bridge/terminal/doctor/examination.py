"""Runs the checks one after the other; a check that raises becomes a finding."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from acp_bridge.core import errors
from acp_bridge.core.records import replace
from acp_bridge.terminal.doctor import (
    agent,
    bridges,
    data_folder,
    database,
    editors,
    hooks,
    installation,
    keys,
    notify,
    rules,
    sessions,
)
from acp_bridge.terminal.doctor.findings import Finding, Subject, error
from acp_bridge.terminal.doctor.report import Section

Check = Callable[[Subject], Awaitable[list[Finding]]]


async def _installation(subject: Subject) -> list[Finding]:
    return installation.check(subject)


CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    (installation.AREA, _installation),
    (data_folder.AREA, data_folder.check),
    (sessions.AREA, sessions.check),
    (database.AREA, database.check),
    (bridges.AREA, bridges.check),
    (hooks.AREA, hooks.check),
    (rules.AREA, rules.check),
    (notify.AREA, notify.check),
    (keys.AREA, keys.check),
    (agent.AREA, agent.check),
    (editors.AREA, editors.check),
)


async def examine(
    subject: Subject, checks: Sequence[tuple[str, Check]] | None = None
) -> AsyncIterator[Section]:
    """Yield the findings of each check, in order; `checks`: by area, None for all."""
    for area, check in CHECKS if checks is None else checks:
        try:
            found = await check(subject)
            if area == data_folder.AREA and not data_folder.is_usable(found):
                subject = replace(subject, home_usable=False)
        except Exception as failed:
            errors.internal(failed, f"the check of {area} failed")
            found = [error(f"this could not be looked at ({type(failed).__name__})", "report it")]
        yield Section(area, tuple(found))
