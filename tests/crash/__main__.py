"""`python -m tests.crash --n 200 --seed 1`: prints counts by phase, exits 1 if any round lost."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from contextlib import nullcontext
from functools import partial

import anyio

from tests.crash.database import DATABASE
from tests.crash.phases import MOVE, PHASES, drawn, play
from tests.crash.store import database


def options_of(names: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make crash", description=__doc__)
    parser.add_argument("--n", type=int, default=200, help="rounds")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    parser.add_argument(
        "--built-in", action="store_true", help="with the built-in agent, whose processes fork"
    )
    parser.add_argument(
        "--litellm", action="store_true", help="with the built-in agent and a provider on loopback"
    )
    parser.add_argument(
        "--postgres", action="store_true", help="with sessions in a database, which is killed, too"
    )
    parser.add_argument(
        "--phase", action="append", default=[], choices=names, help="only such rounds; repeatable"
    )
    parser.add_argument("--only", type=int, help="play this round alone, to look at a failure")
    return parser.parse_args()


def main() -> int:
    names = [*PHASES, *DATABASE, MOVE]
    options = options_of(names)
    print(f"{options.n} rounds, SEED={options.seed}", flush=True)
    passed: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    began = time.monotonic()
    kinds = {"litellm": options.litellm, "postgres": options.postgres}
    planned = drawn(options.n, options.seed, options.phase, **kinds)
    with database() if options.postgres else nullcontext() as shared:
        for number, phase in enumerate(planned):
            if options.only is not None and number != options.only:
                continue
            try:
                agent = {"built_in": options.built_in, "litellm": options.litellm}
                anyio.run(partial(play, phase, f"{options.seed}.{number}", shared, **agent))
                passed[phase] += 1
            except Exception as exc:
                failed[phase] += 1
                print(f"\nround {number} ({phase}) FAILED: {why(exc)}", flush=True)
            print(".", end="" if (number + 1) % 50 else f" {number + 1}\n", flush=True)
    print()
    for phase in sorted(set(planned), key=names.index):
        print(f"  {phase:10} {passed[phase]:4} passed {failed[phase]:4} failed")
    print(f"{passed.total()} passed, {failed.total()} failed in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


def why(exc: BaseException) -> str:
    """The first cause, in short."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return f"{type(exc).__name__}: {str(exc)[:1500]}"


if __name__ == "__main__":
    sys.exit(main())
