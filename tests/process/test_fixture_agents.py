"""Each fixture agent, alone before a recording client, does what its name claims."""

import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import RecordingClient
from tests.support.fixture_agents import BEHAVIOURS, FixtureLog, fixture_command
from tests.support.gates import Gates
from tests.support.processes import all_gone, marked
from tests.support.recording import RpcError

pytestmark = pytest.mark.process

CWD = "/w"
Start = Callable[..., AbstractAsyncContextManager[RecordingClient]]


@pytest.fixture
def start(agent_env: dict[str, str]) -> Start:
    """`start("leaks", opened=True)`: an agent, initialized, and in a new session if opened."""

    @asynccontextmanager
    async def start(*behaviours: str, opened: bool = True) -> AsyncGenerator[RecordingClient]:
        async with RecordingClient.start(fixture_command(*behaviours), env=agent_env) as client:
            await client.initialize()
            if opened:
                await client.new_session(CWD)
            yield client

    return start


async def cancelled_at_gate(client: RecordingClient, gates: Gates, text: str = "gate g") -> Any:
    """The id of a prompt that was cancelled while its turn stood at the gate `g`."""
    prompt = client.send_prompt(text)
    await gates.reached("g")
    client.cancel()
    return prompt


async def stop_reason(client: RecordingClient, prompt: Any) -> Any:
    return (await client.answer_to(prompt))["result"]["stopReason"]


def test_every_behaviour_has_a_test() -> None:
    tests = Path(__file__).read_text()
    assert [name for name in BEHAVIOURS if f'"{name}"' not in tests] == []


# The well-behaved one


async def test_a_turn_streams_opens_cards_and_asks_the_client(start: Start) -> None:
    async with start() as client:
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
    start: Start, gates: Gates, agent_log: FixtureLog
) -> None:
    async with start() as client:
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
    start: Start, gates: Gates, agent_log: FixtureLog
) -> None:
    async with start() as client:
        first = client.send_prompt("gate g")
        with pytest.raises(RpcError, match="a turn is running"):
            await client.prompt("say second")
        gates.open("g")
        assert await stop_reason(client, first) == "end_turn"
    assert len(agent_log.events("overlap")) == 1


async def test_a_new_process_loads_the_session_with_its_killed_turn(
    start: Start, gates: Gates, agent_log: FixtureLog
) -> None:
    async with start() as client:
        await client.prompt("say one two")
        client.send_prompt("say lost; gate g")
        await gates.reached("g")
        client.kill()
        assert await client.wait() == -signal.SIGKILL
    async with start(opened=False) as client:
        await client.load_session("0", CWD)
        kinds = [update["sessionUpdate"] for update in client.updates()]
        assert kinds[:3] == ["user_message_chunk", "agent_message_chunk", "user_message_chunk"]
        mark = client.mark()
        await client.prompt("history")
        assert client.text(since=mark) == "say one two | say lost; gate g"
        assert await client.new_session(CWD) == "1"
        assert await client.new_session("/elsewhere") == "2"
    assert len(set(agent_log.pids())) == 2


async def test_the_log_has_the_mode_and_the_option_of_each_turn(
    start: Start, agent_log: FixtureLog
) -> None:
    async with start() as client:
        await client.prompt("say a")
        session = {"sessionId": client.session_id}
        await client.request("session/set_mode", {**session, "modeId": "edit"})
        option = {**session, "configId": "effort", "value": "high"}
        await client.request("session/set_config_option", option)
        await client.prompt("say b")
    turns = [(turn["mode"], turn["effort"]) for turn in agent_log.turns()]
    assert turns == [("plan", "low"), ("edit", "high")]


async def test_a_turn_ends_the_process_when_told_to(start: Start) -> None:
    async with start() as client:
        client.send_prompt("exit 3")
        assert await client.wait() == 3
    async with start() as client:
        client.send_prompt("die")
        assert await client.wait() == -signal.SIGKILL


async def test_raw_bytes_stop_reasons_and_errors_come_as_the_prompt_says(start: Start) -> None:
    async with start() as client:
        assert await client.prompt("raw \\xff{; stop refusal") == {"stopReason": "refusal"}
        assert b"\xff{\n" in [record.raw for record in client.recording]
        with pytest.raises(RpcError, match="the model failed"):
            await client.prompt("fail")


# Cancelling


async def test_ignores_cancel_runs_its_turn_to_the_end(start: Start, gates: Gates) -> None:
    async with start("ignores-cancel") as client:
        prompt = await cancelled_at_gate(client, gates, "gate g; say still here")
        gates.open("g")
        assert await stop_reason(client, prompt) == "end_turn"
        assert client.text() == "still here"


async def test_slow_cancel_answers_after_its_gate(start: Start, gates: Gates) -> None:
    async with start("slow-cancel") as client:
        prompt = await cancelled_at_gate(client, gates)
        await gates.reached("cancel")
        assert not client.recording.answers(prompt)
        gates.open("cancel")
        assert await stop_reason(client, prompt) == "cancelled"


async def test_cancel_error_answers_with_an_error(start: Start, gates: Gates) -> None:
    async with start("cancel-error") as client:
        prompt = await cancelled_at_gate(client, gates)
        assert (await client.answer_to(prompt))["error"]["code"] == -32603


async def test_cancel_end_turn_answers_end_turn(start: Start, gates: Gates) -> None:
    async with start("cancel-end-turn") as client:
        prompt = await cancelled_at_gate(client, gates)
        assert await stop_reason(client, prompt) == "end_turn"


@pytest.mark.parametrize("kind", ["message", "tool", "plain", "new-tool"])
@pytest.mark.parametrize("when", ["before the next turn", "inside the next turn"])
async def test_leaks_an_update_after_the_cancelled_answer(
    start: Start, gates: Gates, kind: str, when: str
) -> None:
    async with start("leaks") as client:
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


async def test_leaks_a_file_write_after_the_cancelled_answer(start: Start, gates: Gates) -> None:
    async with start("leaks") as client:
        await stop_reason(client, await cancelled_at_gate(client, gates))
        gates.open("leak-write")
        await client.until_request("fs/write_text_file")
        assert client.side.files == {"/w/leaked": "leaked"}


# Ids


async def test_no_message_ids_leaves_them_out(start: Start) -> None:
    async with start("no-message-ids") as client:
        await client.prompt("say a b")
        assert all("messageId" not in update for update in client.updates())


async def test_reuses_ids_in_every_turn_and_process(start: Start) -> None:
    names = []
    for _ in range(2):
        async with start("reuses-ids") as client:
            assert client.session_id == "0"
            for _ in range(2):
                await client.prompt("say a; tool x; read /w/f")
            named = [u.get("messageId") or u.get("toolCallId") for u in client.updates()[1:]]
            reads = [m["id"] for m in client.recording.requests("fs/read_text_file")]
            names.append((named, reads))
    assert names == [(["m1", "t1", "m2"] * 2, [0, 1])] * 2


# Dying and leaving things behind


async def test_dies_mid_turn_once(start: Start, gates: Gates) -> None:
    async with start("dies-mid-turn") as client:
        client.send_prompt("say never")
        await client.until_text("dying")
        gates.open("die")
        assert await client.wait() == -signal.SIGKILL
    async with start("dies-mid-turn", opened=False) as client:
        await client.load_session("0", CWD)
        assert await client.prompt("say alive") == {"stopReason": "end_turn"}


async def test_exits_at_start_with_a_word_on_stderr(agent_env: dict[str, str]) -> None:
    async with RecordingClient.start(fixture_command("exits-at-start"), env=agent_env) as client:
        assert await client.wait() == 3
        await client.stderr_ended()
        assert b"no configuration found" in client.stderr
        assert client.recording == []


@pytest.mark.parametrize("behaviour", ["leaves-child", "leaves-grandchild"])
async def test_leaves_child_or_grandchild_alive(start: Start, mark: str, behaviour: str) -> None:
    async with start(behaviour) as client:
        assert len(marked(mark)) == 2
        client.kill()
        await client.wait()
        assert len(marked(mark)) == 1


async def test_never_ends_but_by_sigkill(start: Start, mark: str, gates: Gates) -> None:
    async with start("never-ends") as client:
        client.terminate()
        assert await client.prompt("say alive") == {"stopReason": "end_turn"}
        client.close_stdin()
        await gates.reached("end of input")
        assert client.is_running()
        client.kill()
        assert await client.wait() == -signal.SIGKILL
    await all_gone(mark)


async def test_never_reads_stdin_once_it_has_a_session(
    start: Start, gates: Gates, agent_log: FixtureLog
) -> None:
    async with start("never-reads-stdin") as client:
        await gates.reached("stopped reading")
        client.send_prompt("say " + "x" * 1_000_000)
        assert client.pipe.unsent_bytes > 500_000
        client.kill()
    assert agent_log.turns() == []


# Starting


async def test_slow_start_waits_for_its_gate(agent_env: dict[str, str], gates: Gates) -> None:
    async with RecordingClient.start(fixture_command("slow-start"), env=agent_env) as client:
        asked = client.send_request("initialize", {"protocolVersion": 1})
        await gates.reached("initialize")
        assert not client.recording.answers(asked)
        gates.open("initialize")
        assert "result" in await client.answer_to(asked)


async def test_never_starts_but_reads_on(agent_env: dict[str, str], agent_log: FixtureLog) -> None:
    async with RecordingClient.start(fixture_command("never-starts"), env=agent_env) as client:
        asked = client.send_request("initialize", {"protocolVersion": 1})
        assert await client.request("_echo", {"a": 1}) == {"echo": {"a": 1}}
        assert not client.recording.answers(asked)
    assert len(agent_log.received("initialize")) == 1


async def test_needs_auth_until_authenticated_and_again_in_the_next_process(start: Start) -> None:
    for _ in range(2):
        async with start("needs-auth", opened=False) as client:
            with pytest.raises(RpcError, match="-32000"):
                await client.new_session(CWD)
            with pytest.raises(RpcError, match="wrong token"):
                await client.request("authenticate", {"methodId": "token"})
            login = {"methodId": "token", "token": "secret-token"}
            await client.request("authenticate", login)
            await client.new_session(CWD)
            await client.request("logout", {})
            await client.request("authenticate", {"methodId": "browser"})
            await client.new_session(CWD)


async def test_early_updates_come_before_the_session(start: Start) -> None:
    async with start("early-updates", opened=False) as client:
        session = await client.new_session(CWD)
        messages = client.recording.incoming()
        assert messages[1]["params"]["sessionId"] == session
        assert messages[2]["result"]["sessionId"] == session


# Loading


async def refused(client: RecordingClient, method: str, session: str = "0") -> int:
    """The code of the error with which a load or resume was answered; 0 if there was none."""
    params = {"sessionId": session, "cwd": CWD, "mcpServers": []}
    response = await client.answer_to(client.send_request(method, params))
    return int(response["error"]["code"]) if "error" in response else 0


@pytest.mark.parametrize(
    ("behaviour", "load", "resume"),
    [
        ("refuses-load", -32603, -32603),
        ("no-load-no-resume", -32601, -32601),
        ("resume-only", -32601, 0),
        ("load-only", 0, -32601),
    ],
)
async def test_refuses_load_or_resume(start: Start, behaviour: str, load: int, resume: int) -> None:
    async with start() as client:
        await client.prompt("say a")
    async with start(behaviour, opened=False) as client:
        assert await refused(client, "session/load") == load
        assert await refused(client, "session/resume") == resume
        initialized = client.recording.incoming()[0]["result"]["agentCapabilities"]
        assert initialized["loadSession"] == (load != -32601)
        assert ("resume" in initialized["sessionCapabilities"]) == (resume != -32601)


async def test_forgets_young_sessions_but_not_grown_ones(start: Start, gates: Gates) -> None:
    async with start("forgets-young") as client:
        client.send_prompt("gate g")
        await gates.reached("g")
        grown = await client.new_session(CWD)
        await client.prompt("say a")
        client.kill()
    async with start("forgets-young", opened=False) as client:
        assert await refused(client, "session/load", "0") == -32002
        assert await refused(client, "session/resume", "0") == -32002
        assert await refused(client, "session/load", grown) == 0


async def test_slow_load_waits_for_its_gate(start: Start, gates: Gates) -> None:
    async with start("slow-load", opened=False) as client:
        params = {"sessionId": "unknown", "cwd": CWD}
        asked = client.send_request("session/resume", params)
        await gates.reached("load")
        assert not client.recording.answers(asked)
        gates.open("load")
        assert (await client.answer_to(asked))["error"]["code"] == -32002


async def test_late_replay_comes_after_the_response_and_its_gate(
    start: Start, gates: Gates
) -> None:
    async with start() as client:
        await client.prompt("say old")
    async with start("late-replay", opened=False) as client:
        await client.load_session("0", CWD)
        client.send_prompt("say new; gate g")
        await gates.reached("g")
        gates.open("late-replay")
        await gates.reached("replayed")
        await client.until_text("old")
        assert client.texts() == ["new", "old"]


async def test_writer_lock_keeps_a_second_process_out_while_the_first_lives(
    start: Start, agent_log: FixtureLog
) -> None:
    async with start("writer-lock") as first, start("writer-lock", opened=False) as second:
        assert await refused(second, "session/load") == -32603
        first.kill()
        await first.wait()
        assert await refused(second, "session/load") == 0
    assert len(agent_log.events("locked out")) == 1


# Settings


async def test_permissive_default_is_the_mode_again_after_a_load(
    start: Start, agent_log: FixtureLog
) -> None:
    async with start("permissive-default") as client:
        await client.prompt("say a")
        await client.request("session/set_mode", {"sessionId": "0", "modeId": "plan"})
        await client.prompt("say b")
    async with start("permissive-default", opened=False) as client:
        await client.load_session("0", CWD)
        await client.prompt("say c")
    assert [turn["mode"] for turn in agent_log.turns()] == ["edit", "plan", "edit"]


async def test_set_mode_fails_only_in_a_loaded_session(start: Start) -> None:
    mode = {"sessionId": "0", "modeId": "edit"}
    async with start("set-mode-fails") as client:
        await client.request("session/set_mode", mode)
    async with start("set-mode-fails", opened=False) as client:
        await client.load_session("0", CWD)
        with pytest.raises(RpcError, match="read-only"):
            await client.request("session/set_mode", mode)


# Stdout


async def test_noise_surrounds_every_message(start: Start) -> None:
    async with start("noise") as client:
        assert await client.prompt("say a") == {"stopReason": "end_turn"}
        unreadable = [record for record in client.recording if record.message is None]
        assert len(unreadable) > 10


async def test_big_line_is_ten_megabytes(start: Start) -> None:
    async with start("big-line") as client:
        assert await client.prompt("say a") == {"stopReason": "end_turn"}
        assert max(len(record.raw) for record in client.recording) > 10_000_000
