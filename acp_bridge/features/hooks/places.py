"""Names the files of hooks and of trust; every bridge imports it, so it imports nothing itself."""

from __future__ import annotations

from typing import Final

#: the user's own hooks, in the data folder.
OWN_FILE: Final = "hooks.toml"
#: a project's hooks, in its folder.
PROJECT_FILE: Final = ".acp_bridge/hooks.toml"
#: the folder of the records of trust, in the data folder.
RECORDS: Final = "trusted-hooks"
