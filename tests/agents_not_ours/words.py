"""`make test-agents ARGS=--words`: odd things that agents were seen to say, behind the bridge.

An agent that can be installed plays itself. One that can't (hermes, nanocoder) is played by a
script that does what was seen of it.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio

from acp_bridge.core.records import replace
from tests.agents_not_ours.agents import AGENTS, AgentNotOurs
from tests.agents_not_ours.trials import (
    OK,
    PATIENCE,
    SKIPPED,
    Stand,
    choosing,
    next_one,
    place,
    tried,
)
from tests.support.client import RecordingClient
from tests.support.recording import RpcError
from tests.whole.tiny_agent import tiny_agent


@dataclass(frozen=True, slots=True)
class Played(AgentNotOurs):
    """An agent that a script plays, with what was seen of the real one."""

    code: str = ""

    def words(self) -> list[str]:
        folder = Path(self.package)
        return tiny_agent(folder, self.code)


#: takes a session up again, and knows nothing of it: each later prompt is a refusal without a word.
HERMES = Played(
    *("hermes", "", ""),
    code="""
CAN = {"loadSession": True, "sessionCapabilities": {"resume": {}}}
resumed = False
def session_resume(id, params):
    global resumed
    resumed = True
    return {}
def session_load(id, params):
    return {"error": {"code": -32602, "message": "unknown session"}}
def session_prompt(id, params):
    if resumed:
        return {"stopReason": "refusal"}
    update("s", **text("one"))
    update("s", sessionUpdate="available_commands_update", availableCommands=[
        {"name": "queue", "description": "the agent's own"}])
    if "die" in str(params):
        os._exit(1)
    return {"stopReason": "end_turn"}
""",
)
#: after a cancel it answers every prompt with an internal error.
NANOCODER = Played(
    *("nanocoder", "", ""),
    code="""
CAN = {"loadSession": True}
broken = False
running = None
def session_load(id, params):
    return {}
def session_cancel(id, params):
    global broken
    broken = True
    send(id=running, result={"stopReason": "cancelled"})
def session_prompt(id, params):
    global running
    if broken:
        return {"error": {"code": -32603, "message": "Internal error"}}
    running = id
    update("s", **text(f"pid {os.getpid()} "))
    return None if "stay" in str(params) else {"stopReason": "end_turn"}
""",
)


# --- 1: old text is shown again -------------------------------------------------------------------


async def shown_once(stand: Stand) -> str:
    """After the agent's death, and after a load, no word of before is shown or kept twice."""
    async with stand.start() as client:
        session_id = await stand.begin(client)
        await client.prompt("COUNT 5 0 H", within=PATIENCE)
        await stand.settle()
        assert client.process is not None
        for victim in stand.agent.behind(client.process.pid):
            await anyio.run_process(["kill", "-9", str(victim)], check=False)
        with suppress(RpcError):  # its death may not have been seen yet
            await client.prompt("COUNT 1 0 Z", within=PATIENCE)
        if wrong := await next_one(client, "M"):
            return wrong
        await anyio.sleep(1)  # some replay after their answer
        live = client.text()
    async with stand.start() as client:
        await stand.load(client, session_id)
        await anyio.sleep(1)
        loaded = client.text()
    for name, text in (("live", live), ("loaded", loaded)):
        for tag in ("H", "M"):
            if (count := text.count(f"{tag}0 {tag}1")) != 1:
                return f"{name}: {tag} is shown {count} times"
    return OK


# --- 2: `decided` before its card -----------------------------------------------------------------


async def decided_on_a_card(stand: Stand) -> str:
    """What tells that a rule decided comes behind the tool call that it is about."""
    (stand.home / "bridge").mkdir(exist_ok=True)
    rule = f'allow = ["Bash({stand.act} *)"]\n'
    (stand.home / "bridge" / "permissions.toml").write_text(rule)
    async with stand.start() as client:
        await stand.begin(client)
        choosing(client, "allow_once")
        await client.prompt(stand.order("one"), within=PATIENCE)
        opened, decided = set[str](), 0
        for message in client.recording.requests("session/update"):
            params = message["params"]
            update = params["update"]
            if update["sessionUpdate"] == "tool_call":
                opened.add(update["toolCallId"])
            if (params.get("_meta") or {}).get("acp_bridge", {}).get("decided"):
                decided += 1
                if update["toolCallId"] not in opened:
                    return "decided before its card"
        if not decided:
            return f"{SKIPPED}the rule decided nothing"
        return OK if stand.acted("one") == 1 else "it did not run"


# --- 3: a resume that lies, errors for ever -------------------------------------------------------


async def told_of_a_lie(stand: Stand) -> str:
    """A refusal without a word after a resume is explained, and both ways on are named."""
    async with stand.start() as client:
        await stand.begin(client)
        await client.prompt("one", within=PATIENCE)
        with suppress(RpcError):
            await client.prompt("die", within=PATIENCE)
            return "no error"
        answer = await client.prompt("again", within=PATIENCE)
        if answer["stopReason"] != "refusal":
            return str(answer["stopReason"])
        await client.until_text("queue memory new` ", within=PATIENCE)
        await client.until_text("queue memory restore` ", within=PATIENCE)
        return OK


async def replaced_once(stand: Stand) -> str:
    """Two internal errors in a row after a cancel: the process is replaced, and the next works."""
    async with stand.start() as client:
        await stand.begin(client)
        running = client.send_prompt("stay")
        await client.until_text("pid ", within=PATIENCE)
        client.cancel()
        await client.answer_to(running, within=PATIENCE)
        for _ in range(2):
            try:
                await client.prompt("broken", within=PATIENCE)
                return "no error"
            except RpcError:
                continue
        answer = await client.prompt("works", within=PATIENCE)
        pids = {word for word in client.text().split() if word.isdigit() and len(word) > 2}
        return OK if answer["stopReason"] == "end_turn" and len(pids) == 2 else f"{pids}"


# --- 4: a `/queue` of the agent's own ------------------------------------------------------------


async def another_name(stand: Stand) -> str:
    """The bridge's command has another name where the agent has a `/queue`, and works by it."""
    async with stand.start() as client:
        await stand.begin(client)
        await client.prompt("one", within=PATIENCE)
        lists = [each for each in client.updates() if "availableCommands" in each]
        names = [command["name"] for command in lists[-1]["availableCommands"]]
        if names.count("queue") != 1 or "bridge" not in names:
            return f"offered: {', '.join(names)}"
        await client.prompt("/bridge queue", within=PATIENCE)
        return OK if "Nothing is waiting" in client.text() else "it is not answered"


# --- 5 to 7 ---------------------------------------------------------------------------------------


async def own_methods(stand: Stand) -> str:
    """A method of a session that only the agent may know is answered as the agent answers it."""
    found = []
    for bridged in (False, True):
        async with replace(stand, bridged=bridged).start() as client:
            session_id = await stand.begin(client)
            sent = client.send_request("_session/rename", {"sessionId": session_id, "name": "x"})
            answer = await client.answer_to(sent, within=PATIENCE)
            found.append((answer.get("error") or {}).get("code", "a result"))
    return OK if found[0] == found[1] else f"alone {found[0]}, behind {found[1]}"


async def ids_of_the_user(stand: Stand) -> str:
    """The user's messages have an id in a replay, if the agent gives them one alone."""

    async def given(client: RecordingClient) -> bool:
        told = [each for each in client.updates() if each["sessionUpdate"] == "user_message_chunk"]
        return bool(told) and all(each.get("messageId") for each in told)

    found = []
    for bridged in (False, True):
        here = replace(stand, bridged=bridged)
        async with here.start() as client:
            session_id = await stand.begin(client)
            await client.prompt("COUNT 3 0 U", within=PATIENCE)
            await stand.settle()
        async with here.start() as client:
            await stand.load(client, session_id)
            await anyio.sleep(1)
            found.append(await given(client))
    return OK if found[1] or not found[0] else "no id behind the bridge"


async def deleted_at_once(stand: Stand) -> str:
    """A load of a deleted session is refused, and no agent is asked for it."""
    trace = stand.home / "trace"
    async with stand.start() as client:
        session_id = await stand.begin(client)
        await client.prompt("COUNT 3 0 D", within=PATIENCE)
        await client.request("session/delete", {"sessionId": session_id}, PATIENCE)
    async with stand.start(ACP_BRIDGE_TRACE=str(trace)) as client:
        await client.initialize(within=PATIENCE)
        with suppress(RpcError):
            await client.load_session(session_id, stand.home, PATIENCE)
            return "it is loaded"
    loads = sum('"session/load"' in line for line in trace.read_text().splitlines())
    return OK if loads == 1 else f"{loads} loads in the trace"


Trial = Callable[[Stand], Awaitable[str]]
#: number, trial, and the agents that play it; none: all that can be installed.
ITEMS: tuple[tuple[int, Trial, tuple[str, ...]], ...] = (
    (1, shown_once, ()),
    (2, decided_on_a_card, ()),
    (3, told_of_a_lie, ("hermes",)),
    (3, replaced_once, ("nanocoder",)),
    (4, another_name, ("hermes",)),
    (5, own_methods, ("codex", "claude", "opencode")),
    (6, ids_of_the_user, ("claude",)),
    (7, deleted_at_once, ("opencode", "claude", "codex")),
)
TRIED: tuple[AgentNotOurs, ...] = (*AGENTS, HERMES, NANOCODER)


def run(agents: Sequence[AgentNotOurs]) -> list[str]:
    """Play each item with each of its agents that is named; returns the results."""
    results = []
    for number, trial, names in ITEMS:
        for agent in agents:
            if agent.name not in (names or [each.name for each in AGENTS]):
                continue
            with place() as (home, server):
                playing = replace(agent, package=str(home)) if isinstance(agent, Played) else agent
                result = anyio.run(tried, Stand(playing, True, home, server), trial)
            results.append(result)
            print(f"{number} {trial.__name__:20} {agent.name:10} {result}", flush=True)
    sys.stdout.flush()
    return results
