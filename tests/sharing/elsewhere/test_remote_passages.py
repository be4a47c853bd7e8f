"""A remote client on a session that another bridge holds, an editor's say: what it may do."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.runtime import waits
from tests.core.bridge.remote import RemoteBench, remote_bench
from tests.core.bridge.test_rights import PERMISSION, REFUSED, chosen
from tests.core.sessions.agent import Gate, Json, Process, until
from tests.core.sessions.bench import Bench, Served
from tests.sharing.elsewhere.test_passages import listening

pytestmark = pytest.mark.hazard("V8", "N6")


@pytest.fixture
def home(short: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder; its bridges are patient with a disk and a system that are busy."""
    for patience in ("SOCKET", "PEER", "KEPT_WORK"):
        monkeypatch.setattr(waits, patience, 5)
    return short


class Far:
    """A session of an editor's bridge, and the bridge that lets remote clients in."""

    def __init__(
        self, editor: Bench, serve: RemoteBench, session_id: str, stack: AsyncExitStack
    ) -> None:
        """`stack` has the editor's bridge, which ends when it is closed."""
        self.editor, self.serve, self.session_id = editor, serve, session_id
        self._stack = stack

    async def editor_ends(self) -> None:
        """End the editor's bridge, whoever is there."""
        self.editor.bridge._ended.set()
        await self._stack.aclose()

    @property
    def about(self) -> Json:
        return {"sessionId": self.session_id}

    async def remote(self, may: str, **own: Any) -> Served:
        """A remote client that has the session, through both bridges."""
        client = await self.serve.remote(may, **own)
        await client.ask("session/load", {**self.serve.setup(), **self.about})
        return client


@asynccontextmanager
async def far(home: Path, folder: str = "root", keep: float = 0) -> AsyncIterator[Far]:
    """A session of one finished prompt in this folder."""
    async with remote_bench(home, lease_timeout=5) as serve, AsyncExitStack() as stack:
        editor, _, _ = await stack.enter_async_context(listening(home / "home", keep=keep))
        given = {"cwd": str(home / folder), "mcpServers": [{"name": "x", "command": "y"}]}
        session_id = (await editor.editor.ask("session/new", given))["sessionId"]
        await editor.editor.stop_reason(editor.editor.prompt(session_id, "before"))
        it = Far(editor, serve, session_id, stack)
        yield it
        await it.editor_ends()


@asynccontextmanager
async def at_work(it: Far) -> AsyncIterator[tuple[Process, Gate, object]]:
    """A turn of the editor's, its agent's process, what lets it end, and the prompt."""
    turn = it.editor.agent.stops_at("session/prompt")
    prompt = it.editor.editor.prompt(it.session_id, "work")
    await until(lambda: turn.reached)
    (process,) = it.editor.agent.living
    yield process, turn, prompt
    turn.open()


def asks(process: Process) -> None:
    params = {**PERMISSION, "sessionId": "agent-1"}
    process.says({"id": 77, "method": "session/request_permission", "params": params})


async def answer(process: Process) -> object:
    await until(lambda: [each for each in process.received if each.get("id") == 77])
    return next(each for each in process.received if each.get("id") == 77).get("result")


async def test_a_turn_at_home_is_found_seen_approved_and_stopped_from_elsewhere(
    home: Path,
) -> None:
    async with far(home) as it, at_work(it) as (process, turn, prompt):
        phone = await it.serve.remote("approve", "phone", ownTurnsOnly=False)
        (row,) = (await phone.ask("_acp_bridge/live", {}))["sessions"]
        assert (row["sessionId"], row["state"]) == (it.session_id, "running")
        await phone.ask("session/load", {**it.serve.setup(), **it.about})
        assert phone.texts(it.session_id)[:2] == ["before", "echo before"]
        process.update("agent-1", "on the way")
        await until(lambda: "on the way" in phone.texts(it.session_id))
        asks(process)
        (question,) = await phone.got("session/request_permission")
        phone.answers_with(question, chosen("yes"))
        assert await answer(process) == chosen("yes")
        done = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed"}
        process.shows("agent-1", done)
        stopped = await phone.ask("_acp_bridge/cancel", it.about)
        assert stopped == {"cancelled": True}
        turn.open()
        assert await it.editor.editor.stop_reason(prompt) == "cancelled"
        updates = [each["params"] for each in it.editor.editor.asked("session/update")]
        marks = [each.get("_meta", {}).get("acp_bridge", {}) for each in updates]
        (decided,) = [mark["decided"] for mark in marks if "decided" in mark]
        assert (decided["by"], decided["name"]) == ("client", "phone")


async def test_an_answer_that_came_too_late_at_the_other_bridge_is_called_back_though_it_is_given(
    home: Path,
) -> None:
    async with far(home) as it, at_work(it) as (process, _turn, _):
        phone = await it.remote("approve")
        asks(process)
        (here,) = await phone.got("session/request_permission")
        (there,) = await it.editor.editor.got("session/request_permission")
        phone.answers_with(here, chosen("yes"))  # on its way, while the editor's is taken
        it.editor.editor.answers_with(there, chosen("no"))
        assert await answer(process) == chosen("no")
        await phone.ask("_acp_bridge/queue/list", it.about)
        called_back = [each["params"]["requestId"] for each in phone.asked("$/cancel_request")]
        assert called_back == [here["id"]]


@pytest.mark.hazard("N6.2")
@pytest.mark.parametrize("may", ["look", "approve"])
async def test_what_a_login_may_not_do_does_not_pass_either(home: Path, may: str) -> None:
    async with far(home) as it:
        client = await it.remote(may)
        sent = it.editor.agent.processes[0].methods()
        block = {"prompt": [{"type": "text", "text": "x"}]}
        for method in REFUSED:
            error = await client.refused(method, {**it.about, **block})
            assert (method, error.code) == (method, -32600)
        client.notify("_x/news", it.about)
        await client.ask("_acp_bridge/queue/list", it.about)
        assert it.editor.agent.processes[0].methods() == sent


@pytest.mark.hazard("N6.3")
async def test_who_may_only_look_is_not_asked_through_another_bridge_and_stops_nothing(
    home: Path,
) -> None:
    async with far(home) as it, at_work(it) as (process, turn, prompt):
        client = await it.remote("look", observer=False)
        asks(process)
        process.update("agent-1", "asked")
        await until(lambda: "asked" in client.texts(it.session_id))
        client.notify("session/cancel", it.about)
        client.answers_with({"id": 1}, chosen("yes"))
        await client.refused("_acp_bridge/cancel", it.about)
        await client.ask("_acp_bridge/queue/list", it.about)
        assert client.asked("session/request_permission") == []
        assert process.params("session/cancel") == []
        assert [each for each in process.received if each.get("id") == 77] == []
        (question,) = await it.editor.editor.got("session/request_permission")
        it.editor.editor.answers_with(question, chosen("no"))
        turn.open()
        assert await it.editor.editor.stop_reason(prompt) == "end_turn"


@pytest.mark.hazard("N6.9")
async def test_a_load_from_elsewhere_changes_nothing_of_a_session_that_an_editor_has_left(
    home: Path,
) -> None:
    async with far(home, keep=60) as it:
        it.editor.editor.leaves()
        await until(lambda: it.editor.bridge._clients == [])
        client = await it.serve.remote()
        server = {"name": "evil", "type": "http", "url": "http://x"}
        given = {**it.serve.setup(), **it.about, "mcpServers": [server]}
        await client.ask("session/load", {**given, "additionalDirectories": [str(it.serve.root)]})
        assert client.texts(it.session_id) == ["before", "echo before"]
        resumes = await it.serve.remote()
        await resumes.ask("session/resume", given)
        assert resumes.texts(it.session_id) == []
        session = it.editor.bridge._sessions.live[it.session_id]
        (server,) = session.workspace.mcp_servers
        assert (server["name"], server["command"]) == ("x", "y")
        assert session.workspace.roots == ()
        assert await client.stop_reason(client.prompt(it.session_id, "there")) == "end_turn"
        assert len(it.editor.agent.processes) == 1


@pytest.mark.hazard("N6.6")
async def test_a_session_outside_is_not_reached_through_another_bridge(home: Path) -> None:
    async with far(home, "elsewhere") as it:
        client = await it.serve.remote()
        assert (await client.ask("_acp_bridge/live", {}))["sessions"] == []
        for method in ("session/load", "session/resume", "session/delete"):
            error = await client.refused(method, {**it.serve.setup(), **it.about})
            assert (error.code, error.message.partition(":")[0]) == (-32602, "sessionId")
        assert it.serve.passages.held == {}


async def test_what_another_bridge_has_outside_is_not_told_to_who_names_a_session_of_it(
    home: Path,
) -> None:
    async with far(home) as it:
        given = {"cwd": str(home), "mcpServers": []}
        other = (await it.editor.editor.ask("session/new", given))["sessionId"]
        await it.editor.editor.stop_reason(it.editor.editor.prompt(other, "secret"))
        client = await it.remote("look")
        for method in ("session/list", "_acp_bridge/live"):
            rows = (await client.ask(method, it.about))["sessions"]
            assert [row["sessionId"] for row in rows] == [it.session_id]


async def test_a_bridge_that_is_silent_and_one_of_another_agent_are_left_out(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with far(home) as it, AsyncExitStack() as stack:
        other, _, _ = await stack.enter_async_context(
            listening(home / "home", agent_name="another")
        )
        await other.editor.ask("session/new", {**it.serve.setup(), "cwd": str(it.serve.root)})
        client = await it.serve.remote()
        live = await client.ask("_acp_bridge/live", {})
        assert [row["sessionId"] for row in live["sessions"]] == [it.session_id]
        inside = await it.serve.new(client)

        async def silent(sockets: object, found: object) -> None:
            await anyio.sleep_forever()

        monkeypatch.setattr("acp_bridge.sharing.elsewhere.passages.live_at", silent)
        monkeypatch.setattr(waits, "KEPT_WORK", 0)
        live = await client.ask("_acp_bridge/live", {})
        assert [row["sessionId"] for row in live["sessions"]] == [inside]


@pytest.mark.parametrize("where", ["cwd", "additionalDirectories"])
async def test_a_session_is_not_moved_outside_by_a_load_when_its_bridge_ends(
    home: Path, where: str
) -> None:
    async with far(home) as it:
        client = await it.remote("all")
        outside = str(home) if where == "cwd" else [str(home)]
        client.send("session/load", {**it.serve.setup(), **it.about, where: outside})
        await client.ask("_acp_bridge/queue/list", it.about)
        await it.editor_ends()
        await until(lambda: not it.serve.passages.continued)
        await it.serve.remote("all")
        assert it.session_id not in it.serve.bridge._sessions.live
        assert any("could not be opened here" in each for each in client.texts(it.session_id))
        assert it.serve.agent.params("session/resume") == []


async def test_when_the_editors_bridge_ends_the_session_goes_on_for_who_may_act(
    home: Path,
) -> None:
    async with far(home) as it:
        looks, acts = await it.remote("look"), await it.remote("all")
        await it.editor_ends()
        await until(lambda: it.session_id in it.serve.bridge._sessions.live)
        assert await acts.stop_reason(acts.prompt(it.session_id, "on")) == "end_turn"
        await until(lambda: "echo on" in looks.texts(it.session_id))
        error = await looks.refused("session/prompt", {**it.about, "prompt": []})
        assert error.code == -32600
