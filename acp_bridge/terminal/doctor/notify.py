"""Checks the settings by which the user is notified; the findings name no address."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from acp_bridge.core.settings import NOTIFY_FILE
from acp_bridge.features.notify import desktop
from acp_bridge.features.notify.config import BadNotify
from acp_bridge.features.notify.read import others_read, read
from acp_bridge.terminal.doctor.findings import (
    Finding,
    Subject,
    error,
    in_home,
    ok,
    warning,
)

AREA: Final = "notifications"


async def check(subject: Subject) -> list[Finding]:
    """Check the file that says how the user is notified; return the findings."""
    return await in_home(subject, NOTIFY_FILE, lambda: look(subject.settings.home, subject.env))


def look(home: Path, env: Mapping[str, str]) -> list[Finding]:
    """Read the file that says how the user is notified, if there is one; return the findings."""
    path = home / NOTIFY_FILE
    try:
        chosen = read(home)
    except BadNotify as bad:
        return [error(f"{path} can't be used: {bad}", "correct it: until then nobody is notified")]
    if chosen is None:
        return [ok(f"none: there is no {path}", ways=[])]
    found = [ok(f"{path} has {', '.join(chosen.named) or 'nothing'}", ways=chosen.named)]
    if chosen.desktop and not desktop.is_there(env):
        program = desktop.program()
        found.append(
            warning(
                f"nothing is shown on the desktop: the program {program} is not there",
                "install it (Debian and Ubuntu: libnotify-bin)" if program == "notify-send" else "",
            )
        )
    if chosen.addresses and others_read(home):
        found.append(warning(f"others may read {path}, with the address", f"chmod 600 {path}"))
    return found
