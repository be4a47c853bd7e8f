"""What is asked of people is what runs: the recorded card, the request, and how they change."""

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.terminal.shared.question import shown
from tests.core.bridge.test_questions import OPTIONS, PERMISSION, Turn, chosen, turn
from tests.core.sessions.agent import Json, until
from tests.core.sessions.bench import Served
from tests.core.sessions.world import SETUP

pytestmark = pytest.mark.hazard("V9")

WHOLE: Json = {"wholeCalls": True}
RAW: Json = {"command": "rm -rf src"}
#: what names only the card.
NAMED: Json = {"toolCallId": "t"}


def card(here: Turn, of_kind: str = "tool_call_update", /, **said: Any) -> None:
    """Let the agent say something of its tool call."""
    update = {"sessionUpdate": of_kind, "toolCallId": "t", **said}
    params = {"sessionId": here.process.agent_session_id, "update": update}
    here.process.says({"method": "session/update", "params": params})


def lists(here: Turn) -> None:
    card(here, "tool_call", title="List files", kind="read", rawInput=RAW, status="pending")


async def asked(client: Served, number: int = 0) -> Json:
    """Return this request of a permission of a client, waited for."""
    await until(lambda: len(client.asked(PERMISSION)) > number)
    request: Json = client.asked(PERMISSION)[number]
    return request


async def row(here: Turn) -> Json:
    listed = await here.it.editor.ask("_acp_bridge/live", {})
    (found,) = listed["sessions"]
    return dict(found)


@pytest.mark.hazard("V9.1")
async def test_a_request_that_names_only_its_card_is_asked_with_all_that_the_card_said(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path) as here:
        there = await here.it.attached(here.id, **WHOLE)
        lists(here)
        card(here, locations=[{"path": "/etc/passwd"}], rawInput={"timeout": 5})
        here.asks(toolCall=NAMED, options=OPTIONS)
        text = shown((await asked(there))["params"])
        for each in ("List files", "command: rm -rf src", "timeout: 5", "path: /etc/passwd"):
            assert each in text
        plain = (await asked(here.it.editor))["params"]["toolCall"]
        assert plain == NAMED  # it has seen the card
        late = await here.it.joined(**WHOLE)  # as `approve` does
        await late.ask("_acp_bridge/attach", {"sessionId": here.id, "history": "pending"})
        assert shown((await asked(late))["params"]) == text
        assert "List files: command: rm -rf src" in (await row(here))["asks"]


@pytest.mark.parametrize("how", ["session/resume", "_acp_bridge/attach"])
async def test_any_client_that_comes_in_the_turn_without_its_card_is_told_it(
    tmp_path: Path, how: str
) -> None:
    async with turn(tmp_path) as here:
        lists(here)
        await here.it.editor.handled()
        late = await here.it.joined()
        await late.ask(how, {**SETUP, "sessionId": here.id, "history": "pending"})
        here.asks(toolCall=NAMED, options=OPTIONS)
        call = (await asked(late))["params"]["toolCall"]
        assert (call["title"], call["rawInput"]) == ("List files", RAW)
        loaded = await here.it.joined()
        await loaded.ask("session/load", {**SETUP, "sessionId": here.id})
        assert (await asked(loaded))["params"]["toolCall"] == NAMED


@pytest.mark.parametrize("empty", [{}, {"rawInput": {}}, {"rawInput": None}, {"content": []}])
async def test_what_a_request_leaves_empty_hides_nothing_of_the_card(
    tmp_path: Path, empty: Json
) -> None:
    async with turn(tmp_path) as here:
        there = await here.it.attached(here.id, **WHOLE)
        diff = {"type": "diff", "path": "/etc/hosts", "oldText": None, "newText": "evil"}
        lists(here)
        card(here, content=[diff])
        card(here, **empty)
        here.asks(toolCall={**NAMED, "title": "Look around", **empty}, options=OPTIONS)
        text = shown((await asked(there))["params"])
        for each in ("Look around", "title (on its card): List files", "rm -rf src", "evil"):
            assert each in text


@pytest.mark.hazard("V9.2")
async def test_a_request_that_names_another_command_than_its_card_shows_both(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path) as here:
        there = await here.it.attached(here.id, **WHOLE)
        lists(here)
        here.asks(toolCall={**NAMED, "rawInput": {"command": "ls"}}, options=OPTIONS)
        text = shown((await asked(there))["params"])
        assert "command: ls\ncommand (on its card): rm -rf src" in text


@pytest.mark.parametrize("ended", ["completed", "failed"])
async def test_a_card_that_was_said_to_have_ended_is_shown_all_the_same(
    tmp_path: Path, ended: str
) -> None:
    async with turn(tmp_path) as here:
        there = await here.it.attached(here.id, **WHOLE)
        lists(here)
        card(here, status=ended)
        here.asks(toolCall=NAMED, options=OPTIONS)
        assert "command: rm -rf src" in shown((await asked(there))["params"])


@pytest.mark.hazard("V9.8")
async def test_a_card_that_changes_while_it_is_asked_about_is_asked_about_anew(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path) as here:
        there = await here.it.attached(here.id, **WHOLE)
        here.asks(toolCall={**NAMED, "rawInput": {"command": "ls"}}, options=OPTIONS)
        first = await asked(there)
        card(here, rawInput=RAW)
        (called_back,) = await there.got("$/cancel_request")
        assert called_back["params"] == {"requestId": first["id"]}
        second = await asked(there, 1)
        assert "command: rm -rf src" in shown(second["params"])
        there.answers_with(first, chosen("yes"))  # to what it was shown before
        await there.handled()
        assert here.answers() == []
        assert "rm -rf src" in (await row(here))["asks"]
        card(here, status="in_progress", rawInput=RAW)  # nothing that a question shows
        there.answers_with(second, chosen("no"))
        assert await here.answered() == chosen("no")
        assert len(there.asked(PERMISSION)) == 2
        assert len(here.it.editor.asked(PERMISSION)) == 1  # it sees the card change


async def test_the_only_client_that_gives_up_what_is_asked_anew_has_not_answered(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path, {"_meta": {"acp_bridge": WHOLE}}) as here:
        here.asks(toolCall=NAMED, options=OPTIONS)
        first = await asked(here.it.editor)
        card(here, rawInput=RAW)
        second = await asked(here.it.editor, 1)
        here.it.editor.answers_with_error(first, -32800)
        await here.it.editor.handled()
        assert here.answers() == []
        here.it.editor.answers_with_error(second, -32601)
        assert (await here.answered())["code"] == -32601  # the only client's own answer


async def test_of_two_questions_about_one_card_each_shows_its_own_command(tmp_path: Path) -> None:
    async with turn(tmp_path) as here:
        there = await here.it.attached(here.id, **WHOLE)
        title = {**NAMED, "title": "List files"}
        here.asks(toolCall={**title, "rawInput": {"command": "ls"}}, options=OPTIONS)
        here.asks(request_id=8, toolCall={**title, "rawInput": RAW}, options=OPTIONS)
        one, two = await asked(there), await asked(there, 1)
        assert "rm -rf" not in shown(one["params"])
        assert "command: rm -rf src" in shown(two["params"])
        there.answers_with(one, chosen("yes"))
        assert await here.answered() == chosen("yes")
        assert here.answers(8) == []
        assert "command: rm -rf src" in (await row(here))["asks"]
        there.answers_with(two, chosen("no"))
        await until(lambda: here.answers(8))
        assert here.answers(8) == [chosen("no")]


async def test_an_agent_with_one_id_for_all_its_requests_asks_about_the_last_word_of_each(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path) as here:
        there = await here.it.attached(here.id, **WHOLE)
        for number, command in enumerate(("ls", "rm -rf src")):
            call = {**NAMED, "title": command, "rawInput": {"command": [command]}}
            here.asks(request_id=number, toolCall=call, options=OPTIONS)
            text = shown((await asked(there, number))["params"])
            assert "on its card" not in text
        here.asks(request_id=2, toolCall=NAMED, options=OPTIONS)
        assert "rm -rf src" in shown((await asked(there, 2))["params"])


async def test_a_terminal_of_the_first_client_is_no_other_client_s(tmp_path: Path) -> None:
    async with turn(tmp_path) as here:
        there = await here.it.attached(here.id, **WHOLE)
        lists(here)
        card(here, content=[{"type": "terminal", "terminalId": "t1"}])
        here.asks(toolCall=NAMED, options=OPTIONS)
        call = (await asked(there))["params"]["toolCall"]
        assert (call["content"], call["rawInput"]) == ([], RAW)


async def test_the_list_of_what_is_live_counts_further_questions(tmp_path: Path) -> None:
    async with turn(tmp_path) as here:
        for number in (7, 8, 9):
            call = {"toolCallId": str(number), "title": "x", "rawInput": {"cmd": ["rm", "a b"]}}
            here.asks(request_id=number, toolCall=call, options=OPTIONS)
        assert (await row(here))["asks"] == "x: cmd: rm 'a b' (and 2 more)"
        here.it.editor.answers_with(await asked(here.it.editor), chosen("no"))
        await here.it.editor.handled()
        assert (await row(here))["asks"] == "x: cmd: rm 'a b' (and 1 more)"
