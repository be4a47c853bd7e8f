"""A question beside a session, by a user's hand: nothing of it is left anywhere."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import RecordingClient
from tests.support.recording import Message, RpcError
from tests.whole.bridge_support import ROOT, World, shown, stopped
from tests.whole.judge import judge
from tests.whole.tiny_agent import tiny_agent

pytestmark = pytest.mark.process

SAYS = """
when: asks this beside
call: shell {"command": "touch changed"}
---
text: You told me {history}

when: work
text: working
gate: g
text: done

turn
text: fine
"""
#: keeps its sessions as files, lists them all, and can fork and not delete.
FORKS = """
CAN = {"loadSession": True, "sessionCapabilities": {"fork": {}, "list": {}}}
folder = os.path.dirname(__file__)
def path(session):
    return os.path.join(folder, session + ".session")
def session_new(id, params):
    session = f"s{time.monotonic_ns()}"
    open(path(session), "w").close()
    return {"sessionId": session}
def session_load(id, params):
    return {}
def session_list(id, params):
    names = [name for name in os.listdir(folder) if name.endswith(".session")]
    return {"sessions": [{"sessionId": n[:-8], "cwd": folder} for n in names]}
def session_fork(id, params):
    session = f"f{time.monotonic_ns()}"
    open(path(session), "w").write(open(path(params["sessionId"])).read())
    return {"sessionId": session}
def session_prompt(id, params):
    words, session = params["prompt"][0]["text"], params["sessionId"]
    before = open(path(session)).read()
    open(path(session), "a").write(words[-3:] + ".")
    update(session, **text(before or "nothing", messageId=words))
    return {"stopReason": "end_turn"}
"""


async def ask(client: RecordingClient, question: str) -> str:
    params = {"sessionId": client.session_id, "question": question}
    return str((await client.request("_acp_bridge/ask", params, within=20))["answer"])


async def replayed(client: RecordingClient, session: str, cwd: Path) -> list[Message]:
    seen = client.mark()
    await client.load_session(session, cwd)
    return [u for u in shown(client, seen) if u["sessionUpdate"] != "available_commands_update"]


async def listed(client: RecordingClient, cwd: Path) -> list[Any]:
    return list((await client.request("session/list", {"cwd": str(cwd)}))["sessions"])


async def test_the_built_in_agent_is_asked_during_a_turn_and_forgets_it(
    world: World, tmp_path: Path
) -> None:
    (dialogue := tmp_path / "dialogue.txt").write_text(SAYS)
    words = [sys.executable, "-m", "acp_bridge", "--model", f"scripted:{dialogue}"]
    own = {"ACP_BRIDGE_HOME": str(world.home), "PYTHONPATH": str(ROOT)}
    async with RecordingClient.start(words, env={**world.env, **own}) as client:
        told = await client.initialize()
        methods = told["agentCapabilities"]["_meta"]["acp_bridge"]["methods"]
        assert "_acp_bridge/ask" in methods
        session = await client.new_session(world.cwd, within=20)
        client.side.permission = "allow"
        assert await client.prompt("I am Ann", within=20) == {"stopReason": "end_turn"}
        before = await replayed(client, session, world.cwd)
        rows = await listed(client, world.cwd)
        turn = client.send_prompt("work")
        await world.gates.reached("g")
        files = sorted(path.name for path in (world.home / "agent").iterdir())
        assert "I am Ann" in await ask(client, "who am I?")
        seen = client.mark()
        assert await client.prompt("/queue ask who am I?") == {"stopReason": "end_turn"}
        assert "I am Ann" in client.text(since=seen)
        world.gates.open("g")
        assert await stopped(client, turn) == "end_turn"
        assert not (world.cwd / "changed").exists()
        assert sorted(path.name for path in (world.home / "agent").iterdir()) == files
        after = await replayed(client, session, world.cwd)
        assert "who am I" not in str(after)
        assert len(after) > len(before)
        assert [row["sessionId"] for row in await listed(client, world.cwd)] == [
            row["sessionId"] for row in rows
        ]
        client.close_stdin()
        assert await client.wait(within=3) == 0
    judge(client.recording, client.stderr.decode())


async def test_an_agent_that_forks_and_cannot_delete_is_asked_and_its_fork_is_not_listed(
    world: World,
) -> None:
    async with world.inside(command=tiny_agent(world.cwd, FORKS)) as client:
        session = client.session_id
        await client.prompt("one")
        rows = [row["sessionId"] for row in await listed(client, world.cwd)]
        assert await ask(client, "two") == "one."
        assert [row["sessionId"] for row in await listed(client, world.cwd)] == rows == [session]
        seen = client.mark()
        await client.prompt("six")
        assert client.text(since=seen) == "one."
        assert "two" not in str(await replayed(client, session, world.cwd))


async def test_an_agent_that_cannot_be_asked_is_one_clear_error(world: World) -> None:
    async with world.inside() as client:
        with pytest.raises(RpcError, match="beside the session") as caught:
            await ask(client, "why?")
        assert caught.value.code == -32601
        with pytest.raises(RpcError) as caught:
            await client.request("_acp_bridge/ask", {"sessionId": "x", "question": "y"})
        assert caught.value.code == -32002
        assert await client.prompt("/queue ask why?") == {"stopReason": "end_turn"}
        assert "can't be asked beside" in client.text()
        assert world.log.received("session/fork") == []
