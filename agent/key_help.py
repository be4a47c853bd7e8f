"""Makes the sentence on how to give the agent a key, for every message about a missing one."""

from __future__ import annotations

import shlex
from pathlib import Path

from acp_bridge.core.settings import default_home


def key_help(variable: str = "", keys_file: str | Path | None = None) -> str:
    """Returns the sentence; its command is for a terminal of the user's.

    `variable`: that should hold the key, if it is known. `keys_file`: the file that the agent
    reads; the command names its folder if it is not the default one.
    """
    home = Path(keys_file).parent if keys_file else default_home()
    folder = "" if home == default_home() else f" --home {shlex.quote(str(home))}"
    key = f"acp-bridge key {variable}".strip()
    return f"`{key}{folder}` in a terminal asks for a key."
