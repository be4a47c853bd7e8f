"""`make floods`: floods a server, and prints a row for each attack.

    make floods                                 all attacks (about 15 minutes)
    make floods ARGS="--only pings --stage after"
    make floods ARGS="--connections 16 --tls no --seconds 2"

Each row says how far the server's memory was above rest, and within how many milliseconds nine of
ten prompts of another client began. The last figure is how many seconds after the attack its last
connection was gone. After each ten attacks, and at the end, it waits 20 s and looks at the memory
again. The exit code is 1 if a bound is broken.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.attacks import floods
from tests.attacks.floods import Attack, Served


def main() -> int:
    """Make the attacks that were asked for; returns the exit code."""
    asked = _parser().parse_args()
    wanted = [each for each in floods.rows() if _is_wanted(each, asked)]
    if note := floods.busy():
        print(note)
    heads = f"{'MB above rest':>13} {'prompt, ms':>10} {'worst':>7} {'MB sent':>8} {'s gone':>6}"
    print(f"{'attack':40} {heads}")
    broken = 0
    if not asked.only or "wrong" in asked.only:
        broken += _guesses(asked.seconds)
    for tls in (False, True):
        group = [each for each in wanted if each.tls is tls]
        if group:
            broken += _group(group, asked.seconds, tls=tls)
    print(f"{broken} broken" if broken else "all within their bounds")
    return 1 if broken else 0


def _group(group: list[Attack], seconds: float, *, tls: bool) -> int:
    """Make attacks on one server; returns how many bounds were broken."""
    broken = 0
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        floods.served(Path(folder), tls=tls) as it,
        floods.prompting(it) as other,
    ):
        quiet = [other.prompt() for _ in range(40)]
        it.rest = floods.settled(it)
        print(f"at rest: {it.rest:.0f} MB, a prompt begins after {sorted(quiet)[20]:.0f} ms")
        for number, attack in enumerate(group, 1):
            seen = floods.attacked(it, other, attack, seconds)
            worst = max(seen.delays, default=0)
            sent = seen.told.get("sent", 0) / (1 << 20)
            row = f"{attack!s:40} {seen.above:13.0f} {seen.delay:10.0f} {worst:7.0f} {sent:8.1f}"
            print(
                f"{row} {seen.gone:6.1f}  {seen.told.get('answers', '')} {', '.join(seen.broken)}",
                flush=True,
            )
            broken += len(seen.broken)
            if number % 10 == 0 or number == len(group):
                broken += _rested(it)
    return broken


def _guesses(seconds: float) -> int:
    """Have wrong tokens sent; returns how often the user could not log in in time."""
    broken = 0
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        floods.served(Path(folder), tls=False) as it,
    ):
        for how in floods.GUESSES:
            times, told = floods.guessed(it, how, seconds)
            worst = max(times, default=9999.0)
            rate = told.get("tried", 0) / seconds
            print(
                f"wrong tokens: {how:14} {rate:5.0f} a second; {len(times)} logins, the slowest"
                f" {worst:.0f} ms  {told.get('answers', '')}",
                flush=True,
            )
            broken += worst > floods.MOST_LOGIN
    return broken


def _rested(it: Served) -> int:
    """Wait until the server should be at rest again; returns 1 if its memory is not."""
    time.sleep(floods.REST)
    left = it.rss() - it.rest
    print(f"{floods.REST:.0f} s later: {left:.0f} MB above rest", flush=True)
    return int(left > floods.MOST_LEFT)


def _is_wanted(attack: Attack, asked: argparse.Namespace) -> bool:
    return (
        (not asked.only or attack.kind in asked.only)
        and (not asked.stage or attack.stage in asked.stage)
        and asked.connections in (None, attack.connections)
        and asked.tls in (None, "yes" if attack.tls else "no")
        and asked.reads in (None, "yes" if attack.reads else "no")
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make floods", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", choices=(*floods.KINDS, "wrong"), action="append")
    parser.add_argument("--stage", choices=floods.STAGES, action="append")
    parser.add_argument("--connections", type=int, choices=(1, 16))
    parser.add_argument("--tls", choices=("yes", "no"))
    parser.add_argument("--reads", choices=("yes", "no"))
    parser.add_argument("--seconds", type=float, default=floods.SECONDS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
