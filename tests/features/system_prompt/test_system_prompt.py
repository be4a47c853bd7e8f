"""A system prompt that a client gives stays with the session: every process is given it."""

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.protocol import VERSION_2
from acp_bridge.trace.events import both_ways
from acp_bridge.versions.agent_handshake import initialized_to_v1
from tests.core.bridge.remote import remote_bench
from tests.core.sessions.agent import ABLE, Agent, Json, Process, until
from tests.core.sessions.bench import HELLO, Bench, bench
from tests.core.sessions.world import SETUP
from tests.versions.v2_editor import HELLO as V2_HELLO
from tests.versions.v2_editor import V2Editor

CAN: Json = {"mode": {"override": {}}}


def agent(can: Json | None = CAN) -> Agent:
    able = {**ABLE, "fork": {}} | ({} if can is None else {"systemPrompt": can})
    made = Agent(able=able)

    async def fork(process: Process, params: Json) -> Json:
        return {"sessionId": f"forked-{len(made.params('session/fork'))}"}

    made.script["session/fork"] = fork
    return made


def told(text: str, mode: str = "append") -> Json:
    return {"systemPrompt": {"mode": mode, "content": [{"type": "text", "text": text}]}}


_NO_TEXTS = [
    {"mode": "append", "content": [block]}
    for block in ({"type": "image", "data": ""}, {"type": "text", "text": 1}, "be kind")
]
ONE, TWO = told("one"), told("two", "override")


def given(it: Bench, method: str) -> list[Any]:
    """Return the system prompt in each request of this method that the agent got."""
    return [params.get("systemPrompt") for params in it.agent.params(method)]


async def begun(it: Bench, setup: Json) -> str:
    """Make a session in which a turn was run; returns its id."""
    session_id = str((await it.editor.ask("session/new", {**SETUP, **setup}))["sessionId"])
    assert await it.editor.stop_reason(it.editor.prompt(session_id, "hello")) == "end_turn"
    return session_id


async def test_a_process_that_takes_the_place_of_another_is_given_it(tmp_path: Path) -> None:
    async with bench(tmp_path, agent()) as it:
        session_id = await begun(it, ONE)
        it.agent.living[-1].dies()
        assert await it.editor.stop_reason(it.editor.prompt(session_id, "again")) == "end_turn"
        assert given(it, "session/new") == given(it, "session/resume") == [ONE["systemPrompt"]]


@pytest.mark.parametrize("how", ["load", "resume"])
async def test_a_later_bridge_gives_it_though_the_client_does_not(tmp_path: Path, how: str) -> None:
    async with bench(tmp_path, agent()) as it:
        session_id = await begun(it, ONE)
    async with bench(tmp_path, agent()) as it:
        await it.editor.ask(f"session/{how}", {**SETUP, "sessionId": session_id})
        await until(lambda: given(it, "session/resume") == [ONE["systemPrompt"]])
        assert await it.editor.stop_reason(it.editor.prompt(session_id, "again")) == "end_turn"


@pytest.mark.parametrize("how", ["load", "resume"])
@pytest.mark.parametrize("live", [True, False])
async def test_a_load_with_another_one_replaces_it_and_the_process(
    tmp_path: Path, how: str, live: bool
) -> None:
    async with bench(tmp_path, agent()) as it:
        session_id = await begun(it, ONE)
        about = {**SETUP, "sessionId": session_id}
        if not live:
            await it.editor.ask("session/close", {"sessionId": session_id})
        await it.editor.ask(f"session/{how}", {**about, **TWO})
        assert await it.editor.stop_reason(it.editor.prompt(session_id, "again")) == "end_turn"
        assert given(it, "session/resume") == [TWO["systemPrompt"]]
        # One that says the same, or nothing of it, replaces nothing.
        for more in (TWO, {}):
            await it.editor.ask(f"session/{how}", {**about, **more})
            assert await it.editor.stop_reason(it.editor.prompt(session_id, "on")) == "end_turn"
        assert len(it.agent.params("session/resume")) == 1


async def test_a_fork_has_that_of_its_source_or_its_own(tmp_path: Path) -> None:
    async with bench(tmp_path, agent()) as it:
        session_id = await begun(it, ONE)
        for more in ({}, TWO):
            await it.editor.ask("session/fork", {**SETUP, "sessionId": session_id, **more})
        assert given(it, "session/fork") == [ONE["systemPrompt"], TWO["systemPrompt"]]
        it.agent.living[0].dies()
        assert await it.editor.stop_reason(it.editor.prompt(session_id, "again")) == "end_turn"
        assert given(it, "session/resume")[-1] == ONE["systemPrompt"]


async def test_a_client_that_joins_may_say_the_same_and_nothing_else(tmp_path: Path) -> None:
    async with bench(tmp_path, agent()) as it:
        session_id = await begun(it, ONE)
        other = await it.joined()
        about = {**SETUP, "sessionId": session_id}
        error = await other.refused("session/load", {**about, **TWO})
        assert (error.code, error.message) == (
            -32602,
            "systemPrompt: the session is open with another one",
        )
        for more in (ONE, {}):
            await other.ask("session/load", {**about, **more})
        await other.ask("_acp_bridge/attach", {"sessionId": session_id})
        assert len(it.agent.params("session/resume")) == 0


@pytest.mark.parametrize(
    "wrong", [None, "be kind", {"mode": "append"}, {"content": []}, *_NO_TEXTS]
)
async def test_what_is_no_system_prompt_is_refused(tmp_path: Path, wrong: Any) -> None:
    async with bench(tmp_path, agent()) as it:
        error = await it.editor.refused("session/new", {**SETUP, "systemPrompt": wrong})
        assert error.code == -32602
        assert it.agent.params("session/new") == []


async def test_a_mode_that_the_agent_lacks_is_refused_before_a_load_has_begun(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, agent({})) as it:
        session_id = await begun(it, ONE)
        about = {**SETUP, "sessionId": session_id}
        error = await it.editor.refused("session/load", {**about, **TWO})
        assert (error.code, "mode" in error.message) == (-32602, True)
        await it.editor.ask("session/load", about)


async def test_an_agent_that_says_nothing_of_it_gets_it_as_it_is(tmp_path: Path) -> None:
    async with bench(tmp_path, agent(None)) as it:
        await begun(it, TWO)
        assert given(it, "session/new") == [TWO["systemPrompt"]]


@pytest.mark.hazard("N6.1")
@pytest.mark.parametrize("may", ["look", "approve", "all"])
async def test_a_remote_login_needs_all_rights_to_set_one(tmp_path: Path, may: str) -> None:
    async with remote_bench(tmp_path, agent()) as it:
        session_id = await it.new()
        client = await it.remote(may)
        about = {**it.setup(), "sessionId": session_id, **ONE}
        if may == "all":
            await client.ask("session/load", about)
            return
        error = await client.refused("session/load", about)
        assert error.message == "this login may not set a system prompt"
        assert all(each is None for each in given(it, "session/resume"))


async def test_a_client_of_version_2_is_told_of_the_ability_and_has_it(tmp_path: Path) -> None:
    editor = V2Editor(judged=False)  # by a schema that has no drafts
    async with bench(tmp_path, agent(), initialized=False, editor=editor) as it:
        answer = await editor.ask("initialize", V2_HELLO)
        assert answer["capabilities"]["session"]["systemPrompt"] == CAN
        await editor.ask("session/new", {"cwd": "/w", **ONE})
        assert given(it, "session/new") == [ONE["systemPrompt"]]


def test_the_ability_of_an_agent_of_version_2_is_told_in_version_1() -> None:
    answer = {
        "protocolVersion": VERSION_2,
        "info": {"name": "a", "version": "1"},
        "capabilities": {"session": {"systemPrompt": CAN}},
    }
    able = initialized_to_v1(answer)["agentCapabilities"]["sessionCapabilities"]
    assert able["systemPrompt"] == CAN


async def test_the_first_client_is_told_of_the_ability_as_the_agent_has_it(tmp_path: Path) -> None:
    async with bench(tmp_path, agent(), initialized=False) as it:
        answer = await it.editor.ask("initialize", HELLO)
        assert answer["agentCapabilities"]["sessionCapabilities"]["systemPrompt"] == CAN


def test_a_trace_has_its_mode_and_not_its_words() -> None:
    coming, _ = both_ways("Client")
    params = (
        b'{"cwd":"/w","systemPrompt":{"mode":"append","content":[{"type":"text","text":"key"}]}}'
    )
    line = b'{"jsonrpc":"2.0","id":1,"method":"session/new","params":%b}\n' % params
    (event,) = coming.feed(line, 0.0)
    assert b'"systemPrompt":{"mode":"append"}' in event
    assert b"key" not in event


async def test_an_attach_with_another_one_is_refused(tmp_path: Path) -> None:
    async with bench(tmp_path, agent()) as it:
        session_id = await begun(it, ONE)
        other = await it.joined()
        about = {"sessionId": session_id}
        assert (await other.refused("_acp_bridge/attach", {**about, **TWO})).code == -32602
        await other.ask("_acp_bridge/attach", {**about, **ONE})


def test_a_trace_has_no_words_of_one_that_an_agent_repeats_in_an_update() -> None:
    coming, _ = both_ways("Agent")
    update = b'{"sessionUpdate":"x","_meta":{"systemPrompt":{"content":[{"text":"key"}]}}}'
    params = b'{"sessionId":"s","update":%b}' % update
    line = b'{"jsonrpc":"2.0","method":"session/update","params":%b}\n' % params
    assert b"key" not in b"".join(coming.feed(line, 0.0))
