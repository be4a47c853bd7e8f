"""Half of a surrogate pair, which JSON allows and UTF-8 does not, in every text of a request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import acp.meta
import pytest

from acp_bridge.core.protocol import OWN_METHODS, STEERING
from acp_bridge.versions import v2
from tests.support.client import RecordingClient
from tests.support.recording import Message
from tests.support.v2_schema import HELLO
from tests.whole.bridge_support import TELL_ACCEPTED, World, accepted, fails
from tests.whole.test_bridge_list import listed

pytestmark = pytest.mark.process

LONE = "\ud800"
DONE = {"stopReason": "end_turn"}
WORDS = [{"type": "text", "text": "say one"}]
#: Nothing of the inside of the bridge.
INSIDE = ("index.db", "codec", "utf-8", "the log has more", "sqlite")
#: Notifications, which have no answer.
NOTIFIED = {"session/cancel"} | {
    f"document/did{what}" for what in ("Open", "Change", "Close", "Save", "Focus")
}


def requests(session: str, cwd: str) -> list[tuple[str, Message]]:
    """Every request of both versions, with a text wherever one may stand."""
    of, where = {"sessionId": session}, {"cwd": cwd, "mcpServers": []}
    ends = [each for each in OWN_METHODS if each.endswith(("/pause", "/hold", "/close"))]
    own = [each for each in OWN_METHODS if each not in ends]
    ends += ["session/close", "session/delete"]
    keyed = {"acp_bridge": {"promptKey": "key", "delivery": "queue"}}
    server = {"name": "n", "command": "/c", "args": ["a"], "env": [{"name": "N", "value": "v"}]}
    after = {"_meta": {"acp_bridge": {"after": "cursor"}}}
    since = {"type": "_acp_bridge_after", "cursor": "c"}
    login, item = {"methodId": "key"}, {**of, "promptId": "p", "before": "q", "prompt": WORDS}
    return [
        ("session/new", {**where, "additionalDirectories": [cwd], "_meta": {"x": "y"}}),
        ("session/new", {"cwd": cwd, "mcpServers": [server]}),
        ("session/load", {**of, **where, "additionalDirectories": [cwd]}),
        ("session/resume", {**of, **where}),
        ("session/resume", {**of, **where, **after}),
        ("session/resume", {**of, **where, "replayFrom": since}),
        ("session/fork", {**of, **where}),
        ("session/list", {"cwd": cwd}),
        *(("session/list", {"cursor": cursor}) for cursor in ("j:x", "a:x")),
        ("session/prompt", {**of, "prompt": WORDS, "messageId": "m"}),
        ("session/prompt", {**of, "prompt": [{**WORDS[0], "text": "another"}], "_meta": keyed}),
        ("session/prompt", {**of, "prompt": WORDS, "idempotencyKey": "k"}),
        ("session/prompt", {**of, "prompt": [{"type": "text", "text": "/queue title x"}]}),
        ("session/prompt", {**of, "prompt": [{"type": "text", "text": "/queue ask x"}]}),
        ("session/set_mode", {**of, "modeId": "edit"}),
        ("session/set_config_option", {**of, "configId": "effort", "value": "low"}),
        *((method, login) for method in ("authenticate", "logout", v2.AUTH_LOGIN, v2.AUTH_LOGOUT)),
        *((f"providers/{what}", {"providerId": "p"}) for what in ("list", "set", "disable")),
        *((f"nes/{what}", {**of, "id": "x"}) for what in ("start", "suggest", "close")),
        *((f"nes/{what}", {**of, "id": "x"}) for what in ("accept", "reject")),
        ("mcp/message", {"connectionId": "x"}),
        (STEERING, {**of, "prompt": WORDS}),
        (v2.CANCEL_TOOL_CALL, {**of, "toolCallId": "t"}),
        (v2.CANCEL_TERMINAL, {**of, "terminalId": "t"}),
        *((method, {**item, "title": "t", "question": "q", "toolCallId": "t"}) for method in own),
        *((method, of) for method in ends),
    ]


def test_the_requests_are_those_that_there_are() -> None:
    there = {method for method, _ in requests("s", "/w")}
    known = set(acp.meta.AGENT_METHODS.values()) | set(OWN_METHODS)
    assert known - there == {"initialize", *NOTIFIED}


def texts_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Give the path of each text in a value."""
    if isinstance(value, str):
        yield path
    for key, each in value.items() if isinstance(value, dict) else ():
        yield from texts_in(each, (*path, key))
    for key, each in enumerate(value) if isinstance(value, list) else ():
        yield from texts_in(each, (*path, key))


def spoiled(value: Any, path: tuple[Any, ...]) -> Any:
    """Return a value with half of a surrogate pair in the text at this path."""
    if not path:
        return value + LONE
    key, *rest = path
    if isinstance(value, dict):
        return {**value, key: spoiled(value[key], tuple(rest))}
    return [spoiled(each, tuple(rest)) if at == key else each for at, each in enumerate(value)]


async def is_well_answered(
    client: RecordingClient, method: str, params: Message, path: Any
) -> None:
    """Send a spoiled request, and look at its answer."""
    answer = await client.answer_to(client.send_request(method, spoiled(params, path)), 20)
    error = answer.get("error", {"code": 0, "message": ""})
    told = f"{method} {path}: {error}"
    assert error["code"] in (0, -32600, -32601, -32602, -32002), told
    assert not any(word in str(error) for word in INSIDE), told
    if path[0] in ("sessionId", "cwd", "additionalDirectories") and error["code"] != -32601:
        where = ".".join(map(str, path))
        expected = f"{where}: must be Unicode, without half of a surrogate pair"
        assert (error["code"], error["message"]) == (-32602, expected), told


@pytest.mark.hazard("P16.3", "Q9")
@pytest.mark.parametrize("version", [1, 2])
async def test_each_is_answered_without_a_word_of_the_inside_and_the_session_lives(
    world: World, version: int
) -> None:
    world.repeats = True
    async with world.inside(initialized=version == 1, session=False) as client:
        if version == 2:
            await client.request("initialize", HELLO)
        opened = await client.request("session/new", {"cwd": str(world.cwd), "mcpServers": []})
        client.session_id = session = opened["sessionId"]
        for method, params in requests(session, str(world.cwd)):
            for path in texts_in(params):
                await is_well_answered(client, method, params, path)
        client.send_prompt("say alive")
        await world.answered("say alive")
        assert session in [row["sessionId"] for row in await listed(client)]
    assert b"journal.failed" not in client.stderr


@pytest.mark.hazard("K1")
async def test_such_words_run_title_their_session_wait_are_changed_and_come_back(
    world: World,
) -> None:
    async with world.inside(capabilities=TELL_ACCEPTED) as client:
        session = client.session_id
        assert await client.prompt(f"say first {LONE}") == DONE
        (row,) = await listed(client)
        assert row["title"] == "say first ?"
        await client.request("_acp_bridge/hold", {"sessionId": session})
        waits = client.send_prompt(f"say waits {LONE}")
        await accepted(client, waits)
        (prompt,) = (await client.request("_acp_bridge/queue/list", {"sessionId": session}))[
            "prompts"
        ]
        words = [{"type": "text", "text": f"say other {LONE}"}]
        changed = {"sessionId": session, "promptId": prompt["promptId"], "prompt": words}
        assert await client.request("_acp_bridge/queue/edit", changed) == {}
        await client.request("_acp_bridge/go", {"sessionId": session})
        assert (await client.answer_to(waits))["result"] == DONE
        title = {"sessionId": session, "title": f"mine {LONE}"}
        assert await client.request("_acp_bridge/title", title) == {"title": "mine ?"}
    assert b"journal.failed" not in client.stderr
    assert world.log.prompts() == [f"say first {LONE}", f"say other {LONE}"]
    async with world.inside(session=False) as client:
        assert [row["title"] for row in await listed(client)] == ["mine ?"]
        await client.load_session(session, world.cwd)
        said = [update["content"]["text"] for update in client.updates() if "content" in update]
        assert f"say first {LONE}" in said
        assert f"say other {LONE}" in said
    code, found, _ = await world.command("sessions", "--search", "other")
    assert (code, session[:8] in found) == (0, True)


async def test_such_a_name_of_a_client_goes_to_the_agent_as_it_is(world: World) -> None:
    name = {"name": f"editor {LONE}", "version": f"1{LONE}"}
    async with world.inside(initialized=False, session=False) as client:
        hello = {"protocolVersion": 1, "clientCapabilities": {}, "clientInfo": name}
        await client.request("initialize", hello)
        await client.new_session(world.cwd)
        assert await client.prompt("say one") == DONE
    assert world.log.received("initialize")[0]["params"]["clientInfo"] == name


async def test_a_folder_with_a_null_character_is_no_folder(world: World) -> None:
    async with world.inside() as client:
        setup = {"cwd": "/w\0x", "mcpServers": []}
        error = await fails(client, "session/new", -32602, **setup)
        assert error.message == "cwd: no folder has a null character in its path"
        await fails(client, "session/list", -32602, cwd="/w\0x")
        await fails(
            client,
            "session/new",
            -32602,
            **{**setup, "cwd": "/w", "additionalDirectories": ["/\0"]},
        )
