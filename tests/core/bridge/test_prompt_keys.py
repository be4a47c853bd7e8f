"""A prompt that is sent again under its key, while it waits or runs, is the same prompt."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.journal import file
from tests.core.bridge.keyed import left_over, session
from tests.core.sessions.agent import Agent, until
from tests.core.sessions.bench import bench
from tests.support.slow_disk import SlowDisk

# --- while it waits or runs ----------------------------------------------------------------------


@pytest.mark.hazard("X2")
async def test_a_client_learns_that_keys_are_taken(tmp_path: Path) -> None:
    async with bench(tmp_path, initialized=False) as it:
        told = await it.editor.ask("initialize", {"protocolVersion": 1})
        assert told["agentCapabilities"]["_meta"]["acp_bridge"]["promptKey"] is True


@pytest.mark.hazard("X2.3", "X2.4")
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


@pytest.mark.hazard("X2.3")
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


@pytest.mark.hazard("X2", "V2.3")
async def test_the_words_are_shown_to_none_of_the_clients_that_sent_them(tmp_path: Path) -> None:
    async with session(tmp_path) as here:
        await here.runs("before", "0")
        second = await here.it.attached(here.id)
        third = await here.it.attached(here.id)
        asked = here.send("work", "a")
        again = here.send("work", "a", second)
        await second.handled()
        here.gate.open()
        assert await here.editor.stop_reason(asked) == "end_turn"
        assert await second.stop_reason(again) == "end_turn"
        assert await here.shown_by(here.editor, "work") == 0
        assert await here.shown_by(second, "work") == 0
        assert await here.shown_by(third, "work") == 1


@pytest.mark.hazard("X2", "V2")
@pytest.mark.parametrize("again", [False, True])
async def test_a_client_that_loads_the_session_is_shown_the_words_unless_it_sends_them_again(
    tmp_path: Path, *, again: bool
) -> None:
    async with session(tmp_path) as here:
        await here.runs("before", "0")
        asked = [here.send("work", "a")]
        load = {"cwd": str(tmp_path), "mcpServers": [], "sessionId": here.id}
        await here.editor.ask("session/load", load)
        if again:
            asked.append(here.send("work", "a"))
        await here.it.settled()
        here.gate.open()
        assert [await here.editor.stop_reason(each) for each in asked] == ["end_turn"] * len(asked)
        assert await here.shown_by(here.editor, "work") == (0 if again else 1)


@pytest.mark.hazard("X2")
async def test_a_prompt_that_waits_is_each_senders_own_in_the_queue_that_they_are_told(
    tmp_path: Path,
) -> None:
    async with session(tmp_path) as here:
        await here.runs("before", "0")
        clients = [await here.it.attached(here.id, queue=True) for _ in range(3)]
        for client in clients[:2]:
            here.send("work", "a", client)
            await client.handled()
        here.send("next", "b")
        mine = []
        for client in clients:
            await until(partial(_rows, client, "next"))
            mine.append([row["mine"] for row in _rows(client)])
        assert mine == [[True, False], [True, False], [False, False]]
        here.gate.open()


def _rows(client: Any, last: str = "next") -> list[Any]:
    """The queue as a client was told it, once it ends with these words; nothing before."""
    told = client.asked("_acp_bridge/queue")
    rows = list(told[-1]["params"]["prompts"]) if told else []
    return rows if rows and rows[-1]["text"] == last else []


@pytest.mark.hazard("X2", "V2.3")
async def test_a_bad_end_is_said_to_the_clients_that_get_no_answer(tmp_path: Path) -> None:
    agent = Agent()
    agent.script["session/prompt"] = {"stopReason": "max_tokens"}
    async with session(tmp_path, agent) as here:
        second = await here.it.attached(here.id)
        third = await here.it.attached(here.id)
        asked = await here.runs("work", "a")
        again = here.send("work", "a", second)
        await second.handled()
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
        await here.runs_for_one_who_leaves("work", "a")
        again = here.send("work", "a")
        follows = here.send("after", "b")
        await here.it.settled()
        here.editor.notify("session/cancel", {"sessionId": here.id})
        await here.it.settled()
        assert len(here.it.agent.params("session/cancel")) == 1
        here.gate.open()
        assert await here.editor.stop_reason(again) == "cancelled"
        assert await here.editor.stop_reason(follows) == "end_turn"


@pytest.mark.hazard("X2.5")
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
        await lost.handled()
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
