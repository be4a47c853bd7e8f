"""`make test-agents`: every trial alone and behind the bridge; writes the table in docs/agents.md.

Exit 1 if an agent could not be installed, or if any trial behind the bridge is neither a plain yes
nor skipped for a reason. What an agent does alone is only told. `ARGS="gemini codex"`: these agents
alone, and the table stays as it is.

`ARGS=--versions`: in place of these the trials of `versions.py`, in each pairing of the versions of
client and agent, and the table in docs/versions.md; with agents behind it, those and no table.

`ARGS=--day`: a day's work and a second day of some agents, and what looks back at it (`day.py`).

`ARGS=--sharing`: several sessions in one process of the agent (`sharing.py`).

`ARGS=--words`: odd things that agents were seen to say (`words.py`). Without ARGS these are tried,
too.

`ARGS=--record`: nothing is tried; the traces in fixtures/traces are recorded again. `recorded.py`
says of which agents, and with agents behind it, of those.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import anyio

from tests.agents_not_ours import day, recorded, sharing, versions, words
from tests.agents_not_ours.agents import AGENTS, AgentNotOurs, install
from tests.agents_not_ours.restarts import TRIALS
from tests.agents_not_ours.trials import OK, SKIPPED, Stand, place, tried

DOCUMENTS = Path(__file__).parents[2] / "docs"
BEGIN, END = "<!-- agents: written by make test-agents -->", "<!-- end of agents -->"

#: what is done with the agents, and which there are for that.
WAYS: dict[str, Sequence[AgentNotOurs]] = {
    "": AGENTS,
    "--versions": versions.TRIED,
    "--record": recorded.RECORDED,
    "--day": day.WORKING,
    "--words": words.TRIED,
    "--sharing": sharing.SHARING,
}


def run(agents: Sequence[AgentNotOurs]) -> dict[tuple[str, bool, str], str]:
    """(agent, behind the bridge, trial) -> result."""
    results = {}
    for agent in agents:
        for bridged in (False, True):
            for name in TRIALS:
                with place() as (home, server):
                    stand = Stand(agent, bridged, home, server)
                    result = anyio.run(tried, stand, TRIALS[name])
                results[agent.name, bridged, name] = result
                where = "behind" if bridged else "alone"
                print(f"{agent.name:10} {where:6} {name:32} {result}", flush=True)
    return results


def table(results: dict[tuple[str, bool, str], str]) -> str:
    """Markdown: a row an agent and arrangement."""
    lines = [f"| agent | {' | '.join(TRIALS)} |", "|---|" + "---|" * len(TRIALS)]
    for agent in AGENTS:
        for bridged in (False, True):
            row = [results[agent.name, bridged, name] for name in TRIALS]
            named = f"{agent.package} {agent.version}, alone"
            where = "**behind acp-bridge**" if bridged else named
            lines.append(f"| {where} | {' | '.join(row)} |")
    return "\n".join(lines)


def write(name: str, told: str) -> None:
    """Put a table into its place in a document."""
    head, _, rest = (DOCUMENTS / name).read_text().partition(BEGIN)
    (DOCUMENTS / name).write_text(f"{head}{BEGIN}\n{told}\n{END}{rest.partition(END)[2]}")


def main() -> int:
    trouble = install()
    if trouble:
        print(f"FAILED: the agents could not be installed: {trouble}")
        print("0 passed, 1 failed")
        return 1
    way = next((arg for arg in sys.argv[1:] if arg in WAYS), "")
    named = [arg for arg in sys.argv[1:] if arg != way]
    known = WAYS[way]
    if unknown := set(named) - {agent.name for agent in known}:
        print(f"FAILED: no such agent: {', '.join(sorted(unknown))}")
        return 1
    agents = [agent for agent in known if agent.name in (named or [agent.name])]
    behind: list[str] = []
    match way:
        case "--record":
            recorded.record(agents)
            return 0
        case "--day":
            behind = day.run(agents)
        case "--words":
            behind = words.run(agents)
        case "--sharing":
            behind = sharing.run(agents)
        case "--versions":
            of_pairings = versions.run(agents)
            behind += of_pairings.values()
            if not named:
                write("versions.md", versions.table(of_pairings))
        case _:
            results = run(agents)
            behind += [result for (_, bridged, _), result in results.items() if bridged]
            if not named:
                write("agents.md", table(results))
                behind += words.run(words.TRIED)
    passed = behind.count(OK)
    skipped = sum(result.startswith(SKIPPED) for result in behind)
    failed = len(behind) - passed - skipped
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
