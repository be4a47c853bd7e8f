"""Addresses of remote bridges, and the logins for them: a token, and a pinned certificate.

Logins are kept in `HOME/connect.json`, mode 0600, by address. A token stands nowhere else: in no
argument, environment or log.
"""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from acp_bridge.core.keys.file import replace
from acp_bridge.core.protocol import Json, as_object
from acp_bridge.core.wire.jsonrpc import loads

FILE: Final = "connect.json"
#: the path of the WebSocket, unless the address has one.
_PATH: Final = "/acp"
_SECURE: Final = {"https": True, "wss": True, "http": False, "ws": False}
_MOST: Final = 1 << 20
#: a token has only characters that may stand in an HTTP header.
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,4096}")


class Unusable(Exception):
    """An address, a token or the file can't be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Where:
    """The address of a remote bridge; `secure`: it speaks TLS."""

    host: str
    port: int
    path: str
    secure: bool

    @property
    def place(self) -> str:
        """Host and port as a person writes them; the usual port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == (443 if self.secure else 80)
        return host if usual else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL of the WebSocket, which is also the key of the login in the file."""
        return f"{'wss' if self.secure else 'ws'}://{self.place}{self.path}"


@dataclass(frozen=True, slots=True)
class Login:
    """The user's login at a bridge; `certificate`: the SHA-256 of a pinned one, None: no pin."""

    token: str
    certificate: str | None = None


def read_address(text: str) -> Where:
    """Return the address that a user has written. Raises Unusable."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise Unusable(f"{text} is no address") from None
    secure = _SECURE.get(parts.scheme)
    if secure is None or not host:
        raise Unusable(f"{text}: give an address such as https://home.example:8765")
    if parts.username is not None or parts.query or parts.fragment:
        raise Unusable("an address has no user, no query and no token: --login asks for the token")
    if not secure and not _is_this_machine(host):
        raise Unusable(
            f"{text}: what is sent could be read on the way: use https:// (a bridge has --tls), or"
            " an ssh tunnel"
        )
    path = parts.path if parts.path.strip("/") else _PATH
    return Where(host, port or (443 if secure else 80), path, secure)


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def find(home: Path, where: Where) -> Login | None:
    """Return the login that is kept for an address; None if there is none. Raises Unusable."""
    kept = as_object(_read(home / FILE).get(where.url))
    token, certificate = kept.get("token"), kept.get("certificate")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        return None
    return Login(token, certificate if isinstance(certificate, str) else None)


def keep(home: Path, where: Where, login: Login) -> None:
    """Write the login for an address into the file. Raises Unusable."""
    file = home / FILE
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = {**_read(file), where.url: asdict(login)}
        replace(file, json.dumps(kept, indent=1) + "\n")
    except OSError as exc:
        raise Unusable(f"{file} can't be written: {exc.strerror}") from exc


def token_of(line: bytes) -> str:
    """Return the token that a person has typed as a line. Raises Unusable if it is none."""
    text = line.decode("ascii", "replace").strip()
    if not text:
        raise Unusable("no token was given")
    if not _TOKEN.fullmatch(text):
        raise Unusable("that is no token: it has letters, digits, - and _ alone")
    return text


def _read(file: Path) -> Json:
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    except OSError as exc:
        raise Unusable(f"{file} can't be read: {exc.strerror}") from exc
    with open(fd, "rb") as opened:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise Unusable(f"{file} is not yours: look at it, and remove it")
        if found.st_mode & 0o077:
            raise Unusable(f"others may read {file}: get new tokens, and run chmod 600 on it")
        return as_object(loads(opened.read(_MOST)))
