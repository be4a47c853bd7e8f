"""`make fuzz-rules N=20000`: runs what the rules allow; exits 1 if that does what they don't read.

Lines are made at random, judged by wide rules, and those that are allowed are run by bash, dash and
zsh in a sandbox. What ran is compared with what the rules have read.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from tests.fuzz_rules.bench import EACH, Bench, Found, Tally, a_scratch, work
from tests.fuzz_rules.faults import FAULTS
from tests.fuzz_rules.sandbox import Unavailable

#: the least share of the lines that is allowed.
SHARE = 0.2


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fuzz-rules", description=__doc__)
    parser.add_argument("--n", type=int, default=2000, help="lines")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="workers")
    parser.add_argument("--faults", action="store_true", help="put each fault back, and find it")
    parser.add_argument("--line", help="judge and run this line alone")
    parser.add_argument(
        "--may-skip", action="store_true", help="without a sandbox say so, and exit 0"
    )
    return parser.parse_args()


def show(found: Found) -> None:
    print(f"\nDIFFERS in {found.shell}: {found.short!r}")
    print(f"  made shorter from {found.line!r}" if found.line != found.short else "", end="\n")
    for each in found.said:
        print(f"  {each}")
    print("  read:", *found.read, sep="\n    ", flush=True)


def one_line(line: str) -> int:
    with a_scratch() as scratch:
        bench = Bench(scratch)
        if not bench.judge.allows(line):
            print("It is not allowed.")
            return 0
        for ran in bench.sandbox.run(line):
            print(f"{ran.shell}: {ran.trace!r}\n  {ran.log!r}\n  {ran.changed}")
        found = bench.found(line)
        bench.sandbox.close()
    if found:
        show(found)
    return 1 if found else 0


def faults(options: argparse.Namespace) -> int:
    """Find each fault; returns how many were not found."""
    missed = 0
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        seed = f"{options.seed}:0"
        waiting = {name: pool.submit(work, seed, options.n, name, 1) for name in FAULTS}
        for name, done in waiting.items():
            tally = done.result()
            missed += not tally.found
            how = f"found in line {tally.judged}" if tally.found else f"MISSED in {tally.judged}"
            print(f"{how:24} {name}", flush=True)
            for each in tally.found:
                print(f"{'':24} {each.shell}, {each.short!r}: {each.said[0]}")
    return missed


def lines(options: argparse.Namespace) -> int:
    counts = [EACH] * (options.n // EACH) + [options.n % EACH] * bool(options.n % EACH)
    began, whole, done = time.monotonic(), Tally(), 0
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        waiting = {
            pool.submit(work, f"{options.seed}:{number}", count): number
            for number, count in enumerate(counts)
        }
        for each in as_completed(waiting):
            tally, done = each.result(), done + 1
            whole.judged += tally.judged
            whole.allowed += tally.allowed
            whole.found += tally.found
            for found in tally.found:
                show(found)
                print(f"  again: make fuzz-rules SEED={options.seed} N={options.n}", flush=True)
            print(".", end="" if done % 40 else f" {done * EACH}\n", flush=True)
    share = whole.allowed / max(whole.judged, 1)
    seconds = time.monotonic() - began
    print(f"\n{whole.judged} lines judged in {seconds:.0f} s, SEED={options.seed}")
    print(f"{whole.allowed} of them ({share:.0%}) were allowed and run in bash, dash and zsh")
    print(f"{len(whole.found)} did something else than what the rules read")
    if share < SHARE:
        print(f"FAILED: fewer than {SHARE:.0%} were allowed")
    return 1 if whole.found or share < SHARE else 0


def main() -> int:
    options = options_of()
    try:
        with a_scratch() as scratch:
            Bench(scratch).sandbox.close()
        if options.line:
            return one_line(options.line)
        return min(faults(options), 1) if options.faults else lines(options)
    except Unavailable as why:
        done = "SKIPPED" if options.may_skip else "REFUSED"
        print(f"{done}: no line is run, because there is no sandbox ({why})", file=sys.stderr)
        return 0 if options.may_skip else 2


if __name__ == "__main__":
    sys.exit(main())
