"""The settings of acpx: an entry of `agents` in its config.json."""

from __future__ import annotations

from typing import Final

from acp_bridge.commands.setup.editor import Editor, Entry, Launch, in_home
from acp_bridge.commands.setup.jsonc import dumped


def _entry(launch: Launch) -> Entry:
    path = ("agents", launch.identifier("-"))
    return Entry(path, {"argv": list(launch.words)}, instead_of=frozenset({"command", "args"}))


EDITOR: Final = Editor(
    title="acpx",
    snippet=lambda launch: dumped(_entry(launch).document()),
    file=lambda env: in_home(env, ".acpx", "config.json"),
    then=lambda launch: f'Run: acpx {launch.identifier("-")} exec "What is in this folder?"',
    entry=_entry,
)
