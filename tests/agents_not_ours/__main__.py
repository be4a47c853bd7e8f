"""`make test-agents`: every trial alone and behind the bridge; writes the table in docs/agents.md.

Exit 1 if an agent could not be installed, or if any trial behind the bridge is neither a plain yes
nor skipped for a reason. What an agent does alone is only told. `ARGS="gemini codex"`: these agents
alone, and the table stays as it is.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import anyio

from tests.agents_not_ours.agents import AGENTS, AgentNotOurs, install
from tests.agents_not_ours.model_server import ModelServer
from tests.agents_not_ours.trials import OK, SKIPPED, TRIALS, Stand

DOCUMENT = Path(__file__).parents[2] / "docs" / "agents.md"
BEGIN, END = "<!-- agents: written by make test-agents -->", "<!-- end of agents -->"


async def _trial(stand: Stand, name: str) -> str:
    try:
        with anyio.fail_after(300):
            return await TRIALS[name](stand)
    except Exception as exc:
        inner: BaseException = exc
        while isinstance(inner, BaseExceptionGroup):
            inner = inner.exceptions[0]
        first = (str(inner).splitlines() or [""])[0]
        return f"{type(inner).__name__}: {first[:80]}"


def run(agents: Sequence[AgentNotOurs]) -> dict[tuple[str, bool, str], str]:
    """(agent, behind the bridge, trial) -> result."""
    results = {}
    for agent in agents:
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
    lines = [f"| agent | {' | '.join(TRIALS)} |", "|---|" + "---|" * len(TRIALS)]
    for agent in AGENTS:
        for bridged in (False, True):
            row = [results[agent.name, bridged, name] for name in TRIALS]
            named = f"{agent.package} {agent.version}, alone"
            where = "**behind acp-bridge**" if bridged else named
            lines.append(f"| {where} | {' | '.join(row)} |")
    return "\n".join(lines)


def main() -> int:
    trouble = install()
    if trouble:
        print(f"FAILED: the agents could not be installed: {trouble}")
        print("0 passed, 1 failed")
        return 1
    named = sys.argv[1:]
    if unknown := set(named) - {agent.name for agent in AGENTS}:
        print(f"FAILED: no such agent: {', '.join(sorted(unknown))}")
        return 1
    results = run([agent for agent in AGENTS if agent.name in (named or [agent.name])])
    if not named:
        head, _, rest = DOCUMENT.read_text().partition(BEGIN)
        DOCUMENT.write_text(f"{head}{BEGIN}\n{table(results)}\n{END}{rest.partition(END)[2]}")
    behind = [result for (_, bridged, _), result in results.items() if bridged]
    passed = behind.count(OK)
    skipped = sum(result.startswith(SKIPPED) for result in behind)
    failed = len(behind) - passed - skipped
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
