"""A prompt on the wire: what goes before its turn, what it may hold, and the commands."""

import json
from pathlib import Path

import pytest

from agent.model import ModelInfo
from agent.scripted.dialogue import parse_dialogue
from agent.scripted.scripted_model import ScriptedModel
from tests.agent.conftest import Talk
from tests.agent.session.several_models import Known, SeveralModels, thinker
from tests.agent.talking import error_of, kinds, of_kind, opened
from tests.support.client import RecordingClient
from tests.support.gates import Gates
from tests.support.recording import Message

SAYS = "turn\ntext: fine"
IMAGE = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}


@pytest.fixture
def model_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    log = tmp_path / "model.log"
    monkeypatch.setenv("ACP_BRIDGE_MODEL_LOG", str(log))
    return log


def given(log: Path) -> list[list[Message]]:
    """The messages of each call of a model."""
    return [json.loads(line)["messages"] for line in log.read_text().splitlines()]


def system_of(messages: list[Message]) -> str:
    (first, *rest) = messages
    assert first["role"] == "system"
    assert "system" not in [message["role"] for message in rest]
    return str(first["content"])


def with_image(client: RecordingClient) -> Message:
    prompt = [{"type": "text", "text": "what is it?"}, IMAGE]
    return {"sessionId": client.session_id, "prompt": prompt}


# the system prompt


@pytest.mark.hazard("R8")
async def test_the_model_is_told_where_it_is_once_and_after_a_reload_if_it_is_elsewhere(
    talk: Talk, cwd: Path, tmp_path: Path, model_log: Path
) -> None:
    (cwd / "AGENTS.md").write_text("Speak in verse.")
    async with talk(SAYS) as client:
        session_id = await opened(client, cwd)
        await client.prompt("a")
        (cwd / "AGENTS.md").write_text("Speak in prose.")
        await client.prompt("b")
    async with talk(SAYS) as client:
        await client.initialize()
        await client.load_session(session_id, cwd)
        await client.prompt("c")
        await client.load_session(session_id, tmp_path)
        await client.prompt("d")
    first, second, third, fourth = [system_of(messages) for messages in given(model_log)]
    assert first == second
    assert ("Speak in verse." in second, str(cwd) in second) == (True, True)
    assert ("Speak in verse." in third, "Speak in prose." in third) == (False, True)
    assert ("Speak in prose." in fourth, str(tmp_path) in fourth) == (False, True)


async def test_unchanged_it_is_written_once(talk: Talk, cwd: Path, tmp_path: Path) -> None:
    for _ in range(2):
        async with talk(SAYS) as client:
            await client.initialize()
            listed = (await client.request("session/list", {}))["sessions"]
            if listed:
                await client.load_session(listed[0]["sessionId"], cwd)
            else:
                await client.new_session(cwd)
            await client.prompt("a")
    (transcript,) = (tmp_path / "sessions").glob("*.jsonl")
    records = [json.loads(line)["t"] for line in transcript.read_text().splitlines()]
    assert records.count("user") == 2
    assert records.count("system") == 1
    assert records.index("system") < records.index("user")


# images


SVG = {"type": "image", "data": "PHN2Zz4=", "mimeType": "image/svg+xml"}
ATTACHED = {"uri": "file:///a.png", "mimeType": "image/png", "blob": IMAGE["data"]}


@pytest.mark.parametrize("image", [IMAGE, SVG, {"type": "resource", "resource": ATTACHED}])
async def test_an_image_for_a_model_that_sees_none_is_taken_and_the_user_is_told(
    talk: Talk, cwd: Path, model_log: Path, image: Message
) -> None:
    async with talk(SAYS) as client:
        session_id = await opened(client, cwd)
        asked = {"sessionId": session_id, "prompt": [image]}
        assert (await client.request("session/prompt", asked))["stopReason"] == "end_turn"
        told = "`scripted` can't see images: it is told only that there is one."
        assert client.text() == f"\n\n[acp-bridge] {told}\n\nfine"
        since = client.mark()
        await client.load_session(session_id, cwd)
        assert of_kind(client, "user_message_chunk", since)[0]["content"] == image
        await client.prompt("in words, then")
        assert client.text(since=since).count("can't see") == 0
    (words,) = [m["content"] for m in given(model_log)[0] if m["role"] == "user"]
    assert "not shown" in words


async def test_an_image_that_no_model_takes_is_left_out_and_the_user_is_told(
    talk: Talk, cwd: Path
) -> None:
    async with talk(f"images\n{SAYS}") as client:
        session_id = await opened(client, cwd)
        asked = {"sessionId": session_id, "prompt": [IMAGE, SVG]}
        assert (await client.request("session/prompt", asked))["stopReason"] == "end_turn"
        assert "An image was left out: models take PNG, JPEG" in client.text()


async def test_an_image_is_given_to_a_model_that_sees_it(
    talk: Talk, cwd: Path, model_log: Path
) -> None:
    async with talk(f"images\n{SAYS}") as client:
        await opened(client, cwd)
        answer = await client.request("session/prompt", with_image(client))
        assert (answer["stopReason"], client.text()) == ("end_turn", "fine")
    (parts,) = [m["content"] for m in given(model_log)[0] if m["role"] == "user"]
    assert parts[-1]["image_url"]["url"] == f"data:image/png;base64,{IMAGE['data']}"


async def test_the_model_that_counts_is_the_one_chosen_when_the_image_comes(
    talk: Talk, cwd: Path
) -> None:
    seeing = Known(SAYS, "seeing", ModelInfo(takes_images=True))
    seeing.imported.set()
    blind = Known(SAYS, "blind", ModelInfo())
    blind.imported.set()
    async with talk(SeveralModels(blind, seeing)) as client:
        await opened(client, cwd)
        choice = {"sessionId": client.session_id, "configId": "model", "value": "seeing"}
        await client.request("session/set_config_option", choice)
        answer = await client.request("session/prompt", with_image(client))
        assert answer["stopReason"] == "end_turn"


async def test_audio_is_refused(talk: Talk, cwd: Path) -> None:
    async with talk(f"images\n{SAYS}") as client:
        await opened(client, cwd)
        sound = [{"type": "audio", "data": "", "mimeType": "audio/wav"}]
        error = await error_of(
            client, "session/prompt", {"sessionId": client.session_id, "prompt": sound}
        )
        assert (error.code, "audio" in error.message) == (-32602, True)


# commands


async def test_the_command_compact_is_offered(talk: Talk, cwd: Path) -> None:
    async with talk(SAYS) as client:
        await opened(client, cwd)
        await client.prompt("x")
        (update,) = of_kind(client, "available_commands_update")
    assert [command["name"] for command in update["availableCommands"]] == ["compact"]


@pytest.mark.parametrize("command", ["/compact", "/compact now, please", " /compact\n"])
async def test_compact_summarises_at_once_and_is_no_prompt_itself(
    talk: Talk, cwd: Path, model_log: Path, command: str
) -> None:
    dialogue = "when: summarise it\ntext: They greeted.\nwhen: hello\ntext: hi\nturn\ntext: fine"
    async with talk(dialogue) as client:
        session_id = await opened(client, cwd)
        await client.prompt("hello there")
        since = client.mark()
        assert (await client.prompt(command))["stopReason"] == "end_turn"
        assert "summarised" in client.text(since=since)
        await client.prompt("go on")
        since = client.mark()
        await client.load_session(session_id, cwd)
        shown = [u["content"]["text"] for u in of_kind(client, "user_message_chunk", since)]
    assert shown == ["hello there", "go on"]
    last = str(given(model_log)[-1])
    assert ("They greeted." in last, "hello there" in last) == (True, False)


async def test_an_answer_tells_the_tokens_used_since_the_last_one_also_after_a_failure(
    talk: Talk, cwd: Path
) -> None:
    dialogue = "turn\ntext: one two\n---\ntext: three\nerror: other Broken.\n---\ntext: four"
    wants = {"_meta": {"acp_bridge": {"tokens": True}}}

    async def tokens(client: RecordingClient, text: str) -> Message:
        answer = await client.prompt(text)
        assert answer.keys() == {"stopReason", "_meta"}
        told: Message = answer["_meta"]["acp_bridge"]["tokens"]
        return told

    async with talk(dialogue) as client:
        await client.initialize(wants)
        session_id = await client.new_session(cwd)
        first = await tokens(client, "well")
        assert first["outputTokens"] == 2
        assert first["totalTokens"] == first["inputTokens"] + 2
        assert (await tokens(client, "more"))["inputTokens"] > first["inputTokens"]
    async with talk(SAYS) as client:
        await client.initialize(wants)
        await client.load_session(session_id, cwd)
        assert (await tokens(client, "again"))["outputTokens"] == 1


async def test_a_client_that_did_not_ask_for_tokens_is_told_none(talk: Talk, cwd: Path) -> None:
    async with talk(SAYS) as client:
        await opened(client, cwd)
        assert await client.prompt("well") == {"stopReason": "end_turn"}


async def test_how_full_the_window_is_is_told_after_a_load_and_after_compact(
    talk: Talk, cwd: Path
) -> None:
    dialogue = "when: summarise it\ntext: Well.\nturn\ntext: " + "long " * 6000
    model = ScriptedModel(parse_dialogue(dialogue), "deep", ModelInfo(window=10_000))

    def told(client: RecordingClient, since: int) -> list[Message]:
        return of_kind(client, "usage_update", since)

    async with talk(model) as client:
        session_id = await opened(client, cwd)
        await client.prompt("x")
        answered = told(client, 0)
        assert [update["size"] for update in answered] == [10_000]
    async with talk(model) as client:
        await client.initialize()
        await client.load_session(session_id, cwd)
        await client.until_recorded(lambda: bool(told(client, 0)))
        assert told(client, 0) == answered
        since = client.mark()
        await client.prompt("/compact")
        (update,) = told(client, since)
        assert 0 < update["used"] < 4000 < 6000 < answered[0]["used"]


@pytest.mark.hazard("C3", "C9")
async def test_compact_can_be_cancelled_and_then_has_changed_nothing(
    talk: Talk, cwd: Path, gates: Gates, model_log: Path
) -> None:
    dialogue = "when: summarise it\ngate: g\ntext: They greeted.\nturn\ntext: fine"
    async with talk(dialogue) as client:
        await opened(client, cwd)
        await client.prompt("hello there")
        running = client.send_prompt("/compact")
        await gates.reached("g")
        client.cancel()
        assert (await client.answer_to(running))["result"]["stopReason"] == "cancelled"
        assert (await client.prompt("go on"))["stopReason"] == "end_turn"
    users = [m["content"] for m in given(model_log)[-1] if m["role"] == "user"]
    assert users == ["hello there", "go on"]


async def test_a_word_that_only_begins_like_a_command_is_a_prompt(talk: Talk, cwd: Path) -> None:
    async with talk("turn\necho") as client:
        await opened(client, cwd)
        await client.prompt("/compacted")
        assert client.text() == "/compacted"


async def test_compact_alone_gives_a_session_no_title(talk: Talk, cwd: Path) -> None:
    async with talk(SAYS) as client:
        await opened(client, cwd)
        await client.prompt("/compact")
        assert "session_info_update" not in kinds(client)
        assert (await client.request("session/list", {}))["sessions"] == []


async def test_a_summary_can_have_a_model_of_its_own(
    talk: Talk, cwd: Path, model_log: Path
) -> None:
    models = SeveralModels(thinker("a"), thinker("small", dialogue="turn\ntext: They greeted."))
    async with talk(models, summary_model="small") as client:
        await opened(client, cwd)
        await client.prompt("hello")
        await client.prompt("/compact")
        await client.prompt("go on")
    assert "They greeted." in str(given(model_log)[-1])


async def test_the_calls_of_one_prompt_are_limited_by_the_setting(talk: Talk, cwd: Path) -> None:
    again = "\n---\n".join(["call: plan {}"] * 4)
    async with talk(f"turn\n{again}", max_calls=2) as client:
        await opened(client, cwd)
        assert (await client.prompt("x"))["stopReason"] == "max_turn_requests"
        assert len(of_kind(client, "tool_call")) == 2


async def test_room_is_made_when_the_conversation_no_longer_fits(talk: Talk, cwd: Path) -> None:
    async with talk(f"window: 10000\n{SAYS}") as client:
        await opened(client, cwd)
        for _ in range(4):
            await client.prompt("word " * 4_000)
        assert "summarised" in client.text()
