"""How long 200 rules take to decide about a call, after the first decision.

python -m tests.benchmarks.rules_bench
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

from acp_bridge.features.rules.places import PROJECT_FILE
from acp_bridge.features.rules.session_rules import SessionRules

ROUNDS = 300


def rules() -> str:
    """A file of 200 rules, of all kinds."""
    deny = [f"Bash(bad{n} *)" for n in range(30)] + [f"Edit(**/secret{n}/**)" for n in range(20)]
    ask = [f"Bash(push{n} *)" for n in range(30)]
    allow = [f"Bash(tool{n} sub *)" for n in range(60)] + [f"Read(src{n}/**)" for n in range(40)]
    allow += [f"mcp__server{n}__*" for n in range(19)] + ["Bash(git status)"]
    return f"deny = {deny}\nask = {ask}\nallow = {allow}\n"


def best(decide: Callable[[], object]) -> float:
    """The shortest time of many rounds, in milliseconds: what else runs is not counted."""
    decide()
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        decide()
        times.append(time.perf_counter() - began)
    return min(times) * 1000


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder, "permissions.toml")
        own.write_text(rules())
        held = SessionRules(own, Path(folder, PROJECT_FILE), Path(folder, "home"), folder, "agent")
        for command in (
            "git status",
            "git status && tool59 sub a/b c/d e/f | tool3 sub x",
            "tool59 sub x > out; unknown",
        ):
            judged, _ = held.judge_command(command)
            took = best(partial(held.judge_command, command))
            others = (command + " " * n for n in count(1))  # a line is remembered as it stands
            new = best(partial(lambda each: held.judge_command(next(each)), others))
            print(f"{took:6.3f} ms, new {new:6.3f} ms  {judged.action:5}  {command}")
        judged, _ = held.judge_file("src39/a/b.py", writes=False)
        took = best(lambda: held.judge_file("src39/a/b.py", writes=False))
        print(f"{took:6.3f} ms                {judged.action:5}  reading src39/a/b.py")


if __name__ == "__main__":
    main()
