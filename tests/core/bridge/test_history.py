"""How much of a live session a client is shown when it attaches: `history`."""

from pathlib import Path
from typing import Any

import pytest

from tests.core.bridge.test_names import ENDS, attached, leaves, named
from tests.core.bridge.test_names_and_questions import question
from tests.core.bridge.test_questions import PERMISSION, Turn, chosen, turn
from tests.core.sessions.agent import Json, until
from tests.core.sessions.bench import Served

ATTACH = "_acp_bridge/attach"


async def turn_with_a_past(here: Turn) -> Json:
    """The turn has said a word and asks, a prompt waits; returns the editor's question."""
    here.process.update(str(here.process.agent_session_id), "word")
    here.it.editor.prompt(here.id, "waits")
    here.asks()
    (asked,) = await here.it.editor.got(PERMISSION)
    return asked


async def comes(here: Turn, history: str | None) -> tuple[Served, list[str]]:
    """A client attaches; returns it, and the methods of what it was sent but for the answer."""
    client = await here.it.joined(state=True, queue=True)
    asks = {} if history is None else {"history": history}
    await client.ask(ATTACH, {"sessionId": here.id, **asks})
    await client.handled()
    return client, [each["method"] for each in client.messages if "method" in each]


@pytest.mark.hazard("V1.1")
@pytest.mark.parametrize("history", [None, "full"])
async def test_full_is_the_default_and_shows_all_and_what_is_open(
    tmp_path: Path, history: str | None
) -> None:
    async with turn(tmp_path) as here:
        await turn_with_a_past(here)
        client, sent = await comes(here, history)
        assert "word" in str(client.texts(here.id))
        assert sent.count(PERMISSION) == 1
        assert {"_acp_bridge/state", "_acp_bridge/queue"} <= {*sent}


async def test_pending_shows_what_is_open_and_nothing_that_was_said(tmp_path: Path) -> None:
    async with turn(tmp_path) as here:
        await turn_with_a_past(here)
        client, sent = await comes(here, "pending")
        assert "word" not in str(client.messages)
        assert sent.count(PERMISSION) == 1
        (queue,) = client.asked("_acp_bridge/queue")
        assert [row["text"] for row in queue["params"]["prompts"]] == ["waits"]
        assert "_acp_bridge/state" in sent
        (asked,) = await client.got(PERMISSION)
        client.answers_with(asked, chosen("yes"))
        assert await here.answered() == chosen("yes")


@pytest.mark.hazard("V3")
async def test_none_shows_nothing_but_what_happens_from_then_on(tmp_path: Path) -> None:
    async with turn(tmp_path) as here:
        asked = await turn_with_a_past(here)
        client, sent = await comes(here, "none")
        assert sent == []
        here.process.update(str(here.process.agent_session_id), "next")
        await until(lambda: "next" in str(client.messages))
        here.asks(request_id=8)
        (later,) = await client.got(PERMISSION)
        client.answers_with(later, chosen("no"))
        await until(lambda: here.answers(8))
        here.it.editor.answers_with(asked, chosen("yes"))
        assert await here.answered() == chosen("yes")
        assert len(client.asked(PERMISSION)) == 1
        assert "word" not in str(client.messages)


async def test_the_answer_has_the_state_whatever_the_history(tmp_path: Path) -> None:
    async with turn(tmp_path) as here:
        await turn_with_a_past(here)
        client = await here.it.joined(state=True)
        result = await client.ask(ATTACH, {"sessionId": here.id, "history": "none"})
        assert result["_meta"]["acp_bridge"]["state"]["waiting"] == 1
        here.it.editor.prompt(here.id, "waits, too")
        (told,) = await client.got("_acp_bridge/state")
        assert told["params"]["waiting"] == 2


async def test_a_client_that_wanted_none_is_asked_once_it_wants_what_is_open(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path) as here:
        await turn_with_a_past(here)
        client, _ = await comes(here, "none")
        await client.ask(ATTACH, {"sessionId": here.id, "history": "pending"})
        await client.got(PERMISSION)
        await client.ask(ATTACH, {"sessionId": here.id, "history": "none"})
        await client.handled()
        assert len(client.asked(PERMISSION)) == 1
        assert client.asked("$/cancel_request") == []


@pytest.mark.hazard("V3.3")
async def test_a_question_does_not_wait_for_a_client_that_wanted_none(tmp_path: Path) -> None:
    async with turn(tmp_path) as here:
        asked = await turn_with_a_past(here)
        await comes(here, "none")
        here.it.editor.answers_with_error(asked, -32601)
        await here.answered()


@pytest.mark.hazard("N2.10")
@ENDS
async def test_a_client_that_comes_back_is_asked_its_own_question_also_with_none(
    tmp_path: Path, ends: str
) -> None:
    async with turn(tmp_path) as here:
        old = await attached(here.it, here.id)
        here.asks()
        (asked,) = await old.got(PERMISSION)
        await leaves(old, ends)
        new = await here.it.joined_with(named())
        await new.ask(ATTACH, {"sessionId": here.id, "history": "none"})
        (again,) = await new.got(PERMISSION)
        assert question(again) == question(asked)


@pytest.mark.parametrize("odd", ["all", "", "FULL", None, True, 1, ["full"], {}])
async def test_an_unknown_history_is_refused_and_attaches_nobody(tmp_path: Path, odd: Any) -> None:
    async with turn(tmp_path) as here:
        client = await here.it.joined()
        error = await client.refused(ATTACH, {"sessionId": here.id, "history": odd})
        assert error.code == -32602
        assert error.message.startswith("history")
        here.process.update(str(here.process.agent_session_id), "word")
        await until(lambda: "word" in str(here.it.editor.messages))
        assert "word" not in str(client.messages)
