"""`make test-agents ARGS=--record`: what real agents say behind the bridge, for fixtures/traces.

Each agent has one session: words, a command that is asked for and allowed, a turn that is
cancelled, the next one, a resume by another bridge, and a load by one that doesn't know it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio

from acp_bridge.core.protocol import as_object
from tests.agents_not_ours import trials
from tests.agents_not_ours.agents import AGENTS, NODE_MODULES, AgentNotOurs
from tests.agents_not_ours.trials import PATIENCE, Stand

TRACES = Path(__file__).parents[2] / "fixtures" / "traces"
RECORDED = tuple(agent for agent in AGENTS if agent.name in ("codex", "claude", "opencode"))
#: entries of a list of models or commands, and characters of a description, that are kept.
_ENTRIES, _DESCRIPTION = 3, 60


def record(agents: Sequence[AgentNotOurs]) -> None:
    """Write a trace for each of them."""
    for agent in agents:
        with trials.place() as (home, server):
            stand = Stand(agent, True, home, server)
            anyio.run(_session, stand)
            told = "".join(_neutral(line, home) for line in _of_the_agent(home))
        (TRACES / f"{agent.name}.jsons").write_text(told)
        print(f"{agent.name}: {len(told)} bytes", flush=True)


def _trace(home: Path, number: int) -> Path:
    return home / f"trace-{number}.jsons"


async def _session(stand: Stand) -> None:
    files = [str(_trace(stand.home, number)) for number in range(3)]
    async with stand.start(ACP_BRIDGE_TRACE=files[0]) as client:
        session_id = await stand.begin(client)
        await client.prompt("COUNT 5 0 A", within=PATIENCE)
        permissions = trials.choosing(client, "allow_once")
        await client.prompt(stand.order("note"), within=PATIENCE)
        assert (len(permissions), stand.acted("note")) == (1, 1)
        running = client.send_prompt("COUNT 1000 20 X")
        await client.until_text("X3", within=PATIENCE)
        client.cancel()
        assert trials.stop_of(await client.answer_to(running, within=PATIENCE)) == "cancelled"
        await client.prompt("COUNT 5 0 Y", within=PATIENCE)
    async with stand.start(ACP_BRIDGE_TRACE=files[1]) as client:
        await stand.load(client, session_id)
        await client.prompt("COUNT 3 0 M", within=PATIENCE)
    unknowing = {"ACP_BRIDGE_TRACE": files[2], "ACP_BRIDGE_HOME": str(stand.home / "other")}
    async with stand.start(**unknowing) as client:
        await client.initialize(within=PATIENCE)
        place = {"cwd": str(stand.home)}
        (listed,) = (await client.request("session/list", place, within=PATIENCE))["sessions"]
        await client.load_session(listed["sessionId"], stand.home, PATIENCE)


def _of_the_agent(home: Path) -> Iterator[dict[str, Any]]:
    """Return the events between bridge and agent, of the three processes one after the other."""
    last = 0.0
    for number in range(3):
        name, began = "Agent" if number == 0 else f"Agent({number + 1})", last
        for line in _trace(home, number).read_text().splitlines():
            event = json.loads(line)
            if "Agent" not in (event["from"], event["to"]):
                continue
            last = event["ts"] = round(began + event["ts"], 6)
            for end in ("from", "to"):
                event[end] = name if event[end] == "Agent" else event[end]
            yield event


def _neutral(event: dict[str, Any], home: Path) -> str:
    """Return the line of an event, without names of this machine and what is long for nothing."""
    line = json.dumps(_cut(event), separators=(",", ":"), ensure_ascii=False)
    return line.replace(str(home), "/project").replace(str(NODE_MODULES), "/agents") + "\n"


def _cut(value: Any) -> Any:
    if isinstance(value, list):
        return [_cut(each) for each in value]
    if not isinstance(value, dict):
        return value
    cut = {key: _cut(each) for key, each in value.items()}
    if isinstance(text := cut.get("description"), str):
        cut["description"] = text[:_DESCRIPTION]
    current = _texts(each for key, each in value.items() if key.startswith("current"))
    for key, each in value.items():
        if isinstance(each, list) and (current or key == "availableCommands"):
            cut[key] = [
                entry
                for number, entry in enumerate(cut[key])
                if number < _ENTRIES or current & _texts(as_object(entry).values())
            ]
    return cut


def _texts(values: Iterable[Any]) -> set[str]:
    return {each for each in values if isinstance(each, str)}
