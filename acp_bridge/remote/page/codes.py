"""The codes with which a browser, on a phone, say, logs in for the first time. SANS-IO.

Invariants
- A code is good once, for five minutes, and only at the server that has made it.
- Only its hash is kept. It has 39 random bits. A server takes ten wrong ones a minute
  from one address, or from one process of its machine.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Final

#: seconds for which a code is good.
LIFE: Final = 300.0
#: the letters and digits of codes: none looks like another.
_LETTERS: Final = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
_LENGTH: Final = 8
#: codes that are good at once; beyond that the oldest is dropped.
_MOST: Final = 20


@dataclass(frozen=True, slots=True)
class Promise:
    """The login that a code is exchanged for, with its name and rights; `until`: its expiry."""

    name: str
    may: str
    until: float


class Codes:
    """The codes that are good now; `now` is in seconds, by any clock."""

    def __init__(self) -> None:
        self._promises: dict[str, Promise] = {}

    def make(self, name: str, may: str, now: float) -> str:
        """Return a code for a login of this name and rights, good once and for `LIFE` seconds."""
        self._forget(now)
        while len(self._promises) >= _MOST:
            del self._promises[next(iter(self._promises))]
        code = "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))
        self._promises[_digest(code)] = Promise(name, may, now + LIFE)
        return f"{code[:4]}-{code[4:]}"

    def take(self, code: str, now: float) -> Promise | None:
        """Use up a code, and return the login that it stands for; None for one that is not good."""
        self._forget(now)
        return self._promises.pop(_digest(code), None)

    def drop(self, name: str, now: float) -> bool:
        """Drop all codes for logins of this name; returns True if there were some."""
        self._forget(now)
        dropped = [key for key, promise in self._promises.items() if promise.name == name]
        for key in dropped:
            del self._promises[key]
        return bool(dropped)

    def _forget(self, now: float) -> None:
        for key, promise in list(self._promises.items()):
            if promise.until <= now:
                del self._promises[key]


def _digest(code: str) -> str:
    plain = "".join(code.upper().replace("-", "").split())
    return hashlib.sha256(plain.encode(errors="replace")).hexdigest()
