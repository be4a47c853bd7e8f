"""The tokens with which remote clients log in: `HOME/remote/tokens.json`, hashes only.

Invariants
- The secret of a token is told once, to the person who makes it. Only its hash is kept; a secret
  has 32 random bytes, so that nobody finds it from the hash.
- Whoever changes the file has locked `HOME/remote/serve.lock`: a server as long as it runs, else a
  command for a moment. What another program writes into the file meanwhile is noticed, not read.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from acp_bridge.core.clients.rights import May
from acp_bridge.core.keys.file import replace
from acp_bridge.core.records import replace as with_changes
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.sharing.listening.places import private_folder

FOLDER: Final = "remote"
FILE: Final = "tokens.json"
_LOCK: Final = "serve.lock"
#: the beginning of every secret, by which scanners for leaked secrets recognise it.
PREFIX: Final = "acpb_"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_BYTES: Final = 32
#: bytes of the files that are read.
_MOST: Final = 1 << 20
#: seconds to wait for another command's lock, and between two tries to get it.
_LOCK_WAIT: Final = 1.0
_LOCK_INTERVAL: Final = 0.02
#: the most tokens of one data folder.
MOST_TOKENS: Final = 100


class Unusable(Exception):
    """The tokens can't be read or changed; the text says why and what to do, for the user."""


class Held(Exception):
    """A server has locked the tokens; `socket`: the path of its private socket, if it has one."""

    def __init__(self, socket: str | None) -> None:
        super().__init__("a server runs for this data folder already")
        self.socket = socket


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is kept, without its secret; `may`: the rights of its clients."""

    name: str
    may: May
    #: the date and time at which it was made, in ISO 8601.
    made: str
    #: the SHA-256 of the secret, in hexadecimal digits.
    hash: str
    #: the day on which the login of a page was used last; "" for a client's token.
    used: str = ""


def new_secret() -> str:
    """Return a random secret for a new token."""
    return PREFIX + base64.urlsafe_b64encode(os.urandom(_BYTES)).decode().rstrip("=")


def digest(secret: str) -> str:
    """Return the SHA-256 of a secret in hexadecimal digits, which is kept in its place."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def check_name(name: str) -> None:
    """Raise Unusable for a name that no token can have."""
    if not _NAME.fullmatch(name):
        raise Unusable("a token's name has up to 64 letters, digits and .-_@, such as laptop")


def new_token(name: str, may: May, secret: str, used: str = "") -> Token:
    """Return a token for a secret, made now; raises Unusable for a name that none can have."""
    check_name(name)
    return Token(name, may, datetime.now(UTC).isoformat(timespec="seconds"), digest(secret), used)


class Tokens:
    """The tokens of a data folder, locked against other writers until `close`."""

    def __init__(self, home: Path) -> None:
        """Lock and read the tokens; raises Held, Unusable, OSError."""
        folder = home / FOLDER
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        private_folder(folder)
        self._path = folder / FILE
        self._lock = _locked(folder / _LOCK)
        #: held while the tokens are changed or the file is checked, which different threads do.
        self._writing = threading.Lock()
        try:
            self.all = read(home)
            self._seen = _stamp(self._path)
        except BaseException:
            self.close()
            raise

    def find(self, secret: str, *, of_page: bool = False) -> Token | None:
        """Return the token that a secret belongs to, None if there is none.

        Only clients' tokens are searched, or, with `of_page`, only the logins of pages. The time
        that it takes does not depend on the secret.
        """
        given = digest(secret)
        found = None
        for token in self.all:
            if hmac.compare_digest(token.hash, given) and bool(token.used) is of_page:
                found = token
        return found

    def add(self, token: Token) -> None:
        """Add a token to the file; raises Unusable if its name can't be added, OSError."""

        def added() -> list[Token]:
            self.check_new(token.name)
            return [*self.all, token]

        self._write(added)

    def use(self, token: Token, day: str) -> None:
        """Write into the file that the login of a page was used on a day; raises OSError."""
        self._write(
            lambda: [with_changes(each, used=day) if each == token else each for each in self.all]
        )

    def check_new(self, name: str) -> None:
        """Raise Unusable if no token of this name can be added: bad, taken, or too many."""
        check_name(name)
        if any(each.name == name for each in self.all):
            raise Unusable(
                f"there is a token {name} already:"
                f" {OWN_COMMANDS.line('serve', f'revoke {name}')} ends it, or choose another name"
            )
        if len(self.all) >= MOST_TOKENS:
            raise Unusable(f"there are {MOST_TOKENS} tokens already: revoke one first")

    def remove(self, name: str) -> Token:
        """Remove the token of a name, and return it; raises Unusable if there is none, OSError."""
        removed = list[Token]()

        def others() -> list[Token]:
            removed.extend(each for each in self.all if each.name == name)
            if not removed:
                raise Unusable(
                    f"there is no token {name}: {OWN_COMMANDS.line('serve', 'tokens')} lists them"
                )
            return [each for each in self.all if each not in removed]

        self._write(others)
        return removed[0]

    def changed_behind(self) -> bool:
        """Return True, once for each change, if another program has changed the file."""
        with self._writing:
            now = _stamp(self._path)
            changed, self._seen = now != self._seen, now
        return changed

    def tell(self, socket: str) -> None:
        """Write the path of the server's private socket into the lock file, for the commands."""
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, json.dumps({"socket": socket}).encode(), 0)

    def close(self) -> None:
        """Release the lock, so that others can change the tokens."""
        if self._lock >= 0:
            with suppress(OSError):
                os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = -1

    def _write(self, changed: Callable[[], list[Token]]) -> None:
        """Replace the tokens, in the file and here, by those that `changed` returns."""
        with self._writing:
            tokens = changed()
            told = {"version": 1, "tokens": [asdict(token) for token in tokens]}
            replace(self._path, json.dumps(told, indent=1) + "\n")
            self.all = tokens
            self._seen = _stamp(self._path)


@contextmanager
def held(home: Path) -> Iterator[Tokens]:
    """Yield the tokens, locked for the block; raises as `Tokens` does."""
    tokens = Tokens(home)
    try:
        yield tokens
    finally:
        tokens.close()


def socket_of(home: Path) -> str | None:
    """Return the path of the running server's private socket, by the lock file; None without one.

    The lock itself is not taken, so that a server that starts finds it free.
    """
    with suppress(OSError):
        fd = os.open(home / FOLDER / _LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as lock:
            return _socket(lock.read(_MOST))
    return None


def read(home: Path) -> list[Token]:
    """Return the tokens in the file of a data folder; raises Unusable, OSError."""
    path = home / FOLDER / FILE
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise Unusable(
                f"others may write or read {path}: remove it, and make the tokens again with"
                f" {OWN_COMMANDS.line('serve', 'token NAME')}"
            )
        try:
            return [_token(each) for each in json.loads(file.read(_MOST))["tokens"]]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise Unusable(
                f"{path} is damaged: remove it, and make the tokens again with"
                f" {OWN_COMMANDS.line('serve', 'token NAME')}"
            ) from None


def _token(found: dict[str, str]) -> Token:
    """Return the token that an object of the file describes.

    Raises ValueError, TypeError or KeyError if it is damaged.
    """
    used = found.get("used", "")
    token = Token(found["name"], May(found["may"]), found["made"], found["hash"], used)
    if used:
        date.fromisoformat(used)
    if not _NAME.fullmatch(token.name) or not isinstance(token.made, str):
        raise ValueError
    bytes.fromhex(token.hash)
    return token


def _stamp(path: Path) -> tuple[int, ...]:
    """Return inode, size and times of a file, which change when it is written; () without one."""
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _locked(path: Path) -> int:
    """Return a descriptor of the locked file; the lock is held as long as that is open.

    A lock of a command is waited for, up to `_LOCK_WAIT` seconds. Raises Held, OSError.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _LOCK_WAIT
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                socket = _socket(os.pread(fd, _MOST, 0))
                if socket is not None or time.monotonic() > deadline:
                    raise Held(socket) from None
            time.sleep(_LOCK_INTERVAL)
    except BaseException:
        os.close(fd)
        raise


def _socket(told: bytes) -> str | None:
    try:
        found = json.loads(told)["socket"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return found if isinstance(found, str) else None
