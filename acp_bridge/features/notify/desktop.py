"""Shows a notification on the desktop, by the program that the system has for that."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from html import escape
from typing import Final

from acp_bridge.core.runtime import waits
from acp_bridge.features.hooks.definitions import Hook, HookEvent
from acp_bridge.features.hooks.environment import environment
from acp_bridge.features.hooks.run import run
from acp_bridge.features.notify.errors import NotTold

TITLE: Final = "acp-bridge"
#: AppleScript that takes the text as its argument, so that no word of the text is read as script.
_SCRIPT: Final = (
    "on run argv",
    f'display notification (item 1 of argv) with title "{TITLE}"',
    "end run",
)


def program() -> str:
    """Return the name of the program that shows notifications on this system."""
    return "osascript" if sys.platform == "darwin" else "notify-send"


def is_there(env: Mapping[str, str]) -> bool:
    """Return True if that program can be found by the PATH of `env`."""
    return shutil.which(program(), path=env.get("PATH")) is not None


def command(name: str, text: str) -> tuple[str, ...]:
    """Return the command line that shows a text by this program."""
    if name == "osascript":
        return (name, *(word for line in _SCRIPT for word in ("-e", line)), "--", text)
    return (name, f"--app-name={TITLE}", "--", TITLE, escape(text, quote=False))


async def show(text: str) -> None:
    """Show a text, within `waits.NOTIFY`. Raises NotTold.

    No process is left afterwards, and none gets a secret of the bridge's environment.
    """
    words = command(program(), text)
    hook = Hook(HookEvent.WAITING, words, timeout=waits.NOTIFY)
    ran = await run(hook, b"", "/", environment(os.environ, "/"))
    if ran.problem is not None:
        raise NotTold(ran.problem)
    if ran.exit_code:
        raise NotTold(f"{words[0]} has ended with exit code {ran.exit_code}")
