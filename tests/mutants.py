"""`make mutants`: mutmut over what decides, and over parts of a session; survivors are killed or
explained.

mutmut changes one function in one small way, runs the tests that reach it, and lists the changes
that no test saw. It works on a copy, outside the checkout. A survivor's place is its function and
its changed lines, not mutmut's number, which moves with every edit.

mutants_explained.txt has a block for each survivor that is all right: the function, the lines
taken out and put in, and, indented, why nothing can see the difference.
Exit 0: none is left without an explanation.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
EXPLAINED = ROOT / "tests" / "mutants_explained.txt"
#: files or folders of tests, seen from the checkout.
Tests = tuple[str, ...]
#: what is mutated, and the tests that have to see it.
TARGETS: dict[str, Tests] = {
    "acp_bridge/core/machine/turns.py": ("tests/core/machine",),
    "acp_bridge/core/machine/processes.py": ("tests/core/machine",),
    "acp_bridge/core/machine/prompt_queue.py": ("tests/core/machine",),
    "acp_bridge/core/machine/states.py": ("tests/core/machine",),
    "acp_bridge/core/agents/process_pool.py": (
        "tests/core/agents/test_process_pool.py",
        "tests/core/agents/test_process_pool_model.py",
    ),
    "acp_bridge/core/wire/jsonrpc.py": (
        "tests/core/wire/test_jsonrpc.py",
        "tests/core/wire/test_odd_batches.py",
        "tests/core/wire/test_odd_lines.py",
        "tests/core/wire/test_peer.py",
    ),
    "acp_bridge/core/updates/growing.py": ("tests/core/updates/test_growing.py",),
    "acp_bridge/features/hooks/verdict.py": ("tests/features/hooks/test_verdict.py",),
    "acp_bridge/core/bridge/attendance.py": ("tests/core/bridge/test_attendance.py",),
    "acp_bridge/core/session/prompts/turn.py": (
        "tests/core/session/test_turn.py",
        "tests/core/session/test_turn_ends.py",
        "tests/core/session/test_odd_agents.py",
        "tests/core/session/test_broken_parts.py",
        "tests/core/session/test_session.py",
        "tests/features/hooks/test_hooks.py",
        "tests/core/session/test_from_agent.py",
        "tests/core/session/test_restart.py",
        "tests/core/session/test_late_writes.py",
        "tests/core/session/test_journal_away.py",
        "tests/features/spending/test_budget_untold.py",
        "tests/features/usage_limits/test_usage_limit.py",
        "tests/core/bridge/test_cards.py",
        "tests/core/bridge/test_cursors.py",
        "tests/sharing/elsewhere/test_ends_of_subagents.py",
        "tests/features/steering/test_steering.py",
        "tests/features/steering/test_words_that_join.py",
        "tests/core/bridge/test_work_outside_a_prompt.py",
    ),
    "acp_bridge/core/session/from_agent.py": (
        "tests/core/session/test_from_agent.py",
        "tests/core/session/test_odd_agents.py",
        "tests/core/sessions/test_shared.py",
        "tests/core/session/test_pacing.py",
        "tests/core/session/test_restart.py",
        "tests/core/session/test_session_restarts.py",
        "tests/features/watch/test_silence.py",
        "tests/core/session/test_sleep.py",
        "tests/core/session/test_sleep_looks.py",
        "tests/features/spending/test_budget_untold.py",
        "tests/core/session/test_turn.py",
        "tests/core/bridge/test_floods.py",
        "tests/core/bridge/test_cards.py",
        "tests/sharing/elsewhere/test_ends_of_subagents.py",
        "tests/core/bridge/test_questions.py",
        "tests/terminal/shared/test_shown_questions.py",
        "tests/core/bridge/test_subagents.py",
        "tests/features/steering/test_words_that_join.py",
        "tests/core/bridge/test_work_outside_a_prompt.py",
        "tests/versions/test_from_agent.py",
    ),
    "acp_bridge/core/session/process/agent_processes.py": (
        "tests/core/session/test_process_life.py",
        "tests/core/session/test_session.py",
        "tests/core/session/test_session_ends.py",
        "tests/core/session/test_session_restarts.py",
        "tests/features/asking/test_ask.py",
        "tests/core/sessions/test_close_and_delete.py",
        "tests/core/sessions/test_fork.py",
        "tests/core/sessions/test_import.py",
        "tests/core/sessions/test_shared.py",
        "tests/core/sessions/test_shared_deaths.py",
        "tests/core/sessions/test_shared_leaving.py",
        "tests/core/sessions/test_shared_starts.py",
    ),
    "acp_bridge/core/session/requests/to_agent.py": (
        "tests/core/session/test_to_agent.py",
        "tests/features/asking/test_ask.py",
        "tests/core/session/test_provisional.py",
        "tests/core/session/test_session_ends.py",
        "tests/core/session/test_session_restarts.py",
        "tests/core/sessions/test_shared_leaving.py",
        "tests/core/bridge/test_bridge.py",
        "tests/features/steering/test_steering.py",
        "tests/core/bridge/test_waits.py",
        "tests/core/bridge/test_work_outside_a_prompt.py",
    ),
    "acp_bridge/core/session/process/restart.py": (
        "tests/core/session/test_restart.py",
        "tests/core/session/test_reopening.py",
        "tests/core/session/test_session_restarts.py",
        "tests/core/session/test_provisional.py",
        "tests/core/session/test_sleep.py",
        "tests/core/session/test_sleep_moments.py",
        "tests/core/session/test_turn.py",
        "tests/core/bridge/test_cards.py",
        "tests/whole/test_broken_agents.py",
    ),
}
NEEDED = ("acp_bridge", "agent", "tests", "fixtures", "pyproject.toml")
#: what is logged is for a reader of the log: no test holds its words.
LOGGED = "^ +event[(]"
#: The same examples each time, and none made smaller: to fail is enough, and shrinking is slow.
PROFILE = """
from hypothesis import Phase, settings
quick = [Phase.explicit, Phase.generate]
settings.register_profile("mutants", phases=quick, derandomize=True, database=None, deadline=None)
settings.load_profile("mutants")
"""
#: a mutant that makes the tests run for ever was seen, too.
SEEN = ("killed", "timeout", "caught by type check")


class Mutant(NamedTuple):
    """One change: the dotted function, and its lines as `- old` and `+ new`."""

    function: str
    change: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join((self.function, *self.change))


def explanations(text: str) -> dict[Mutant, str]:
    """The blocks of mutants_explained.txt; raises ValueError for one without a reason."""
    found = {}
    for block in re.split(r"\n\s*\n", re.sub(r"(?m)^#.*\n?", "", text)):
        if not block.strip():
            continue
        function, *lines = block.strip("\n").splitlines()
        why = " ".join(line.strip() for line in lines if line.startswith("  "))
        change = tuple(line.rstrip() for line in lines if line.startswith(("-", "+")))
        if not why or not change:
            raise ValueError(f"a survivor needs its change and a reason:\n{block}")
        found[Mutant(function, change)] = why
    return found


def mutant(name: str, diff: str) -> Mutant:
    """A mutant from mutmut's name of it and mutmut's diff."""
    module, _, mangled = name.rpartition("__mutmut_")[0].rpartition(".")
    # mutmut mangles `f` to `x_f`, and `C.f` to `xǁCǁf`.
    function = mangled.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
    change = (line for line in diff.splitlines() if re.match(r"[-+](?![-+]{2} )", line))
    return Mutant(f"{module}.{function}", tuple(f"{line[0]} {line[1:].strip()}" for line in change))


def survivors(targets: Iterable[str], tests: Iterable[str]) -> list[Mutant]:
    """Run mutmut on a copy; what it changed in the targets and none of these tests saw."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        prepare(list(targets), list(tests), folder := Path(name))
        return left(folder)


def left(folder: Path) -> list[Mutant]:
    """Run mutmut in this prepared folder; what no test saw."""
    run = mutmut("run", cwd=folder)
    print(*run.replace("\r", "\n").strip().splitlines()[-2:], sep="\n")
    names = re.findall(r"^ +(\S+): (.+)$", mutmut("results", cwd=folder), re.MULTILINE)
    return [
        mutant(name, mutmut("show", name, cwd=folder)) for name, how in names if how not in SEEN
    ]


def prepare(targets: list[str], tests: list[str], folder: Path) -> None:
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name)
        else:
            shutil.copy(ROOT / name, folder / name)
    settings = {
        "source_paths": ["acp_bridge"],
        "only_mutate": targets,
        "pytest_add_cli_args_test_selection": tests,
        "also_copy": ["agent", "fixtures"],
        "do_not_mutate_patterns": [LOGGED],
    }
    with (folder / "tests" / "conftest.py").open("a") as conftest:
        conftest.write(PROFILE)
    with (folder / "pyproject.toml").open("a") as project:
        project.write("\n[tool.mutmut]\n")
        project.writelines(f"{key} = {value}\n" for key, value in settings.items())


def mutmut(*args: str, cwd: Path) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "mutmut", *args],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"mutmut {' '.join(args)} failed:\n{done.stdout[-4000:]}\n{done.stderr}")
    return done.stdout


def main() -> int:
    """Print the survivors that nobody explained; 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("targets", nargs="*", help="default: " + ", ".join(TARGETS))
    parser.add_argument(
        "--tests", action="append", metavar="PATH", help="these see them, whatever the list says"
    )
    args = parser.parse_args()
    targets = args.targets or list(TARGETS)
    explained = explanations(EXPLAINED.read_text("utf-8"))
    found: list[Mutant] = []
    for tests, seen in groupby(targets, lambda target: args.tests or TARGETS[target]):
        found += survivors(seen, tests)
    new = [one for one in dict.fromkeys(found) if one not in explained]
    for one in new:
        print(f"\n{one}")
    modules = tuple(target.removesuffix(".py").replace("/", ".") + "." for target in targets)
    for one in explained.keys() - set(found):
        if one.function.startswith(modules):
            print(f"\nexplained, and no survivor any more:\n{one}")
    print(f"\n{len(found)} survivors, {len(found) - len(new)} explained, {len(new)} not")
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
