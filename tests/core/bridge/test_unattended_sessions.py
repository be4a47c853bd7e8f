"""Sessions that nobody has open, in a bridge that serves remote clients: each has its own time."""

from pathlib import Path

import pytest

from acp_bridge.core.bridge import attendance
from tests.core.bridge.remote import RemoteBench, remote_bench
from tests.core.bridge.test_rights import PERMISSION, chosen
from tests.core.sessions.agent import until
from tests.core.sessions.bench import Served

pytestmark = pytest.mark.hazard("N7")

#: seconds; over at once, and still later than what a test does right away.
SHORT = 0.01


async def left(it: RemoteBench, *prompts: str) -> tuple[str, Served]:
    """A session with these prompts, of which the first one runs; its client is still there."""
    client = await it.remote()
    session_id = await it.new(client)
    for text in prompts:
        client.prompt(session_id, text)
    return session_id, client


async def gone(it: RemoteBench, session_id: str) -> None:
    await until(lambda: session_id not in it.bridge._sessions.live)


@pytest.mark.hazard("N7.2")
async def test_a_session_at_rest_that_nobody_has_open_is_closed_and_can_be_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attendance, "LINGER", 0)
    async with remote_bench(tmp_path) as it:
        session_id, client = await left(it)
        assert await client.stop_reason(client.prompt(session_id, "hello")) == "end_turn"
        other_id, other = await left(it)
        client.leaves()
        await gone(it, session_id)
        assert other_id in it.bridge._sessions.live
        assert len(it.agent.living) == 1
        again = await it.holding("all", session_id)
        assert again.texts(session_id) == ["hello", "echo hello"]
        assert await other.stop_reason(other.prompt(other_id, "on")) == "end_turn"


@pytest.mark.hazard("N7.2")
async def test_work_that_nobody_has_open_goes_on_and_is_there_for_who_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attendance, "LINGER", 0)
    async with remote_bench(tmp_path) as it:
        turn = it.agent.stops_at("session/prompt")
        session_id, client = await left(it, "work", "later")
        await until(lambda: turn.reached)
        (process,) = it.agent.living
        client.leaves()
        rests, idle = await left(it)
        idle.leaves()
        await gone(it, rests)
        params = {**PERMISSION, "sessionId": "agent-1"}
        process.says({"id": 77, "method": "session/request_permission", "params": params})
        back = await it.holding("approve", session_id)
        (question,) = await back.got("session/request_permission")
        back.answers_with(question, chosen("yes"))
        turn.open()
        await until(lambda: "echo later" in back.texts(session_id))
        assert session_id in it.bridge._sessions.live
        back.leaves()
        await gone(it, session_id)


@pytest.mark.hazard("N7.3")
@pytest.mark.parametrize("here", [False, True])
async def test_when_the_time_is_over_what_runs_is_cancelled_and_what_waits_is_left_over(
    tmp_path: Path, here: bool
) -> None:
    async with remote_bench(tmp_path, keep=SHORT) as it:
        turn = it.agent.stops_at("session/prompt")
        session_id, client = await left(it)
        runs, waits = client.prompt(session_id, "work"), client.prompt(session_id, "later")
        await until(lambda: turn.reached)
        other_id, other = await left(it)
        if here:  # it has the connection still, and waits for its answers
            assert await client.ask("session/close", {"sessionId": session_id}) == {}
        else:
            client.leaves()
        await gone(it, session_id)
        turn.open()
        if here:
            assert await client.stop_reason(runs) == "cancelled"
            assert "it is kept" in (await client.refusal(waits)).message
        assert other_id in it.bridge._sessions.live
        answer = await (back := await it.remote()).ask(
            "session/load", {**it.setup(), "sessionId": session_id}
        )
        (held,) = answer["_meta"]["acp_bridge"]["held"]
        assert held == [{"type": "text", "text": "later"}]
        texts = "\n".join(back.texts(session_id))
        assert "Nobody has had this session open for" in texts
        assert await other.stop_reason(other.prompt(other_id, "on")) == "end_turn"
        assert len(it.agent.params("session/prompt")) == 2


@pytest.mark.hazard("N7.4")
@pytest.mark.parametrize("first", ["the load", "the end"])
async def test_a_load_at_the_end_of_a_session_keeps_it_or_opens_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    monkeypatch.setattr(attendance, "LINGER", 0)
    async with remote_bench(tmp_path) as it:
        session_id, client = await left(it)
        assert await client.stop_reason(client.prompt(session_id, "hello")) == "end_turn"
        sessions, back = it.bridge._sessions, await it.remote()
        before = sessions.live[session_id]
        asked = {**it.setup(), "sessionId": session_id}
        async with sessions._busy.hold(session_id):
            if first == "the load":
                load = back.send("session/load", asked)
                lock = sessions._busy._locks[session_id]
                # It looks at the client's folders first, in a thread.
                await until(lambda: lock.statistics().tasks_waiting == 1)
            client.leaves()
            await until(lambda: before in sessions.ending._left)
            if first == "the end":
                load = back.send("session/load", asked)
        await back.result(load)
        assert back.texts(session_id) == ["hello", "echo hello"]
        assert await back.stop_reason(back.prompt(session_id, "on")) == "end_turn"
        assert (sessions.live[session_id] is before) == (first == "the load")
