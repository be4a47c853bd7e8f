"""The settings of acpx: an entry of `agents` in its config.json.

The entry is a command line as text, since every version of acpx reads that: 0.1.15, which npm takes
on Node 20, knows neither `args` nor the `argv` of later ones.
"""

from __future__ import annotations

import shlex
from typing import Final

from acp_bridge.terminal.setup.editor import Editor, Entry, Launch, in_home
from acp_bridge.terminal.setup.jsonc import dumped


def _entry(launch: Launch) -> Entry:
    path = ("agents", launch.identifier("-"))
    line = shlex.join(launch.words)
    return Entry(path, {"command": line}, instead_of=frozenset({"argv", "args"}))


EDITOR: Final = Editor(
    title="acpx",
    snippet=lambda launch: dumped(_entry(launch).document()),
    file=lambda env: in_home(env, ".acpx", "config.json"),
    then=lambda launch: f'Run: acpx {launch.identifier("-")} exec "What is in this folder?"',
    entry=_entry,
)
