"""The table of editors that `acp-bridge setup` knows, by the names that it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from acp_bridge.terminal.setup import acpx, agent_shell, avante, codecompanion, jetbrains, toad, zed
from acp_bridge.terminal.setup.editor import Editor

EDITORS: Final[Mapping[str, Editor]] = {
    "zed": zed.EDITOR,
    "jetbrains": jetbrains.EDITOR,
    "codecompanion": codecompanion.EDITOR,
    "avante": avante.EDITOR,
    "agent-shell": agent_shell.EDITOR,
    "toad": toad.EDITOR,
    "acpx": acpx.EDITOR,
}
#: by a word by which people may call an editor, the names above that fit it.
_CALLED: Final[Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(("neovim", "nvim", "vim", "vi"), ("codecompanion", "avante")),
    **dict.fromkeys(("emacs", "spacemacs", "doom"), ("agent-shell",)),
    **dict.fromkeys(
        (
            *("intellij", "idea", "pycharm", "webstorm", "goland", "phpstorm", "rider", "clion"),
            *("rubymine", "rustrover", "datagrip", "android-studio"),
        ),
        ("jetbrains",),
    ),
}
#: editors that speak ACP by an extension of somebody else's.
_EXTENDED: Final = ("vscode", "vs-code", "code", "vscodium", "codium", "cursor", "windsurf")


def fitting(word: str, program: str) -> str:
    """Return which editor of the table fits `word`, which is none of its names, or what else to do.

    It is the end of a sentence. `program`: the command that any client may start.
    """
    wanted = word.casefold()
    names = _CALLED.get(wanted) or get_close_matches(wanted, EDITORS, 1)
    if names:
        return f"acp-bridge setup {' or '.join(names)} fits it"
    if wanted in _EXTENDED:
        return f"it needs an extension that speaks ACP, and that is given this command: {program}"
    return f"choose from {', '.join(EDITORS)}, or give your client this command: {program}"
