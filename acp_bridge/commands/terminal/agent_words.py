"""What an agent that does not start has written last, as `run` and `chat` show it."""

from __future__ import annotations

import os

from acp_bridge.cli.harmless import one_line
from acp_bridge.commands.terminal.masking import Mask
from acp_bridge.protocol import Json, strings


def last_words_shown(params: Json) -> list[str]:
    """Return the lines of a `_acp_bridge/last_words`, without secrets, under a heading."""
    mask = Mask.of(os.environ, None)
    words = [f"  {one_line(mask.text(line))}" for line in strings(params.get("lines"))]
    return ["the end of the agent's stderr:", *words] if words else []
