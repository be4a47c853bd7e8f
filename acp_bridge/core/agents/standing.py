"""Keeps what clients have set for the agent as a whole, and tells every process of it (R14).

That is a login that carries more than a method's id, and requests without a session that set
something, such as `providers/set`. They are kept in memory only, in the order in which they were
given, and repeated in each later process right after `initialize`. An interactive login is never
repeated: it would open a browser.
"""

from __future__ import annotations

from typing import Final, Protocol

import anyio
from msgspec import Struct

from acp_bridge.core.protocol import AUTHENTICATE, LOGOUT, PROVIDERS_DISABLE, PROVIDERS_SET, Json
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.wire.jsonrpc import RpcError

#: the first words of an unknown method's last part, by which it is taken to set something.
_SETTING: Final = frozenset({"set", "unset", "enable", "disable", "configure"})
#: the parameters that name the thing that is set, where there are several.
_SUBJECTS: Final = ("providerId", "id")


class Asked(Protocol):
    """A process that can be asked something (`agents.link.Link`)."""

    name: str

    async def ask(self, method: str, params: Json) -> object:
        """Return the agent's result; raises RpcError."""


def carries_credentials(params: Json) -> bool:
    """Return True when the parameters of `authenticate` hold more than the method's id."""
    return any(
        value not in (None, {}, [], "") for key, value in params.items() if key != "methodId"
    )


def sets_something(method: str) -> bool:
    """Return True for a request without a session that changes the state of a process."""
    verb = method.rpartition("/")[2].partition("_")[0]
    return method in (PROVIDERS_SET, PROVIDERS_DISABLE) or verb in _SETTING


class _Kept(Struct, frozen=True):
    """A request that was granted, with its number in the order of all requests."""

    number: int
    method: str
    params: Json


class StandingRequests:
    """The requests that every later process is sent before anything else."""

    def __init__(self, patience: float = waits.REQUEST) -> None:
        """`patience`: seconds for a process to answer one of them."""
        self._patience = patience
        #: the requests that every process is sent, by their subjects.
        self.kept: dict[object, _Kept] = {}
        #: by subject, the number of the last request that was granted.
        self._latest: dict[object, int] = {}
        #: the logout that counts, if no login came after it.
        self._logout: _Kept | None = None
        self._count = 0

    def number(self) -> int:
        """Return the next number in the order of all requests, for one that is sent now."""
        self._count += 1
        return self._count

    def note(self, method: str, params: Json, number: int = 0) -> bool:
        """Keep a request that an agent has granted; a later one of the same subject replaces it.

        `number`: its number, if others may have been sent since then. Returns False if a later one
        of the same subject was granted already, so that this one counts no more.
        """
        subject, number = _subject(method, params), number or self.number()
        if self._latest.get(subject, 0) > number:
            return False
        self._latest[subject] = number
        self.kept.pop(subject, None)
        noted = _Kept(number, method, params)
        if subject == AUTHENTICATE:
            self._logout = noted if method == LOGOUT else None
        if method != LOGOUT and (method != AUTHENTICATE or carries_credentials(params)):
            self.kept[subject] = noted
        return True

    def counts(self, number: int) -> bool:
        """Return True until a later request of the same subject replaces the one of this number."""
        return number in self._latest.values()

    async def repeat(self, link: Asked) -> None:
        """Send a process all kept requests, one after the other, also those noted meanwhile.

        A refusal, or no answer in time, is logged, and comes out when the process is given a
        session. Nothing is awaited between the last look at what is kept and the return.
        """
        told: list[_Kept] = []
        while missing := self._missing(told):
            told.append(missing)
            await self.tell(link, missing.method, missing.params)

    def _missing(self, told: list[_Kept]) -> _Kept | None:
        """Return a request that is not among those `told`; first a logout, if a login is."""
        logged_in = any(each.method == AUTHENTICATE for each in told)
        if self._logout and logged_in and self._logout not in told:
            return self._logout
        return next((kept for kept in self.kept.values() if kept not in told), None)

    async def tell(self, link: Asked, method: str, params: Json) -> None:
        """Send a process one request; a failure is logged, without the agent's words."""
        interactive = method == AUTHENTICATE and not carries_credentials(params)
        try:
            with anyio.fail_after(None if interactive else self._patience):
                await link.ask(method, params)
        except RpcError as exc:
            event("agent.refused", agent=link.name, method=method, code=exc.code)
        except TimeoutError:
            event("agent.silent", agent=link.name, method=method)


def _subject(method: str, params: Json) -> object:
    if method in (AUTHENTICATE, LOGOUT):
        return AUTHENTICATE
    space, _, verb = method.rpartition("/")
    named = next((params[key] for key in _SUBJECTS if isinstance(params.get(key), str)), None)
    return (space, named) if verb in _SETTING else (method, named)
