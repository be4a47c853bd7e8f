"""Three features together, drawn from the seed: what `tests/features` plays with each pair."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from tests.core.session.living import first, living, resumes
from tests.features.test_any_features import ALL, opened_again, plays

#: seconds for one triple.
BOUND = 60


def drawn(count: int, seed: int) -> list[tuple[str, ...]]:
    """Return `count` triples of features, or all if there are fewer."""
    triples = list(combinations(ALL, 3))
    return random.Random(seed).sample(triples, min(count, len(triples)))


def attempt(names: tuple[str, ...]) -> str | None:
    """Play a turn, a Stop, a death and a load with these features; returns what went wrong."""
    try:
        with TemporaryDirectory() as folder:
            anyio.run(_play, Path(folder), names)
    except Exception as problem:
        return repr(problem)
    return None


async def _play(folder: Path, names: tuple[str, ...]) -> None:
    features = [ALL[name] for name in names]
    with anyio.fail_after(BOUND):
        async with living(folder, resumes, first=(agent := first()), features=features) as here:
            await plays(here, agent)
            await opened_again(here, folder, features)
