"""A client leaves a session that another bridge holds, right behind a load or right before one."""

from pathlib import Path

import pytest

from acp_bridge.core.clients.client import ClientRequest
from acp_bridge.core.records import replace
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.sessions.agent import Json, until
from tests.core.sessions.world import SETUP
from tests.sharing.elsewhere.test_passages import home as home
from tests.sharing.elsewhere.test_passages import two

pytestmark = pytest.mark.hazard("V8")


async def test_a_close_goes_through_and_the_session_can_be_loaded_again(home: Path) -> None:
    async with two(home) as it:
        await it.load()
        assert await it.other.editor.ask("session/close", it.params) == {}
        assert (await it.other.editor.refused("session/prompt", it.params)).code == -32002
        prompt = it.holder.editor.prompt(it.session_id, "goes on")
        assert await it.holder.editor.stop_reason(prompt) == "end_turn"
        assert "goes on" not in it.other.editor.texts(it.session_id)
        await it.load()
        assert "goes on" in it.other.editor.texts(it.session_id)


@pytest.mark.parametrize("had_it", [False, True])
async def test_a_close_right_behind_the_load_that_finds_the_session_elsewhere_leaves_it(
    home: Path, had_it: bool
) -> None:
    async with two(home) as it:
        editor = it.other.editor
        if had_it:  # it is still among those of this bridge, and has ended
            await it.holder.editor.ask("session/close", it.params)
            await it.load()
            await editor.ask("_acp_bridge/close", it.params)
            await it.holder.editor.ask("session/load", {**SETUP, **it.params})
        load = editor.send("session/load", {**SETUP, **it.params})
        close = editor.send("session/close", it.params)
        assert (await editor.result(load))["_meta"]["acp_bridge"]["attached"]["clients"] == 2
        assert await editor.result(close) == {}
        await until(lambda: not it.other.passages.held)
        prompt = it.holder.editor.prompt(it.session_id, "goes on")
        assert await it.holder.editor.stop_reason(prompt) == "end_turn"
        assert "goes on" not in editor.texts(it.session_id)


async def test_a_load_right_behind_a_close_is_answered_once_and_leaves_the_session_open(
    home: Path,
) -> None:
    async with two(home) as it:
        await it.load()
        editor = it.other.editor
        editor.out.take()
        close = editor.send("session/close", it.params)
        load = editor.send("session/load", {**SETUP, **it.params})
        assert await editor.result(close) == {}
        assert (await editor.result(load))["_meta"]["acp_bridge"]["attached"]["clients"] == 2
        passages = it.other.passages
        await until(lambda: passages.held)
        (passage,) = passages.held.values()
        settings = it.other.context.settings
        it.other.context.settings = replace(settings, reach_timeout=0)
        await passages._see_left(passage)
        it.other.context.settings = settings
        assert await editor.stop_reason(editor.prompt(it.session_id, "there")) == "end_turn"
        assert editor.texts(it.session_id) == ["before", "echo before", "echo there"]
        assert await editor.ask("session/close", it.params) == {}
        await until(lambda: passage.ended.is_set() and not passages.held)


async def test_a_load_right_behind_a_close_that_is_refused_leaves_the_holder(home: Path) -> None:
    async with two(home) as it:
        await it.load()
        editor = it.other.editor
        passages = it.other.passages
        await until(lambda: passages.held)
        (passage,) = passages.held.values()

        async def refuses(request: ClientRequest, params: Json) -> object:
            raise RpcError(-32603, "not now")

        it.holder.bridge.slow["session/load"] = refuses
        close = editor.send("session/close", it.params)
        load = editor.send("session/load", {**SETUP, **it.params})
        assert await editor.result(close) == {}
        assert (await editor.refusal(load)).message == "not now"
        await passage.ended.wait()
        block = {**it.params, "prompt": [{"type": "text", "text": "gone"}]}
        assert (await editor.refused("session/prompt", block)).code == -32002
