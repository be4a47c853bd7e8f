"""Actions that wait for the user: allowed, refused, left alone; and what must then not have run."""

from pathlib import Path
from typing import Any

import pytest

from tests.openhands_not_ours.stand import (
    PATIENCE,
    Stand,
    cards,
    edit,
    numbers,
    run_command,
    set_policy,
    stop_reason,
)
from tests.support.client import RecordingClient

pytestmark = pytest.mark.process
ASK = "session/request_permission"


def _touch(path: Path) -> str:
    return run_command(f"touch {path}")


async def _rejections(stand: Stand) -> list[dict[str, Any]]:
    events = await stand.api.events(await stand.conversation())
    return [event for event in events if event["kind"] == "UserRejectObservation"]


async def _open_question(client: RecordingClient, prompt: str) -> Any:
    """The prompt's id, when its permission is asked for and not answered."""
    client.side.permission = "never"
    running = client.send_prompt(prompt)
    await client.until_request(ASK, within=PATIENCE)
    return running


async def test_what_is_allowed_is_done(stand: Stand) -> None:
    path = stand.cwd / "allowed"
    async with stand.client() as client:
        await set_policy(stand, client, "AlwaysConfirm")
        client.side.permission = "allow"
        answer = await client.prompt(_touch(path), within=PATIENCE)
        assert answer["stopReason"] == "end_turn"
        assert path.exists()
        (asked,) = client.recording.requests(ASK)
        assert str(path) in str(asked["params"])
        (card,) = cards(client)
        assert (card.begun, card.ends) == (1, ["completed"])


async def test_what_is_refused_is_not_done_and_the_model_is_told(stand: Stand) -> None:
    path = stand.cwd / "refused"
    async with stand.client() as client:
        await set_policy(stand, client, "AlwaysConfirm")
        client.side.permission = "reject"
        answer = await client.prompt(_touch(path), within=PATIENCE)
        assert answer["stopReason"] == "end_turn"
        assert len(await _rejections(stand)) == 1
        (card,) = cards(client)
        assert (card.begun, card.ends) == (1, ["failed"])
        assert "DONE Action" in client.text()  # "Action rejected: ..." is what the model was told
        await client.prompt("SAY A 2", within=PATIENCE)
        assert numbers(client.text(), "A") == [0, 1]
        assert not path.exists()


async def test_all_actions_that_wait_are_one_question_that_names_each(stand: Stand) -> None:
    one, two = stand.cwd / "one", stand.cwd / "two"
    both = f"{_touch(one)}\n{edit(command='create', path=str(two), file_text='2')}"
    async with stand.client() as client:
        await set_policy(stand, client, "AlwaysConfirm")
        client.side.permission = "reject"
        await client.prompt(both, within=PATIENCE)
        (asked,) = client.recording.requests(ASK)
        assert str(one) in str(asked["params"])
        assert str(two) in str(asked["params"])
        assert len(await _rejections(stand)) == 2
        assert not one.exists()
        assert not two.exists()
        client.side.permission = "allow"
        await client.prompt(both, within=PATIENCE)
        assert one.exists()
        assert two.read_text() == "2"
        assert len(client.recording.requests(ASK)) == 2
        assert [card.ends for card in cards(client)] == [["failed"]] * 2 + [["completed"]] * 2


async def test_a_question_that_the_client_leaves_is_a_refusal(stand: Stand) -> None:
    path = stand.cwd / "left"
    async with stand.client() as client:
        await set_policy(stand, client, "AlwaysConfirm")
        client.side.permission = "cancel"
        await client.prompt(_touch(path), within=PATIENCE)
        await client.prompt("SAY A 2", within=PATIENCE)
        assert len(await _rejections(stand)) == 1
        assert not path.exists()


async def test_cancelled_with_a_question_open_it_never_runs_not_with_the_next_prompt_either(
    stand: Stand,
) -> None:
    path = stand.cwd / "never"
    async with stand.client() as client:
        await set_policy(stand, client, "AlwaysConfirm")
        running = await _open_question(client, _touch(path))
        client.cancel()
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "cancelled"
        # It is refused by now, so that no other client's message runs it either.
        assert len(await _rejections(stand)) == 1
        client.side.permission = "allow"
        mark = client.mark()
        answer = await client.prompt("SAY A 3", within=PATIENCE)
        assert answer["stopReason"] == "end_turn"
        assert numbers(client.text(since=mark), "A") == [0, 1, 2]
        assert len(await _rejections(stand)) == 1
        assert not path.exists()
        (card,) = cards(client)
        assert (card.begun, card.ends) == (1, ["failed"])


async def test_an_answer_that_comes_after_the_cancel_allows_nothing(stand: Stand) -> None:
    path = stand.cwd / "late"
    async with stand.client() as client:
        await set_policy(stand, client, "AlwaysConfirm")
        running = await _open_question(client, _touch(path))
        (asked,) = client.recording.requests(ASK)
        allow = next(o for o in asked["params"]["options"] if o["kind"] == "allow_once")
        chosen = {"outcome": {"outcome": "selected", "optionId": allow["optionId"]}}
        client.cancel()
        client.answer(asked["id"], chosen)
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "cancelled"
        await client.prompt("SAY A 2", within=PATIENCE)
        assert not path.exists()


async def test_another_client_that_answers_settles_the_question(stand: Stand) -> None:
    path = stand.cwd / "elsewhere"
    async with stand.client() as client:
        await set_policy(stand, client, "AlwaysConfirm")
        running = await _open_question(client, _touch(path))
        conversation = await stand.conversation()
        body = {"accept": True, "reason": "another client said so"}
        path_of = f"/api/conversations/{conversation}/events/respond_to_confirmation"
        await stand.api.ask("POST", path_of, body)
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "end_turn"
        assert path.exists()
        (card,) = cards(client)
        assert (card.begun, card.ends) == (1, ["completed"])
