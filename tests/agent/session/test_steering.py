"""`_session/steering` on the wire: what it is answered, and what becomes of the words."""

from pathlib import Path

import pytest

from acp_bridge.core.protocol import STEERING
from tests.agent.conftest import Talk
from tests.agent.session.test_prompting import IMAGE
from tests.agent.talking import error_of, kinds, opened
from tests.support.client import RecordingClient
from tests.support.gates import Gates
from tests.support.recording import Message

STORY = 'when: story\ntext: Once\ngate: middle\ntext: upon a time.\nturn\ntext: "{user}" it is.'
NO_TURN = {"outcome": "promptRequired", "reason": "noRunningTurn"}
INJECTED = {"outcome": "injected"}


def words(client: RecordingClient, text: str = "in verse", *more: Message) -> Message:
    prompt = [{"type": "text", "text": text}, *more]
    meta = {"steering": {"idleBehavior": "promptRequired"}}
    return {"sessionId": client.session_id, "prompt": prompt, "_meta": meta}


async def steered(client: RecordingClient, text: str = "in verse", *more: Message) -> Message:
    answer: Message = await client.request(STEERING, words(client, text, *more))
    return answer


async def test_words_for_the_running_turn_are_taken_and_read_in_it(
    talk: Talk, cwd: Path, gates: Gates
) -> None:
    async with talk(STORY) as client:
        result = await client.initialize()
        assert result["_meta"] == {"steering": {"supported": True}}
        session_id = await client.new_session(cwd)
        turn = client.send_prompt("a story")
        await gates.reached("middle")
        since = client.mark()
        assert await steered(client) == INJECTED
        assert await steered(client, "and short") == INJECTED
        gates.open("middle")
        assert (await client.answer_to(turn))["result"] == {"stopReason": "end_turn"}
        assert client.text().endswith('upon a time."and short" it is.')
        assert "user_message_chunk" not in kinds(client, since)
        assert await steered(client, "too late") == NO_TURN
    async with talk(STORY) as client:
        await client.initialize()
        await client.load_session(session_id, cwd)
        said = [u for u in client.updates() if u["sessionUpdate"] == "user_message_chunk"]
        assert [u["content"]["text"] for u in said] == ["a story", "in verse", "and short"]
        assert len({u["messageId"] for u in said}) == 3


async def test_without_a_turn_or_in_a_command_nothing_is_taken_and_no_turn_begins(
    talk: Talk, cwd: Path, gates: Gates
) -> None:
    said = "when: summarise it\ngate: summary\nturn\ntext: Hello."
    async with talk(said) as client:
        await opened(client, cwd)
        assert await steered(client) == NO_TURN
        own = words(client)
        del own["_meta"]
        assert await client.request(STEERING, own) == NO_TURN
        await client.prompt("hi")
        summary = client.send_prompt("/compact")
        await gates.reached("summary")
        assert await steered(client) == NO_TURN
        client.cancel()
        assert (await client.answer_to(summary))["result"] == {"stopReason": "cancelled"}
        assert "in verse" not in client.text()


@pytest.mark.hazard("C3")
async def test_the_words_go_with_a_turn_that_is_cancelled(
    talk: Talk, cwd: Path, gates: Gates
) -> None:
    said = "when: story\ngate: middle\nturn\nremember"
    async with talk(said) as client:
        await opened(client, cwd)
        turn = client.send_prompt("a story")
        await gates.reached("middle")
        assert await steered(client) == INJECTED
        client.cancel()
        late = client.send_request(STEERING, words(client))
        assert (await client.answer_to(turn))["result"] == {"stopReason": "cancelled"}
        assert (await client.answer_to(late))["result"] == NO_TURN
        await client.prompt("what did I say?")
        assert client.text() == "You told me: a story"


async def test_words_are_for_the_turn_that_runs_not_for_a_prompt_that_waits(
    talk: Talk, cwd: Path, gates: Gates
) -> None:
    async with talk(STORY) as client:
        await opened(client, cwd)
        turns = [client.send_prompt("a story"), client.send_prompt("hello")]
        await gates.reached("middle")
        assert await steered(client) == INJECTED
        gates.open("middle")
        for turn in turns:
            await client.answer_to(turn)
        assert client.text() == 'Once upon a time."in verse" it is."hello" it is.'


async def test_what_the_model_can_not_see_the_user_is_told(
    talk: Talk, cwd: Path, gates: Gates
) -> None:
    async with talk(STORY) as client:
        await opened(client, cwd)
        turn = client.send_prompt("a story")
        await gates.reached("middle")
        assert await steered(client, "like this", IMAGE) == INJECTED
        assert "`scripted` can't see images" in client.text()
        gates.open("middle")
        await client.answer_to(turn)
        assert '"like this\n(an image, not shown)" it is.' in client.text()


WRONG: list[tuple[Message, str]] = [
    ({"prompt": []}, "prompt is empty"),
    ({"prompt": [{"type": "audio", "data": "", "mimeType": "audio/wav"}]}, "takes no audio"),
    ({"prompt": "words"}, "prompt"),
    ({"sessionId": 5}, "sessionId"),
    ({"_meta": {"steering": {"idleBehavior": "startNewTurn"}}}, "must be promptRequired"),
]


@pytest.mark.parametrize(("wrong", "told"), WRONG)
async def test_what_can_not_be_taken_is_refused_while_a_turn_runs_too(
    talk: Talk, cwd: Path, gates: Gates, wrong: Message, told: str
) -> None:
    async with talk(STORY) as client:
        await opened(client, cwd)
        for running in (False, True):
            if running:
                turn = client.send_prompt("a story")
                await gates.reached("middle")
            error = await error_of(client, STEERING, {**words(client), **wrong})
            assert (error.code, told in error.message) == (-32602, True)
            unknown = {**words(client), "sessionId": "x"}
            assert (await error_of(client, STEERING, unknown)).code == -32002
        gates.open("middle")
        await client.answer_to(turn)
        assert client.text() == "Once upon a time."
