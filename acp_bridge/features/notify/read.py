"""Reads the user's `notify.toml`. A project has none: nobody but the user says where words go."""

from __future__ import annotations

import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from acp_bridge.core.settings import NOTIFY_FILE
from acp_bridge.features.hooks import trust
from acp_bridge.features.notify.config import BadNotify, Notify, parse

#: how many bytes the file may have.
_LARGEST: Final = 64 * 1024


def read(home: Path) -> Notify | None:
    """Return what `notify.toml` says, None if the file is not there. Raises BadNotify."""
    path = home / NOTIFY_FILE
    try:
        found = trust.read_text(path, _LARGEST)
        if found is not None:
            trust.check_own(path)
    except trust.NotTrustable as error:
        raise BadNotify(str(error)) from None
    except OSError as error:
        raise BadNotify(f"it can't be read: {error.strerror}") from None
    return parse(found[1]) if found else None


def rings(home: Path) -> bool:
    """Return True if the user wants the terminal's bell; False if the file can't be used."""
    with suppress(BadNotify):
        return bool((chosen := read(home)) and chosen.bell)
    return False


def others_read(home: Path) -> bool:
    """Return True if others than the user may read the file, and with it the addresses."""
    with suppress(OSError):
        return bool((home / NOTIFY_FILE).stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    return False
