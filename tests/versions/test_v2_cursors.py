"""Clients of version 2 that come back at a cursor: the messages that go on have the same ids."""

from pathlib import Path

import pytest

from tests.core.bridge.resuming import cursor_in
from tests.core.sessions.agent import Json, until
from tests.versions.v2_editor import CWD, HELLO, V2Bench, V2Editor, v2_bench

CURSORS: Json = {**HELLO["capabilities"], "_meta": {"acp_bridge": {"cursors": True}}}
CHUNKS = ("agent_message_chunk", "agent_thought_chunk")


async def come(here: V2Bench) -> V2Editor:
    """Let a client of version 2 join that takes cursors."""
    client = V2Editor()
    here.it.context.tasks.start_soon(here.it.bridge.join, client.read, client.way)
    await client.ask("initialize", {**HELLO, "capabilities": CURSORS})
    return client


async def back(here: V2Bench, session_id: str, cursor: object) -> V2Editor:
    """Let a client come back at a cursor."""
    client = await come(here)
    replay = {"type": "_acp_bridge_after", "cursor": cursor}
    await client.ask("session/resume", {"sessionId": session_id, **CWD, "replayFrom": replay})
    return client


def shown(client: V2Editor) -> list[Json]:
    """Return the params of the updates that have cursors."""
    return [m["params"] for m in client.asked("session/update") if cursor_in(m["params"])]


def messages(told: list[Json]) -> list[tuple[str, str]]:
    """Return the messages in some updates: the id of each, and its text."""
    texts: dict[str, str] = {}
    for update in (params["update"] for params in told):
        if "messageId" in update and isinstance(update.get("content"), dict):
            message = update["messageId"]
            texts[message] = texts.get(message, "") + update["content"]["text"]
    return list(texts.items())


@pytest.mark.hazard("N5", "X1", "X3")
async def test_a_message_goes_on_under_its_id_wherever_it_was_cut(tmp_path: Path) -> None:
    async with v2_bench(tmp_path) as here:
        session_id = await here.new()
        gate = here.agent.stops_at("session/prompt")
        client = await come(here)
        await client.resumed(session_id)
        asked = here.editor.prompt(session_id, "hello")
        await until(lambda: gate.reached)
        (process,) = here.agent.processes
        for text, kind in (("", 0), ("a", 0), ("b", 0), ("c", 1), ("d", 1), ("e", 0)):
            content = {"type": "text", "text": text}
            process.shows("agent-1", {"sessionUpdate": CHUNKS[kind], "content": content})
        gate.open()
        await here.editor.result(asked)
        await here.editor.idle(session_id)
        await here.it.settled()
        live = shown(client)
        assert [text for _, text in messages(live)] == ["hello", "ab", "cd", "e", "echo hello"]
        for at in range(len(live)):
            again = await back(here, session_id, cursor_in(live[at]))
            assert messages([*live[: at + 1], *shown(again)]) == messages(live)
            kinds = [each["sessionUpdate"] for each in again.updates(session_id)]
            assert kinds.count("replay_complete") == 1
            assert kinds[-1] == "state_update"


@pytest.mark.hazard("N5")
@pytest.mark.parametrize(
    "replay",
    [
        {"type": "_acp_bridge_after"},
        {"type": "_acp_bridge_after", "cursor": 3},
        {"type": "_acp_bridge_after", "cursor": "not one"},
        {"type": "_another"},
    ],
)
async def test_a_place_that_is_none_is_refused(tmp_path: Path, replay: Json) -> None:
    async with v2_bench(tmp_path, judged=False) as here:
        session_id = await here.new()
        given = {"sessionId": session_id, **CWD, "replayFrom": replay}
        error = await here.editor.refused("session/resume", given)
        assert error.code == -32602


async def test_who_has_no_cursors_gets_none(tmp_path: Path) -> None:
    async with v2_bench(tmp_path) as here:
        session_id = await here.new()
        await here.editor.ran(session_id, "hello")
        assert shown(here.editor) == []
