"""The command lines of acp-bridge that it shows to its user.

Invariant: a command that is shown finds the same sessions. So it names the data folder if the user
has chosen one for this process.
"""

from __future__ import annotations

from typing import Final


class OwnCommands:
    """Makes the command lines that this process shows."""

    def __init__(self) -> None:
        self._options = ""

    def use_home(self, home: str | None) -> None:
        """Name this data folder in every command line from now on; None: name none."""
        if not home:
            self._options = ""
            return
        import shlex  # a bridge of the default data folder has no use for it

        self._options = f" --home {shlex.quote(home)}"

    def line(self, command: str, rest: str = "") -> str:
        """Return the line that runs a command of acp-bridge.

        `rest`: the arguments, as the user types them.
        """
        return f"acp-bridge {command}{self._options} {rest}".rstrip()


#: the one of this process.
OWN_COMMANDS: Final = OwnCommands()
