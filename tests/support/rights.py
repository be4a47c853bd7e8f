"""Runs a command with the rights of an ordinary user, for tests of what such a user can not do.

As a program: `python rights.py COMMAND...` replaces itself by the command. Root becomes the user
`COMMONER` and keeps one right, to read what root has installed; anybody else stays who they are.
"""

import ctypes
import os
import sys
from pathlib import Path

COMMONER = 65534

_PR_SET_KEEPCAPS, _PR_CAP_AMBIENT, _RAISE = 8, 47, 2
_CAP_DAC_READ_SEARCH = 2
_CAPABILITIES_V3 = 0x20080522
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}


def without_rights() -> list[str]:
    """What stands before a command that is to have no rights of root's."""
    return [sys.executable, "-I", "-S", __file__]


def for_commoner(folder: Path) -> Path:
    """A folder that the commands can write to."""
    if os.geteuid() == 0:
        os.chown(folder, COMMONER, COMMONER)
    return folder


def _drop() -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def call(result: int) -> None:
        if result:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    call(libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0))
    os.setgroups([])
    os.setresgid(COMMONER, COMMONER, COMMONER)
    os.setresuid(COMMONER, COMMONER, COMMONER)
    only = 1 << _CAP_DAC_READ_SEARCH
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
    sets = (ctypes.c_uint32 * 6)(only, only, only, 0, 0, 0)
    call(libc.syscall(_SYS_CAPSET[os.uname().machine], header, sets))
    call(libc.prctl(_PR_CAP_AMBIENT, _RAISE, _CAP_DAC_READ_SEARCH, 0, 0))


if __name__ == "__main__":
    if os.geteuid() == 0:
        _drop()
    os.execv(sys.argv[1], sys.argv[1:])
