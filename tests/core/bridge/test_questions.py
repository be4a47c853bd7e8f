"""What an agent asks people: all clients that can answer are asked, and one decides."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.bridge import attendance
from tests.core.sessions.agent import Gate, Json, Process, until
from tests.core.sessions.bench import Bench, Served, bench
from tests.core.sessions.world import SETUP

PERMISSION, ELICITATION = "session/request_permission", "elicitation/create"
OPTIONS: list[Json] = [
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]
TOOL: Json = {"toolCallId": "t", "title": "Edit x"}
CANCELLED: Json = {"outcome": {"outcome": "cancelled"}}
FORMS: Json = {"elicitation": {"form": {}}}


def chosen(option: object) -> Json:
    return {"outcome": {"outcome": "selected", "optionId": option}}


@dataclass(slots=True)
class Turn:
    """A session in whose turn the agent may ask."""

    it: Bench
    id: str
    process: Process
    gate: Gate

    def asks(self, method: str = PERMISSION, request_id: int = 7, **params: Any) -> None:
        given = params or {"toolCall": TOOL, "options": OPTIONS}
        given = {"sessionId": self.process.agent_session_id, **given}
        self.process.says({"id": request_id, "method": method, "params": given})

    def answers(self, request_id: int = 7) -> list[Json]:
        """Return the answers that the agent got."""
        got = [m for m in self.process.received if "method" not in m and m["id"] == request_id]
        return [message.get("result") or message["error"] for message in got]

    async def answered(self) -> Json:
        await until(self.answers)
        (answer,) = self.answers()
        return answer


@asynccontextmanager
async def turn(home: Path, first: Json | None = None, **more: Any) -> AsyncIterator[Turn]:
    """A turn of the client on stdin, which can do what `first` says."""
    async with bench(home, initialized=False, **more) as it:
        given = {"protocolVersion": 1, "clientCapabilities": first or {}}
        await it.editor.ask("initialize", given)
        session_id = await it.new()
        gate = it.agent.stops_at("session/prompt")
        it.editor.prompt(session_id, "go")
        await until(lambda: gate.reached)
        (process,) = it.agent.processes
        yield Turn(it, session_id, process, gate)


# --- permissions -----------------------------------------------------------------------------


@pytest.mark.hazard("V3.1", "V3.8", "P10")
async def test_everybody_is_asked_and_the_first_choice_counts(tmp_path: Path) -> None:
    async with turn(tmp_path) as here:
        other = await here.it.attached(here.id)
        here.asks()
        (one,), (two,) = await here.it.editor.got(PERMISSION), await other.got(PERMISSION)
        assert one["params"] == two["params"]
        assert one["params"]["sessionId"] == here.id
        other.answers_with(two, chosen("yes"))
        assert await here.answered() == chosen("yes")
        (called_back,) = await here.it.editor.got("$/cancel_request")
        assert called_back["params"] == {"requestId": one["id"]}
        here.it.editor.answers_with(one, chosen("no"))  # too late
        await here.it.editor.handled()
        assert here.answers() == [chosen("yes")]
        assert other.asked("$/cancel_request") == []


@pytest.mark.hazard("V3.2", "C18", "K8")
@pytest.mark.parametrize(
    "odd", [CANCELLED, chosen("maybe"), chosen(["yes"]), {}, {"outcome": "yes"}, -32601]
)
async def test_what_is_no_choice_withdraws_its_client_alone(
    tmp_path: Path, odd: Json | int
) -> None:
    async with turn(tmp_path) as here:
        other = await here.it.attached(here.id)
        here.asks()
        (one,), (two,) = await here.it.editor.got(PERMISSION), await other.got(PERMISSION)
        if isinstance(odd, int):
            here.it.editor.answers_with_error(one, odd)
        else:
            here.it.editor.answers_with(one, odd)
        await here.it.editor.handled()
        assert here.answers() == other.asked("$/cancel_request") == []
        other.answers_with(two, chosen("no"))
        assert await here.answered() == chosen("no")


@pytest.mark.hazard("V3.3", "Q9")
@pytest.mark.parametrize(("options", "told"), [(OPTIONS, chosen("no")), (OPTIONS[:1], CANCELLED)])
async def test_a_question_from_which_all_have_withdrawn_is_rejected(
    tmp_path: Path, options: list[Json], told: Json
) -> None:
    async with turn(tmp_path) as here:
        other = await here.it.attached(here.id)
        here.asks(toolCall=TOOL, options=options)
        (one,), (two,) = await here.it.editor.got(PERMISSION), await other.got(PERMISSION)
        here.it.editor.answers_with(one, CANCELLED)
        other.answers_with_error(two, -32601)
        assert await here.answered() == told


@pytest.mark.hazard("V3.2", "C18.2", "K8")
@pytest.mark.parametrize(
    ("answer", "told"), [(CANCELLED, CANCELLED), (chosen("maybe"), chosen("no")), (-32601, None)]
)
async def test_the_answer_of_the_only_client_is_passed_on_unless_it_was_not_offered(
    tmp_path: Path, answer: Json | int, told: Json | None
) -> None:
    async with turn(tmp_path) as here:
        here.asks()
        (one,) = await here.it.editor.got(PERMISSION)
        if isinstance(answer, int):
            here.it.editor.answers_with_error(one, answer)
            assert (await here.answered())["code"] == answer
        else:
            here.it.editor.answers_with(one, answer)
            assert await here.answered() == told


@pytest.mark.hazard("V3.2", "V5.1")
@pytest.mark.parametrize("how", ["leaves", "closes"])
async def test_a_client_that_goes_withdraws_and_the_others_decide(tmp_path: Path, how: str) -> None:
    async with turn(tmp_path) as here:
        other = await here.it.attached(here.id)
        here.asks()
        (one,), (two,) = await here.it.editor.got(PERMISSION), await other.got(PERMISSION)
        if how == "leaves":
            other.leaves()
            await other.parted.wait()
        else:
            assert await other.ask("session/close", {"sessionId": here.id}) == {}
            (called_back,) = await other.got("$/cancel_request")
            assert called_back["params"] == {"requestId": two["id"]}
            other.answers_with(two, chosen("yes"))  # it has nothing to say any more
            await other.handled()
        assert here.answers() == []
        here.it.editor.answers_with_error(one, -32601)
        assert await here.answered() == chosen("no")


@pytest.mark.hazard("V3.6")
@pytest.mark.parametrize("how", ["_acp_bridge/attach", "session/load", "session/resume"])
async def test_one_who_joins_is_asked_what_is_open_when_it_has_been_shown_the_session(
    tmp_path: Path, how: str
) -> None:
    async with turn(tmp_path) as here:
        here.asks()
        (one,) = await here.it.editor.got(PERMISSION)
        here.it.editor.answers_with(one, CANCELLED)
        here.asks(request_id=8)
        other = await here.it.joined()
        await other.ask(how, {**SETUP, "sessionId": here.id})
        (asked,) = await other.got(PERMISSION)
        order = [m.get("method", "answer") for m in other.messages]
        assert order.index(PERMISSION) > max(n for n, m in enumerate(order) if m == "answer")
        other.answers_with(asked, chosen("yes"))
        await until(lambda: here.answers(8))
        assert here.answers(8) == [chosen("yes")]


@pytest.mark.hazard("V3.6", "V4")
async def test_one_who_is_being_shown_the_session_is_asked_later_and_waited_for(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path, client_limit=1) as here:
        slow = await here.it.joined()
        slow.way.stuck = 1
        load = slow.send("_acp_bridge/attach", {"sessionId": here.id})
        await until(lambda: slow.texts(here.id))
        here.it.editor.way.stuck = 0
        here.asks()
        (one,) = await here.it.editor.got(PERMISSION)
        here.it.editor.answers_with(one, CANCELLED)
        await here.it.editor.handled()
        assert here.answers() == slow.asked(PERMISSION) == []
        slow.way.take_all()
        await slow.result(load)
        (asked,) = await slow.got(PERMISSION)
        cards = [m["params"]["update"] for m in slow.asked("session/update")]
        assert [c["toolCallId"] for c in cards if c["sessionUpdate"] == "tool_call"] == ["t"]
        slow.answers_with(asked, chosen("yes"))
        assert await here.answered() == chosen("yes")


@pytest.mark.hazard("V3", "Q8")
async def test_one_whose_load_was_cancelled_is_asked_all_the_same(tmp_path: Path) -> None:
    async with turn(tmp_path, client_limit=1) as here:
        here.it.editor.way.stuck = 1
        load = here.it.editor.send("session/load", {**SETUP, "sessionId": here.id})
        await until(lambda: here.it.editor.texts(here.id))
        here.asks()
        await here.it.editor.refused("session/fork", {})
        assert here.it.editor.asked(PERMISSION) == []
        here.it.editor.cancel_request(load)
        (asked,) = await here.it.editor.got(PERMISSION)
        assert (await here.it.editor.refusal(load)).code == -32800
        here.it.editor.answers_with(asked, chosen("yes"))
        assert await here.answered() == chosen("yes")


@pytest.mark.hazard("V3", "V1")
async def test_an_observer_and_who_only_wants_its_own_turns_are_shown_the_card_and_not_asked(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path) as here:
        watcher = await here.it.attached(here.id, observer=True)
        runner = await here.it.attached(here.id, ownTurnsOnly=True)
        here.asks()
        (one,) = await here.it.editor.got(PERMISSION)
        for client in (watcher, runner):
            (card,) = [
                m["params"]["update"]
                for m in client.asked("session/update")
                if m["params"]["update"]["sessionUpdate"] == "tool_call"
            ]
            assert card["title"] == "Edit x"
            assert client.asked(PERMISSION) == []
        here.it.editor.answers_with(one, chosen("yes"))
        assert await here.answered() == chosen("yes")
        runner.prompt(here.id, "mine")
        await runner.handled()
        its_turn = here.it.agent.stops_at("session/prompt")
        here.gate.open()
        await until(lambda: its_turn.reached)
        here.asks(request_id=8)
        await runner.got(PERMISSION)


@pytest.mark.hazard("V3", "Q9")
async def test_a_session_that_only_observers_have_rejects_at_once(tmp_path: Path) -> None:
    async with turn(tmp_path) as here:
        await here.it.attached(here.id, observer=True)
        await here.it.editor.ask("session/close", {"sessionId": here.id})
        here.asks()
        assert (await here.answered())["code"] == -32601


@pytest.mark.hazard("C15.1", "C15.2", "V3")
async def test_a_stop_ends_a_question_at_every_client(tmp_path: Path) -> None:
    async with turn(tmp_path, drain_timeout=60) as here:
        other = await here.it.attached(here.id)
        here.asks()
        clients: tuple[Served, ...] = (here.it.editor, other)
        for client in clients:
            await client.got(PERMISSION)
        here.it.editor.notify("session/cancel", {"sessionId": here.id})
        assert await here.answered() == CANCELLED
        for client in clients:
            await client.got("$/cancel_request")
        here.gate.open()


@pytest.mark.hazard("P13")
async def test_an_agent_takes_its_question_back_from_everybody_and_waits_for_nobody(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path) as here:
        other = await here.it.attached(here.id)
        here.asks()
        for client in (here.it.editor, other):
            await client.got(PERMISSION)
        here.process.says({"method": "$/cancel_request", "params": {"requestId": "7"}})
        assert (await here.answered())["code"] == -32800
        for client in (here.it.editor, other):
            (asked,) = client.asked(PERMISSION)
            await client.got("$/cancel_request")
            client.answers_with(asked, chosen("yes"))  # too late
            await client.handled()
        assert len(here.answers()) == 1


# --- forms, files and terminals --------------------------------------------------------------


@pytest.mark.hazard("V3.1")
@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_a_form_goes_to_those_who_can_show_it_and_one_of_them_decides(
    tmp_path: Path, action: str
) -> None:
    async with turn(tmp_path, FORMS) as here:
        unable = await here.it.attached(here.id)
        able = await here.it.joined_with(FORMS)
        await able.ask("_acp_bridge/attach", {"sessionId": here.id})
        here.asks(ELICITATION, mode="form", message="Which?")
        (one,), (two,) = await here.it.editor.got(ELICITATION), await able.got(ELICITATION)
        here.it.editor.answers_with(one, {"action": "cancel"})
        await here.it.editor.handled()
        assert here.answers() == unable.asked(ELICITATION) == []
        able.answers_with(two, {"action": action})
        assert await here.answered() == {"action": action}


@pytest.mark.hazard("V4.7")
async def test_files_and_terminals_are_those_of_the_client_that_the_agent_was_told_of(
    tmp_path: Path,
) -> None:
    can: Json = {"terminal": True, "fs": {"readTextFile": True}}
    async with turn(tmp_path, can) as here:
        other = await here.it.joined_with(can)
        await other.ask("_acp_bridge/attach", {"sessionId": here.id})
        here.asks("fs/read_text_file", path="/x")
        (asked,) = await here.it.editor.got("fs/read_text_file")
        here.it.editor.answers_with(asked, {"content": "x"})
        assert await here.answered() == {"content": "x"}
        assert other.asked("fs/read_text_file") == []
        await here.it.editor.ask("session/close", {"sessionId": here.id})
        here.asks("fs/read_text_file", request_id=8, path="/x")
        await until(lambda: here.answers(8))
        assert here.answers(8)[0]["code"] == -32601


async def test_in_a_kept_bridge_a_form_that_nobody_there_can_fill_in_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attendance, "LINGER", 0)
    async with turn(tmp_path, keep=60.0) as here:
        here.asks(ELICITATION, mode="form", message="?", requestedSchema={})
        assert (await here.answered())["code"] == -32601
        here.gate.open()


async def test_in_a_kept_bridge_a_permission_waits_for_who_comes_after_all_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attendance, "LINGER", 0)
    async with turn(tmp_path, keep=60.0) as here:
        guest = await here.it.attached(here.id)
        here.asks()
        await until(lambda: guest.asked(PERMISSION))
        await here.it.editor.ask("session/close", {"sessionId": here.id})
        guest.leaves()
        with anyio.fail_after(5):
            await guest.parted.wait()
        assert here.answers() == []
        next_one = await here.it.attached(here.id)
        await until(lambda: next_one.asked(PERMISSION))
        (asked,) = next_one.asked(PERMISSION)
        next_one.answers_with(asked, chosen("yes"))
        assert await here.answered() == chosen("yes")
        here.gate.open()
        next_one.leaves()
