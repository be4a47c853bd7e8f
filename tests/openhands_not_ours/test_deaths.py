"""The server, the adapter or the bridge killed: nothing shown is lost, nothing runs on."""

import os
import signal

import pytest

from tests.openhands_not_ours.stand import (
    PATIENCE,
    Stand,
    cards,
    error_of,
    numbers,
    run_command,
    set_policy,
    stop_reason,
    user_texts,
)
from tests.support.client import RecordingClient
from tests.support.processes import gone

pytestmark = pytest.mark.process


def _restart(stand: Stand) -> None:
    stand.server.start()
    stand.server.running()


async def _kill_agent(stand: Stand, client: RecordingClient) -> None:
    for pid in stand.agent_pids(client):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        await gone(pid)


async def test_the_server_killed_and_started_again_in_a_turn(mortal_stand: Stand) -> None:
    stand = mortal_stand
    async with stand.client() as client:
        await client.prompt("SAY A 4", within=PATIENCE)
        running = client.send_prompt("SAY X 9 GATE serverkilled AT 3")
        await client.until_text("X2", within=PATIENCE)
        stand.server.kill()
        stand.model.open("serverkilled")
        _restart(stand)
        answer = await client.answer_to(running, 2 * PATIENCE)
        assert stop_reason(answer).startswith("error"), "its run died with the server"
        assert numbers(client.text(), "X") == [0, 1, 2]
        mark = client.mark()
        again = await client.prompt("SAY B 3", within=PATIENCE)
        assert again["stopReason"] == "end_turn"
        assert numbers(client.text(since=mark), "B") == [0, 1, 2]
        assert numbers(client.text(), "A") == [0, 1, 2, 3]
        asked = await stand.api.messages(await stand.conversation())
        assert asked == ["SAY A 4", "SAY X 9 GATE serverkilled AT 3", "SAY B 3"]


async def test_the_server_killed_in_a_command_closes_its_card(mortal_stand: Stand) -> None:
    stand = mortal_stand
    async with stand.client() as client:
        await set_policy(stand, client, "NeverConfirm")
        mark = client.mark()
        running = client.send_prompt(run_command("sleep 30"))
        await client.until_recorded(
            lambda: any("sleep 30" in str(card.fields) for card in cards(client, mark)), PATIENCE
        )
        stand.server.kill()
        _restart(stand)
        answer = await client.answer_to(running, 2 * PATIENCE)
        assert stop_reason(answer).startswith("error")
        (card,) = cards(client, mark)
        assert (card.begun, card.ends) == (1, ["failed"])


async def test_a_restart_of_the_server_widens_no_rights(mortal_stand: Stand) -> None:
    """The server forgets a policy that was set on its way: the adapter sets it again."""
    stand = mortal_stand
    path = stand.cwd / "widened"
    async with stand.client() as client:
        await set_policy(stand, client, "NeverConfirm")
        await set_policy(stand, client, "AlwaysConfirm")
        await client.prompt("SAY A 1", within=PATIENCE)
        stand.server.kill()
        _restart(stand)
        client.side.permission = "reject"
        await client.prompt(run_command(f"touch {path}"), within=2 * PATIENCE)
        assert client.recording.requests("session/request_permission")
        assert not path.exists()


async def test_the_server_killed_with_a_question_open_never_runs_the_action(
    mortal_stand: Stand,
) -> None:
    stand = mortal_stand
    path = stand.cwd / "waited"
    async with stand.client() as client:
        await set_policy(stand, client, "AlwaysConfirm")
        client.side.permission = "never"
        running = client.send_prompt(run_command(f"touch {path}"))
        await client.until_request("session/request_permission", within=PATIENCE)
        stand.server.kill()
        _restart(stand)
        client.cancel()
        assert stop_reason(await client.answer_to(running, 2 * PATIENCE)) == "cancelled"
        client.side.permission = "reject"
        await client.prompt("SAY A 2", within=2 * PATIENCE)
        assert not path.exists()


async def test_a_load_after_the_adapter_was_killed_in_a_turn_finds_nothing_running(
    stand: Stand,
) -> None:
    path = stand.cwd / "ran-on"
    async with stand.client() as client:
        await set_policy(stand, client, "NeverConfirm")
        await client.prompt("SAY A 3", within=PATIENCE)
        session = client.session_id
        running = client.send_prompt(run_command(f"sleep 15; touch {path}"))
        await client.until_recorded(lambda: cards(client), PATIENCE)
        await _kill_agent(stand, client)
        if stand.bridged:
            assert stop_reason(await client.answer_to(running, PATIENCE)).startswith("error")
            # The bridge starts it again with the next prompt.
            assert (await client.prompt("SAY B 2", within=PATIENCE))["stopReason"] == "end_turn"
            assert numbers(client.text(), "B") == [0, 1]
            assert not path.exists()
            return
        await client.closed.wait()
    conversation = await stand.conversation()
    async with stand.client(loads=session) as client:
        assert (await stand.api.conversation(conversation))["execution_status"] != "running"
        assert numbers(client.text(), "A") == [0, 1, 2]
        assert "SAY A 3" in user_texts(client)
        assert [len(card.ends) for card in cards(client)] == [1]
        assert (await client.prompt("SAY B 2", within=PATIENCE))["stopReason"] == "end_turn"
        assert not path.exists()


async def test_a_load_after_the_adapter_was_killed_with_a_question_open_never_runs_the_action(
    stand: Stand,
) -> None:
    path = stand.cwd / "asked"
    async with stand.client() as client:
        await set_policy(stand, client, "AlwaysConfirm")
        session = client.session_id
        client.side.permission = "never"
        client.send_prompt(run_command(f"touch {path}"))
        await client.until_request("session/request_permission", within=PATIENCE)
        client.kill()
        await client.closed.wait()
    async with stand.client(loads=session) as client:
        client.side.permission = "reject"
        assert (await client.prompt("SAY B 2", within=PATIENCE))["stopReason"] == "end_turn"
        assert numbers(client.text(), "B") == [0, 1]
        assert not path.exists()


async def test_a_load_shows_all_that_was_said_and_the_model_remembers(stand: Stand) -> None:
    async with stand.client() as client:
        session = client.session_id
        await client.prompt("THINK A 3", within=PATIENCE)
        await client.prompt("SAY B 3", within=PATIENCE)
    for _ in range(2):
        async with stand.client(loads=session) as client:
            assert user_texts(client) == "THINK A 3\nSAY B 3"
            assert numbers(client.text(), "A") == numbers(client.text(), "B") == [0, 1, 2]
    async with stand.client(loads=session) as client:
        await client.prompt("SAY LOADED 1", within=PATIENCE)
        (body,) = stand.model.asked("SAY LOADED 1")[-1:]
        assert "THINK A 3" in stand.model.heard(body)


async def test_a_load_after_a_restart_of_the_server_remembers(mortal_stand: Stand) -> None:
    stand = mortal_stand
    async with stand.client() as client:
        session = client.session_id
        await client.prompt("SAY A 3", within=PATIENCE)
    stand.server.kill()
    _restart(stand)
    async with stand.client(loads=session) as client:
        assert numbers(client.text(), "A") == [0, 1, 2]
        await client.prompt("SAY RESTARTED 1", within=PATIENCE)
        (body,) = stand.model.asked("SAY RESTARTED 1")[-1:]
        assert "SAY A 3" in stand.model.heard(body)


@pytest.mark.parametrize("bridged", [True])
async def test_the_bridge_killed_in_a_turn_takes_the_run_with_it_at_the_next_load(
    stand: Stand,
) -> None:
    async with stand.client() as client:
        session = client.session_id
        await client.prompt("SAY A 3", within=PATIENCE)
        client.send_prompt("SAY X 9 GATE bridgekilled AT 3")
        await client.until_text("X2", within=PATIENCE)
        client.kill()
        await client.closed.wait()
        shown = client.text()
    async with stand.client(loads=session) as client:
        assert shown in client.text()
        assert (await client.prompt("SAY B 2", within=PATIENCE))["stopReason"] == "end_turn"
        assert numbers(client.text(), "B") == [0, 1]
        assert numbers(client.text(), "X") == [0, 1, 2]
        conversation = await stand.conversation()
        assert (await stand.api.conversation(conversation))["execution_status"] == "finished"
    stand.model.open("bridgekilled")


async def test_a_conversation_that_is_deleted_meanwhile_ends_the_turn_and_is_gone(
    stand: Stand,
) -> None:
    async with stand.client() as client:
        running = client.send_prompt("SAY X 9 GATE deleted AT 3")
        await client.until_text("X2", within=PATIENCE)
        await stand.api.ask("DELETE", f"/api/conversations/{await stand.conversation()}")
        stand.model.open("deleted")
        await client.answer_to(running, 2 * PATIENCE)
        params = {"sessionId": client.session_id, "prompt": [{"type": "text", "text": "SAY A 1"}]}
        error = await error_of(client, "session/prompt", params)
        assert "not found" in str(error.data).lower() or "gone" in str(error.data).lower()
