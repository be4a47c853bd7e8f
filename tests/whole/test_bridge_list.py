"""`session/list`, `close`, `delete`: the bridge's own sessions, and those the agent knows."""

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.journal import Journal
from tests.support.client import RecordingClient
from tests.support.processes import all_gone, marked
from tests.support.recording import Message
from tests.whole.bridge_support import World, fails, shown, stopped
from tests.whole.tiny_agent import tiny_agent

pytestmark = pytest.mark.process


async def listed(client: RecordingClient, **params: Any) -> list[Message]:
    sessions: list[Message] = (await client.request("session/list", params))["sessions"]
    return sessions


def keeps(result: Message) -> str:
    """What the answer to `session/delete` says that the agent may keep; empty if nothing."""
    own: Message = result.get("_meta", {}).get("acp_bridge", {})
    return str(own.get("agentKeeps", ""))


async def test_a_listing_has_titles_times_pages_and_a_filter_and_the_newest_comes_first(
    world: World, tmp_path: Path
) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    async with world.inside() as client:
        await client.prompt("say " + "long " * 40)
        first = client.session_id
        second = await client.new_session(other)
        await client.prompt('update {"sessionUpdate":"session_info_update","title":"Named"}')
        await client.logged("turn.ended", 2)
        rows = {row["sessionId"]: row for row in await listed(client)}
        assert set(rows) == {first, second}
        assert rows[second]["title"] == "Named"
        assert rows[first]["title"].startswith("say long long")
        assert len(rows[first]["title"]) <= 80
        assert rows[first]["updatedAt"].endswith("Z")
        assert [r["sessionId"] for r in await listed(client, cwd=str(other))] == [second]
        assert await listed(client, cwd=str(tmp_path / "unused")) == []
        await fails(client, "session/list", -32602, cwd="relative")
        for cursor in ("nonsense", "j:nonsense", 1):
            await fails(client, "session/list", -32602, cursor=cursor)


async def test_a_long_listing_comes_in_pages_that_hold_every_session_once(world: World) -> None:
    journal = Journal(world.home)
    for number in range(60):
        made = await journal.create(f"{number:032x}", cwd=str(world.cwd), agent="fixture_agent.py")
        await made.close()
    await journal.close()
    async with world.inside() as client:
        await client.prompt("say one")
        found: list[str] = []
        page: Message = {"nextCursor": None}
        while "nextCursor" in page:
            cursor = page["nextCursor"]
            page = await client.request("session/list", {"cursor": cursor} if cursor else {})
            found += [row["sessionId"] for row in page["sessions"]]
        assert found[0] == client.session_id
        assert sorted(found) == sorted({f"{n:032x}" for n in range(60)} | {client.session_id})


async def test_a_session_that_only_the_agent_knows_is_listed_and_loaded_through_it(
    world: World,
) -> None:
    async with world.inside() as client:
        await client.prompt("say one; tool t; tool-done t")
        ours = client.session_id
    for file in (world.home / "sessions").glob("*"):
        file.unlink()
    (world.home / "index.db").unlink()
    async with world.inside(session=False) as client:
        (row,) = await listed(client, cwd=str(world.cwd))
        assert (row["sessionId"], row["title"]) == ("0", "say one; tool t; tool-done t")
        await client.load_session("0", world.cwd)
        assert client.texts("0") == ["one"]
        assert await client.prompt("history") == {"stopReason": "end_turn"}
        replayed = shown(client)
        assert [r["sessionId"] for r in await listed(client)] == ["0"]
    # From then on it is ours.
    async with world.inside(session=False) as client:
        await client.load_session("0", world.cwd)
        users = [u for u in shown(client) if u["sessionUpdate"] == "user_message_chunk"]
        assert len(users) == 2
        assert client.texts("0") == [u["content"]["text"] for u in replayed if _is_said(u)]
        setup = {"sessionId": ours, "cwd": str(world.cwd), "mcpServers": []}
        await fails(client, "session/load", -32002, **setup)
        assert keeps(await client.request("session/delete", {"sessionId": "0"}))
        assert await listed(client) == []


def _is_said(update: Message) -> bool:
    return bool(update["sessionUpdate"] == "agent_message_chunk")


@pytest.mark.hazard("P1", "Q9")
async def test_close_answers_the_prompts_cancelled_first_and_leaves_nothing_of_the_session(
    world: World,
) -> None:
    async with world.inside("never-ends", close_grace=0.2) as client:
        other = client.session_id
        session = await client.new_session(world.cwd)
        prompts = [client.send_prompt("say one; child; gate g"), client.send_prompt("say never")]
        await world.gates.reached("g")
        closing = client.send_request("session/close", {"sessionId": session})
        assert (await client.answer_to(closing))["result"] == {}
        answers = [m["id"] for m in client.recording.incoming() if "method" not in m]
        assert set(answers[-3:-1]) == set(prompts)
        for prompt in prompts:
            assert await stopped(client, prompt) == "cancelled"
        assert world.log.pids()[1] not in marked(world.mark)
        block = {"type": "text", "text": "say never"}
        await fails(client, "session/prompt", -32002, sessionId=session, prompt=[block])
        assert await client.prompt("say other", other) == {"stopReason": "end_turn"}
        # It can be loaded again.
        await client.load_session(session, world.cwd)
        assert [text.strip() for text in client.texts(session)[-2:]] == [
            "one",
            "[acp-bridge] Stopped.",
        ]
        assert await client.prompt("history") == {"stopReason": "end_turn"}
    assert world.log.received("session/close")
    await all_gone(world.mark)


async def test_delete_of_a_live_session_ends_it_and_it_is_listed_no_more(world: World) -> None:
    async with world.inside() as client:
        session = client.session_id
        prompt = client.send_prompt("say one; gate g")
        await world.gates.reached("g")
        assert keeps(await client.request("session/delete", {"sessionId": session}))
        assert await stopped(client, prompt) == "cancelled"
        assert await listed(client) == []
        setup = {"sessionId": session, "cwd": str(world.cwd), "mcpServers": []}
        await fails(client, "session/load", -32002, **setup)
        assert list((world.home / "sessions").glob(f"{session}*")) == []


@pytest.mark.hazard("P12", "K3")
async def test_a_session_that_a_bridge_which_does_not_listen_has_open_is_not_deleted(
    world: World,
) -> None:
    async with world.inside(listen=False) as client:
        await client.prompt("say one")
        async with world.inside(session=False, lease_timeout=0.2) as other:
            about = {"sessionId": client.session_id}
            refusal = await fails(other, "session/delete", -32600, **about)
            assert "open in another acp-bridge" in str(refusal)
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
        assert len(await listed(client)) == 1


@pytest.mark.hazard("P12", "R2")
async def test_a_session_cannot_be_loaded_under_the_agents_id_when_it_has_one_of_ours(
    world: World,
) -> None:
    async with world.inside("writer-lock") as client:
        await client.prompt("say one")
        setup = {"sessionId": "0", "cwd": str(world.cwd), "mcpServers": []}
        await fails(client, "session/load", -32002, **setup)
        assert len(await listed(client)) == 1


async def test_a_session_that_only_the_agent_knows_is_loaded_though_no_process_runs(
    world: World,
) -> None:
    async with world.inside() as client:
        await client.prompt("say one")
    for file in (*(world.home / "sessions").glob("*"), world.home / "index.db"):
        file.unlink()
    async with world.inside() as client:
        await client.request("session/close", {"sessionId": client.session_id})
        await client.load_session("0", world.cwd)
        assert client.texts("0") == ["one"]


AGENT = """
CAN = {"loadSession": True, "sessionCapabilities": CAPABILITIES}
def session_list(id, params):
    if not params.get("cwd"):
        return {"error": {"code": -32602, "message": "cwd is missing"}}
    return {"sessions": [{"sessionId": "theirs", "cwd": params["cwd"]}]}
def session_load(id, params):
    if params["sessionId"] != "theirs":
        return {"error": {"code": -32603, "message": "Invalid session identifier"}}
    update("theirs", **text("said before"))
    return {}
"""


@pytest.mark.hazard("R2")
@pytest.mark.parametrize("lists", [True, False])
async def test_a_session_of_an_agent_that_lists_one_folder_only_or_not_at_all_is_loaded(
    world: World, lists: bool
) -> None:
    capabilities = '{"list": {}}' if lists else "{}"
    agent = tiny_agent(world.cwd, AGENT.replace("CAPABILITIES", capabilities))
    async with world.inside(command=agent, session=False) as client:
        assert len(await listed(client, cwd=str(world.cwd))) == lists
        everywhere = await client.request("session/list", {})
        assert [row["sessionId"] for row in everywhere["sessions"]] == ["theirs"] * lists
        assert ("one folder at a time" in str(everywhere)) == lists
        setup = {"sessionId": "unknown", "cwd": str(world.cwd), "mcpServers": []}
        await fails(client, "session/load", -32002 if lists else -32603, **setup)
        await client.load_session("theirs", world.cwd)
        assert client.texts("theirs") == ["said before"]
        assert await client.prompt("hello") == {"stopReason": "end_turn"}
        assert [row["sessionId"] for row in await listed(client)] == ["theirs"]


async def test_a_session_has_the_title_of_its_first_prompt(world: World) -> None:
    async with world.inside() as client:
        client.send_together(
            client.prompt_message("say first", 100), client.prompt_message("say second", 101)
        )
        await client.answer_to(100)
        await client.answer_to(101)
        listed = await client.request("session/list", {"cwd": str(world.cwd)})
        assert listed["sessions"][0]["title"] == "say first"
