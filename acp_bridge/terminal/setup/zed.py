"""The settings of Zed: `agent_servers` in settings.json, which may have comments."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from acp_bridge.terminal.setup.editor import Editor, Entry, Launch, in_config, in_home
from acp_bridge.terminal.setup.jsonc import dumped


def _entry(launch: Launch) -> Entry:
    value = {"type": "custom", "command": launch.program, "args": list(launch.args), "env": {}}
    return Entry(("agent_servers", launch.name), value)


def _file(env: Mapping[str, str]) -> str:
    if sys.platform == "darwin":  # Zed does not follow the XDG rules there
        return in_home(env, ".config", "zed", "settings.json")
    return in_config(env, "zed", "settings.json")


EDITOR: Final = Editor(
    title="Zed",
    snippet=lambda launch: dumped(_entry(launch).document()),
    file=_file,
    then=lambda launch: (
        f"In the agent panel, choose '{launch.name}' under New Thread."
        " Zed takes the settings as soon as they are saved."
    ),
    entry=_entry,
)
