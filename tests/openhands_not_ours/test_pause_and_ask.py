"""A turn that waits for the user's word, and questions beside it."""

from pathlib import Path

import anyio
import pytest

from tests.openhands_not_ours.stand import (
    PATIENCE,
    Stand,
    cards,
    numbers,
    run_command,
    set_policy,
    stop_reason,
)
from tests.support.client import RecordingClient

pytestmark = pytest.mark.process


async def _in_a_command(stand: Stand, client: RecordingClient, until: Path) -> int:
    """The prompt's id; its command runs until the file is there."""
    await set_policy(stand, client, "NeverConfirm")
    loop = f"while [ ! -e {until} ]; do sleep 0.1; done; echo ended"
    running = client.send_prompt(run_command(loop))
    await client.until_recorded(lambda: cards(client), PATIENCE)
    assert isinstance(running, int)
    return running


async def _pause(stand: Stand, client: RecordingClient, until: Path) -> None:
    """Paused, when the command has ended; the model is asked for nothing more."""
    request = client.send_request("_acp_bridge/pause", {"sessionId": client.session_id})
    if stand.bridged:
        assert "result" in await client.answer_to(request, PATIENCE)
    await anyio.Path(until).touch()
    if not stand.bridged:
        answer = await client.answer_to(request, PATIENCE)
        assert answer["result"] == {"paused": True}
    await stand.api.until_status(await stand.conversation(), "paused")


async def test_a_paused_turn_waits_open_and_goes_on_at_the_users_word(stand: Stand) -> None:
    until = stand.cwd / "until"
    async with stand.client() as client:
        running = await _in_a_command(stand, client, until)
        await _pause(stand, client, until)
        asked = len(stand.model.requests)
        assert not client.recording.answers(running)
        await client.request("_acp_bridge/go", {"sessionId": client.session_id}, PATIENCE)
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "end_turn"
        assert len(stand.model.requests) > asked
        assert client.text().count("DONE ended") == 1
        (card,) = cards(client)
        assert (card.begun, card.ends) == (1, ["completed"])


async def test_stop_ends_a_paused_turn_and_the_next_prompt_runs(stand: Stand) -> None:
    until = stand.cwd / "until"
    async with stand.client() as client:
        running = await _in_a_command(stand, client, until)
        await _pause(stand, client, until)
        client.cancel()
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "cancelled"
        mark = client.mark()
        answer = await client.prompt("SAY A 3", within=PATIENCE)
        assert answer["stopReason"] == "end_turn"
        assert numbers(client.text(since=mark), "A") == [0, 1, 2]
        assert "DONE ended" not in client.text()


async def test_stop_beats_a_pause_that_is_not_answered_yet(stand: Stand) -> None:
    until = stand.cwd / "until"
    async with stand.client() as client:
        running = await _in_a_command(stand, client, until)
        client.send_request("_acp_bridge/pause", {"sessionId": client.session_id})
        client.cancel()
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "cancelled"
        answer = await client.prompt("SAY A 3", within=PATIENCE)
        assert answer["stopReason"] == "end_turn"
        assert numbers(client.text(), "A") == [0, 1, 2]


async def test_a_question_is_answered_beside_the_turn_and_leaves_nothing(stand: Stand) -> None:
    async with stand.client() as client:
        running = client.send_prompt("SAY A 6 GATE asked AT 3")
        await client.until_text("A2", within=PATIENCE)
        before = await stand.api.messages(await stand.conversation())
        params = {"sessionId": client.session_id, "question": "SAY ASIDE 3"}
        answer = await client.request("_acp_bridge/ask", params, PATIENCE)
        assert numbers(answer["answer"], "ASIDE") == [0, 1, 2]
        assert not client.recording.answers(running)
        stand.model.open("asked")
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "end_turn"
        assert numbers(client.text(), "A") == list(range(6))
        assert not numbers(client.text(), "ASIDE")
        assert await stand.api.messages(await stand.conversation()) == before


@pytest.mark.parametrize("bridged", [True])
async def test_queue_pause_and_go_are_commands_too(stand: Stand) -> None:
    until = stand.cwd / "until"
    async with stand.client() as client:
        running = await _in_a_command(stand, client, until)
        await client.prompt("/queue pause", within=PATIENCE)
        await anyio.Path(until).touch()
        await stand.api.until_status(await stand.conversation(), "paused")
        waiting = client.send_prompt("SAY B 2")
        await client.prompt("/queue go", within=PATIENCE)
        with anyio.fail_after(2 * PATIENCE):
            assert stop_reason(await client.answer_to(running, PATIENCE)) == "end_turn"
            assert stop_reason(await client.answer_to(waiting, PATIENCE)) == "end_turn"
        assert "DONE ended" in client.text()
        assert numbers(client.text(), "B") == [0, 1]
