"""The settings of CodeCompanion, a plugin of Neovim: an adapter that extends its opencode one."""

from __future__ import annotations

from typing import Final

from acp_bridge.terminal.setup.editor import Editor, Launch
from acp_bridge.terminal.setup.lua import BESIDE, INIT, WHY_NOT, init, quoted

# CodeCompanion has no bare adapter for ACP agents; opencode's adds nothing of its own.
_SNIPPET: Final = """\
require("codecompanion").setup({{
  adapters = {{
    acp = {{
      {identifier} = function()
        return require("codecompanion.adapters").extend("opencode", {{
          name = {name},
          formatted_name = {title},
          commands = {{ default = {{ {words} }} }},
        }})
      end,
    }},
  }},
  interactions = {{ chat = {{ adapter = {name} }} }},
}})
"""


def _snippet(launch: Launch) -> str:
    identifier = launch.identifier("_")
    return _SNIPPET.format(
        identifier=identifier,
        name=quoted(identifier),
        title=quoted(launch.name),
        words=", ".join(map(quoted, launch.words)),
    )


EDITOR: Final = Editor(
    title="Neovim, with CodeCompanion",
    snippet=_snippet,
    file=init,
    then=lambda launch: "Start Neovim again, and open a chat with :CodeCompanionChat.",
    why_not=f"{INIT}: {WHY_NOT.format(plugin='codecompanion')}",
    beside=BESIDE.format(plugin="codecompanion"),
)
