"""A client of version 2 at a bridge that has clients of both versions."""

from pathlib import Path

import pytest

from tests.core.bridge.keyed import session
from tests.core.bridge.remote import remote_bench
from tests.core.bridge.test_bound_stop import bound
from tests.core.bridge.test_lagging import slow
from tests.core.bridge.test_names import NAME, attached
from tests.core.bridge.test_names_and_questions import question
from tests.core.bridge.test_questions import PERMISSION, chosen, turn
from tests.core.sessions.agent import Agent, Json, until
from tests.core.sessions.bench import HELLO, bench
from tests.versions.test_v2_cursors import CURSORS, messages, shown
from tests.versions.test_v2_sent_again import ran, send
from tests.versions.v2_editor import HELLO as V2_HELLO
from tests.versions.v2_editor import V2Editor, v2_bench

pytestmark = pytest.mark.hazard("N2")


async def test_a_stop_of_version_2_for_a_prompt_that_is_not_known_withdraws_no_other(
    tmp_path: Path,
) -> None:
    gate = (agent := Agent()).stops_at("session/prompt")
    async with v2_bench(tmp_path, agent, drain_timeout=60) as it:
        name = await it.new()
        await it.editor.result(send(it.editor, name, "runs", "k1"))
        waits = send(it.editor, name, "waits", "k2")
        await it.editor.handled()
        it.editor.notify("session/cancel", bound(name, "of an earlier turn"))
        await it.editor.handled()
        assert agent.params("session/cancel") == []
        gate.open()
        assert (await it.editor.result(waits))["messageId"]
        await it.editor.idle(name, 2)
        assert ran(it) == ["runs", "waits"]
        assert it.editor.states(name) == ["running", "idle/end_turn"] * 2


@pytest.mark.hazard("X3.3")
async def test_one_of_version_2_is_told_each_turn_and_its_end(tmp_path: Path) -> None:
    async with slow(tmp_path) as here:
        client = V2Editor()
        here.it.context.tasks.start_soon(here.it.bridge.join, client.read, client.way)
        await client.ask("initialize", {**V2_HELLO, "capabilities": CURSORS})
        await client.resumed(here.id)
        await here.prompt("one")
        await here.stops(client)
        await here.speaks("a")
        await here.end()
        await here.prompt("two")
        await here.speaks("b")
        await here.end()
        await here.reads(client)
        await until(lambda: client.states(here.id).count("idle/end_turn") == 2)
        assert [text for _, text in messages(shown(client))] == ["one", "a", "two", "b"]


@pytest.mark.hazard("N2")
@pytest.mark.parametrize("odd", ["short-name-0123", "x" * 129, "a name of words.", NAME + "\n", 1])
@pytest.mark.parametrize("version", [1, 2])
async def test_a_name_that_could_be_guessed_or_is_odd_is_an_error(
    tmp_path: Path, odd: object, version: int
) -> None:
    async with bench(tmp_path, initialized=False) as it:
        own = {"_meta": {"acp_bridge": {"client": odd}}}
        given = {**HELLO, "clientCapabilities": own}
        if version == 2:
            given = {**V2_HELLO, "capabilities": own}
        error = await it.editor.refused("initialize", given)
        assert (error.code, "16 to 128" in error.message) == (-32602, True)
        await it.editor.ask("initialize", HELLO)


@pytest.mark.hazard("N2", "X3")
async def test_a_client_of_version_2_comes_back_the_same_way(tmp_path: Path) -> None:
    async with session(tmp_path, drain_timeout=60) as here:
        clients = []
        for _ in range(2):
            client = V2Editor()
            here.it.context.tasks.start_soon(here.it._join, client)
            able = {"_meta": {"acp_bridge": {"client": NAME}}}
            await client.ask("initialize", {**V2_HELLO, "capabilities": able})
            params = {"sessionId": here.id, "cwd": str(tmp_path)}
            await client.ask("session/resume", params)
            clients.append(client)
            if len(clients) == 1:
                await here.runs("work", "k", client)
        _, back = clients
        back.notify("session/cancel", {"sessionId": here.id})
        await back.handled()
        here.gate.open()
        await back.idle(here.id)
        assert back.states(here.id)[-1] == "idle/cancelled"


@pytest.mark.hazard("N2", "X1")
async def test_a_client_of_version_2_with_a_name_is_told_the_id_too(tmp_path: Path) -> None:
    async with turn(tmp_path) as here:
        known = await attached(here.it, here.id)
        client = V2Editor()
        here.it.context.tasks.start_soon(here.it._join, client)
        able = {"_meta": {"acp_bridge": {"client": "b" * 16}}}
        await client.ask("initialize", {**V2_HELLO, "capabilities": able})
        await client.ask("session/resume", {"sessionId": here.id, "cwd": "/w"})
        here.asks()
        (one,), (two,) = await known.got(PERMISSION), await client.got(PERMISSION)
        assert question(one) == question(two)
        client.judge()
        here.it.editor.answers_with((await here.it.editor.got(PERMISSION))[0], chosen("yes"))
        assert await here.answered() == chosen("yes")
        here.gate.open()


async def test_a_client_of_version_2_has_the_rights_of_its_login_and_no_others(
    tmp_path: Path,
) -> None:
    agent = Agent()
    ways: list[Json] = [{"id": "terminal", "name": "In a terminal", "type": "terminal"}]
    agent.script["initialize"] = {**agent.script["initialize"], "authMethods": ways}
    async with remote_bench(tmp_path, agent) as it:
        owner = await it.remote()
        session_id = await it.new(owner)
        assert await owner.stop_reason(owner.prompt(session_id, "hello")) == "end_turn"
        client = it.unknown("look")
        hello = {"protocolVersion": 2, "info": {"name": "x", "version": "1"}, "capabilities": {}}
        answer = await client.ask("initialize", hello)
        assert answer.get("authMethods", []) == []
        about = {**it.setup(), "sessionId": session_id}
        await client.ask("session/resume", {**about, "replayFrom": {"type": "start"}})
        assert "echo hello" in str(client.asked("session/update"))
        outside = {**about, "cwd": str(it.root.parent)}
        assert (await client.refused("session/resume", outside)).code == -32602
        prompt = [{"type": "text", "text": "x"}]
        error = await client.refused("session/prompt", {"sessionId": session_id, "prompt": prompt})
        assert (error.code, error.message) == (-32600, "this login may only look")
        turn = it.agent.stops_at("session/prompt")
        runs = owner.prompt(session_id, "work")
        await until(lambda: turn.reached)
        client.notify("session/cancel", {"sessionId": session_id})
        await client.ask("session/list", {})
        assert it.agent.params("session/cancel") == []
        turn.open()
        assert await owner.stop_reason(runs) == "end_turn"
