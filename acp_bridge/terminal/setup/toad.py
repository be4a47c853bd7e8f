"""The command line of Toad, which names the agent."""

from __future__ import annotations

import shlex
from typing import Final

from acp_bridge.terminal.setup.editor import Editor, Launch


def _snippet(launch: Launch) -> str:
    # Both Toad and the user's terminal pass the text through a shell: quote it twice.
    title = shlex.quote(launch.name)
    return f"toad acp -t {title} {shlex.quote(shlex.join(launch.words))} .\n"


EDITOR: Final = Editor(
    title="Toad",
    snippet=_snippet,
    file=lambda env: None,
    then=lambda launch: "Type your prompt.",
    why_not="Toad takes an agent of your own from its command line alone.",
)
