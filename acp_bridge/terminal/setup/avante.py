"""The settings of Avante, a plugin of Neovim: one of its ACP providers."""

from __future__ import annotations

from typing import Final

from acp_bridge.terminal.setup.editor import Editor, Launch
from acp_bridge.terminal.setup.lua import BESIDE, INIT, WHY_NOT, init, quoted

# Without `env`, Avante passes the agent PATH alone: neither HOME nor keys.
_SNIPPET: Final = """\
require("avante").setup({{
  provider = {name},
  acp_providers = {{
    [{name}] = {{
      command = {program},
      args = {{{args}}},
      env = vim.fn.environ(),
    }},
  }},
}})
"""


def _snippet(launch: Launch) -> str:
    args = ", ".join(map(quoted, launch.args))
    return _SNIPPET.format(
        name=quoted(launch.identifier("-")),
        program=quoted(launch.program),
        args=f" {args} " if args else "",
    )


EDITOR: Final = Editor(
    title="Neovim, with Avante",
    snippet=_snippet,
    file=init,
    then=lambda launch: "Start Neovim again, and ask with :AvanteChat.",
    why_not=f"{INIT}: {WHY_NOT.format(plugin='avante')}",
    beside=BESIDE.format(plugin="avante"),
)
