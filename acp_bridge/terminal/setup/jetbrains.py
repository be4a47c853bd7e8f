"""The settings of the JetBrains IDEs: `agent_servers` in acp.json, one file for all of them."""

from __future__ import annotations

from typing import Final

from acp_bridge.terminal.setup.editor import Editor, Entry, Launch, in_home
from acp_bridge.terminal.setup.jsonc import dumped


def _entry(launch: Launch) -> Entry:
    value = {"command": launch.program, "args": list(launch.args), "env": {}}
    return Entry(("agent_servers", launch.name), value)


EDITOR: Final = Editor(
    title="JetBrains IDEs",
    snippet=lambda launch: dumped(_entry(launch).document()),
    file=lambda env: in_home(env, ".jetbrains", "acp.json"),
    then=lambda launch: f"In the AI chat, choose '{launch.name}' among the agents.",
    entry=_entry,
)
