"""What an agent of version 2 says and version 1 can't say reaches a client of version 2."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.client import RecordingClient
from tests.support.waiting import until
from tests.whole.bridge_support import World, kill_agent
from tests.whole.test_bridge_v2_agent import v2_agent
from tests.whole.v2_client import v2_client

pytestmark = pytest.mark.process
Json = dict[str, Any]

#: what the bridge tells by itself.
_OWN = (
    *("state_update", "user_message", "user_message_chunk"),
    *("available_commands_update", "config_option_update"),
)


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def update(kind: str, /, **members: Any) -> Json:
    return {"sessionUpdate": kind, **members}


def piece(call: str, said: str) -> Json:
    content = {"type": "content", "content": text(said)}
    return update("tool_call_content_chunk", toolCallId=call, content=content)


def output(data: bytes) -> Json:
    encoded = base64.b64encode(data).decode()
    return update("terminal_output_chunk", terminalId="t", data=encoded)


_PATCH: Json = {
    "type": "diff",
    "changes": [{"operation": "move", "oldPath": "/a", "path": "/b"}],
    "patch": {"format": "git_patch", "text": "diff --git a/a b/b\nrename from a\nrename to b\n"},
}
_ENTRY: Json = {"content": "one", "priority": "high", "status": "cancelled"}
_TERMINAL: Json = {"type": "terminal", "terminalId": "t"}
CONVERSATIONS: dict[str, list[Json]] = {
    "a message that is told again with another text, and cleared": [
        update("agent_message", messageId="m", content=[text("one")]),
        update("agent_message", messageId="m", content=[text("two")]),
        update("agent_message", messageId="m", content=[]),
        update("agent_message_chunk", messageId="m", content=text("three")),
    ],
    "a card whose title and output are cleared, and which is cancelled": [
        update("tool_call_update", toolCallId="c", title="Run", capabilities={"cancel": {}}),
        update("tool_call_update", toolCallId="c", status="paused", rawOutput={"a": 1}),
        update("tool_call_update", toolCallId="c", title=None, rawOutput=None),
        update("tool_call_update", toolCallId="c", status="cancelled", capabilities=None),
    ],
    "a card that version 1 can show, too": [
        update("tool_call_update", toolCallId="c", title="Run", kind="execute", status="pending"),
        update("tool_call_update", toolCallId="c", status="completed"),
    ],
    "a file that is moved": [
        update(
            "tool_call_update", toolCallId="c", title="Move", content=[_PATCH], status="pending"
        ),
        update("tool_call_update", toolCallId="c", status="completed"),
    ],
    "a card of another kind": [
        update("tool_call_update", toolCallId="c", title="X", kind="_deploy", status="_waits"),
        update("tool_call_update", toolCallId="c", status="failed"),
    ],
    "a plan in Markdown": [
        update("plan_update", plan={"type": "markdown", "planId": "m", "content": "# One"}),
        update("plan_update", plan={"type": "markdown", "planId": "m", "content": "# Two"}),
    ],
    "two plans": [
        update("plan_update", plan={"type": "items", "planId": "a", "entries": [_ENTRY]}),
        update("plan_update", plan={"type": "items", "planId": "b", "entries": []}),
    ],
}
PIECES = [
    update("tool_call_update", toolCallId="c", title="Run", content=[_TERMINAL], status="pending"),
    update("terminal_update", terminalId="t", command="make", cwd="/w"),
    *(output(b"line %d\n" % number) for number in range(50)),
    update("terminal_update", terminalId="t", exitStatus={"exitCode": 0}),
    *(piece("c", f"word {number} ") for number in range(50)),
    update("tool_call_update", toolCallId="c", status="completed"),
]


class Editor:
    """A client of version 2 in a session."""

    def __init__(self, client: RecordingClient, world: World) -> None:
        self.client, self.world = client, world
        self.session = client.session_id

    async def resume(self, **more: Any) -> list[Json]:
        """What a resume from the beginning shows."""
        since = len(self.client.recording)
        params = {"sessionId": self.session, "cwd": str(self.world.cwd), **more}
        await self.client.request("session/resume", {**params, "replayFrom": {"type": "start"}})
        return self.told(since)

    async def plays(self, told: list[Json]) -> list[Json]:
        """What a turn shows in which the agent says all this."""
        path = self.world.cwd / "told.json"
        path.write_text(json.dumps(told))
        return await self.runs(f"play {path}")

    async def runs(self, words: str) -> list[Json]:
        since = len(self.client.recording)
        params = {"sessionId": self.session, "prompt": [text(words)]}
        await self.client.request("session/prompt", params)
        await self.client.until(_stops, since=since)
        return self.told(since)

    def told(self, since: int = 0) -> list[Json]:
        """The updates since then but those of the bridge itself; of terminals with plain ids."""
        found = self.client.updates(since=since)
        return [_plain(each) for each in found if each["sessionUpdate"] not in _OWN]


def _stops(message: Json) -> bool:
    told = message.get("params", {}).get("update", {})
    return told.get("sessionUpdate") == "state_update" and "stopReason" in told


def _plain(told: Any) -> Any:
    """The same with the agent's ids of its terminals."""
    if isinstance(told, list):
        return [_plain(each) for each in told]
    if not isinstance(told, dict):
        return told
    plain = {name: _plain(value) for name, value in told.items()}
    if "terminalId" in plain:
        plain["terminalId"] = plain["terminalId"].rpartition("/")[2]
    return plain


@asynccontextmanager
async def editor(world: World) -> AsyncIterator[Editor]:
    """A bridge between a client and an agent of version 2, with a session."""
    async with v2_client(world) as client:
        yield Editor(client, world)


@pytest.mark.parametrize("told", CONVERSATIONS.values(), ids=CONVERSATIONS.keys())
async def test_it_is_told_at_once_and_in_each_replay_what_the_agent_has_said(
    world: World, told: list[Json]
) -> None:
    async with editor(world) as it:
        shown = await it.plays(told)
        assert shown == told
        *replayed, end = await it.resume()
        assert (replayed, end["sessionUpdate"]) == (told, "replay_complete")


async def test_the_pieces_of_contents_and_terminals_are_told_one_by_one_and_recorded_joined(
    world: World,
) -> None:
    async with editor(world) as it:
        assert await it.plays(PIECES) == PIECES
        session = it.session
    async with editor(world) as it:  # joined, by now
        it.session = session
        replayed = await it.resume()
    kinds = [each["sessionUpdate"] for each in replayed]
    assert kinds.count("terminal_output_chunk") < 10
    assert kinds.count("tool_call_content_chunk") < 10
    shown = [each for each in replayed if each["sessionUpdate"] == "terminal_output_chunk"]
    joined = b"".join(base64.b64decode(each["data"]) for each in shown)
    assert joined == b"".join(b"line %d\n" % number for number in range(50))
    pieces = [each for each in replayed if each["sessionUpdate"] == "tool_call_content_chunk"]
    said = "".join(each["content"]["content"]["text"] for each in pieces)
    assert said == "".join(f"word {number} " for number in range(50))


async def test_a_notice_is_told_when_it_is_said_and_not_again(world: World) -> None:
    notice = update("notice", severity="warning", title="Hot", description="It is hot.")
    async with editor(world) as it:
        assert await it.plays([notice]) == [notice]
        assert [each["sessionUpdate"] for each in await it.resume()] == ["replay_complete"]


async def test_a_question_comes_in_the_words_of_the_agent(world: World) -> None:
    asked: Json = {
        "title": "Push?",
        "description": "To the main branch.",
        "subject": {"type": "command", "command": "git push", "cwd": "/w", "toolCallId": "c"},
    }
    async with editor(world) as it:
        await it.plays([update("tool_call_update", toolCallId="c", title="Push", status="pending")])
        (it.world.cwd / "asked.json").write_text(json.dumps(asked))
        since = len(it.client.recording)
        params = {"sessionId": it.session, "prompt": [text(f"ask {it.world.cwd / 'asked.json'}")]}
        await it.client.request("session/prompt", params)
        request = await it.client.until_request("session/request_permission")
        told = {name: request["params"][name] for name in asked}
        assert told == asked
        assert "_meta" not in request["params"]
        await it.client.until(_stops, since=since)


async def test_ids_that_a_second_process_gives_once_more_are_others_to_the_client(
    world: World,
) -> None:
    told = [
        update("tool_call_update", toolCallId="c", title="Run", content=[_TERMINAL]),
        update("terminal_update", terminalId="t", command="make"),
        update("terminal_update", terminalId="t", exitStatus={"exitCode": 0}),
        update("tool_call_update", toolCallId="c", status="cancelled"),
    ]
    world.repeats = True
    async with editor(world) as it:
        first = await it.plays(told)
        ids = {each["terminalId"] for each in it.client.updates() if "terminalId" in each}
        await kill_agent(world, it.client)
        second = await it.plays(told)
        ids |= {each["terminalId"] for each in it.client.updates() if "terminalId" in each}
    calls = {each["toolCallId"] for each in first + second if "toolCallId" in each}
    assert len(calls) == len(ids) == 2


async def test_a_terminal_that_dies_with_its_agent_has_an_end(world: World) -> None:
    async with editor(world) as it:
        since = len(it.client.recording)
        path = world.cwd / "told.json"
        told = [update("terminal_update", terminalId="t", command="sleep")]
        path.write_text(json.dumps(told))
        params = {"sessionId": it.session, "prompt": [text(f"play {path}; gate g")]}
        await it.client.request("session/prompt", params)
        await world.gates.reached("g")
        await kill_agent(world, it.client)
        await it.client.until(_stops, since=since)
        await until(lambda: any("exitStatus" in each for each in it.told(since)))
        ended = [each for each in await it.resume() if "exitStatus" in each]
        assert [each["terminalId"] for each in ended] == ["t"]


async def test_a_client_of_version_1_beside_it_gets_nothing_of_that(world: World) -> None:
    async with world.bridge(command=v2_agent(), options=("--agent-protocol", "2")) as client:
        path = world.cwd / "told.json"
        path.write_text(json.dumps([each for told in CONVERSATIONS.values() for each in told]))
        await client.prompt(f"play {path}")
        await client.load_session(client.session_id, world.cwd)
        said = json.dumps(client.updates())
        assert "acp_bridge_said" not in said
        assert '"said"' not in said
        assert "planId" not in said
