"""What the plugins of Neovim share; Neovim's settings are a program in Lua."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from acp_bridge.terminal.setup.editor import in_config

#: why Neovim's settings are not written by `--write`.
INIT: Final = "Neovim's settings are a program, which can't be edited safely"
WHY_NOT: Final = (
    'a second call of require("{plugin}").setup would undo the first, so if there is one,'
    " these lines go into it"
)
BESIDE: Final = (
    'if your settings call require("{plugin}").setup already, these lines go into that call: a'
    " second one would undo the first."
)


def init(env: Mapping[str, str]) -> str:
    """Return the path of the settings file of Neovim.

    If there is an init.vim, Neovim takes no init.lua, and a file in its folder `plugin` is used.
    """
    folder = env.get("NVIM_APPNAME") or "nvim"
    init = in_config(env, folder, "init.lua")
    if os.path.exists(in_config(env, folder, "init.vim")) and not os.path.exists(init):
        return in_config(env, folder, "plugin", "acp-bridge.lua")
    return init


def quoted(text: str) -> str:
    """Return a text as a Lua string literal."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    return letter if letter.isprintable() else "".join(f"\\{byte:03}" for byte in letter.encode())
