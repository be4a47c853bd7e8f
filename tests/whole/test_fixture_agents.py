"""The well-behaved fixture agent, and those that bend a turn, its cancel or its ids."""

import signal
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.features.spending.usage_figures import Span, of_agent
from tests.support.client import RecordingClient
from tests.support.fixture_agents import FixtureLog, StartAgent
from tests.support.gates import Gates
from tests.support.recording import RpcError

pytestmark = pytest.mark.process

CWD = "/w"


async def cancelled_at_gate(client: RecordingClient, gates: Gates, text: str = "gate g") -> Any:
    """The id of a prompt that was cancelled while its turn stood at the gate `g`."""
    prompt = client.send_prompt(text)
    await gates.reached("g")
    client.cancel()
    return prompt


async def stop_reason(client: RecordingClient, prompt: Any) -> Any:
    return (await client.answer_to(prompt))["result"]["stopReason"]


async def test_a_turn_streams_opens_cards_and_asks_the_client(start_agent: StartAgent) -> None:
    async with start_agent() as client:
        client.side.files["/w/f"] = "content"
        client.side.permission = "allow"
        text = "say a b; read /w/f; write /w/g; permission 2; terminal; terminal-release; elicit"
        assert await client.prompt(text) == {"stopReason": "end_turn"}
        assert client.text() == (
            "a b[read content][write ok][permission allow][permission allow]"
            "[terminal term-1][release ok][elicit decline]"
        )
        assert client.side.files["/w/g"] == "written"
        assert client.side.terminals == []


async def test_a_cancelled_turn_is_answered_at_once_and_the_next_one_runs(
    start_agent: StartAgent, gates: Gates, agent_log: FixtureLog
) -> None:
    async with start_agent() as client:
        prompt = await cancelled_at_gate(client, gates, "gate g; say never")
        assert await stop_reason(client, prompt) == "cancelled"
        client.cancel()
        gates.open("g")
        await client.prompt("gate g; say after")
        assert client.text() == "after"
        assert [event["stop"] for event in agent_log.events("answered")] == [
            "cancelled",
            "end_turn",
        ]


async def test_a_second_prompt_during_a_turn_is_refused_and_logged(
    start_agent: StartAgent, gates: Gates, agent_log: FixtureLog
) -> None:
    async with start_agent() as client:
        first = client.send_prompt("gate g")
        with pytest.raises(RpcError, match="a turn is running"):
            await client.prompt("say second")
        gates.open("g")
        assert await stop_reason(client, first) == "end_turn"
    assert len(agent_log.events("overlap")) == 1


async def test_a_new_process_loads_the_session_with_its_killed_turn(
    start_agent: StartAgent, gates: Gates, agent_log: FixtureLog
) -> None:
    async with start_agent() as client:
        await client.prompt("say one two")
        client.send_prompt("say lost; gate g")
        await gates.reached("g")
        client.kill()
        assert await client.wait() == -signal.SIGKILL
    async with start_agent(opened=False) as client:
        await client.load_session("0", CWD)
        kinds = [update["sessionUpdate"] for update in client.updates()]
        assert kinds[:3] == ["user_message_chunk", "agent_message_chunk", "user_message_chunk"]
        mark = client.mark()
        await client.prompt("history")
        assert client.text(since=mark) == "say one two | say lost; gate g"
        assert await client.new_session(CWD) == "1"
        assert await client.new_session("/elsewhere") == "2"
    assert len(set(agent_log.pids())) == 2


@pytest.mark.parametrize("end", ["cancel", "prompt"])
async def test_works_on_outside_of_prompts_until_a_cancel_or_the_next_prompt(
    start_agent: StartAgent, end: str
) -> None:
    async with start_agent("works-on") as client:
        await client.prompt("say one")
        await client.until_text("[on][on]")
        if end == "cancel":
            client.cancel()
        else:
            client.send_prompt("fail")
        await client.until_recorded(lambda: client.updates()[-1].get("status") == "completed")
        assert client.text().count("[on]") < 100


def leave_half_written(home: Path) -> None:
    """Leave what a kill leaves: a file without a line, a line without its end, an end alone."""
    (kept,) = home.glob("*/*.jsonl")
    kept.with_stem("unborn").touch()
    kept.with_stem("deleted").write_text('{"said": [], "stop": "end_turn"}\n')
    with kept.open("a") as file:
        file.write('{"said": "half of')


async def test_what_a_kill_left_half_written_harms_no_later_process(
    start_agent: StartAgent, agent_env: dict[str, str]
) -> None:
    async with start_agent() as client:
        await client.prompt("say one")
    leave_half_written(Path(agent_env["FIXTURE_HOME"]))
    async with start_agent(opened=False) as client:
        await client.load_session("0", CWD)
        await client.prompt("say two")
    async with start_agent(opened=False) as client:
        listed = await client.request("session/list", {})
        assert [session["sessionId"] for session in listed["sessions"]] == ["0"]
        await client.load_session("0", CWD)
        assert client.text() == "onetwo"


async def test_the_log_has_the_mode_and_the_option_of_each_turn(
    start_agent: StartAgent, agent_log: FixtureLog
) -> None:
    async with start_agent() as client:
        await client.prompt("say a")
        session = {"sessionId": client.session_id}
        await client.request("session/set_mode", {**session, "modeId": "edit"})
        option = {**session, "configId": "effort", "value": "high"}
        await client.request("session/set_config_option", option)
        await client.prompt("say b")
    turns = [(turn["mode"], turn["effort"]) for turn in agent_log.turns()]
    assert turns == [("plan", "low"), ("edit", "high")]


async def test_a_turn_ends_the_process_when_told_to(start_agent: StartAgent) -> None:
    async with start_agent() as client:
        client.send_prompt("exit 3")
        assert await client.wait() == 3
    async with start_agent() as client:
        client.send_prompt("die")
        assert await client.wait() == -signal.SIGKILL


async def test_raw_bytes_stop_reasons_and_errors_come_as_the_prompt_says(
    start_agent: StartAgent,
) -> None:
    async with start_agent() as client:
        assert await client.prompt("raw \\xff{; stop refusal") == {"stopReason": "refusal"}
        assert b"\xff{\n" in [record.raw for record in client.recording]
        with pytest.raises(RpcError, match="the model failed"):
            await client.prompt("fail")


# Cancelling


async def test_ignores_cancel_runs_its_turn_to_the_end(
    start_agent: StartAgent, gates: Gates
) -> None:
    async with start_agent("ignores-cancel") as client:
        prompt = await cancelled_at_gate(client, gates, "gate g; say still here")
        gates.open("g")
        assert await stop_reason(client, prompt) == "end_turn"
        assert client.text() == "still here"


async def test_slow_cancel_answers_after_its_gate(start_agent: StartAgent, gates: Gates) -> None:
    async with start_agent("slow-cancel") as client:
        prompt = await cancelled_at_gate(client, gates)
        await gates.reached("cancel")
        assert not client.recording.answers(prompt)
        gates.open("cancel")
        assert await stop_reason(client, prompt) == "cancelled"


async def test_cancel_error_answers_with_an_error(start_agent: StartAgent, gates: Gates) -> None:
    async with start_agent("cancel-error") as client:
        prompt = await cancelled_at_gate(client, gates)
        assert (await client.answer_to(prompt))["error"]["code"] == -32603


async def test_cancel_end_turn_answers_end_turn(start_agent: StartAgent, gates: Gates) -> None:
    async with start_agent("cancel-end-turn") as client:
        prompt = await cancelled_at_gate(client, gates)
        assert await stop_reason(client, prompt) == "end_turn"


@pytest.mark.parametrize("kind", ["message", "tool", "plain", "new-tool"])
@pytest.mark.parametrize("when", ["before the next turn", "inside the next turn"])
async def test_leaks_an_update_after_the_cancelled_answer(
    start_agent: StartAgent, gates: Gates, kind: str, when: str
) -> None:
    async with start_agent("leaks") as client:
        text = "say one; tool t; gate g"
        assert await stop_reason(client, await cancelled_at_gate(client, gates, text)) == (
            "cancelled"
        )
        if when == "inside the next turn":
            client.send_prompt("say two; gate next; say three")
            await gates.reached("next")
        old_message, old_card = client.updates()[1:3]
        mark = client.mark()
        gates.open(f"leak-{kind}")
        await gates.reached(f"leaked-{kind}")
        if when == "before the next turn":
            client.send_prompt("say two; gate next; say three")
            await gates.reached("next")
        gates.open("next")
        await client.until_text("three")
        leak, *_ = client.updates(since=mark)
        assert leak.get("messageId") == (old_message["messageId"] if kind == "message" else None)
        card = {"tool": old_card["toolCallId"], "new-tool": "leaked-tool"}.get(kind)
        assert leak.get("toolCallId") == card


async def test_leaks_a_file_write_after_the_cancelled_answer(
    start_agent: StartAgent, gates: Gates
) -> None:
    async with start_agent("leaks") as client:
        await stop_reason(client, await cancelled_at_gate(client, gates))
        gates.open("leak-write")
        await client.until_request("fs/write_text_file")
        assert client.side.files == {"/w/leaked": "leaked"}


# Ids


async def test_no_message_ids_leaves_them_out(start_agent: StartAgent) -> None:
    async with start_agent("no-message-ids") as client:
        await client.prompt("say a b")
        assert all("messageId" not in update for update in client.updates())


async def test_reuses_ids_in_every_turn_and_process(start_agent: StartAgent) -> None:
    names = []
    for _ in range(2):
        async with start_agent("reuses-ids") as client:
            assert client.session_id == "0"
            for _ in range(2):
                await client.prompt("say a; tool x; read /w/f")
            named = [u.get("messageId") or u.get("toolCallId") for u in client.updates()[1:]]
            reads = [m["id"] for m in client.recording.requests("fs/read_text_file")]
            names.append((named, reads))
    assert names == [(["m1", "t1", "m2"] * 2, [0, 1])] * 2


# Costs


async def test_tells_costs_has_the_name_of_an_agent_whose_costs_are_totals(
    start_agent: StartAgent,
) -> None:
    async with start_agent("tells-costs", opened=False) as client:
        told = await client.initialize()
        assert of_agent(told["agentInfo"]["name"]).cost is Span.SESSION


async def test_quotas_reports_limits_and_meets_one(start_agent: StartAgent, gates: Gates) -> None:
    async with start_agent("quotas") as client:
        await client.prompt("quota 42")
        told = client.updates()[-1]
        assert told["sessionUpdate"] == "quota_update"
        read = await client.request("quota/read", {})
        assert {"sessionUpdate": "quota_update", **read} == told
        gates.open("g")
        with pytest.raises(RpcError) as met:
            await client.prompt("gate g; limited")
        assert met.value.data["poolId"] == "plan"
