"""Which rounds are played, and one of them from its beginning to its end."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.crash.alone import ALONE
from tests.crash.kept import KEPT
from tests.crash.rounds import Round
from tests.crash.together import TOGETHER
from tests.support.processes import kill_marked

PHASES = {**ALONE, **TOGETHER, **KEPT}


def drawn(count: int, seed: int, only: Sequence[str] = ()) -> list[str]:
    """Half of the rounds mid-stream, the others spread over the rest; or these phases `only`."""
    rest = [name for name in PHASES if name != "stream"]
    found = ["stream" if n % 2 == 0 else rest[(n // 2) % len(rest)] for n in range(count)]
    if only:
        found = [only[n % len(only)] for n in range(count)]
    random.Random(seed).shuffle(found)
    return found


async def play(phase: str, seed: str, *, built_in: bool = False) -> None:
    """One round; raises Lost or TimeoutError."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        it = Round(random.Random(seed), Path(folder), built_in)
        try:
            await PHASES[phase](it)
            if it.rng.random() < 0.5:  # else the next bridge comes while the old tree still dies
                await it.nothing_left()
            await it.check()
        finally:
            kill_marked(it.mark)
