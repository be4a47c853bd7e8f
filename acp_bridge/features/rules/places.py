"""Names the files of rules; every bridge imports it, so it imports nothing itself."""

from __future__ import annotations

from typing import Final

#: the user's own rules, in the data folder.
OWN_FILE: Final = "permissions.toml"
#: a project's rules, in its folder.
PROJECT_FILE: Final = ".acp_bridge/permissions.toml"
#: the folder of the records of trust in projects' rules, in the data folder.
RECORDS: Final = "trusted-rules"
#: the folder of the records of what the user's own file may allow in sessions that are open.
USED: Final = "used-rules"
