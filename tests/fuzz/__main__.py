"""`python -m tests.fuzz --n 2000 --seed 1`: prints what happened, exits 1 if anything was lost."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context

from tests.fuzz import script, triples
from tests.fuzz.run import attempt
from tests.support.postgres import cluster

#: Operations of one seed.
EACH = 40
#: Operations for one triple of features.
OF_TRIPLES = 100


def runs(count: int, seed: int) -> list[tuple[int, int]]:
    """Seeds and the operations of each; a failure is played again with its own seed and count."""
    whole, rest = divmod(count, EACH)
    counts = [EACH] * whole + ([rest] if rest else [])
    return [(seed + number, each) for number, each in enumerate(counts)]


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--n", type=int, default=200, help="operations")
    parser.add_argument("--seed", type=int, default=1, help="the first one; each run has its own")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="runs at a time")
    parser.add_argument("--show", action="store_true", help="print the lines of what failed")
    parser.add_argument(
        "--far",
        action="store_true",
        help="in every tenth run an editor comes from elsewhere, over a wire that drops",
    )
    parser.add_argument(
        "--postgres", action="store_true", help="with the sessions of each run in a database"
    )
    return parser.parse_args()


def play_triples(count: int, seed: int) -> int:
    """Play `count` triples of features in memory; returns how many failed."""
    problems = {names: triples.attempt(names) for names in triples.drawn(count, seed)}
    failed = {names: problem for names, problem in problems.items() if problem}
    print(f"\n{len(problems)} triples of features, {len(failed)} failed")
    for names, problem in failed.items():
        print(f"FAILED with the features {', '.join(names)}: {problem}")
    return len(failed)


def main() -> int:
    options = options_of()
    far = partial(script.with_editors_from_elsewhere, wanted=options.far)
    far()
    planned = runs(options.n, options.seed)
    print(f"{options.n} operations in {len(planned)} runs, SEED={options.seed}", flush=True)
    began, failed = time.monotonic(), 0
    counts: Counter[str] = Counter()
    with (
        cluster() if options.postgres else nullcontext() as server,
        ProcessPoolExecutor(options.jobs, get_context("spawn"), far) as pool,
    ):
        waiting = {pool.submit(attempt, *one, options.show, server): one for one in planned}
        for number, done in enumerate(as_completed(waiting), 1):
            seed, count = waiting[done]
            happened, problem = done.result()
            counts += happened
            if problem:
                failed += 1
                names = ",".join(script.behaviours(seed)) or "none"
                how = " ".join(script.options(seed)) + " and a second bridge" * script.has_two(seed)
                how += " and an editor from elsewhere" * script.is_far(seed)
                print(f"\nFAILED with the agent's behaviours {names}, {how}: {problem}")
                given = " --far" * options.far + " --postgres" * options.postgres
                how = f' ARGS="{given.strip()}"' if given else ""
                print(f"again: make fuzz SEED={seed} N={count}{how}", flush=True)
            print(".", end="" if number % 25 else f" {number}\n", flush=True)
    broken = play_triples(options.n // OF_TRIPLES, options.seed)
    print()
    for name, times in sorted(counts.items()):
        print(f"  {name:26} {times:6}")
    seconds = time.monotonic() - began
    print(f"{len(planned) - failed} runs passed, {failed} failed in {seconds:.0f} s")
    return 1 if failed or broken else 0


if __name__ == "__main__":
    sys.exit(main())
