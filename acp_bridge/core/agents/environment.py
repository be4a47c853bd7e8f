"""What of the bridge's environment is handed on to the agents, hooks and tools that it starts.

All of it is, but for what the journal alone may know: with a database as the journal, the variables
of libpq (`PGPASSWORD`, `PGPASSFILE`, `PGHOST`, ...), with which any command of an agent's could log
in there and change what is kept. And but for what an editor in Electron sets for its own runtime,
which would turn an agent's Node or Electron into another program, or load the editor's debugger.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: how the names of libpq's variables begin.
DATABASE: Final = "PG"
#: variables of an editor's runtime.
_EDITORS: Final = frozenset(
    {"ELECTRON_RUN_AS_NODE", "ELECTRON_NO_ATTACH_CONSOLE", "VSCODE_INSPECTOR_OPTIONS"}
)
_NODE: Final = "NODE_OPTIONS"
#: the words of `NODE_OPTIONS` that load VS Code's debugger: a word may be quoted, in part too.
_DEBUGGER: Final = r"""(?x) (?<!\S) (?: (?:-r|--require|--import) (?:\s+|=)
        (?: "(?:\\.|[^"\\])*js-debug(?:\\.|[^"\\])*" | (?:\\.|[^\s"\\])*js-debug(?:\\.|[^\s\\])* )
        | --inspect-publish-uid=\S+ ) (?!\S) \s*"""


class HandedOn:
    """Says which environment variables are handed on; each process has one of these."""

    def __init__(self) -> None:
        """Hand on every variable."""
        #: prefixes of the names of variables that are not handed on.
        self.withheld: tuple[str, ...] = ()

    def withhold_database(self) -> None:
        """Hand on no variable of libpq from now on; called before anything is started."""
        self.withheld = (DATABASE,)

    def of(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of `env` that are handed on."""
        handed_on = {
            name: value
            for name, value in env.items()
            if not name.startswith(self.withheld) and name not in _EDITORS
        }
        if "js-debug" in handed_on.get(_NODE, ""):
            import re  # its pattern takes longer than all else here

            rest = re.sub(_DEBUGGER, "", handed_on.pop(_NODE)).strip()
            handed_on |= {_NODE: rest} if rest else {}
        return handed_on


#: what this process hands on.
HANDED_ON: Final = HandedOn()
