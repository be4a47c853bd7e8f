"""Fixture agents that die, start badly, load badly, or misuse their stdout."""

import signal
from pathlib import Path

import pytest

from tests.support.client import RecordingClient
from tests.support.fixture_agents import BEHAVIOURS, FixtureLog, StartAgent, fixture_command
from tests.support.gates import Gates
from tests.support.processes import all_gone, marked
from tests.support.recording import RpcError
from tests.support.waiting import until

pytestmark = pytest.mark.process

CWD = "/w"


def test_every_behaviour_has_a_test() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_fixture_*.py"))
    assert [name for name in BEHAVIOURS if f'"{name}"' not in tests] == []


# Dying and leaving things behind


async def test_dies_mid_turn_once(start_agent: StartAgent, gates: Gates) -> None:
    async with start_agent("dies-mid-turn") as client:
        client.send_prompt("say never")
        await client.until_text("dying")
        gates.open("die")
        assert await client.wait() == -signal.SIGKILL
    async with start_agent("dies-mid-turn", opened=False) as client:
        await client.load_session("0", CWD)
        assert await client.prompt("say alive") == {"stopReason": "end_turn"}


async def test_exits_at_start_with_a_word_on_stderr(agent_env: dict[str, str]) -> None:
    async with RecordingClient.start(fixture_command("exits-at-start"), env=agent_env) as client:
        assert await client.wait() == 3
        await client.stderr_ended()
        assert b"no configuration found" in client.stderr
        assert client.recording == []


@pytest.mark.parametrize("behaviour", ["leaves-child", "leaves-grandchild"])
async def test_leaves_child_or_grandchild_alive(
    start_agent: StartAgent, mark: str, behaviour: str
) -> None:
    async with start_agent(behaviour) as client:
        await until(lambda: len(marked(mark)) == 2)  # not while one becomes another program
        client.kill()
        await client.wait()
        await until(lambda: len(marked(mark)) == 1)


async def test_never_ends_but_by_sigkill(start_agent: StartAgent, mark: str, gates: Gates) -> None:
    async with start_agent("never-ends") as client:
        client.terminate()
        assert await client.prompt("say alive") == {"stopReason": "end_turn"}
        client.close_stdin()
        await gates.reached("end of input")
        assert client.is_running()
        client.kill()
        assert await client.wait() == -signal.SIGKILL
    await all_gone(mark)


async def test_tidies_up_ends_at_sigterm_and_not_at_the_end_of_its_input(
    start_agent: StartAgent, agent_log: FixtureLog
) -> None:
    async with start_agent("tidies-up") as client:
        client.close_stdin()
        await until(lambda: agent_log.events("end of input"))
        assert client.is_running()
        client.terminate()
        assert await client.wait() == 0
    assert len(agent_log.events("tidied")) == 1


async def test_never_reads_stdin_once_it_has_a_session(
    start_agent: StartAgent, gates: Gates, agent_log: FixtureLog
) -> None:
    async with start_agent("never-reads-stdin") as client:
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


async def test_needs_auth_until_authenticated_and_again_in_the_next_process(
    start_agent: StartAgent,
) -> None:
    for _ in range(2):
        async with start_agent("needs-auth", opened=False) as client:
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


async def test_early_updates_come_before_the_session(start_agent: StartAgent) -> None:
    async with start_agent("early-updates", opened=False) as client:
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
async def test_refuses_load_or_resume(
    start_agent: StartAgent, behaviour: str, load: int, resume: int
) -> None:
    async with start_agent() as client:
        await client.prompt("say a")
    async with start_agent(behaviour, opened=False) as client:
        assert await refused(client, "session/load") == load
        assert await refused(client, "session/resume") == resume
        initialized = client.recording.incoming()[0]["result"]["agentCapabilities"]
        assert initialized["loadSession"] == (load != -32601)
        assert ("resume" in initialized["sessionCapabilities"]) == (resume != -32601)


@pytest.mark.parametrize(("behaviour", "left"), [("deletes", 0), ("refuses-delete", 1)])
async def test_deletes_a_session_or_refuses_to(
    start_agent: StartAgent, behaviour: str, left: int
) -> None:
    async with start_agent(behaviour) as client:
        await client.prompt("say a")
        response = await client.answer_to(
            client.send_request("session/delete", {"sessionId": client.session_id})
        )
        assert ("error" in response) == bool(left)
        assert len((await client.request("session/list", {}))["sessions"]) == left


@pytest.mark.parametrize(
    ("behaviour", "answers"),
    [("", ["result"]), ("closes-late", ["result"] * 2), ("refuses-close", ["error"])],
)
async def test_answers_a_close_once_twice_or_with_a_refusal(
    start_agent: StartAgent, behaviour: str, answers: list[str]
) -> None:
    async with start_agent(*filter(None, [behaviour])) as client:
        asked = client.send_request("session/close", {"sessionId": client.session_id})
        await client.until_recorded(lambda: len(client.recording.answers(asked)) == len(answers))
        found = [key for each in client.recording.answers(asked) for key in each]
        assert [key for key in found if key in ("result", "error")] == answers


async def test_never_answers_a_close_and_has_closed(start_agent: StartAgent) -> None:
    async with start_agent("never-closes") as client:
        asked = client.send_request("session/close", {"sessionId": client.session_id})
        answer = await client.answer_to(client.send_prompt("say gone"))
        assert answer["error"]["code"] == -32002
        assert client.recording.answers(asked) == []


async def test_says_when_it_is_given_what_another_was_not_told_to_close(
    start_agent: StartAgent, agent_log: FixtureLog
) -> None:
    async with start_agent() as first, start_agent(opened=False) as second:
        await second.load_session(first.session_id, CWD)
        assert len(agent_log.events("open elsewhere")) == 1
        await second.request("session/close", {"sessionId": first.session_id})
        await first.load_session(first.session_id, CWD)
        assert len(agent_log.events("open elsewhere")) == 1


async def test_forgets_young_sessions_but_not_grown_ones(
    start_agent: StartAgent, gates: Gates
) -> None:
    async with start_agent("forgets-young") as client:
        client.send_prompt("gate g")
        await gates.reached("g")
        grown = await client.new_session(CWD)
        await client.prompt("say a")
        client.kill()
    async with start_agent("forgets-young", opened=False) as client:
        assert await refused(client, "session/load", "0") == -32002
        assert await refused(client, "session/resume", "0") == -32002
        assert await refused(client, "session/load", grown) == 0


async def test_slow_load_waits_for_its_gate(start_agent: StartAgent, gates: Gates) -> None:
    async with start_agent("slow-load", opened=False) as client:
        params = {"sessionId": "unknown", "cwd": CWD}
        asked = client.send_request("session/resume", params)
        await gates.reached("load")
        assert not client.recording.answers(asked)
        gates.open("load")
        assert (await client.answer_to(asked))["error"]["code"] == -32002


async def test_late_replay_comes_after_the_response_and_its_gate(
    start_agent: StartAgent, gates: Gates
) -> None:
    async with start_agent() as client:
        await client.prompt("say old")
    async with start_agent("late-replay", opened=False) as client:
        await client.load_session("0", CWD)
        client.send_prompt("say new; gate g")
        await gates.reached("g")
        gates.open("late-replay")
        await gates.reached("replayed")
        await client.until_text("old")
        assert client.texts() == ["new", "old"]


async def test_pauses_says_nothing_more_until_go_and_answers_what_it_is_asked(
    start_agent: StartAgent, gates: Gates
) -> None:
    async with start_agent("pauses") as client:
        prompt = client.send_prompt("say one; gate g; say two")
        await gates.reached("g")
        pause = client.send_request("_acp_bridge/pause", {"sessionId": "0"})
        asked = {"sessionId": "0", "question": "why"}
        assert await client.request("_acp_bridge/ask", asked) == {"answer": "asked: why"}
        gates.open("g")
        assert (await client.answer_to(pause))["result"] == {"paused": True}
        assert client.texts() == ["one"]
        await client.request("_acp_bridge/go", {"sessionId": "0"})
        assert (await client.answer_to(prompt))["result"] == {"stopReason": "end_turn"}
        assert client.texts() == ["one", "two"]


async def test_steers_plays_words_in_the_turn_that_runs_and_takes_none_without_one(
    start_agent: StartAgent, gates: Gates
) -> None:
    async with start_agent("steers") as client:
        words = {"sessionId": "0", "prompt": [{"type": "text", "text": "say two"}]}
        prompt = client.send_prompt("say one; gate g")
        await gates.reached("g")
        assert await client.request("_session/steering", words) == {"outcome": "injected"}
        gates.open("g")
        assert (await client.answer_to(prompt))["result"] == {"stopReason": "end_turn"}
        assert client.texts() == ["one", "two"]
        answer = await client.request("_session/steering", words)
        assert answer["outcome"] == "promptRequired"


async def test_works_on_says_more_after_its_answer_until_it_is_told_to_stop(
    start_agent: StartAgent,
) -> None:
    async with start_agent("works-on") as client:
        await client.prompt("say one")
        seen = client.mark()
        await client.until_text("[on]", since=seen)
        client.cancel()
        await client.until(lambda m: '"completed"' in str(m).replace("'", '"'))


async def test_writer_lock_keeps_a_second_process_out_while_the_first_lives(
    start_agent: StartAgent, agent_log: FixtureLog
) -> None:
    async with (
        start_agent("writer-lock") as first,
        start_agent("writer-lock", opened=False) as second,
    ):
        assert await refused(second, "session/load") == -32603
        first.kill()
        await first.wait()
        assert await refused(second, "session/load") == 0
    assert len(agent_log.events("locked out")) == 1


# Settings


async def test_permissive_default_is_the_mode_again_after_a_load(
    start_agent: StartAgent, agent_log: FixtureLog
) -> None:
    async with start_agent("permissive-default") as client:
        await client.prompt("say a")
        await client.request("session/set_mode", {"sessionId": "0", "modeId": "plan"})
        await client.prompt("say b")
    async with start_agent("permissive-default", opened=False) as client:
        await client.load_session("0", CWD)
        await client.prompt("say c")
    assert [turn["mode"] for turn in agent_log.turns()] == ["edit", "plan", "edit"]


async def test_set_mode_fails_only_in_a_loaded_session(start_agent: StartAgent) -> None:
    mode = {"sessionId": "0", "modeId": "edit"}
    async with start_agent("set-mode-fails") as client:
        await client.request("session/set_mode", mode)
    async with start_agent("set-mode-fails", opened=False) as client:
        await client.load_session("0", CWD)
        with pytest.raises(RpcError, match="read-only"):
            await client.request("session/set_mode", mode)


# Stdout


async def test_noise_surrounds_every_message(start_agent: StartAgent) -> None:
    async with start_agent("noise") as client:
        assert await client.prompt("say a") == {"stopReason": "end_turn"}
        unreadable = [record for record in client.recording if record.message is None]
        assert len(unreadable) > 10


async def test_big_line_is_ten_megabytes(start_agent: StartAgent) -> None:
    async with start_agent("big-line") as client:
        assert await client.prompt("say a") == {"stopReason": "end_turn"}
        assert max(len(record.raw) for record in client.recording) > 10_000_000
