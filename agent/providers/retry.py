"""Decides whether a failed attempt is repeated, and after how long."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import anyio
from msgspec import Struct

from agent.providers.failure import Failure


class Retry(Struct, frozen=True):
    """The rules for repeated attempts; times in seconds.

    At most 1/2 + 1 + 2 seconds are waited in all, unless the provider asks for more.
    """

    attempts: int = 4
    first: float = 0.5
    #: if a provider asks for a longer wait, the call fails and the user is told so
    longest: float = 30
    #: the user sees nothing meanwhile, so longer waits are announced
    quiet: float = 3
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep

    def wait(self, failure: Failure, attempts: int) -> float | None:
        """Returns the seconds to wait before the next attempt; None to give up.

        `failure`: that of the last attempt. `attempts`: how many have failed so far.
        """
        if attempts >= self.attempts or not failure.may_pass:
            return None
        if failure.retry_after is not None:
            return failure.retry_after if failure.retry_after <= self.longest else None
        # Random, so that sessions that failed together don't try again together.
        return self.first * 2.0 ** (attempts - 1) * random.uniform(0.5, 1)
