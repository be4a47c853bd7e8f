"""What the plugins of Neovim share: its settings are a program, in Lua."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from acp_bridge.setup.editor import in_config

#: why Neovim's settings are not written.
INIT: Final = "Neovim's settings are a program, which can't be edited safely"
WHY_NOT: Final = (
    'a second call of require("{plugin}").setup would undo the first, so if there is one,'
    " these lines go into it"
)


def init(env: Mapping[str, str]) -> str:
    """Return the path of Neovim's settings."""
    return in_config(env, env.get("NVIM_APPNAME") or "nvim", "init.lua")


def quoted(text: str) -> str:
    """Return a text as a string of Lua."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    return letter if letter.isprintable() else "".join(f"\\{byte:03}" for byte in letter.encode())
