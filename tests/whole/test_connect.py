"""`acp-bridge connect` before a real `acp-bridge serve`, over a line that is cut."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from acp_bridge.remote.connect import shell
from acp_bridge.remote.connect.logins import Login, keep, read_address
from tests.remote.connect import test_shell
from tests.remote.connect.site import Cutter, cutter
from tests.support.client import RecordingClient
from tests.support.fixture_agents import fixture_command
from tests.support.v2_schema import HELLO
from tests.whole.bridge_support import ROOT, World
from tests.whole.test_serve import Serving, serving, start, token_of

pytestmark = [pytest.mark.process, pytest.mark.hazard("N2")]


@asynccontextmanager
async def connecting(
    world: World, tmp_path: Path
) -> AsyncIterator[tuple[Serving, Cutter, RecordingClient]]:
    """A server, a line to it, and an editor whose agent is `connect`."""
    async with (
        serving(world, tmp_path, "--allow-local", "--keep", "8h") as it,
        cutter(it.port, 0, cuts=0) as line,
        editor(world, it, line.port) as client,
    ):
        await client.new_session(world.cwd)
        yield it, line, client


@asynccontextmanager
async def editor(world: World, it: Serving, port: int) -> AsyncIterator[RecordingClient]:
    url = f"ws://127.0.0.1:{port}"
    keep(world.home, read_address(url), Login(it.secret))
    command = [sys.executable, "-m", "acp_bridge", "connect", url]
    env = {"ACP_BRIDGE_HOME": str(world.home), "PYTHONPATH": str(ROOT)}
    async with RecordingClient.start(command, env=env) as client:
        await client.initialize({})
        yield client


async def test_on_its_own_machine_it_comes_in_though_nobody_can_look_into_it(
    world: World, tmp_path: Path
) -> None:
    async with serving(world, tmp_path) as it, editor(world, it, it.port) as client:
        await client.new_session(world.cwd)
        assert await client.prompt("say one") == {"stopReason": "end_turn"}
    assert world.log.prompts() == ["say one"]


@pytest.mark.hazard("N2.20")
async def test_an_answer_given_while_the_line_is_down_reaches_its_question(
    world: World, tmp_path: Path
) -> None:
    async with connecting(world, tmp_path) as (_, line, client):
        client.side.permission = "never"
        asked = client.send_prompt("permission")
        question = await client.until_request("session/request_permission")
        await line.cut()
        option = question["params"]["options"][0]["optionId"]
        client.answer(question["id"], {"outcome": {"outcome": "selected", "optionId": option}})
        assert (await client.answer_to(asked, 20))["result"] == {"stopReason": "end_turn"}
        assert len(client.recording.requests("session/request_permission")) == 1


async def test_a_server_that_is_killed_and_comes_back_tells_what_became_of_each_prompt(
    world: World, tmp_path: Path
) -> None:
    words = ["serve", "127.0.0.1:0", "--root", str(world.cwd), "--allow-local", "--keep", "8h"]
    command = [sys.executable, "-m", "acp_bridge", *words, "--", *fixture_command()]
    env = {**os.environ, **world.env, "ACP_BRIDGE_HOME": str(world.home), "PYTHONPATH": str(ROOT)}
    secret = token_of(world.home, "laptop")
    async with AsyncExitStack() as stack:

        async def served(said: Path) -> Serving:
            it = Serving(world, start(command, env, world.cwd, said), said)
            it.secret = secret
            stack.callback(it.process.wait)
            stack.callback(it.process.kill)
            return await it.started()

        it = await served(tmp_path / "first")
        line = await stack.enter_async_context(cutter(it.port, 0, cuts=0))
        client = await stack.enter_async_context(editor(world, it, line.port))
        await client.new_session(world.cwd)
        assert await client.prompt("say done") == {"stopReason": "end_turn"}
        runs = client.send_prompt("say shown; gate g; say never")
        await client.until_text("shown")
        it.process.kill()
        await client.logged("acp-bridge connect: 127.0.0.1", within=20)
        line.there = (await served(tmp_path / "second")).port
        error = (await client.answer_to(runs, within=40))["error"]
        assert "interrupted" in error["message"]
        assert await client.prompt("say after", within=20) == {"stopReason": "end_turn"}
        assert [client.text().count(each) for each in ("done", "shown", "after")] == [1, 1, 1]
    assert world.log.prompts() == ["say done", "say shown; gate g; say never", "say after"]


@pytest.mark.hazard("N2.1")
@pytest.mark.parametrize("hello", [{"protocolVersion": 1, "clientCapabilities": {}}, HELLO])
async def test_cut_after_some_bytes_again_and_again_each_prompt_runs_ends_and_is_shown_once(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hello: Any
) -> None:
    monkeypatch.setattr(shell, "SHORTEST", 0.0)
    monkeypatch.setattr(shell, "LONGEST", 0.05)
    rng = Random(0)
    async with (
        serving(world, tmp_path, "--allow-local", "--keep", "8h") as it,
        cutter(it.port, 0, cuts=20) as line,
        test_shell.editor(line.port, it.secret) as client,
    ):
        await client.request("initialize", hello, within=20)
        await _new(client, world.cwd)
        texts = [f"say a; say b; say w{number}." for number in range(16)]
        asked = []
        for text in texts:
            asked.append(client.send_prompt(text))
            if rng.random() < 0.3:
                await line.cut()
            if rng.random() < 0.4:
                await client.answer_to(rng.choice(asked), within=20)
        for each in asked:
            assert "result" in await client.answer_to(each, within=20)
        ends = len(texts) if hello is HELLO else 0
        await client.until_recorded(lambda: len(_ends(client)) >= ends, within=20)
        assert len(_ends(client)) == ends
        assert [client.text().count(f"w{number}.") for number in range(16)] == [1] * 16
    assert world.log.prompts() == texts


@pytest.mark.parametrize("hello", [{"protocolVersion": 1, "clientCapabilities": {}}, HELLO])
async def test_a_load_that_is_cut_again_and_again_shows_the_whole_session_once(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hello: Any
) -> None:
    monkeypatch.setattr(shell, "SHORTEST", 0.0)
    monkeypatch.setattr(shell, "LONGEST", 0.05)
    async with serving(world, tmp_path, "--allow-local", "--keep", "8h") as it:
        async with editor(world, it, it.port) as client:
            session = await client.new_session(world.cwd)
            for number in range(20):
                await client.prompt(f"say a; say b; say w{number}.")
        async with cutter(it.port, 5, cuts=8) as line, test_shell.editor(line.port, it.secret) as e:
            await e.request("initialize", hello, within=20)
            params = {"sessionId": session, "cwd": str(world.cwd), "mcpServers": []}
            whole = {**params, "replayFrom": {"type": "start"}}
            if hello is HELLO:
                await e.request("session/resume", whole, within=20)
            else:
                await e.request("session/load", params, within=20)
            assert [e.text(session).count(f"w{number}.") for number in range(20)] == [1] * 20
            kinds = [each["sessionUpdate"] for each in e.recording.updates(session)]
            assert len([each for each in kinds if each.startswith("user_message")]) == 20
            assert kinds.count("replay_complete") == (hello is HELLO)


async def _new(client: RecordingClient, cwd: Path) -> None:
    """Make a session; one whose answer is lost is made anew, as an editor's user would."""
    while True:
        params = {"cwd": str(cwd), "mcpServers": []}
        answer = await client.answer_to(client.send_request("session/new", params), within=20)
        if "result" in answer:
            client.session_id = answer["result"]["sessionId"]
            return
        assert "is not sent again" in answer["error"]["message"]


def _ends(client: RecordingClient) -> list[Any]:
    """The states of version 2 that have ended a turn."""
    updates = client.recording.updates(client.session_id)
    return [each for each in updates if each.get("stopReason")]
