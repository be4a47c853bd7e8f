"""Runs a command with the rights of an ordinary user, for tests of what such a user can not do.

As a program: `python rights.py COMMAND...` replaces itself by the command. Root becomes the user
`COMMONER` and keeps one right, to read what root has installed; anybody else stays who they are.
`python rights.py --bare COMMAND...` keeps none, and `python rights.py --stranger CODE WORD...` runs
Python code as a third user without any, which root alone can do.
"""

import ctypes
import os
import socket
import sys
from pathlib import Path

COMMONER = 65534
STRANGER = 65533

_PR_SET_KEEPCAPS, _PR_CAP_AMBIENT, _RAISE = 8, 47, 2
_CAP_DAC_READ_SEARCH = 2
_CAPABILITIES_V3 = 0x20080522
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}


def without_rights() -> list[str]:
    """What stands before a command that is to have no rights of root's."""
    return [sys.executable, "-I", "-S", __file__]


def without_any_right() -> list[str]:
    """What stands before a command of the system's that is to have no right at all."""
    return [*without_rights(), "--bare"]


def as_stranger(code: str, *words: str) -> list[str]:
    """The command that runs Python code as another user, who is neither root nor `COMMONER`.

    The code has `os`, `socket` and `sys`, and imports nothing.
    """
    return [*without_rights(), "--stranger", code, *words]


def for_commoner(folder: Path) -> Path:
    """A folder that the commands can write to."""
    if os.geteuid() == 0:
        os.chown(folder, COMMONER, COMMONER)
    return folder


def _become(user: int, kept: int) -> None:
    """Become a user who has no rights of root's but those `kept`, a set of capabilities."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(result: int) -> None:
        if result:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    if os.geteuid() == 0:
        call(libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0))
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
    sets = (ctypes.c_uint32 * 6)(kept, kept, kept, 0, 0, 0)
    call(libc.syscall(_SYS_CAPSET[os.uname().machine], header, sets))
    if kept:
        call(libc.prctl(_PR_CAP_AMBIENT, _RAISE, _CAP_DAC_READ_SEARCH, 0, 0))


def _main(first: str, *more: str) -> None:
    match first:
        case "--stranger":
            _become(STRANGER, 0)
            sys.argv[:] = more
            exec(more[0], {"os": os, "socket": socket, "sys": sys})
        case "--bare":
            _become(COMMONER, 0)
            os.execvp(more[0], more)
        case _:
            if os.geteuid() == 0:
                _become(COMMONER, 1 << _CAP_DAC_READ_SEARCH)
            os.execv(first, [first, *more])


if __name__ == "__main__":
    _main(*sys.argv[1:])
