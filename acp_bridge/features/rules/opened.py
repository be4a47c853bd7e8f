"""The user's file of rules as it was when a session was opened, and what may count of it since.

Every bridge imports it. Without a file of rules it costs a look at two names.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from acp_bridge.core.runtime.log import event
from acp_bridge.features.hooks.find import may_be_there
from acp_bridge.features.rules.places import USED

if TYPE_CHECKING:
    from acp_bridge.features.hooks.trust import Mark

#: the most bytes of a file of rules.
LARGEST: Final = 1024 * 1024
#: stands for the content of a file that could not be read: it is no text.
_UNREAD: Final = b"\xff"


class Opened(Struct, frozen=True):
    """The content of the user's file of rules; None: it was not there."""

    content: bytes | None = None
    #: the mark of the record that says which content counts in open sessions.
    used: Mark | None = None


def look(own: Path, home: Path) -> Opened:
    """Return the file `own` as it is now; `home`: the data folder."""
    there = may_be_there(own)
    if not there and not may_be_there(home / USED):
        return Opened()
    used = None
    try:
        from acp_bridge.features.hooks import trust

        used = trust.mark(used_record(home, own))
        return Opened(trust.read_file(own, LARGEST) if there else None, used)
    except Exception as error:
        event("rules.unread", what=type(error).__name__)
        return Opened(_UNREAD, used)


def used_record(home: Path, own: Path) -> Path:
    """Return the path of the record that says which content of `own` counts in open sessions."""
    from acp_bridge.features.hooks import trust

    return trust.record_path(home, os.path.abspath(own), USED)
