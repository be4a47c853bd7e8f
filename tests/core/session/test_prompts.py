"""Prompts: written down in the order of reading, answered once, kept for the user's word.

What a session does with them as a whole is in test_session.py and test_session_ends.py.
"""

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.journal import PromptState
from acp_bridge.core.journal.errors import JournalError
from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import ACCEPTED, SESSION_PROMPT
from acp_bridge.core.runtime import waits
from tests.core.session.journals import failing
from tests.core.session.living import CANCELLED, DONE, Living, first, living
from tests.core.session.memory import ClientEnd, Json, Outgoing
from tests.core.session.played_agent import BUSY
from tests.core.session.waiting import quiet, until
from tests.support.slow_disk import break_disk

pytestmark = pytest.mark.usefixtures("no_errors")


def prompt(words: str) -> Json:
    return {"sessionId": "s", "prompt": [{"type": "text", "text": words}]}


def prompts(here: Living, client: ClientEnd, words: str, request_id: Any = 1) -> None:
    """Let another client send a prompt."""
    request = client.asks(SESSION_PROMPT, prompt(words), request_id)
    here.session.on_prompt(request, request.params)


# --- accept ---------------------------------------------------------------------------------------


@pytest.mark.hazard("K1.4", "Q3.3", "Q10.1")
async def test_prompts_are_written_at_once_in_the_order_of_reading_and_sent_when_durable(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        async with here.journal._file._syncing:
            for words in ("one", "two"):
                here.prompt(words)
            assert [row.params for row in here.journal.prompts()] == [prompt("one"), prompt("two")]
            await quiet()
            assert SESSION_PROMPT not in agent.heard
            assert here.got == []
        await agent.asked(SESSION_PROMPT)


@pytest.mark.hazard("K1.1")
@pytest.mark.parametrize("hears", [True, False])
async def test_a_client_that_asked_for_it_is_told_when_its_prompt_is_on_disk(
    tmp_path: Path, hears: bool
) -> None:
    async with living(tmp_path, first=first()) as here:
        client = ClientEnd({"_meta": {"acp_bridge": {"accepted": True}}} if hears else {})
        prompts(here, client, "mend", "mine")
        await (await here.agent()).asked(SESSION_PROMPT)
        (row,) = here.journal.prompts()
        told = {"sessionId": "s", "requestId": "mine", "promptId": row.prompt_id}
        expected = [{"jsonrpc": "2.0", "method": ACCEPTED, "params": told}]
        assert client.sent.take() == (expected if hears else [])


@pytest.mark.hazard("K1", "Q8", "Q13")
async def test_prompts_are_taken_again_though_nobody_speaks_when_a_failed_fsync_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "JOURNAL_RETRY", 0)
    tried: list[object] = []

    def refuse(path: object) -> bool:
        tried.append(path)
        raise JournalError("no")

    async with living(tmp_path, first=first()) as here:
        with monkeypatch.context() as patch:
            break_disk(patch)
            patch.setattr("acp_bridge.core.journal.file._checkpoint", refuse)
            assert "not taken" in (await here.answered(here.prompt("one")))["message"]
            await until(lambda: tried)
        await until(lambda: not here.journal.broken)
        await here.turn(await here.agent(), "two")


@pytest.mark.hazard("Q8", "Q13")
async def test_what_a_full_disk_did_not_take_is_written_later_though_nobody_speaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "JOURNAL_RETRY", 0)
    async with living(tmp_path, first=first()) as here:
        agent, request_id = await here.agent(), here.prompt()
        turn, before = await agent.asked(SESSION_PROMPT), here.journal.info.updated_at
        with failing(here.journal, "UPDATE ON prompts"):
            agent.answer(turn, DONE)
            assert await here.answered(request_id) == DONE
            await until(lambda: here.journal.info.updated_at > before)  # all else after the turn
            await quiet()
            assert here.journal.behind
        await until(lambda: not here.journal.behind)
        assert here.states() == [PromptState.DONE]


# --- outcome --------------------------------------------------------------------------------------


@pytest.mark.hazard("Q4", "C13.1", "C5")
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({**DONE, "x": 1}, {**DONE, "x": 1}),
        (BUSY, {"error": BUSY.to_wire()}),
        (CANCELLED, CANCELLED),
    ],
)
async def test_an_outcome_is_in_the_journal_before_the_client_is_told(
    tmp_path: Path, answer: Any, told: Json
) -> None:
    class Witness(Outgoing):
        def write(self, data: bytes) -> None:
            kept.append(here.outcomes()[0])

    kept: list[object] = []
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        prompts(here, ClientEnd(sent=Witness()), "mend")
        turn = await agent.asked(SESSION_PROMPT)
        if answer is CANCELLED:
            here.session.feed(ev.Cancel())
        agent.answer(turn, answer)
        await until(lambda: kept)
        assert kept == [(told, told)]
        assert here.states() == [PromptState.DONE]


@pytest.mark.hazard("T2", "Q4")
async def test_what_is_said_after_an_answer_is_of_no_turn(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        await here.turn(agent)
        agent.says_text("late")
        rows = here.journal._file.db.execute("SELECT turn FROM updates ORDER BY id").fetchall()
        assert [row[0] for row in rows] == [1, 0]


@pytest.mark.hazard("R1", "Q9")
async def test_an_answer_goes_to_the_client_that_asked_and_waits_behind_its_replay(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, (view,), other = await here.agent(), here.session.transcript.views, ClientEnd()
        here.session.transcript.attach(other.client)
        request_id = here.prompt("mine")
        prompts(here, other, "others", request_id)
        view.begin_replay()
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        agent.answer(await agent.asked(SESSION_PROMPT), {"stopReason": "refusal"})
        await until(lambda: [m for m in other.sent.messages if "result" in m])
        assert here.answers() == {}
        view.end_replay()
        assert here.answers() == {request_id: DONE}
        (answer,) = [m for m in other.sent.take() if "result" in m]
        assert (answer["id"], answer["result"]) == (request_id, {"stopReason": "refusal"})


@pytest.mark.hazard("K1", "Q8.1", "Q9")
@pytest.mark.parametrize("write", ["UPDATE ON prompts", "INSERT ON updates"])
async def test_an_outcome_that_cannot_be_written_is_told_all_the_same(
    tmp_path: Path, write: str
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request_id = await here.agent(), here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        with failing(here.journal, write):
            agent.says_text("a")
            agent.answer(turn, DONE)
            assert await here.answered(request_id) == DONE
        assert not here.session.cancel_request(here.client.client, request_id)


@pytest.mark.hazard("Q6", "Q8", "Q13.1")
async def test_an_interruption_that_cannot_be_written_is_written_later_or_found_by_the_next_bridge(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        here.prompt()
        await (await here.agent()).asked(SESSION_PROMPT)
        with failing(here.journal, "UPDATE ON prompts"):
            here.session.feed(ev.Shutdown())
            assert here.states() == [PromptState.SENT]
        await until(lambda: here.states() == [PromptState.DONE])
        await here.session.closed.wait()


@pytest.mark.hazard("K1")
async def test_after_a_turn_the_session_is_listed_with_its_new_time_whatever_else_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request_id = await here.agent(), here.prompt()
        monkeypatch.setattr(waits, "JOURNAL_RETRY", 0)
        turn, before = await agent.asked(SESSION_PROMPT), here.journal.info.updated_at
        with monkeypatch.context() as patch:
            break_disk(patch)
            agent.answer(turn, DONE)
            assert await here.answered(request_id) == DONE
            await until(lambda: here.journal.info.updated_at > before)


# --- left over ------------------------------------------------------------------------------------


@pytest.mark.hazard("R12", "Q8")
@pytest.mark.parametrize("words", ["/queue run", "/queue drop"])
async def test_a_word_about_what_is_left_over_that_cannot_be_written_leaves_it_as_it_is(
    tmp_path: Path, words: str
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        here.journal.accept("p", prompt("old"))
        await here.session.recovery.run()
        with failing(here.journal, "UPDATE ON prompts"):
            assert await here.answered(here.prompt(words)) == DONE
        assert here.texts()[-1].startswith("The journal can't be written")
        assert here.states() == [PromptState.LEFT_OVER]
        assert SESSION_PROMPT not in agent.heard
        request_id = here.prompt(words)
        if words == "/queue run":
            agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(request_id) == DONE
        assert here.states() == [PromptState.DONE]
