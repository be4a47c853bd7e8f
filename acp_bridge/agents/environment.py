"""What of the bridge's environment is handed on to the agents, hooks and tools that it starts.

All of it is, but for what the journal alone may know: with a database as the journal, the variables
of libpq (`PGPASSWORD`, `PGPASSFILE`, `PGHOST`, ...), with which any command of an agent's could log
in there and change what is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: how the names of libpq's variables begin.
DATABASE: Final = "PG"


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
        return {name: value for name, value in env.items() if not name.startswith(self.withheld)}


#: what this process hands on.
HANDED_ON: Final = HandedOn()
