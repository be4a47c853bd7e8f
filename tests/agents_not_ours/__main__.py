"""`make test-agents`: every trial alone and behind the bridge; writes the table in docs/agents.md.

Exit 1 if an agent could not be installed, or if any trial behind the bridge is not a plain yes.
What an agent does alone is only told.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import anyio

from tests.agents_not_ours.agents import AGENTS, HERE, install
from tests.agents_not_ours.model_server import ModelServer
from tests.agents_not_ours.trials import OK, TRIALS, Stand

DOCUMENT = Path(__file__).parents[2] / "docs" / "agents.md"
BEGIN, END = "<!-- agents: written by make test-agents -->", "<!-- end of agents -->"


async def _trial(stand: Stand, name: str) -> str:
    try:
        with anyio.fail_after(180):
            return await TRIALS[name](stand)
    except Exception as exc:
        inner: BaseException = exc
        while isinstance(inner, BaseExceptionGroup):
            inner = inner.exceptions[0]
        first = (str(inner).splitlines() or [""])[0]
        return f"{type(inner).__name__}: {first[:80]}"


def run() -> dict[tuple[str, bool, str], str]:
    """(agent, behind the bridge, trial) -> result."""
    results = {}
    for agent in AGENTS:
        for bridged in (False, True):
            for name in TRIALS:
                with (
                    tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
                    ModelServer() as server,
                ):
                    stand = Stand(agent, bridged, Path(home), server)
                    result = anyio.run(_trial, stand, name)
                results[agent.name, bridged, name] = result
                where = "behind" if bridged else "alone"
                print(f"{agent.name:10} {where:6} {name:32} {result}", flush=True)
    return results


def table(results: dict[tuple[str, bool, str], str]) -> str:
    """Markdown: a row an agent and arrangement."""
    versions = json.loads((HERE / "package.json").read_text())["dependencies"]
    packages = {name.rpartition("/")[2].removesuffix("-ai"): v for name, v in versions.items()}
    lines = [f"| agent | {' | '.join(TRIALS)} |", "|---|" + "---|" * len(TRIALS)]
    for agent in AGENTS:
        for bridged in (False, True):
            row = [results[agent.name, bridged, name] for name in TRIALS]
            named = f"{agent.name} {packages[agent.name]}"
            where = "**behind acp-bridge**" if bridged else f"{named}, alone"
            lines.append(f"| {where} | {' | '.join(row)} |")
    return "\n".join(lines)


def main() -> int:
    trouble = install()
    if trouble:
        print(f"FAILED: the agents could not be installed: {trouble}")
        print("0 passed, 1 failed")
        return 1
    results = run()
    head, _, rest = DOCUMENT.read_text().partition(BEGIN)
    DOCUMENT.write_text(f"{head}{BEGIN}\n{table(results)}\n{END}{rest.partition(END)[2]}")
    behind = [result for (_, bridged, _), result in results.items() if bridged]
    passed = sum(result == OK for result in behind)
    print(f"{passed} passed, {len(behind) - passed} failed")
    return 0 if passed == len(behind) else 1


if __name__ == "__main__":
    sys.exit(main())
