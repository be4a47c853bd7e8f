"""Two bridges in memory, joined by a real socket: a session that one holds, loaded at the other."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.agents import lease
from acp_bridge.core.bridge import attendance
from acp_bridge.core.clients.abilities import ClientAbilities
from acp_bridge.core.clients.client import ClientRequest
from acp_bridge.core.runtime import waits
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.sharing.elsewhere import passages
from acp_bridge.sharing.listening.listener import Listener
from acp_bridge.sharing.listening.places import new_socket_path
from tests.core.sessions.agent import Agent, Gate, Json, Process, until
from tests.core.sessions.bench import Bench, bench
from tests.core.sessions.world import SETUP

pytestmark = pytest.mark.hazard("V8")

PERMISSION: Json = {
    "toolCall": {"toolCallId": "t", "title": "Edit x"},
    "options": [
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ],
}


@pytest.fixture
def home(short: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder; its bridges are patient with a disk and a system that are busy."""
    for patience in ("SOCKET", "PEER"):
        monkeypatch.setattr(waits, patience, 5)
    return short


@asynccontextmanager
async def listening(
    home: Path, agent: Agent | None = None, **more: Any
) -> AsyncIterator[tuple[Bench, Listener, anyio.CancelScope]]:
    """A bridge that others can reach."""
    async with bench(home, agent, initialized=False, **more) as it:
        path = it.context.socket = new_socket_path(home, os.environ)
        name = it.context.settings.agent_name
        listener, scope = (
            Listener(it.context.tasks, home, path, name, it.bridge.join),
            anyio.CancelScope(),
        )

        async def run() -> None:
            with scope:
                await listener.run()

        it.context.tasks.start_soon(run)
        await listener.settled.wait()
        await it.editor.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        yield it, listener, scope
        scope.cancel()


class Two:
    """The bridge that holds a session, and the one that is asked for it."""

    def __init__(self, holder: Bench, other: Bench, session_id: str) -> None:
        self.holder, self.other, self.session_id = holder, other, session_id

    async def load(self, how: str = "load") -> Json:
        params = {**SETUP, "sessionId": self.session_id}
        answer: Json = await self.other.editor.ask(f"session/{how}", params)
        return answer

    @property
    def params(self) -> Json:
        return {"sessionId": self.session_id}


@asynccontextmanager
async def two(home: Path, keep: float = 0, **more: Any) -> AsyncIterator[Two]:
    """A session with one finished prompt at the one, kept so long, and another bridge."""
    async with AsyncExitStack() as stack:
        holder, _, _ = await stack.enter_async_context(listening(home, keep=keep))
        other, _, _ = await stack.enter_async_context(listening(home, **more))
        session_id = await holder.new()
        await holder.editor.stop_reason(holder.editor.prompt(session_id, "before"))
        yield Two(holder, other, session_id)


@pytest.mark.hazard("V8.1")
async def test_a_session_of_another_bridge_is_loaded_with_its_transcript_and_prompted(
    home: Path,
) -> None:
    async with two(home) as it:
        answer = await it.load()
        own = answer["_meta"]["acp_bridge"]
        assert (own["holder"]["agent"], own["holder"]["delivery"]) == ("agent", "queue")
        assert own["attached"]["clients"] == 2
        assert it.other.editor.texts(it.session_id) == ["before", "echo before"]
        prompt = it.other.editor.prompt(it.session_id, "there")
        assert await it.other.editor.stop_reason(prompt) == "end_turn"
        assert it.other.editor.texts(it.session_id)[2:] == ["echo there"]
        await until(lambda: it.holder.editor.texts(it.session_id)[-1] == "echo there")
        assert it.other.agent.params("session/load") == it.other.agent.params("session/new") == []
        assert it.holder.agent.params("session/prompt")[-1]["prompt"][0]["text"] == "there"


async def test_a_resume_shows_nothing_of_before(home: Path) -> None:
    async with two(home) as it:
        await it.load("resume")
        assert it.other.editor.texts(it.session_id) == []
        prompt = it.holder.editor.prompt(it.session_id, "there")
        assert await it.holder.editor.stop_reason(prompt) == "end_turn"
        await until(lambda: it.other.editor.texts(it.session_id)[-1:] == ["echo there"])


@pytest.mark.hazard("V8", "R1")
async def test_a_prompt_right_behind_a_load_is_not_in_its_replay(home: Path) -> None:
    async with two(home) as it:
        await it.load()
        editor = it.other.editor
        editor.out.take()
        load = editor.send("session/load", {**SETUP, **it.params})
        prompt = editor.prompt(it.session_id, "there")
        await editor.result(load)
        assert await editor.stop_reason(prompt) == "end_turn"
        texts = [text for text in editor.texts(it.session_id) if "queue" not in text]
        assert texts == ["before", "echo before", "echo there"]


@pytest.mark.hazard("V8.2")
async def test_equal_ids_of_requests_belong_to_their_clients(home: Path) -> None:
    async with two(home) as it:
        await it.load()
        turn = it.holder.agent.stops_at("session/prompt")
        block = {"sessionId": it.session_id, "prompt": [{"type": "text", "text": "one"}]}
        first = it.holder.editor.send("session/prompt", block, "same")
        await until(lambda: turn.reached)
        block = {"sessionId": it.session_id, "prompt": [{"type": "text", "text": "two"}]}
        second = it.other.editor.send("session/prompt", block, "same")
        it.other.editor.cancel_request("same")
        assert await it.other.editor.stop_reason(second) == "cancelled"
        assert it.holder.editor.answers(first) == []
        turn.open()
        assert await it.holder.editor.stop_reason(first) == "end_turn"


@asynccontextmanager
async def asked(it: Two) -> AsyncIterator[tuple[Process, Json]]:
    """A turn that runs at the holder, and what its agent asks the client of the other bridge."""
    await it.load()
    turn = it.holder.agent.stops_at("session/prompt")
    prompt = it.other.editor.prompt(it.session_id, "work")
    await until(lambda: turn.reached)
    process = ask_permission(it)
    await until(lambda: it.other.editor.asked("session/request_permission"))
    (question,) = it.other.editor.asked("session/request_permission")
    yield process, question
    turn.open()
    assert await it.other.editor.stop_reason(prompt) == "end_turn"


def ask_permission(it: Two) -> Process:
    """The agent of the holder asks for a permission; returns its process."""
    (process,) = it.holder.agent.living
    params = {**PERMISSION, "sessionId": "agent-1"}
    process.says({"id": 77, "method": "session/request_permission", "params": params})
    return process


def chosen(option: str) -> Json:
    return {"outcome": {"outcome": "selected", "optionId": option}}


@pytest.mark.hazard("V8.1")
async def test_what_a_turn_asks_is_asked_and_answered_through_the_other_bridge(home: Path) -> None:
    async with two(home) as it, asked(it) as (process, question):
        assert question["params"]["sessionId"] == it.session_id
        it.other.editor.says({"id": question["id"], "result": chosen("yes")})
        await until(lambda: answers(process, 77))
        assert answers(process, 77) == [chosen("yes")]


@pytest.mark.hazard("V9")
async def test_a_client_there_is_shown_all_of_a_call_and_asked_anew_when_it_changes(
    home: Path,
) -> None:
    async with two(home) as it, asked(it) as (process, question):
        there = await it.other.joined(wholeCalls=True)
        await there.ask("session/load", {**SETUP, "sessionId": it.session_id})
        await until(lambda: there.asked("session/request_permission"))
        raw = {"command": "rm -rf src"}
        update = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "rawInput": raw}
        params = {"sessionId": "agent-1", "update": update}
        process.says({"method": "session/update", "params": params})
        await until(lambda: len(there.asked("session/request_permission")) == 2)
        first, second = there.asked("session/request_permission")
        assert second["params"]["toolCall"]["rawInput"] == raw
        there.says({"id": first["id"], "result": chosen("yes")})  # to what it was before
        there.says({"id": second["id"], "result": chosen("no")})
        await until(lambda: answers(process, 77))
        assert answers(process, 77) == [chosen("no")]
        assert question["params"]["toolCall"] == PERMISSION["toolCall"]


async def test_a_question_that_another_client_has_answered_is_taken_back(home: Path) -> None:
    async with two(home) as it, asked(it) as (process, question):
        (same,) = it.holder.editor.asked("session/request_permission")
        it.holder.editor.says({"id": same["id"], "result": chosen("no")})
        await until(lambda: it.other.editor.asked("$/cancel_request"))
        (taken_back,) = it.other.editor.asked("$/cancel_request")
        assert taken_back["params"]["requestId"] == question["id"]
        assert answers(process, 77) == [chosen("no")]


async def test_a_question_outlives_the_one_client_that_leaves_while_it_is_asked(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attendance, "LINGER", 0)
    async with two(home, keep=3600) as it:
        leaving = await it.other.joined()
        await leaving.ask("session/load", {**SETUP, "sessionId": it.session_id})
        turn = it.holder.agent.stops_at("session/prompt")
        leaving.prompt(it.session_id, "work")
        await until(lambda: turn.reached)
        await it.holder.editor.ask("session/close", it.params)
        process = ask_permission(it)
        await until(lambda: leaving.asked("session/request_permission"))
        leaving.leaves()
        await leaving.parted.wait()
        while await clients(it) > 0:
            await anyio.lowlevel.checkpoint()
        await it.load()
        await until(lambda: it.other.editor.asked("session/request_permission"))
        (question,) = it.other.editor.asked("session/request_permission")
        it.other.editor.says({"id": question["id"], "result": chosen("yes")})
        await until(lambda: answers(process, 77))
        assert answers(process, 77) == [chosen("yes")]
        turn.open()


async def clients(it: Two) -> int:
    """How many clients have the session at its holder."""
    live = await it.holder.editor.ask("_acp_bridge/live", {})
    (about,) = live["sessions"]
    count: int = about["clients"]
    return count


def answers(process: Process, request_id: int) -> list[Json]:
    """What a process was answered to a request of its own."""
    return [m["result"] for m in process.received if m.get("id") == request_id and "result" in m]


@pytest.mark.hazard("V8.1")
async def test_a_cancel_goes_through_and_stops_the_turn(home: Path) -> None:
    async with two(home) as it:
        await it.load()
        turn = it.holder.agent.stops_at("session/prompt")
        prompt = it.other.editor.prompt(it.session_id, "work")
        await until(lambda: turn.reached)
        it.other.editor.notify("session/cancel", it.params)
        assert await it.other.editor.stop_reason(prompt) == "cancelled"
        turn.open()


async def test_a_turn_of_one_that_is_gone_is_told_waited_for_and_stopped_through(
    home: Path,
) -> None:
    async with two(home) as it:
        gone = await it.holder.attached(it.session_id)
        turn = it.holder.agent.stops_at("session/prompt")
        gone.prompt(it.session_id, "runs")
        await until(lambda: turn.reached)
        gone.leaves()
        await gone.parted.wait()
        await it.load()
        assert "A turn runs in this session: “runs”." in it.other.editor.texts(it.session_id)[-1]
        waits = it.other.editor.prompt(it.session_id, "/queue wait")
        it.other.editor.notify("session/cancel", it.params)
        await until(lambda: it.holder.agent.params("session/cancel"))
        turn.open()
        assert await it.other.editor.stop_reason(waits) == "cancelled"


@pytest.mark.hazard("Q16")
async def test_the_queue_is_listed_and_changed_through_the_other_bridge(home: Path) -> None:
    async with two(home) as it:
        await it.load()
        await it.other.editor.ask("_acp_bridge/hold", it.params)
        asked = [it.other.editor.prompt(it.session_id, text) for text in ("one", "two")]
        await it.other.settled()
        listed = await it.other.editor.ask("_acp_bridge/queue/list", it.params)
        one, last = (row["promptId"] for row in listed["prompts"])
        method, params = "_acp_bridge/queue/move", {**it.params, "promptId": last, "before": one}
        await it.other.editor.ask(method, params)
        words = [{"type": "text", "text": "first"}]
        params = {**it.params, "promptId": one, "prompt": words}
        await it.other.editor.ask("_acp_bridge/queue/edit", params)
        await it.other.editor.ask("_acp_bridge/go", it.params)
        for each in asked:
            assert await it.other.editor.stop_reason(each) == "end_turn"
        sent = [each["prompt"][0]["text"] for each in it.holder.agent.params("session/prompt")]
        assert sent == ["before", "two", "first"]


async def test_a_load_of_what_is_passed_through_shows_it_again(home: Path) -> None:
    async with two(home) as it:
        await it.load()
        await it.load()
        assert it.other.editor.texts(it.session_id) == ["before", "echo before"] * 2


@pytest.mark.parametrize("loaded", [True, False])
async def test_a_delete_goes_through(home: Path, loaded: bool) -> None:
    async with two(home) as it:
        if loaded:
            await it.load()
        assert await it.other.editor.ask("session/delete", it.params) == {}
        error = await it.holder.editor.refused("session/load", {**SETUP, **it.params})
        assert error.code == -32002
        assert (await it.other.editor.ask("session/list", {}))["sessions"] == []
        assert it.holder.agent.params("session/delete") == [{"sessionId": "agent-1"}]


async def test_what_the_holder_refuses_is_refused_with_its_words(home: Path) -> None:
    async with two(home) as it:
        it.holder.agent.script["session/set_mode"] = RpcError(-32602, "no such mode")
        await it.load()
        error = await it.other.editor.refused("session/set_mode", {**it.params, "modeId": "x"})
        assert (error.code, error.message) == (-32602, "no such mode")


@pytest.mark.hazard("K3.7")
async def test_another_agent_or_another_protocol_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(home, agent_name="codex") as it:
        message = (await it.other.editor.refused("session/load", {**SETUP, **it.params})).message
        assert "'agent'" in message
        assert "'codex'" in message
    async with two(home) as it:
        monkeypatch.setattr(passages, "SOCKET_PROTOCOL", 99)
        message = (await it.other.editor.refused("session/load", {**SETUP, **it.params})).message
        assert "socket speaks 1, this one 99" in message


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"socket": 1}', b'{"socket": "relative"}'])
async def test_a_holder_that_can_not_be_reached_is_waited_for_as_ever(
    home: Path, content: bytes
) -> None:
    async with two(home) as it:
        it.holder.context.journal.lock_path(it.session_id).write_bytes(content)
        error = await it.other.editor.refused("session/load", {**SETUP, **it.params})
        assert (error.code, "open in another acp-bridge" in error.message) == (-32600, True)


@pytest.mark.hazard("K3.5")
async def test_a_holder_that_refuses_is_quoted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuses(*_: object) -> str:
        return "because of this"

    async with two(home) as it:
        monkeypatch.setattr(Listener, "_refusal", refuses)
        error = await it.other.editor.refused("session/load", {**SETUP, **it.params})
        assert "because of this" in error.message


async def test_the_bridge_that_had_a_session_before_does_not_open_it_for_another(
    home: Path,
) -> None:
    async with two(home) as it:
        record = it.holder.context.journal.lock_path(it.session_id).read_bytes()
        await it.holder.editor.ask("session/close", it.params)
        lock = await lease.acquire(it.holder.context.journal.lock_path(it.session_id), 0)
        try:
            os.pwrite(lock, record, 0)  # what is left there for a moment
            error = await it.other.editor.refused("session/load", {**SETUP, **it.params})
            assert "does not have the session" in error.message
        finally:
            os.close(lock)
        assert "holder" not in (await it.load())["_meta"]["acp_bridge"]


async def test_a_load_again_that_is_given_up_shows_nothing_once_that_is_answered(
    home: Path,
) -> None:
    async with two(home) as it:
        await it.load()
        shown = it.other.editor.texts(it.session_id)
        load = it.other.editor.send("session/load", {**SETUP, **it.params})
        it.other.editor.cancel_request(load)
        assert (await it.other.editor.refusal(load)).code == -32800
        await it.other.editor.stop_reason(it.other.editor.prompt(it.session_id, "after"))
        assert [*shown, "echo after"] == it.other.editor.texts(it.session_id)


async def test_a_load_that_is_given_up_leaves_the_holder(home: Path) -> None:
    async with two(home) as it:
        gate = Gate()
        real = it.holder.bridge.slow["session/load"]

        async def late(request: ClientRequest, params: Json) -> object:
            await gate.passed()
            return await real(request, params)

        it.holder.bridge.slow["session/load"] = late
        load = it.other.editor.send("session/load", {**SETUP, **it.params})
        await until(lambda: gate.reached)
        it.other.editor.cancel_request(load)
        assert (await it.other.editor.refusal(load)).code == -32800
        gate.open()
        await it.load()


@pytest.mark.parametrize("how", ["_acp_bridge/close", "session/delete"])
async def test_one_that_had_pressed_stop_when_a_session_was_closed_there_does_not_open_it_either(
    home: Path, how: str
) -> None:
    async with AsyncExitStack() as stack:
        other, _, _ = await stack.enter_async_context(listening(home, lease_timeout=5))
        async with listening(home) as (holder, _, _):
            it = Two(holder, other, await holder.new())
            await it.load()
            turn = holder.agent.stops_at("session/prompt")
            prompt = other.editor.prompt(it.session_id, "hello")
            await until(lambda: turn.reached)
            other.editor.notify("session/cancel", it.params)
            await until(lambda: holder.agent.params("session/cancel"))
            turn.open()
            assert await other.editor.stop_reason(prompt) == "cancelled"
            quiet = len(other.editor.messages)
            (passage,) = other.passages.held.values()
            await holder.editor.ask(how, it.params)
            await until(lambda: passage.leaving)
        await until(lambda: not other.passages.held)
        await until(lambda: not other.passages.continued)
        assert other.bridge._sessions.live == {}
        (said,) = other.editor.messages[quiet:]
        assert "by another client" in said["params"]["update"]["content"]["text"]


@pytest.mark.parametrize("hears", [True, False])
async def test_where_the_session_stands_is_told_through_if_the_client_wants_to_know(
    home: Path, hears: bool
) -> None:
    async with two(home) as it:
        declared = ClientAbilities({"_meta": {"acp_bridge": {"state": hears}}})
        it.other.bridge._clients[0].abilities = declared
        await it.load()
        await it.other.editor.stop_reason(it.other.editor.prompt(it.session_id, "there"))
        told = it.other.editor.asked("_acp_bridge/state")
        assert [each["params"]["state"] for each in told][:2] == ["idle", "running"][: 2 * hears]


async def test_a_session_that_was_closed_there_is_not_opened_here_when_the_holder_ends(
    home: Path,
) -> None:
    async with AsyncExitStack() as stack:
        other, _, _ = await stack.enter_async_context(listening(home, lease_timeout=5))
        async with listening(home) as (holder, _, _):
            it = Two(holder, other, await holder.new())
            await holder.editor.stop_reason(holder.editor.prompt(it.session_id, "before"))
            await it.load()
            await other.editor.stop_reason(other.editor.prompt(it.session_id, "there"))
            await holder.editor.ask("_acp_bridge/close", it.params)
            await until(lambda: any("closed" in text for text in other.editor.texts(it.session_id)))
            block = {**it.params, "prompt": [{"type": "text", "text": "gone"}]}
            assert (await other.editor.refused("session/prompt", block)).code == -32002
        await until(lambda: not other.passages.held)
        await until(lambda: not other.passages.continued)
        assert other.bridge._sessions.live == {}
        await it.load()


# --- the holder ends -------------------------------------------------------------------------


@pytest.mark.hazard("V8.10", "V8.11")
async def test_when_the_holder_ends_each_request_gets_one_error_and_the_session_goes_on_here(
    home: Path,
) -> None:
    async with AsyncExitStack() as stack:
        other, _, _ = await stack.enter_async_context(listening(home, lease_timeout=5))
        agent = Agent()
        async with listening(home, agent) as (holder, _, _):
            it = Two(holder, other, await holder.new())
            await it.load()
            turn = agent.stops_at("session/prompt")
            agent.script["session/cancel"] = None
            runs = other.editor.prompt(it.session_id, "runs")
            await until(lambda: turn.reached)
            waits = other.editor.prompt(it.session_id, "waits")
            here = holder.bridge._sessions.live[it.session_id]
            await until(lambda: len(here.now.unanswered) == 2)
            mine = holder.editor.prompt(it.session_id, "waits too")
            await holder.settled()
        assert holder.editor.answers(mine) == []
        for request in (runs, waits):
            error = await other.editor.refusal(request)
            assert (error.code, "has ended" in error.message) == (-32603, True)
        prompt = other.editor.prompt(it.session_id, "next")
        assert await other.editor.stop_reason(prompt) == "end_turn"
        said = "".join(other.editor.texts(it.session_id))
        assert "waits too" in said  # it is held, and shown so
        assert other.agent.params("session/prompt") == [
            {"sessionId": "agent-1", "prompt": [{"type": "text", "text": "next"}]}
        ]
        assert [len(other.editor.answers(each)) for each in (runs, waits, prompt)] == [1, 1, 1]


@pytest.mark.hazard("V8.12")
async def test_what_is_sent_while_the_session_changes_hands_waits_or_is_taken_back(
    home: Path,
) -> None:
    async with AsyncExitStack() as stack:
        other, _, _ = await stack.enter_async_context(listening(home, lease_timeout=5))
        async with listening(home) as (holder, _, _):
            it = Two(holder, other, await holder.new())
            await holder.editor.stop_reason(holder.editor.prompt(it.session_id, "before"))
            await it.load()
            path = holder.context.journal.lock_path(it.session_id)
            mine = os.open(path, os.O_RDWR)
        # The lock is free for a moment; who is quicker holds it.
        os.close(mine)
        first = other.editor.prompt(it.session_id, "one")
        second = other.editor.prompt(it.session_id, "two")
        other.editor.cancel_request(second)
        assert await other.editor.stop_reason(first) == "end_turn"
        await until(lambda: other.editor.answers(second))


async def test_the_end_of_the_bridge_that_passes_a_session_through_ends_nothing_there(
    home: Path,
) -> None:
    async with listening(home) as (holder, _, _):
        async with listening(home) as (other, _, _):
            it = Two(holder, other, await holder.new())
            await it.load()
            turn = holder.agent.stops_at("session/prompt")
            other.editor.prompt(it.session_id, "work")
            await until(lambda: turn.reached)
        turn.open()
        await until(lambda: "echo work" in holder.editor.texts(it.session_id))
