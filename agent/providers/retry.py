"""How often and after how long a failed attempt is made again."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from agent.providers.failure import Failure


@dataclass(frozen=True, slots=True)
class Retry:
    """Seconds. At most 1/2 + 1 + 2 are waited unless the provider asks for more."""

    attempts: int = 4
    first: float = 0.5
    #: a provider that asks for a longer wait is not waited for: the user is told
    longest: float = 30
    #: the user, who sees nothing meanwhile, is told of longer ones
    quiet: float = 3
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep

    def wait(self, failure: Failure, attempts: int) -> float | None:
        """How long to wait after so many failed attempts; None: it is over."""
        if attempts >= self.attempts or not failure.may_pass:
            return None
        if failure.retry_after is not None:
            return failure.retry_after if failure.retry_after <= self.longest else None
        # Jitter: several sessions that were refused at once don't come back at once.
        return self.first * 2.0 ** (attempts - 1) * random.uniform(0.5, 1)
