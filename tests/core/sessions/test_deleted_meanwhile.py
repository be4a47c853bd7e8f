"""A session is deleted while something else is done with it, at each moment of that."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.clients.client import ClientRequest, Work
from tests.core.sessions.agent import ABLE, Agent, Json, Process, until
from tests.core.sessions.world import SETUP, World, interrupted, world

pytestmark = pytest.mark.hazard("K6", "Q9", "P12")

FORKS: Json = {**ABLE, "fork": {}}


def forking() -> Agent:
    agent = Agent(able=FORKS)

    async def fork(process: Process, params: Json) -> Json:
        return {"sessionId": f"fork of {params['sessionId']}"}

    agent.script["session/fork"] = fork
    return agent


def only_of(method: str, around: Callable[[Work], Work]) -> Callable[[Work], Work]:
    """Change how the next request of this method is answered, and no other."""
    left = [method]

    def choose(work: Work) -> Work:
        changed = around(work)

        def run(request: ClientRequest, params: Json) -> Any:
            if left == [request.method]:
                left.clear()
                return changed(request, params)
            return work(request, params)

        return run

    return choose


def files(it: World, session_id: str) -> list[str]:
    folder = it.journal.path(session_id).parent
    return [each.name for each in folder.glob(f"{it.journal.path(session_id).stem}*")]


@pytest.mark.parametrize(
    ("method", "live"),
    [(method, live) for method in ("load", "resume", "fork") for live in (True, False)]
    + [("close", True)],
)
async def test_at_any_moment_of_another_request_nothing_is_left_of_it(
    tmp_path: Path, method: str, live: bool
) -> None:
    async with world(tmp_path, forking()) as it:
        it.context.capabilities = {"loadSession": True, "sessionCapabilities": FORKS}
        for number in it.moments():
            session_id = await it.new() if live else await it.stored("hello")
            if live:
                await it.says(session_id, "hello")
            deletes: list[Any] = []
            named = {"sessionId": session_id}

            def delete(request: ClientRequest, deletes: list[Any] = deletes) -> None:
                about = {"sessionId": request.params["sessionId"]}
                deletes.append(it.editor.send("session/delete", about))

            it.around = only_of(f"session/{method}", interrupted(number, delete))
            request = it.editor.send(f"session/{method}", {**SETUP, **named})
            await until(partial(it.editor.answers, request))
            it.around = lambda work: work
            if not deletes:  # it ended before
                break
            (answer,) = it.editor.answers(request)
            assert "result" in answer or answer["error"]["code"] == -32002
            assert await it.editor.result(deletes[0]) == {}
            assert len(it.editor.answers(request)) == 1
            assert session_id not in it.sessions.live
            assert session_id not in await it.listed()
            assert files(it, session_id) == []
            assert (await it.editor.refused("session/load", {**SETUP, **named})).code == -32002
            if method == "fork" and "result" in answer:
                fork = answer["result"]["sessionId"]
                await it.says(fork, "and on")
                assert await it.editor.ask("session/delete", {"sessionId": fork}) == {}
            assert it.sessions.live == {}
            await until(lambda: not it.in_use)


@pytest.mark.parametrize("method", ["load", "fork"])
async def test_these_requests_wait_often_enough(tmp_path: Path, method: str) -> None:
    """Else the test before looks at nothing."""
    async with world(tmp_path, forking()) as it:
        it.context.capabilities = {"loadSession": True, "sessionCapabilities": FORKS}
        session_id = await it.stored("hello")
        reached: list[ClientRequest] = []
        it.around = interrupted(9, reached.append)
        await it.editor.ask(f"session/{method}", {**SETUP, "sessionId": session_id})
        assert reached


async def test_at_any_moment_of_an_import_nothing_is_left_of_it(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        it.agent.history = ["one", "two"]
        for number in it.moments():
            it.agent.rows = [{"sessionId": f"a{number}", "cwd": "/w"}]
            named = {"sessionId": f"a{number}"}
            deletes: list[Any] = []

            def delete(request: ClientRequest, deletes: list[Any] = deletes) -> None:
                about = {"sessionId": request.params["sessionId"]}
                deletes.append(it.editor.send("session/delete", about))

            it.around = only_of("session/load", interrupted(number, delete))
            request = it.editor.send("session/load", {**SETUP, **named})
            await until(partial(it.editor.answers, request))
            it.around = lambda work: work
            if not deletes:
                break
            (answer,) = it.editor.answers(request)
            assert "result" in answer or answer["error"]["code"] == -32002
            assert await it.editor.result(deletes[0]) == {}
            assert it.sessions.live == {}
            assert files(it, named["sessionId"]) == []
            page = await it.editor.ask("session/list", {"cwd": "/w"})
            assert page["sessions"] == []  # hidden, though the agent lists it still
            assert (await it.editor.refused("session/load", {**SETUP, **named})).code == -32002
            await until(lambda: not it.in_use)
        assert number > 5


async def test_a_prompt_that_comes_behind_the_deletion_is_refused_and_lists_nothing(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        session_id = await it.new()
        gate = it.agent.stops_at("session/close")
        deletion = it.editor.send("session/delete", {"sessionId": session_id})
        await until(lambda: it.sessions.live[session_id].closing)
        late = it.editor.prompt(session_id, "too late")
        gate.open()
        assert (await it.editor.refusal(late)).code == -32002
        assert await it.editor.result(deletion) == {}
        assert await it.listed() == []
        assert files(it, session_id) == []
