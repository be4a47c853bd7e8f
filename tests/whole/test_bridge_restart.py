"""The agent ends or was killed: restart, reload, and the user is told what was lost."""

import shutil

import pytest

from tests.support.recording import RpcError
from tests.whole.bridge_support import World, kill_agent, refused, shown, stopped

pytestmark = pytest.mark.process


@pytest.mark.hazard("P3.1", "Q5.2", "C16.2", "C9.2", "K1")
async def test_an_agent_that_dies_in_a_turn_fails_it_and_the_session_goes_on_with_its_memory(
    world: World,
) -> None:
    async with world.inside("dies-mid-turn") as client:
        first, waiting = client.send_prompt("say never"), client.send_prompt("say two; history")
        await world.gates.reached("die")
        world.gates.open("die")
        error = (await client.answer_to(first))["error"]
        assert error["code"] == -32603
        assert "SIGKILL" in error["message"]
        assert await stopped(client, waiting) == "end_turn"
        assert client.texts() == ["dying", "two", "say never"]
        cards = [u.get("status") for u in client.updates() if "toolCallId" in u]
        assert cards == [None, "failed"]
    assert world.log.prompts() == ["say never", "say two; history"]


@pytest.mark.hazard("P3.1", "P3.4")
async def test_an_agent_that_exits_is_named_by_its_exit_code_and_started_again_when_needed(
    world: World,
) -> None:
    async with world.inside() as client:
        assert "exit code 3" in (await refused(client, "say one; exit 3")).message
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
        assert len(world.log.pids()) == 2
        await kill_agent(world, client)
        assert len(world.log.pids()) == 2
        assert await client.prompt("history") == {"stopReason": "end_turn"}
        assert client.texts()[-1] == "say one; exit 3 | say two"


@pytest.mark.hazard("C12.2", "C21.2", "R3.2")
async def test_a_session_that_no_process_takes_answers_the_error_and_stays_whole(
    world: World,
) -> None:
    async with world.inside("refuses-load") as client:
        await client.prompt("say one")
        await kill_agent(world, client)
        waiting = [client.send_prompt("say never"), client.send_prompt("say never either")]
        for prompt in waiting:
            error = (await client.answer_to(prompt))["error"]
            assert "the session's file is damaged" in error["message"]
        assert len(world.log.received("session/load")) == 3
        seen = client.mark()
        await client.load_session(client.session_id, world.cwd)
        assert client.texts(since=seen) == ["one"]
        # Armed again: every later prompt tries once more.
        await refused(client, "say never again")
        assert len(world.log.received("session/load")) >= 6
        assert await client.prompt("/queue") == {"stopReason": "end_turn"}
    assert world.log.prompts() == ["say one"]


async def test_a_session_that_the_agent_lost_still_loads_and_its_prompts_answer_the_error(
    world: World,
) -> None:
    async with world.inside() as client:
        await client.prompt("say one")
        shutil.rmtree(world.env["FIXTURE_HOME"])
        await kill_agent(world, client)
        error = await refused(client, "say never")
        assert "would not load the session" in error.message
        seen = client.mark()
        await client.load_session(client.session_id, world.cwd)
        assert client.texts(since=seen) == ["one"]
    assert len(world.log.received("session/new")) == 1


@pytest.mark.hazard("R10.1")
async def test_a_session_whose_first_turn_was_killed_goes_on_as_a_new_one_and_the_user_is_told(
    world: World,
) -> None:
    async with world.inside("ignores-cancel", "forgets-young", drain_timeout=0.2) as client:
        prompt = client.send_prompt("say one; gate g")
        await world.gates.reached("g")
        client.cancel()
        assert await stopped(client, prompt) == "cancelled"
        assert await client.prompt("say two; history") == {"stopReason": "end_turn"}
        notice = client.texts()[1]
        assert notice.strip().startswith("[acp-bridge] The agent did not keep this session")
        await kill_agent(world, client)
        assert await client.prompt("history; say three") == {"stopReason": "end_turn"}
        assert client.texts()[-2:] == ["say two; history", "three"]
    assert len(world.log.received("session/new")) == 2


@pytest.mark.hazard("C8.2")
async def test_memory_that_is_lost_is_said_to_be_lost(world: World) -> None:
    async with world.inside("no-load-no-resume") as client:
        await client.prompt("say one")
        await kill_agent(world, client)
        seen = client.mark()
        assert await client.prompt("history; say two") == {"stopReason": "end_turn"}
        assert client.texts(since=seen)[0].strip().startswith("[acp-bridge] Memory lost")
        assert client.texts(since=seen)[1:] == ["", "two"]
        seen = client.mark()
        await client.load_session(client.session_id, world.cwd)
        assert "[acp-bridge] Memory lost" in client.text(since=seen)


@pytest.mark.hazard("R11.1", "R1")
async def test_a_replay_that_follows_the_load_response_is_shown_and_kept_once(
    world: World,
) -> None:
    async with world.inside("late-replay", "load-only") as client:
        await client.prompt("say one; tool t; tool-done t")
        await kill_agent(world, client)
        effort = {"sessionId": client.session_id, "configId": "effort", "value": "high"}
        await client.request("session/set_config_option", effort)  # which starts the next process
        await world.gates.reached("late-replay")
        before = shown(client)
        world.gates.open("late-replay")
        await world.gates.reached("replayed")
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
        assert client.texts() == ["one", "two"]
        assert shown(client)[: len(before)] == before
        seen = client.mark()
        await client.load_session(client.session_id, world.cwd)
        assert client.texts(since=seen) == ["one", "two"]


@pytest.mark.hazard("R11")
async def test_a_replay_that_comes_when_the_next_turn_has_begun_is_not_taken_for_an_answer(
    world: World,
) -> None:
    async with world.inside("late-replay", "load-only") as client:
        await client.prompt("say one; tool t; tool-done t")
        await kill_agent(world, client)
        prompt = client.send_prompt("gate g; say two")
        await world.gates.reached("g")
        before = shown(client)
        world.gates.open("late-replay")
        await world.gates.reached("replayed")
        world.gates.open("g")
        assert await stopped(client, prompt) == "end_turn"
        assert shown(client)[:-1] == before
        assert client.texts() == ["one", "two"]
        seen = client.mark()
        await client.load_session(client.session_id, world.cwd)
        assert client.texts(since=seen) == ["one", "two"]


@pytest.mark.hazard("R11")
async def test_what_the_bridge_itself_said_does_not_hide_a_replay_that_comes_late(
    world: World,
) -> None:
    async with world.inside("late-replay", "load-only") as client:
        await client.prompt("say one")
        await client.prompt("/queue")
        await client.prompt("say two")
        await kill_agent(world, client)
        prompt = client.send_prompt("gate g; say three")
        await world.gates.reached("g")
        before = shown(client)
        world.gates.open("late-replay")
        await world.gates.reached("replayed")
        world.gates.open("g")
        assert await stopped(client, prompt) == "end_turn"
        assert shown(client)[:-1] == before


@pytest.mark.hazard("R11.1", "P13")
async def test_a_restart_by_load_shows_nothing_twice_but_what_is_new_of_the_settings(
    world: World,
) -> None:
    async with world.inside("load-only", "reuses-ids") as client:
        await client.prompt("say one; tool t; tool-done t")
        await kill_agent(world, client)
        seen = client.mark()
        assert await client.prompt("say two; tool t; tool-done t") == {"stopReason": "end_turn"}
        kinds = [update["sessionUpdate"] for update in client.updates(since=seen)]
        assert kinds[-3:] == ["agent_message_chunk", "tool_call", "tool_call_update"]
        assert set(kinds[:-3]) <= {"available_commands_update"}
        assert client.texts() == ["one", "two"]
        cards = [u["toolCallId"] for u in client.updates() if u["sessionUpdate"] == "tool_call"]
        assert len(set(cards)) == 2


async def test_an_agent_that_can_only_resume_is_resumed(world: World) -> None:
    async with world.inside("resume-only") as client:
        await client.prompt("say one")
        await kill_agent(world, client)
        assert await client.prompt("history") == {"stopReason": "end_turn"}
        assert client.texts() == ["one", "say one"]


@pytest.mark.hazard("R9.1")
async def test_the_users_mode_and_options_are_set_again_before_the_next_prompt(
    world: World,
) -> None:
    async with world.inside("permissive-default") as client:
        about = {"sessionId": client.session_id}
        for mode in ("edit", "plan"):
            await client.request("session/set_mode", {**about, "modeId": mode})
        effort = {**about, "configId": "effort", "value": "high"}
        await client.request("session/set_config_option", effort)
        with pytest.raises(RpcError):
            await client.request("session/set_mode", {**about, "modeId": "no such"})
        await kill_agent(world, client)
        assert await client.prompt("say one") == {"stopReason": "end_turn"}
        session = client.session_id
    # In another bridge, too.
    async with world.inside("permissive-default", session=False) as client:
        loaded = await client.load_session(session, world.cwd)
        assert loaded["modes"]["currentModeId"] == "plan"
        assert loaded["configOptions"][0]["currentValue"] == "high"
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
    given = [(turn["mode"], turn["effort"]) for turn in world.log.turns()]
    assert given == [("plan", "high"), ("plan", "high")]


@pytest.mark.hazard("R9.2", "C12.2")
async def test_a_prompt_does_not_run_when_the_mode_cannot_be_set_again(world: World) -> None:
    async with world.inside("permissive-default", "set-mode-fails") as client:
        about = {"sessionId": client.session_id}
        await client.request("session/set_mode", {**about, "modeId": "plan"})
        await client.prompt("say one")
        await kill_agent(world, client)
        error = await refused(client, "say never")
        assert "would not set 'plan' again" in error.message
        # The user's other choice is passed on as it is, and its failure shown.
        with pytest.raises(RpcError):
            await client.request("session/set_mode", {**about, "modeId": "edit"})
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
    assert [(turn["prompt"], turn["mode"]) for turn in world.log.turns()] == [
        ("say one", "plan"),
        ("say two", "edit"),
    ]
