"""A prompt that is sent again under its key when it has ended, or is left over."""

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.journal import PromptState
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.bridge.keyed import Keyed, left_over, session
from tests.core.sessions.agent import Agent, until
from tests.core.sessions.world import SETUP
from tests.support.slow_disk import break_disk

# --- when it has ended ---------------------------------------------------------------------------


async def _answer(here: Keyed, asked: Any) -> Any:
    """A request's answer, an error with all that it says."""
    await until(lambda: here.editor.answers(asked))
    (answer,) = here.editor.answers(asked)
    return answer.get("result") or answer.get("error")


@pytest.mark.hazard("X2.6")
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    "ends",
    [
        {"stopReason": "end_turn", "usage": {"totalTokens": 7}, "_meta": {"x": 1}},
        {"stopReason": "max_tokens"},
        {"stopReason": "refusal"},
        RpcError.received(-32000, "log in", {"why": "no key"}),
        RpcError.received(-32603, "the model is away"),
    ],
)
async def test_what_has_ended_is_answered_as_it_was_then(
    tmp_path: Path, ends: Any, *, restart: bool
) -> None:
    agent = Agent()
    agent.script["session/prompt"] = ends
    async with session(tmp_path, agent) as here:
        here.gate.open()
        told = await _answer(here, here.send("work", "a"))
        if not restart:
            assert await _answer(here, here.send("work", "a")) == told
            assert here.prompted == here.rows == ["work"]
    if restart:
        async with session(tmp_path, load=here.id) as here:
            assert await _answer(here, here.send("work", "a")) == told
            assert (here.prompted, here.rows) == ([], ["work"])


@pytest.mark.hazard("X2.6")
async def test_what_was_cancelled_is_answered_as_it_was_then(tmp_path: Path) -> None:
    agent = Agent()
    agent.script["session/prompt"] = {"stopReason": "cancelled", "usage": {"totalTokens": 7}}
    async with session(tmp_path, agent, drain_timeout=5) as here:
        asked = [await here.runs("runs", "runs"), here.send("waits", "waits")]
        here.editor.cancel_request(asked[1])
        here.editor.notify("session/cancel", {"sessionId": here.id})
        here.gate.open()
        told = [await _answer(here, each) for each in asked]
        assert [each["stopReason"] for each in told] == ["cancelled"] * 2
        again = [here.send(key, key) for key in ("runs", "waits")]
        assert [await _answer(here, each) for each in again] == told
        assert here.prompted == ["runs"]


@pytest.mark.hazard("X2", "Q6.1")
async def test_what_the_bridges_end_interrupted_is_an_error_that_says_so(tmp_path: Path) -> None:
    async with left_over(tmp_path, "waits") as here:
        refused = await here.editor.refusal(here.send("runs", "runs"))
        assert refused.code == -32603
        assert "interrupted" in refused.message
        assert "not sent again" in refused.message
        assert here.prompted == []


@pytest.mark.hazard("X2.9")
async def test_a_prompt_that_the_disk_did_not_take_runs_when_it_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with session(tmp_path) as here:
        here.gate.open()
        with monkeypatch.context() as patch:
            break_disk(patch)
            asked = [here.send("work", "a") for _ in range(2)]
            for each in asked:
                assert "not taken" in (await here.editor.refusal(each)).message
        await until(lambda: not here.it.bridge._sessions.live[here.id].journal.broken)
        assert await here.editor.stop_reason(here.send("work", "a")) == "end_turn"
        assert here.prompted == ["work"]


@pytest.mark.hazard("X2.8", "K2")
async def test_a_receipt_that_is_damaged_runs_nothing(tmp_path: Path) -> None:
    async with session(tmp_path) as here:
        here.gate.open()
        assert await here.editor.stop_reason(here.send("work", "a")) == "end_turn"
        journal = here.it.bridge._sessions.live[here.id].journal
        journal._file.db.execute("UPDATE settings SET value = '{' WHERE key LIKE 'promptKey:%'")
        assert "was not taken" in (await here.editor.refusal(here.send("work", "a"))).message
        assert here.prompted == ["work"]


@pytest.mark.hazard("X2", "K2")
async def test_a_prompt_whose_row_is_damaged_is_not_run_again(tmp_path: Path) -> None:
    async with left_over(tmp_path, "work") as here:
        session_id = here.id
        journal = here.it.bridge._sessions.live[here.id].journal
        journal._file.db.execute("UPDATE prompt_params SET params = '{' WHERE seq = 2")
    async with session(tmp_path, load=session_id) as here:
        refused = await here.editor.refusal(here.send("work", "work"))
        assert "not sent again" in refused.message
        assert here.prompted == []


# --- left over -----------------------------------------------------------------------------------


@pytest.mark.hazard("X2.7", "R12")
@pytest.mark.parametrize("how", ["stop", "cancel_request"])
async def test_who_gives_its_request_up_leaves_the_prompt_left_over(
    tmp_path: Path, how: str
) -> None:
    async with left_over(tmp_path, "work") as here:
        asked = here.send("work", "work")
        await here.it.settled()
        if how == "stop":
            here.editor.notify("session/cancel", {"sessionId": here.id})
            assert await here.editor.stop_reason(asked) == "cancelled"
        else:
            here.editor.cancel_request(asked)
            assert (await here.editor.refusal(asked)).code == -32800
        again = here.send("work", "work")
        await here.says("/queue run")
        assert await here.editor.stop_reason(again) == "end_turn"
        assert here.prompted == ["work"]


@pytest.mark.hazard("X2.5", "R12", "V4")
async def test_who_gives_up_a_request_does_not_stop_the_run_of_another_client(
    tmp_path: Path,
) -> None:
    async with left_over(tmp_path, "work") as here:
        here.it.agent.script["session/prompt"] = here.it.agent._prompt
        gate = here.it.agent.stops_at("session/prompt")
        second = await here.it.attached(here.id)
        asked = [here.send("work", "work", second) for _ in range(2)]
        await second.handled()
        run = here.editor.prompt(here.id, "/queue run")
        await until(lambda: gate.reached)
        second.notify("session/cancel", {"sessionId": here.id})
        second.cancel_request(asked[1])
        assert await second.stop_reason(asked[0]) == "cancelled"
        assert (await second.refusal(asked[1])).code == -32800
        gate.open()
        assert await here.editor.stop_reason(run) == "end_turn"
        assert here.it.agent.params("session/cancel") == []


@pytest.mark.hazard("X2", "R12")
async def test_a_run_that_is_stopped_leaves_the_request_open(tmp_path: Path) -> None:
    async with left_over(tmp_path, "one", "two", drain_timeout=5) as here:
        here.it.agent.script["session/prompt"] = here.it.agent._prompt
        gate = here.it.agent.stops_at("session/prompt")
        second = await here.it.attached(here.id)
        asked = [here.send(text, text, second) for text in ("one", "two")]
        await second.handled()
        run = here.editor.prompt(here.id, "/queue run")
        await until(lambda: gate.reached)
        here.editor.notify("session/cancel", {"sessionId": here.id})
        await here.it.settled()
        gate.open()
        assert await here.editor.stop_reason(run) == "cancelled"
        assert await second.stop_reason(asked[0]) == "cancelled"
        assert second.answers(asked[1]) == []
        await here.says("/queue run")
        assert await second.stop_reason(asked[1]) == "end_turn"
        assert here.prompted == ["one", "two"]


@pytest.mark.hazard("X2", "Q9", "Q14.1")
@pytest.mark.parametrize("method", ["session/close", "_acp_bridge/close"])
async def test_a_close_answers_who_waits_for_what_is_left_over_which_stays_so(
    tmp_path: Path, method: str
) -> None:
    async with left_over(tmp_path, "work") as here:
        asked = here.send("work", "work")
        await here.it.settled()
        await here.editor.ask(method, {"sessionId": here.id})
        if method == "session/close":
            assert await here.editor.stop_reason(asked) == "cancelled"
        else:
            assert "it is kept" in (await here.editor.refusal(asked)).message
        await here.editor.ask("session/load", {**SETUP, "sessionId": here.id})
        again = here.send("work", "work")
        await here.says("/queue run")
        assert await here.editor.stop_reason(again) == "end_turn"


@pytest.mark.hazard("X2", "Q14")
async def test_a_prompt_that_a_close_keeps_is_found_by_its_key(tmp_path: Path) -> None:
    async with session(tmp_path) as here:
        await here.runs("runs", "runs")
        asked = [here.send("work", "work") for _ in range(2)]
        await here.it.settled()
        await here.editor.ask("_acp_bridge/close", {"sessionId": here.id})
        for each in asked:
            assert "it is kept" in (await here.editor.refusal(each)).message
        await here.editor.ask("session/load", {**SETUP, "sessionId": here.id})
        again = here.send("work", "work")
        here.gate.open()
        await here.says("/queue run")
        assert await here.editor.stop_reason(again) == "end_turn"
        assert here.prompted == ["runs", "work"]


@pytest.mark.hazard("X2")
async def test_the_journal_of_an_older_bridge_has_no_receipts_and_its_left_over_prompts_are_joined(
    tmp_path: Path,
) -> None:
    async with left_over(tmp_path, "work") as here:
        session_id = here.id
        journal = here.it.bridge._sessions.live[here.id].journal
        journal._file.db.execute("DELETE FROM settings WHERE key LIKE 'promptKey:%'")
    async with session(tmp_path, load=session_id) as here:
        assert (await here.editor.refusal(here.send("other", "work"))).code == -32602
        again = here.send("work", "work")
        here.gate.open()
        await here.says("/queue run")
        assert await here.editor.stop_reason(again) == "end_turn"
        journal = here.it.bridge._sessions.live[here.id].journal
        assert journal.prompts(PromptState.LEFT_OVER) == []
