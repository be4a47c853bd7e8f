"""A client that loads a session which it has: what happens from the reading of the load on comes
once, behind the replay."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.core.bridge.test_questions import PERMISSION, Turn, chosen, turn
from tests.core.sessions.agent import until
from tests.core.sessions.bench import bench
from tests.core.sessions.editor import Editor
from tests.core.sessions.world import SETUP


@dataclass(slots=True)
class Again:
    """A running turn, in which the agent has said "before"; its prompt was "go"."""

    turn: Turn
    #: a client of that session, whose requests are read where they are sent.
    client: Editor

    @property
    def load(self) -> dict[str, Any]:
        return {**SETUP, "sessionId": self.turn.id}

    def says(self, text: str) -> None:
        assert self.turn.process.agent_session_id
        self.turn.process.update(self.turn.process.agent_session_id, text)

    def texts(self) -> list[str]:
        """What the client was shown; "answer" stands where a load was answered."""
        shown = [
            "answer" if "method" not in message else message["params"]["update"]["content"]["text"]
            for message in self.client.out.take()
            if message.get("method", "session/update") == "session/update"
            and "content" in message.get("params", {"update": {"content": 0}})["update"]
        ]
        return [text for text in shown if "/queue wait" not in text]


@asynccontextmanager
async def again(home: Path) -> AsyncIterator[Again]:
    async with turn(home) as here:
        client = here.it.another()
        await client.ask("_acp_bridge/attach", {"sessionId": here.id})
        it = Again(here, client)
        it.says("before")
        assert it.texts()[-1] == "before"
        yield it


@pytest.mark.hazard("R1", "V1.1")
@pytest.mark.parametrize("how", ["session/load", "_acp_bridge/attach"])
async def test_what_comes_right_behind_a_load_is_shown_once_and_after_its_answer(
    tmp_path: Path, how: str
) -> None:
    async with again(tmp_path) as it:
        request = it.client.send(how, it.load)
        it.says("meanwhile")
        assert it.texts() == []
        await it.client.result(request)
        assert it.texts() == ["go", "before", "answer", "meanwhile"]
        it.says("after")
        assert it.texts() == ["after"]


@pytest.mark.hazard("R1")
async def test_the_words_of_a_prompt_behind_a_load_are_not_in_its_replay(tmp_path: Path) -> None:
    """The client shows them by itself, below what it was shown by the load."""
    async with again(tmp_path) as it:
        request = it.client.send("session/load", it.load)
        it.turn.gate.open()
        prompt = it.client.prompt(it.turn.id, "mine")
        await it.client.result(request)
        assert await it.client.stop_reason(prompt) == "end_turn"
        assert "mine" not in it.texts()


@pytest.mark.hazard("R1", "R3")
@pytest.mark.parametrize("how", ["refused", "cancelled"])
async def test_what_waited_for_a_load_that_fails_is_shown_and_what_is_asked_is_asked(
    tmp_path: Path, how: str
) -> None:
    async with again(tmp_path) as it:
        cwd = "nowhere" if how == "refused" else SETUP["cwd"]
        request = it.client.send("session/load", {**it.load, "cwd": cwd})
        it.says("meanwhile")
        it.turn.asks()
        assert it.client.asked(PERMISSION) == []
        if how == "cancelled":
            it.client.cancel_request(request)
        await it.client.refusal(request)
        await until(lambda: it.client.asked(PERMISSION))
        assert [text for text in it.texts() if text != "answer"] == ["meanwhile"]


async def test_a_question_that_comes_behind_a_load_is_asked_behind_its_replay(
    tmp_path: Path,
) -> None:
    async with again(tmp_path) as it:
        request = it.client.send("session/load", it.load)
        it.turn.asks()
        assert it.client.asked(PERMISSION) == []
        await it.client.result(request)
        (asked,) = it.client.asked(PERMISSION)
        it.client.says({"id": asked["id"], "result": chosen("yes")})
        assert await it.turn.answered() == chosen("yes")


@pytest.mark.hazard("R1")
async def test_two_loads_at_once_show_the_same_and_what_follows_once(tmp_path: Path) -> None:
    async with again(tmp_path) as it:
        one = it.client.send("session/load", it.load)
        it.says("between")
        two = it.client.send("session/load", it.load)
        it.says("meanwhile")
        await it.client.result(one)
        await it.client.result(two)
        first = ["go", "before", "answer", "between"]
        assert it.texts() == [*first, "go", "before", "between", "answer", "meanwhile"]


@pytest.mark.hazard("R1", "Q9")
async def test_a_load_behind_a_close_shows_what_came_between_once(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        gate = it.agent.stops_at("session/prompt")
        client = it.another()
        params = {**SETUP, "sessionId": session_id}
        await client.ask("session/load", params)
        await it.editor.ask("session/close", params)  # the other one has it alone
        prompt = client.prompt(session_id, "go")
        await until(lambda: gate.reached)
        close = client.send("session/close", params)
        load = client.send("session/load", params)
        it.agent.processes[0].update("agent-1", "between")
        await client.result(close)
        await client.result(load)
        assert client.texts(session_id).count("between") == 1
        assert await client.stop_reason(prompt) == "cancelled"
        answers = [message["id"] for message in client.messages if "method" not in message]
        assert answers.index(prompt) < answers.index(load)


@pytest.mark.hazard("V4")
async def test_a_load_holds_nothing_back_from_others(tmp_path: Path) -> None:
    async with again(tmp_path) as it:
        request = it.client.send("session/load", it.load)
        it.says("meanwhile")
        await it.turn.it.editor.handled()
        assert it.turn.it.editor.texts(it.turn.id)[-1] == "meanwhile"
        await it.client.result(request)


@pytest.mark.hazard("K10.1", "K10.2")
@pytest.mark.parametrize("how", ["empty", "gone"])
@pytest.mark.parametrize("way", ["load", "resume"])
async def test_a_session_whose_file_is_empty_or_gone_is_never_asked_of_the_agent(
    tmp_path: Path, how: str, way: str
) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        await it.editor.stop_reason(it.editor.prompt(session_id, "hello"))
    # only the bridge's end closes the file for certain: its index may read it until then
    (name,) = [each for each in os.listdir(tmp_path / "sessions") if each.endswith(".db")]
    file = tmp_path / "sessions" / name
    os.truncate(file, 0)
    if how == "gone":
        os.unlink(file)
    async with bench(tmp_path) as it:
        error = await it.editor.refused(f"session/{way}", {**SETUP, "sessionId": session_id})
        assert "the session's file is damaged or gone" in error.message
        assert it.agent.params("session/load") == it.agent.params("session/resume") == []
        assert how == "gone" or os.stat(file).st_size == 0
        assert name in os.listdir(tmp_path / "sessions") or how == "gone"


async def test_what_the_agent_tells_of_its_mode_in_meta_is_loaded_as_it_told_it_last(
    tmp_path: Path,
) -> None:
    def told(**more: Any) -> dict[str, Any]:
        return {"availableModes": [{"id": each} for each in ("plan", "edit")], **more}

    async with bench(tmp_path) as it:
        plan = told(currentModeId="plan", _meta={"planExecutionMode": "yolo"})
        it.agent.script["session/new"] = {"sessionId": "agent-1", "modes": plan}
        it.agent.script["session/set_mode"] = {}
        session_id = await it.new()
        other, load = await it.joined(), {**SETUP, "sessionId": session_id}
        assert (await other.ask("session/load", load))["modes"] == plan
        await it.editor.ask("session/set_mode", {"sessionId": session_id, "modeId": "edit"})
        assert (await other.ask("session/load", load))["modes"] == told(currentModeId="edit")
        update = {
            "sessionUpdate": "current_mode_update",
            "currentModeId": "plan",
            "_meta": {"a": 1},
        }
        it.agent.processes[0].shows("agent-1", update)
        again = (await other.ask("session/load", load))["modes"]
        assert again == told(currentModeId="plan", _meta={"a": 1})
        it.agent.script["session/set_mode"] = {"_meta": {"b": 2}}
        await it.editor.ask("session/set_mode", {"sessionId": session_id, "modeId": "plan"})
        again = (await other.ask("session/load", load))["modes"]
        assert again == told(currentModeId="plan", _meta={"b": 2})
