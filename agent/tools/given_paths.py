"""What a model means by a path or a glob: the home folder, a `file:` address, an absolute glob.

A name that is in the session's folder as it is given is that file, but for `~` alone.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from urllib.parse import unquote_to_bytes

from agent.tools import ToolError

_HOME = re.compile(r"(?:~|\$HOME|\$\{HOME\})(?=/|$)")
_ADDRESS = re.compile(r"file:(?://([^/]*))?(.*)", re.IGNORECASE | re.DOTALL)
_OTHER_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*:)//", re.IGNORECASE)
_HERE = ("", "localhost", "127.0.0.1", "[::1]")
#: what begins the part of a glob that no file is named by
_MAGIC = re.compile(r"[*?\[{\\]")


def meant(path: str, cwd: Path) -> str:
    """Returns the path that is meant, absolute or relative to `cwd`. It may look at the disk.

    Raises ToolError for an address of no file, or on another machine.
    """
    address = _OTHER_ADDRESS.match(path)
    if address and address[1].lower() != "file:" and not _is_there(cwd / address[1]):
        raise ToolError(f"{path} is an address and no path.")
    if found := _ADDRESS.fullmatch(path):
        path = _of_address(path, found[1], found[2], cwd)
    if _HOME.match(path):
        return _HOME.sub(lambda _: os.path.expanduser("~"), path, count=1)
    if path.startswith("~") and not _is_there(cwd / path.partition("/")[0]):
        return os.path.expanduser(path)
    return path


def base_of(glob: str, path: str, cwd: Path) -> tuple[str, str]:
    """Returns the folder to look in and the glob from there; `path`: the folder that was named.

    An absolute glob, one in the home folder and one that begins with `..` lead to a folder of their
    own. A glob that begins with a slash is else one from the named folder. It looks at the disk.
    Raises ToolError.
    """
    negated, wanted = ("!", glob[1:]) if glob.startswith("!") else ("", glob)
    wanted = meant(wanted, cwd)
    if not wanted.startswith(("/", "../")):
        return path, glob
    folder = os.path.normpath(cwd / meant(path, cwd))
    fixed = _fixed(wanted)
    rest = wanted[len(fixed) :].lstrip("/")
    if wanted.startswith("../"):
        base = os.path.normpath(os.path.join(folder, fixed))
    elif _is_at(fixed, folder) or not _is_there(Path(folder + fixed)):
        base = os.path.normpath(fixed)
    else:
        return path, glob
    if base == "/" or not os.path.isdir(base):
        return path, glob
    if negated:
        if not _is_at(base, folder):
            return path, glob
        below = os.path.relpath(os.path.realpath(base), os.path.realpath(folder))
        return path, f"!/{rest}" if below == "." else f"!/{below}/{rest}"
    return base, f"/{rest}" if rest else "**"


def _fixed(glob: str) -> str:
    """Returns the folders at the beginning of a glob that are plain names."""
    magic = _MAGIC.search(glob)
    plain = glob[: magic.start()] if magic else glob
    return plain.rpartition("/")[0] + "/"


def _is_at(path: str, folder: str) -> bool:
    real = Path(os.path.realpath(path))
    return real.is_relative_to(os.path.realpath(folder))


def _of_address(given: str, host: str | None, rest: str, cwd: Path) -> str:
    """Returns the path of a `file:` address."""
    if host and _HOME.fullmatch(host):
        rest = f"{host}{rest}"
    elif host and host.lower() not in (*_HERE, socket.gethostname().lower()):
        raise ToolError(f"{given} names a file on another machine, {host}.")
    elif not rest.startswith("/") and (host is not None or not rest or _is_there(cwd / given)):
        return given
    path = _decoded(rest)
    if _is_there(cwd / path):
        return path
    return _decoded(re.split(r"[?#]", rest, maxsplit=1)[0])


def _decoded(text: str) -> str:
    return os.fsdecode(unquote_to_bytes(text.encode("utf-8", "surrogatepass")))


def _is_there(path: Path) -> bool:
    try:
        return os.path.lexists(path)
    except ValueError:  # a null byte
        return False
