"""The table of editors that `acp-bridge setup` knows, by the names that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from acp_bridge.commands.setup import acpx, agent_shell, avante, codecompanion, jetbrains, toad, zed
from acp_bridge.commands.setup.editor import Editor

EDITORS: Final[Mapping[str, Editor]] = {
    "zed": zed.EDITOR,
    "jetbrains": jetbrains.EDITOR,
    "codecompanion": codecompanion.EDITOR,
    "avante": avante.EDITOR,
    "agent-shell": agent_shell.EDITOR,
    "toad": toad.EDITOR,
    "acpx": acpx.EDITOR,
}
