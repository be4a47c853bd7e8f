"""A prompt that is sent again under its key is the same prompt, whatever has become of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.journal import PromptState, file
from acp_bridge.wire.jsonrpc import RpcError
from tests.sessions.agent import Agent, Gate, Json, until
from tests.sessions.bench import Bench, Served, bench
from tests.sessions.world import SETUP
from tests.support.slow_disk import SlowDisk, no_sync


def keyed(session_id: str, text: str, key: Any, **own: Any) -> Json:
    """The parameters of a prompt that is sent under a key."""
    blocks = [{"type": "text", "text": text}]
    return {
        "sessionId": session_id,
        "prompt": blocks,
        "_meta": {"acp_bridge": {"promptKey": key, **own}},
    }


@dataclass(slots=True)
class Keyed:
    """A session whose agent stops at the gate with each prompt."""

    it: Bench
    id: str
    gate: Gate

    @property
    def editor(self) -> Served:
        return self.it.editor

    @property
    def prompted(self) -> list[str]:
        """The texts of the prompts that the agent got."""
        return [each["prompt"][0]["text"] for each in self.it.agent.params("session/prompt")]

    @property
    def rows(self) -> list[str]:
        """The words of all prompts that the journal has."""
        rows = self.it.bridge._sessions.live[self.id].journal.prompts()
        return [row.params["prompt"][0]["text"] for row in rows]

    def send(self, text: str, key: Any, client: Any = None, **own: Any) -> Any:
        params = keyed(self.id, text, key, **own)
        return (client or self.editor).send("session/prompt", params)

    async def runs(self, text: str, key: Any) -> Any:
        """Send a prompt, and return the id of its request when the agent has the prompt."""
        before = self.gate.reached
        asked = self.send(text, key)
        await until(lambda: self.gate.reached > before)
        return asked

    async def says(self, text: str) -> str:
        assert await self.editor.stop_reason(self.editor.prompt(self.id, text)) == "end_turn"
        return self.editor.texts(self.id)[-1].strip()

    async def shown_by(self, client: Any, text: str) -> int:
        """How often a client was shown this text."""
        await self.it.settled()
        return [each.strip() for each in client.texts(self.id)].count(text)


@asynccontextmanager
async def session(
    home: Path, agent: Agent | None = None, *, load: str = "", **more: Any
) -> AsyncIterator[Keyed]:
    agent = agent or Agent()
    gate = agent.stops_at("session/prompt")
    async with bench(home, agent, **more) as it:
        if load:
            await it.editor.ask("session/load", {**SETUP, "sessionId": load})
        yield Keyed(it, load or await it.new(), gate)


@asynccontextmanager
async def left_over(home: Path, *texts: str, **more: Any) -> AsyncIterator[Keyed]:
    """The session in the next bridge; these prompts are left over, each under its text as key."""
    async with session(home) as here:
        await here.runs("runs", "runs")
        for text in texts:
            here.send(text, text)
        await here.it.settled()
        session_id = here.id
    async with session(home, load=session_id, **more) as here:
        here.gate.open()
        yield here


# --- while it waits or runs ----------------------------------------------------------------------


@pytest.mark.hazard("X2")
async def test_a_client_learns_that_keys_are_taken(tmp_path: Path) -> None:
    async with bench(tmp_path, initialized=False) as it:
        told = await it.editor.ask("initialize", {"protocolVersion": 1})
        assert told["agentCapabilities"]["_meta"]["acp_bridge"]["promptKey"] is True


@pytest.mark.hazard("X2")
@pytest.mark.parametrize("state", ["runs", "waits"])
async def test_what_is_sent_again_joins_and_both_requests_get_the_same_answer(
    tmp_path: Path, state: str
) -> None:
    async with session(tmp_path) as here:
        first = await here.runs("before" if state == "waits" else "work", "a")
        asked = [here.send("work", "b")] if state == "waits" else [first]
        asked.append(here.send("work", "b" if state == "waits" else "a"))
        await here.it.settled()
        here.gate.open()
        answers = [await here.editor.result(each) for each in asked]
        assert answers == [{"stopReason": "end_turn"}] * 2
        assert here.prompted.count("work") == here.rows.count("work") == 1


@pytest.mark.hazard("X2")
async def test_two_attempts_before_the_first_is_on_disk_are_one_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk()
    async with session(tmp_path) as here:
        here.gate.open()
        client = await here.it.attached(here.id, accepted=True)
        monkeypatch.setattr(file, "sync_file", disk.sync)
        asked = [here.send("work", "a", client) for _ in range(2)]
        await until(disk.reached.is_set)
        await here.it.settled()
        assert client.asked("_acp_bridge/accepted") == []
        disk.goes_on.set()
        assert [await client.stop_reason(each) for each in asked] == ["end_turn"] * 2
        assert here.prompted == here.rows == ["work"]


@pytest.mark.hazard("X2", "K1")
async def test_each_attempt_is_told_that_the_prompt_is_accepted_by_its_own_request(
    tmp_path: Path,
) -> None:
    async with session(tmp_path) as here:
        client = await here.it.attached(here.id, accepted=True)
        asked = [here.send("work", "a", client) for _ in range(2)]
        await client.got("_acp_bridge/accepted", 2)
        here.gate.open()
        assert [await client.stop_reason(each) for each in asked] == ["end_turn"] * 2
        asked.append(here.send("work", "a", client))
        told = [each["params"] for each in await client.got("_acp_bridge/accepted", 3)]
        assert sorted(each["requestId"] for each in told) == sorted(asked)
        assert len({each["promptId"] for each in told}) == 1


@pytest.mark.hazard("X2", "V2")
async def test_the_words_are_shown_to_none_of_the_clients_that_sent_them(tmp_path: Path) -> None:
    async with session(tmp_path) as here:
        await here.runs("before", "0")
        second = await here.it.attached(here.id)
        third = await here.it.attached(here.id)
        asked = here.send("work", "a")
        again = here.send("work", "a", second)
        await here.it.settled()
        here.gate.open()
        assert await here.editor.stop_reason(asked) == "end_turn"
        assert await second.stop_reason(again) == "end_turn"
        assert await here.shown_by(here.editor, "work") == 0
        assert await here.shown_by(second, "work") == 0
        assert await here.shown_by(third, "work") == 1


@pytest.mark.hazard("X2", "V2")
async def test_a_bad_end_is_said_to_the_clients_that_get_no_answer(tmp_path: Path) -> None:
    agent = Agent()
    agent.script["session/prompt"] = {"stopReason": "max_tokens"}
    async with session(tmp_path, agent) as here:
        second = await here.it.attached(here.id)
        third = await here.it.attached(here.id)
        asked = await here.runs("work", "a")
        again = here.send("work", "a", second)
        await here.it.settled()
        here.gate.open()
        assert await here.editor.stop_reason(asked) == "max_tokens"
        assert await second.stop_reason(again) == "max_tokens"
        await until(lambda: any("[acp-bridge]" in text for text in third.texts(here.id)))
        for client in (here.editor, second):
            assert not any("[acp-bridge]" in text for text in client.texts(here.id))


@pytest.mark.hazard("X2", "V4")
async def test_a_prompt_that_was_joined_is_the_new_connections_own_for_a_stop(
    tmp_path: Path,
) -> None:
    async with session(tmp_path, drain_timeout=5) as here:
        lost = await here.it.attached(here.id)
        here.send("work", "a", lost)
        await until(lambda: here.gate.reached)
        lost.leaves()
        await lost.parted.wait()
        again = here.send("work", "a")
        follows = here.send("after", "b")
        await here.it.settled()
        here.editor.notify("session/cancel", {"sessionId": here.id})
        await here.it.settled()
        assert len(here.it.agent.params("session/cancel")) == 1
        here.gate.open()
        assert await here.editor.stop_reason(again) == "cancelled"
        assert await here.editor.stop_reason(follows) == "end_turn"


@pytest.mark.hazard("X2")
@pytest.mark.parametrize("which", [0, 1])
async def test_a_cancel_of_one_of_two_requests_withdraws_that_request_alone(
    tmp_path: Path, which: int
) -> None:
    async with session(tmp_path) as here:
        await here.runs("before", "0")
        asked = [here.send("work", "a"), here.send("work", "a")]
        await here.it.settled()
        withdrawn = asked.pop(which)
        here.editor.cancel_request(withdrawn)
        assert (await here.editor.refusal(withdrawn)).code == -32800
        here.gate.open()
        assert await here.editor.stop_reason(asked[0]) == "end_turn"
        assert here.prompted == ["before", "work"]


@pytest.mark.hazard("X2")
async def test_a_cancel_of_the_last_request_takes_the_prompt_back(tmp_path: Path) -> None:
    async with session(tmp_path) as here:
        await here.runs("before", "0")
        asked = [here.send("work", "a"), here.send("work", "a")]
        await here.it.settled()
        for each in asked:
            here.editor.cancel_request(each)
        assert (await here.editor.refusal(asked[0])).code == -32800
        assert await here.editor.stop_reason(asked[1]) == "cancelled"
        assert await here.editor.stop_reason(here.send("work", "a")) == "cancelled"
        here.gate.open()
        await here.says("/queue")
        assert here.prompted == ["before"]


@pytest.mark.hazard("X2")
async def test_a_request_of_a_connection_that_is_gone_does_not_keep_the_prompt(
    tmp_path: Path,
) -> None:
    async with session(tmp_path) as here:
        await here.runs("before", "0")
        lost = await here.it.attached(here.id)
        here.send("work", "a", lost)
        await here.it.settled()
        lost.leaves()
        await lost.parted.wait()
        again = here.send("work", "a")
        await here.it.settled()
        here.editor.cancel_request(again)
        assert await here.editor.stop_reason(again) == "cancelled"
        here.gate.open()
        await here.says("/queue")
        assert here.prompted == ["before"]


@pytest.mark.hazard("X2")
@pytest.mark.parametrize("delivery", ["interrupt", "steer"])
async def test_the_delivery_of_the_first_attempt_counts(tmp_path: Path, delivery: str) -> None:
    async with session(tmp_path) as here:
        running = await here.runs("before", "0")
        asked = [here.send("work", "a"), here.send("work", "a", delivery=delivery)]
        await here.it.settled()
        here.gate.open()
        assert await here.editor.stop_reason(running) == "end_turn"
        assert [await here.editor.result(each) for each in asked] == [
            {"stopReason": "end_turn"}
        ] * 2
        assert here.prompted == ["before", "work"]


@pytest.mark.hazard("X2")
async def test_one_that_interrupts_interrupts_once(tmp_path: Path) -> None:
    async with session(tmp_path) as here:
        running = await here.runs("before", "0")
        asked = [here.send("work", "a", delivery="interrupt")]
        await until(lambda: here.gate.reached > 1)
        asked.append(here.send("work", "a", delivery="interrupt"))
        await here.it.settled()
        here.gate.open()
        assert await here.editor.stop_reason(running) == "cancelled"
        assert [await here.editor.stop_reason(each) for each in asked] == ["end_turn"] * 2
        assert here.prompted == ["before", "work"]


@pytest.mark.hazard("X2")
async def test_who_joins_what_waits_under_a_hold_is_told_of_the_hold(tmp_path: Path) -> None:
    async with session(tmp_path) as here:
        here.gate.open()
        await here.editor.ask("_acp_bridge/hold", {"sessionId": here.id})
        here.send("work", "a")
        second = await here.it.attached(here.id)
        again = here.send("work", "a", second)
        await until(lambda: any("/queue go" in text for text in second.texts(here.id)))
        await here.editor.ask("_acp_bridge/go", {"sessionId": here.id})
        assert await second.stop_reason(again) == "end_turn"


# --- other words, bad keys -----------------------------------------------------------------------


@pytest.mark.hazard("X2")
@pytest.mark.parametrize("state", ["runs", "waits", "done", "held"])
async def test_other_words_under_the_same_key_are_refused_and_not_taken(
    tmp_path: Path, state: str
) -> None:
    async with left_over(tmp_path, "held") if state == "held" else session(tmp_path) as here:
        if state == "done":
            here.gate.open()
            assert await here.editor.stop_reason(here.send("done", "done")) == "end_turn"
        elif state != "held":
            await here.runs("runs", "runs")
            here.send("waits", "waits")
            await here.it.settled()
        rows = list(here.rows)
        refused = await here.editor.refusal(here.send("other", state))
        assert refused.code == -32602
        assert "other words were sent under this key" in refused.message
        assert here.rows == rows


@pytest.mark.hazard("X2", "Q16")
@pytest.mark.parametrize("held", [False, True])
async def test_words_are_compared_with_those_that_were_sent_first_also_when_edited(
    tmp_path: Path, *, held: bool
) -> None:
    async with left_over(tmp_path, "work") if held else session(tmp_path) as here:
        if not held:
            await here.runs("runs", "runs")
            here.send("work", "work")
            await here.it.settled()
        await here.says("/queue edit 2 better")
        assert (await here.editor.refusal(here.send("better", "work"))).code == -32602
        again = here.send("work", "work")
        await here.it.settled()
        here.gate.open()
        if held:
            await here.says("/queue run")
        assert await here.editor.stop_reason(again) == "end_turn"
        assert here.prompted[-1] == "better"
        assert await here.shown_by(here.editor, "better") == 1


@pytest.mark.hazard("X2")
@pytest.mark.parametrize("key", ["", "k" * 256, 7, None, ["k"]])
async def test_a_bad_key_is_refused_and_nothing_is_taken(tmp_path: Path, key: Any) -> None:
    async with session(tmp_path) as here:
        refused = await here.editor.refusal(here.send("work", key))
        assert (refused.code, "1 to 255 characters" in refused.message) == (-32602, True)
        assert here.rows == []


@pytest.mark.hazard("X2")
@pytest.mark.parametrize("key", ["k", "k" * 255, "\ud800", "a'\"\0%\n", "ä" * 255])
async def test_any_text_of_255_characters_is_a_key(tmp_path: Path, key: str) -> None:
    async with session(tmp_path) as here:
        here.gate.open()
        for _ in range(2):
            assert await here.editor.stop_reason(here.send("work", key)) == "end_turn"
        assert await here.editor.stop_reason(here.send("work", f"{key[:-1]}x")) == "end_turn"
        assert here.prompted == ["work", "work"]


@pytest.mark.hazard("X2")
async def test_a_key_is_of_one_session_and_no_agent_gets_it(tmp_path: Path) -> None:
    async with session(tmp_path) as here:
        here.gate.open()
        assert await here.editor.stop_reason(here.send("work", "a")) == "end_turn"
        here.id = await here.it.new()
        assert await here.editor.stop_reason(here.send("other", "a")) == "end_turn"
        assert here.prompted == ["work", "other"]
        assert "promptKey" not in str(here.it.agent.params("session/prompt"))


@pytest.mark.hazard("X2")
async def test_a_command_has_no_key_and_takes_none(tmp_path: Path) -> None:
    async with session(tmp_path) as here:
        here.gate.open()
        for _ in range(2):
            assert await here.editor.stop_reason(here.send("/queue", "a")) == "end_turn"
        assert await here.editor.stop_reason(here.send("work", "a")) == "end_turn"
        assert here.prompted == ["work"]


# --- when it has ended ---------------------------------------------------------------------------


async def _answer(here: Keyed, asked: Any) -> Any:
    """A request's answer, an error with all that it says."""
    await until(lambda: here.editor.answers(asked))
    (answer,) = here.editor.answers(asked)
    return answer.get("result") or answer.get("error")


@pytest.mark.hazard("X2")
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


@pytest.mark.hazard("X2")
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


@pytest.mark.hazard("X2", "Q6")
async def test_what_the_bridges_end_interrupted_is_an_error_that_says_so(tmp_path: Path) -> None:
    async with left_over(tmp_path, "waits") as here:
        refused = await here.editor.refusal(here.send("runs", "runs"))
        assert refused.code == -32603
        assert "interrupted" in refused.message
        assert "not sent again" in refused.message
        assert here.prompted == []


@pytest.mark.hazard("X2", "R12")
@pytest.mark.parametrize("held", [False, True])
async def test_what_was_dropped_is_answered_cancelled(tmp_path: Path, *, held: bool) -> None:
    async with left_over(tmp_path, "work") if held else session(tmp_path) as here:
        if not held:
            await here.runs("runs", "runs")
            here.send("work", "work")
            await here.it.settled()
        await here.says("/queue drop 2")
        assert await here.editor.stop_reason(here.send("work", "work")) == "cancelled"
        here.gate.open()
        await here.says("/queue")
        assert "work" not in here.prompted


@pytest.mark.hazard("X2")
async def test_a_prompt_that_the_disk_did_not_take_runs_when_it_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with session(tmp_path) as here:
        here.gate.open()
        with monkeypatch.context() as patch:
            patch.setattr(file, "sync_file", no_sync)
            asked = [here.send("work", "a") for _ in range(2)]
            for each in asked:
                assert "not taken" in (await here.editor.refusal(each)).message
        await until(lambda: not here.it.bridge._sessions.live[here.id].journal.broken)
        assert await here.editor.stop_reason(here.send("work", "a")) == "end_turn"
        assert here.prompted == ["work"]


@pytest.mark.hazard("X2", "K2")
async def test_a_receipt_that_is_damaged_runs_nothing(tmp_path: Path) -> None:
    async with session(tmp_path) as here:
        here.gate.open()
        assert await here.editor.stop_reason(here.send("work", "a")) == "end_turn"
        journal = here.it.bridge._sessions.live[here.id].journal
        journal._file.write("UPDATE settings SET value = '{' WHERE key LIKE 'promptKey:%'")
        assert "was not taken" in (await here.editor.refusal(here.send("work", "a"))).message
        assert here.prompted == ["work"]


@pytest.mark.hazard("X2", "K2")
async def test_a_prompt_whose_row_is_damaged_is_not_run_again(tmp_path: Path) -> None:
    async with left_over(tmp_path, "work") as here:
        session_id = here.id
        journal = here.it.bridge._sessions.live[here.id].journal
        journal._file.write("UPDATE prompt_params SET params = '{' WHERE seq = 2")
    async with session(tmp_path, load=session_id) as here:
        refused = await here.editor.refusal(here.send("work", "work"))
        assert "not sent again" in refused.message
        assert here.prompted == []


# --- left over -----------------------------------------------------------------------------------


@pytest.mark.hazard("X2", "R12")
@pytest.mark.parametrize("ends", ["/queue run", "/queue drop", "/queue drop 2"])
async def test_what_is_left_over_stays_so_until_the_user_says_what_becomes_of_it(
    tmp_path: Path, ends: str
) -> None:
    async with left_over(tmp_path, "work") as here:
        second = await here.it.attached(here.id)
        asked = [here.send("work", "work", second) for _ in range(2)]
        await until(lambda: any("was sent before" in text for text in second.texts(here.id)))
        assert not any("was sent before" in text for text in here.editor.texts(here.id))
        assert (here.prompted, [second.answers(each) for each in asked]) == ([], [[], []])
        await here.says(ends)
        how = "end_turn" if ends == "/queue run" else "cancelled"
        assert [await second.stop_reason(each) for each in asked] == [how] * 2
        assert here.prompted == (["work"] if ends == "/queue run" else [])
        assert await here.shown_by(second, "work") == 0
        assert await here.editor.stop_reason(here.send("work", "work")) == how


@pytest.mark.hazard("X2", "R12")
async def test_a_drop_by_method_answers_who_waits_for_what_was_left_over(tmp_path: Path) -> None:
    async with left_over(tmp_path, "work") as here:
        asked = here.send("work", "work")
        listed = await here.editor.ask("_acp_bridge/queue/list", {"sessionId": here.id})
        drop = {"sessionId": here.id, "promptId": listed["prompts"][0]["promptId"]}
        assert await here.editor.ask("_acp_bridge/queue/drop", drop) == {}
        assert await here.editor.stop_reason(asked) == "cancelled"


@pytest.mark.hazard("X2", "R12")
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


@pytest.mark.hazard("X2", "R12", "V4")
async def test_who_gives_up_a_request_does_not_stop_the_run_of_another_client(
    tmp_path: Path,
) -> None:
    async with left_over(tmp_path, "work") as here:
        here.it.agent.script["session/prompt"] = here.it.agent._prompt
        gate = here.it.agent.stops_at("session/prompt")
        second = await here.it.attached(here.id)
        asked = [here.send("work", "work", second) for _ in range(2)]
        await here.it.settled()
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
        await here.it.settled()
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


@pytest.mark.hazard("X2", "Q9", "Q14")
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
        journal._file.write("DELETE FROM settings WHERE key LIKE 'promptKey:%'")
    async with session(tmp_path, load=session_id) as here:
        assert (await here.editor.refusal(here.send("other", "work"))).code == -32602
        again = here.send("work", "work")
        here.gate.open()
        await here.says("/queue run")
        assert await here.editor.stop_reason(again) == "end_turn"
        journal = here.it.bridge._sessions.live[here.id].journal
        assert journal.prompts(PromptState.LEFT_OVER) == []
