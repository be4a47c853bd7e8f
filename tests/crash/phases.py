"""Which rounds are played, and one of them from its beginning to its end."""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from tests.crash.alone import ALONE, move
from tests.crash.database import DATABASE
from tests.crash.far import FAR
from tests.crash.kept import KEPT
from tests.crash.queue import QUEUE
from tests.crash.rounds import Round
from tests.crash.shared import SHARED
from tests.crash.store import Database
from tests.crash.together import TOGETHER
from tests.crash.told import words
from tests.crash.version_2 import VERSION_2
from tests.support.model_replies import Json, Step, Text
from tests.support.model_server import ModelRequest, ModelServer
from tests.support.processes import kill_marked

PHASES = {**ALONE, **TOGETHER, **KEPT, **QUEUE, **VERSION_2, **FAR, **SHARED}
#: also a phase, of the built-in agent with LiteLLM alone.
MOVE = "move"


def drawn(
    count: int,
    seed: int,
    only: Sequence[str] = (),
    *,
    litellm: bool = False,
    postgres: bool = False,
) -> list[str]:
    """Half of the rounds mid-stream, the others spread over the rest; or these phases `only`.

    `litellm`: half of them at the move to the process that has loaded it. `postgres`: in half of
    that half the database is killed, in a quarter two machines have the session in turn.
    """
    half = [MOVE if litellm else "stream", *(DATABASE if postgres else ())]
    rest = [name for name in PHASES if name not in half]
    parts = half, rest
    found = [parts[n % 2][(n // 2) % len(parts[n % 2])] for n in range(count)]
    if only:
        found = [only[n % len(only)] for n in range(count)]
    random.Random(seed).shuffle(found)
    return found


async def play(
    phase: str,
    seed: str,
    database: Database | None = None,
    *,
    built_in: bool = False,
    litellm: bool = False,
) -> None:
    """One round; raises Lost or TimeoutError.

    Of sessions in a `database`, half of the rounds are looked at from another machine.
    """
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(ModelServer()) if litellm else None
        if provider:
            provider.answer = _answer
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        home = Path(stack.enter_context(folder))
        it = Round(random.Random(seed), home, built_in or litellm, provider, database)
        try:
            await {**PHASES, **DATABASE, MOVE: move}[phase](it)
            moves = database is not None and it.rng.random() < 0.5
            # Else the next bridge comes while the old tree still dies, which a lease waits for.
            if moves or it.rng.random() < 0.5:
                await it.nothing_left()
            if moves and database:
                it.move(database)
            await it.check()
        finally:
            kill_marked(it.mark)


def _answer(body: Json) -> list[Step]:
    """The model says what the fixture agent would say."""
    said = words(ModelRequest("", {}, body).prompt)
    return [Text(word) for word in re.findall(r"\S+\s*", said)] or [Text("-")]
