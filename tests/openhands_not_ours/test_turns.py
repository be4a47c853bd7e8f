"""What a turn of the agent-server looks like to a client."""

import pytest

from tests.openhands_not_ours.model import SECRET, TITLE, words
from tests.openhands_not_ours.stand import (
    PATIENCE,
    Stand,
    cards,
    edit,
    error_of,
    numbers,
    run_command,
    set_policy,
    stop_reason,
    thoughts,
    user_texts,
)

pytestmark = pytest.mark.process


async def test_a_prompt_is_streamed_and_each_word_is_shown_once(stand: Stand) -> None:
    async with stand.client() as client:
        running = client.send_prompt("SAY A 6 GATE streamed AT 3")
        await client.until_text("A2", within=PATIENCE)
        assert not client.recording.answers(running)
        stand.model.open("streamed")
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "end_turn"
        assert words("A", 6) in client.text()
        assert numbers(client.text(), "A") == list(range(6))
        assert await stand.api.messages(await stand.conversation()) == [
            "SAY A 6 GATE streamed AT 3"
        ]
        assert not user_texts(client)


async def test_a_thought_is_shown_as_one_and_not_as_the_answer(stand: Stand) -> None:
    async with stand.client() as client:
        assert (await client.prompt("THINK B 4", within=PATIENCE))["stopReason"] == "end_turn"
        assert thoughts(client).strip() == "Bt0 Bt1 Bt2 Bt3"
        assert numbers(client.text(), "B") == [0, 1, 2, 3]
        assert not numbers(client.text(), "Bt")


async def test_a_command_has_one_card_with_one_start_and_one_end(stand: Stand) -> None:
    async with stand.client() as client:
        await set_policy(stand, client, "NeverConfirm")
        mark = client.mark()
        await client.prompt(run_command("echo out-of-it"), within=PATIENCE)
        (card,) = cards(client, mark)
        assert (card.begun, card.ends) == (1, ["completed"])
        assert card.fields["kind"] == "execute"
        assert "echo out-of-it" in card.fields["title"]
        assert "out-of-it" in str(card.fields["content"])
        text = client.text(since=mark)
        assert text.count("I call. ") == 1
        assert "DONE out-of-it" in text


async def test_an_edit_has_its_diff_and_its_place(stand: Stand) -> None:
    poem = stand.cwd / "poem.txt"
    path = str(poem)
    async with stand.client() as client:
        await set_policy(stand, client, "NeverConfirm")
        mark = client.mark()
        await client.prompt(
            edit(command="create", path=path, file_text="one\ntwo\n"), None, PATIENCE
        )
        await client.prompt(
            edit(command="str_replace", path=path, old_str="two", new_str="2"), None, PATIENCE
        )
        made, changed = cards(client, mark)
        assert poem.read_text() == "one\n2\n"
        for card in (made, changed):
            assert (card.begun, card.ends) == (1, ["completed"])
            assert card.fields["kind"] == "edit"
            assert [place["path"] for place in card.fields["locations"]] == [path]
        (diff,) = (each for each in changed.fields["content"] if each["type"] == "diff")
        assert (diff["path"], diff["oldText"], diff["newText"]) == (path, "one\ntwo\n", "one\n2\n")
        (first,) = (each for each in made.fields["content"] if each["type"] == "diff")
        assert (first.get("oldText"), first["newText"]) == (None, "one\ntwo\n")


@pytest.mark.parametrize(
    "call", [edit(command="view", path="/not/there"), 'TOOL no_such_tool {"a": 1}']
)
async def test_a_call_that_fails_has_a_card_that_failed(stand: Stand, call: str) -> None:
    async with stand.client() as client:
        await set_policy(stand, client, "NeverConfirm")
        mark = client.mark()
        answer = await client.prompt(call, within=PATIENCE)
        (card,) = cards(client, mark)
        assert (card.begun, card.ends) == (1, ["failed"])
        assert answer["stopReason"] == "end_turn"


async def test_the_tasks_of_the_agent_are_a_plan(stand: Stand) -> None:
    tasks = (
        '[{"title": "first", "status": "done", "notes": ""},'
        ' {"title": "second", "status": "in_progress", "notes": ""},'
        ' {"title": "third", "status": "todo", "notes": ""}]'
    )
    async with stand.client() as client:
        await set_policy(stand, client, "NeverConfirm")
        call = f'TOOL task_tracker {{"command": "plan", "task_list": {tasks}}}'
        await client.prompt(call, within=PATIENCE)
        plans = [u for u in client.updates() if u["sessionUpdate"] == "plan"]
        entries = [(entry["content"], entry["status"]) for entry in plans[-1]["entries"]]
        assert entries == [("first", "completed"), ("second", "in_progress"), ("third", "pending")]


async def test_what_the_agent_says_at_its_finish_is_shown_once(stand: Stand) -> None:
    async with stand.client() as client:
        await set_policy(stand, client, "NeverConfirm")
        answer = await client.prompt('TOOL finish {"message": "FINISHED9"}', within=PATIENCE)
        assert answer["stopReason"] == "end_turn"
        assert client.text().count("FINISHED9") == 1


async def test_usage_and_title_are_told(stand: Stand) -> None:
    async with stand.client() as client:
        await client.prompt("SAY A 1", within=PATIENCE)
        await client.prompt("SAY B 1", within=PATIENCE)
        updates = client.updates()
        assert any(u["sessionUpdate"] == "usage_update" for u in updates)
        titles = [u.get("title") for u in updates if u["sessionUpdate"] == "session_info_update"]
        assert TITLE in titles
        listed = await client.request("session/list", {"cwd": str(stand.cwd)}, PATIENCE)
        (row,) = (s for s in listed["sessions"] if s["sessionId"] == client.session_id)
        assert row["title"] == TITLE


async def test_an_error_of_the_model_is_one_error_short_and_without_its_key(stand: Stand) -> None:
    async with stand.client() as client:
        params = {
            "sessionId": client.session_id,
            "prompt": [{"type": "text", "text": "REFUSE 400"}],
        }
        error = await error_of(client, "session/prompt", params)
        assert "the model is sorry" in str(error.data)
        assert len(str(error.data)) < 700
        answer = await client.prompt("SAY C 2", within=PATIENCE)
        assert answer["stopReason"] == "end_turn"
        assert numbers(client.text(), "C") == [0, 1]
        said = b"".join(record.raw for record in client.recording) + client.stderr
        assert SECRET.encode() not in said


async def test_what_was_said_is_remembered_in_the_next_turn(stand: Stand) -> None:
    async with stand.client() as client:
        await client.prompt("SAY REMEMBER 2", within=PATIENCE)
        await client.prompt("SAY NEXT 1", within=PATIENCE)
        (body,) = stand.model.asked("SAY NEXT 1")[-1:]
        assert "SAY REMEMBER 2" in stand.model.heard(body)
        assert words("REMEMBER", 2).strip() in stand.model.heard(body)


@pytest.mark.parametrize("bridged", [True])
async def test_three_prompts_at_once_run_one_after_the_other(stand: Stand) -> None:
    async with stand.client() as client:
        ids = [client.send_prompt(f"SAY {tag} 5") for tag in ("AA", "BB", "CC")]
        for each in ids:
            assert stop_reason(await client.answer_to(each, PATIENCE)) == "end_turn"
        text = client.text()
        at = [text.index(words(tag, 5)) for tag in ("AA", "BB", "CC")]
        assert at == sorted(at)
        asked = await stand.api.messages(await stand.conversation())
        assert asked == ["SAY AA 5", "SAY BB 5", "SAY CC 5"]


async def test_an_image_is_part_of_the_message(stand: Stand) -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}
    words_ = {"type": "text", "text": "SAY A 2"}
    async with stand.client() as client:
        params = {"sessionId": client.session_id, "prompt": [image, words_]}
        answer = await client.request("session/prompt", params, PATIENCE)
        assert answer["stopReason"] == "end_turn"
        assert "I received your image" in client.text()  # the server itself, for a blind model
        assert not user_texts(client)
        events = await stand.api.events(await stand.conversation())
        (said,) = (e["llm_message"]["content"] for e in events if e.get("source") == "user")
        assert ["data:image/png;base64,iVBORw0KGgo="] in [part.get("image_urls") for part in said]


async def test_a_fork_remembers_and_shows_nothing_of_its_past_again(stand: Stand) -> None:
    async with stand.client() as client:
        await client.prompt("SAY A 3", within=PATIENCE)
        first = await stand.conversation()
        params = {"sessionId": client.session_id, "cwd": str(stand.cwd), "mcpServers": []}
        forked = (await client.request("session/fork", params, PATIENCE))["sessionId"]
        await client.prompt("SAY FORKED 2", forked, within=PATIENCE)
        assert numbers(client.text(forked), "FORKED") == [0, 1]
        assert not numbers(client.text(forked), "A")
        (body,) = stand.model.asked("SAY FORKED 2")
        assert "SAY A 3" in stand.model.heard(body)
        assert await stand.api.messages(first) == ["SAY A 3"]


async def test_what_another_client_says_is_shown_with_its_answer(stand: Stand) -> None:
    async with stand.client() as client:
        await client.prompt("SAY A 2", within=PATIENCE)
        mark = client.mark()
        await stand.api.say(await stand.conversation(), "SAY OUTSIDE 3")
        await client.until_text("OUTSIDE2", since=mark, within=PATIENCE)
        assert user_texts(client, mark) == "SAY OUTSIDE 3"
        assert numbers(client.text(since=mark), "OUTSIDE") == [0, 1, 2]
        answer = await client.prompt("SAY B 2", within=PATIENCE)
        assert answer["stopReason"] == "end_turn"
        assert numbers(client.text(since=mark), "B") == [0, 1]


async def test_another_client_in_a_turn_is_shown_and_the_turn_has_its_own_end(stand: Stand) -> None:
    async with stand.client() as client:
        running = client.send_prompt("SAY A 4 GATE inturn AT 2")
        await client.until_text("A1", within=PATIENCE)
        await stand.api.say(await stand.conversation(), "SAY OUTSIDE 2")
        await client.until_recorded(lambda: "OUTSIDE" in user_texts(client), PATIENCE)
        stand.model.open("inturn")
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "end_turn"
        await client.until_text("OUTSIDE1", within=PATIENCE)
        assert numbers(client.text(), "A") == [0, 1, 2, 3]
        assert numbers(client.text(), "OUTSIDE") == [0, 1]
