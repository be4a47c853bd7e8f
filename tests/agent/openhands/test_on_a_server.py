"""The agent before a server on the loopback: sessions, prompts, choices, and what is shown."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.openhands.prompt import COMMANDS
from agent.openhands.turn_words import STARTING
from tests.agent.openhands import events as told
from tests.agent.openhands.agent_server import (
    KEY,
    OTHER,
    PROFILE,
    Conversation,
    Cut,
    FakeServer,
)
from tests.agent.openhands.conftest import Adapt
from tests.support.client import RecordingClient
from tests.support.recording import RpcError


def kinds(client: RecordingClient) -> list[str]:
    return [update["sessionUpdate"] for update in client.updates()]


def user_texts(client: RecordingClient) -> list[str]:
    said = [u for u in client.updates() if u["sessionUpdate"] == "user_message_chunk"]
    return [update["content"]["text"] for update in said]


async def error_of(client: RecordingClient, method: str, params: Any) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await client.request(method, params)
    return caught.value


# prompts


async def test_a_prompt_is_streamed_and_ends_with_its_run(adapt: Adapt, fake: FakeServer) -> None:
    async with adapt() as client:
        answer = await client.prompt("hello")
        assert answer["stopReason"] == "end_turn"
        assert client.texts() == ["Hello", " there", "."]
        assert fake.messages() == ["hello"]


async def test_prompts_run_one_after_the_other_in_their_order(
    adapt: Adapt, fake: FakeServer
) -> None:
    async with adapt() as client:
        ids = [client.send_prompt(text) for text in ("one", "two", "three")]
        for each in ids:
            await client.answer_to(each)
        assert fake.messages() == ["one", "two", "three"]
        assert client.text() == "Hello there." * 3


async def test_what_another_client_says_and_gets_is_shown(adapt: Adapt, fake: FakeServer) -> None:
    async with adapt() as client:
        await client.prompt("mine")
        await fake.only.emit(told.user("theirs"), told.agent("for them"))
        await client.until_text("for them")
        assert user_texts(client) == ["theirs"]


async def test_a_failure_is_one_error_without_the_server_s_keys(
    adapt: Adapt, fake: FakeServer
) -> None:
    async def fail(it: Conversation) -> None:
        await it.set_status("error")
        await it.emit(told.failure("LLMBadRequestError", f"key=sk-abcdefgh12345678 {KEY}"))

    fake.on_message = fail
    async with adapt() as client:
        error = await error_of(client, "session/prompt", prompt(client, "hello"))
        assert error.data == {"details": "LLMBadRequestError: key=*** ***"}
        assert client.texts() == []


async def test_that_nothing_streams_is_said_once(adapt: Adapt, fake: FakeServer) -> None:
    async def whole(it: Conversation) -> None:
        await it.emit(told.agent("Whole."))

    fake.on_message = whole
    async with adapt() as client:
        fake.only.stream = False
        await fake.only.publish()
        await client.prompt("one")
        await client.prompt("two")
        assert client.text().count("does not stream") == 1


async def test_the_title_that_the_server_makes_is_told(adapt: Adapt, fake: FakeServer) -> None:
    async with adapt() as client:
        fake.only.title = "About hello"
        await client.prompt("hello")
        await client.until_recorded(lambda: "session_info_update" in kinds(client))
        await client.prompt("again")
        titles = [u["title"] for u in client.updates() if "title" in u]
        assert titles == ["About hello"]


async def test_its_commands_are_offered_and_carried_out(adapt: Adapt, fake: FakeServer) -> None:
    async with adapt() as client:
        await client.until_recorded(lambda: COMMANDS in client.updates())
        await client.prompt("/compact")
        await client.prompt("/ask what is it?")
        assert client.text().endswith("You asked: what is it?")
        assert fake.messages() == []
        assert [each for each in fake.asked if "POST" in each][-2:] == [
            "POST condense",
            "POST ask_agent",
        ]


async def test_images_are_sent_with_the_words_in_their_order(
    adapt: Adapt, fake: FakeServer
) -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
    words = [{"type": "text", "text": text} for text in ("look:", "what is it?")]
    async with adapt() as client:
        params = {"sessionId": client.session_id, "prompt": [words[0], image, words[1]]}
        assert (await client.request("session/prompt", params))["stopReason"] == "end_turn"
        (message,) = [raw for raw in fake.only.events if raw.get("source") == "user"]
        sent = {"type": "image", "image_urls": ["data:image/png;base64,AAAA"]}
        assert message["llm_message"]["content"] == [words[0], sent, words[1]]
        assert user_texts(client) == []


async def test_a_slash_that_is_no_command_of_its_own_is_sent_as_it_is(
    adapt: Adapt, fake: FakeServer
) -> None:
    async with adapt() as client:
        for text in ("/ask", "/other thing", "/compact now and then"):
            await client.prompt(text)
        assert fake.messages() == ["/ask", "/other thing"]


# choices


async def test_modes_are_the_confirmation_policies(adapt: Adapt, fake: FakeServer) -> None:
    fake.conversation_settings = {"confirmation_mode": True, "security_analyzer": None}
    async with adapt() as client:
        opened = client.recording.answers(1)[0]["result"]
        assert opened["modes"]["currentModeId"] == "always"
        for mode, kind in (("never", "NeverConfirm"), ("risky", "ConfirmRisky")):
            params = {"sessionId": client.session_id, "modeId": mode}
            await client.request("session/set_mode", params)
            assert fake.only.policy["kind"] == kind
        wrong = {"sessionId": client.session_id, "modeId": "nothing"}
        assert (await error_of(client, "session/set_mode", wrong)).code == -32602


async def test_models_are_the_server_s_profiles(adapt: Adapt, fake: FakeServer) -> None:
    async with adapt() as client:
        params = {"sessionId": client.session_id, "configId": "model", "value": "second"}
        answer = await client.request("session/set_config_option", params)
        (model,) = [each for each in answer["configOptions"] if each["id"] == "model"]
        assert model["currentValue"] == fake.only.profile == "second"
        wrong = {**params, "value": "no-such"}
        assert (await error_of(client, "session/set_config_option", wrong)).code == -32602


async def test_what_another_client_chooses_is_told(adapt: Adapt, fake: FakeServer) -> None:
    async with adapt() as client:
        await client.prompt("hello")
        fake.only.policy = {"kind": "AlwaysConfirm"}
        await fake.only.emit(told.field("confirmation_policy", fake.only.policy))
        await client.until_recorded(lambda: "current_mode_update" in kinds(client))
        assert [u["currentModeId"] for u in client.updates() if "currentModeId" in u] == ["always"]
        await client.prompt("hello")
        assert fake.asked.count("POST confirmation_policy") == 0


@pytest.mark.hazard("R13")
async def test_a_policy_that_the_server_lost_is_set_again_before_the_next_run(
    adapt: Adapt, fake: FakeServer
) -> None:
    async with adapt() as client:
        await lose_policy(client, fake)
        await fake.cut()
        await fake.until(lambda: fake.asked.count("socket") == 2)
        await client.prompt("two")
        assert fake.only.policy["kind"] == "AlwaysConfirm"
        asked = [each for each in fake.asked if each.startswith("POST")]
        assert asked[-2:] == ["POST confirmation_policy", "POST events"]


# opening sessions


async def test_a_session_is_a_conversation_of_the_profile_under_the_same_id(
    adapt: Adapt, fake: FakeServer, cwd: Path
) -> None:
    async with adapt() as client:
        assert fake.only.id == client.session_id
        assert (fake.only.folder, fake.only.policy) == (str(cwd), {"kind": "NeverConfirm"})
        assert fake.only.agent_profile == PROFILE  # the active one


async def test_a_profile_that_is_named_is_that_of_new_conversations(
    adapt: Adapt, fake: FakeServer
) -> None:
    async with adapt(profile="other"):
        assert fake.only.agent_profile == OTHER


async def test_a_fork_is_a_conversation_of_its_own_with_the_same_past(
    adapt: Adapt, fake: FakeServer, cwd: Path
) -> None:
    async with adapt() as client:
        await client.prompt("one")
        first = fake.only
        params = {"sessionId": client.session_id, "cwd": str(cwd), "mcpServers": []}
        forked = (await client.request("session/fork", params))["sessionId"]
        # The real server keeps no credentials of the model for a fork without its profile.
        assert fake.asked.count("POST switch_profile") == 1
        await client.prompt("two", forked)
        assert client.text(forked) == "Hello there."
        said = [raw["source"] for raw in fake.conversations[forked].events if "source" in raw]
        assert said.count("user") == 2
        assert len([raw for raw in first.events if raw.get("source") == "user"]) == 1


async def test_further_folders_are_refused_by_name(
    adapt: Adapt, fake: FakeServer, cwd: Path
) -> None:
    params = {"cwd": str(cwd), "mcpServers": [], "additionalDirectories": ["/tmp"]}
    async with adapt(opens=False) as client:
        error = await error_of(client, "session/new", params)
        assert (error.code, "additionalDirectories" in error.message) == (-32602, True)
        assert fake.conversations == {}


async def test_a_profile_that_is_not_there_is_named_with_those_that_are(
    adapt: Adapt, fake: FakeServer, cwd: Path
) -> None:
    async with adapt(opens=False, profile="mine") as client:
        error = await error_of(client, "session/new", {"cwd": str(cwd), "mcpServers": []})
        assert "'mine'; it has: bench, other" in error.message
        assert fake.conversations == {}


async def test_a_folder_that_the_server_does_not_have_is_named_and_nothing_is_made(
    adapt: Adapt, fake: FakeServer
) -> None:
    async with adapt(opens=False) as client:
        error = await error_of(client, "session/new", {"cwd": "/nowhere", "mcpServers": []})
        assert (error.code, "/nowhere" in error.message) == (-32602, True)
        assert fake.conversations == {}


async def test_mcp_servers_that_the_server_has_are_taken_and_others_refused_by_name(
    adapt: Adapt, fake: FakeServer, cwd: Path
) -> None:
    fake.mcp_config = {
        "same": {"command": "run", "args": ["it"]},
        "web": {"url": "https://x/mcp"},
        "off": {"command": "run", "args": [], "enabled": False},
    }
    same = {"name": "same", "command": "run", "args": ["it"], "env": []}
    web = {"type": "http", "name": "web", "url": "https://x/mcp", "headers": []}
    others = [
        {"name": "off", "command": "run", "args": [], "env": []},
        {"name": "same", "command": "run", "args": ["another"], "env": []},
        {"name": "mine", "command": "run", "args": [], "env": []},
    ]
    async with adapt(opens=False) as client:
        params = {"cwd": str(cwd), "mcpServers": [same, web, *others]}
        error = await error_of(client, "session/new", params)
        assert error.message.endswith("off, same, mine")
        await client.request("session/new", {"cwd": str(cwd), "mcpServers": [same, web]})


async def test_a_lost_answer_to_the_creation_makes_no_second_conversation(
    adapt: Adapt, fake: FakeServer, cwd: Path
) -> None:
    fake.deeds["POST conversations"] = [Cut.AFTER]
    async with adapt() as client:
        assert list(fake.conversations) == [client.session_id]


async def test_a_server_that_starts_slowly_is_waited_for(adapt: Adapt, fake: FakeServer) -> None:
    fake.deeds["GET health"] = [503]
    async with adapt() as client:
        assert (await client.prompt("hello"))["stopReason"] == "end_turn"


async def test_a_load_waits_for_a_server_that_starts_slowly_and_says_so(
    adapt: Adapt, fake: FakeServer, cwd: Path
) -> None:
    conversation = fake.add(str(cwd), *talk())
    fake.deeds["GET health"] = [503, 503]
    async with adapt(opens=False) as client:
        await client.load_session(conversation.id, cwd)
        assert [text.strip() for text in client.texts()] == [STARTING, "a0"]


# opening them again


def talk(count: int = 1) -> list[dict[str, Any]]:
    return [
        raw
        for number in range(count)
        for raw in (told.user(f"q{number}"), told.agent(f"a{number} "))
    ]


@pytest.mark.hazard("R1.1", "R6")
async def test_a_load_shows_the_whole_log_in_order_and_once(
    adapt: Adapt, fake: FakeServer, cwd: Path
) -> None:
    conversation = fake.add(str(cwd), *talk(130))
    async with adapt(opens=False) as client:
        for _ in range(2):
            mark = client.mark()
            await client.load_session(conversation.id, cwd)
            assert client.text(since=mark) == "".join(f"a{number} " for number in range(130))
        assert user_texts(client) == [f"q{number}" for number in range(130)] * 2
        await client.prompt("more")
        assert client.text().endswith("Hello there.")


async def test_a_resume_shows_nothing(adapt: Adapt, fake: FakeServer, cwd: Path) -> None:
    conversation = fake.add(str(cwd), *talk(3))
    async with adapt(opens=False) as client:
        params = {"sessionId": conversation.id, "cwd": str(cwd), "mcpServers": []}
        await client.request("session/resume", params)
        client.session_id = conversation.id
        assert client.texts() == user_texts(client) == []
        await client.prompt("more")
        assert client.text() == "Hello there."


@pytest.mark.hazard("R2.1")
@pytest.mark.parametrize("session", ["6f1c7ad1-4b6c-4f2e-9d70-0d9a7a0a7a01", "../settings", ""])
async def test_an_unknown_session_is_an_error_and_no_new_conversation(
    adapt: Adapt, fake: FakeServer, cwd: Path, session: str
) -> None:
    async with adapt(opens=False) as client:
        params = {"sessionId": session, "cwd": str(cwd), "mcpServers": []}
        for method in ("session/load", "session/resume"):
            assert (await error_of(client, method, params)).code == -32002
        assert fake.conversations == {}


async def test_a_load_with_another_folder_is_refused(
    adapt: Adapt, fake: FakeServer, cwd: Path
) -> None:
    conversation = fake.add("/elsewhere")
    async with adapt(opens=False) as client:
        params = {"sessionId": conversation.id, "cwd": str(cwd), "mcpServers": []}
        error = await error_of(client, "session/load", params)
        assert (error.code, "/elsewhere" in error.message) == (-32602, True)


async def test_what_a_dead_adapter_left_running_is_stopped_before_the_load_is_answered(
    adapt: Adapt, fake: FakeServer, cwd: Path
) -> None:
    begun = anyio.Event()

    async def run_for_ever(it: Conversation) -> None:
        await it.emit(told.action("a1", command="sleep"))
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await it.emit(told.error_of("call-a1"))

    fake.on_message = run_for_ever
    async with adapt() as client:
        client.send_prompt("go on")
        await begun.wait()
        session = client.session_id
        # The load of another process: this one has not ended.
        async with adapt(opens=False) as second:
            await second.load_session(session, cwd)
            assert fake.only.status == "paused"
            cards = [u["status"] for u in second.updates() if "toolCallId" in u]
            assert cards == ["pending", "failed"]


async def test_sessions_are_listed_by_folder_and_deleted_on_the_server(
    adapt: Adapt, fake: FakeServer, cwd: Path
) -> None:
    other = fake.add("/elsewhere")
    async with adapt() as client:
        listed = await client.request("session/list", {"cwd": str(cwd)})
        assert [each["sessionId"] for each in listed["sessions"]] == [client.session_id]
        assert len((await client.request("session/list", {}))["sessions"]) == 2
        for _ in range(2):
            await client.request("session/delete", {"sessionId": client.session_id})
        assert list(fake.conversations) == [other.id]
        error = await error_of(client, "session/prompt", prompt(client, "hello"))
        assert error.code == -32002


async def lose_policy(client: RecordingClient, fake: FakeServer) -> None:
    """Have one turn in a mode of which the server knows nothing after it, as after a restart."""
    params = {"sessionId": client.session_id, "modeId": "always"}
    await client.request("session/set_mode", params)
    await client.prompt("one")
    fake.only.policy = {"kind": "NeverConfirm"}


def prompt(client: RecordingClient, text: str) -> dict[str, Any]:
    return {"sessionId": client.session_id, "prompt": [{"type": "text", "text": text}]}


# the bridge's own methods


async def test_a_pause_waits_for_the_call_and_keeps_the_prompt_open_until_go(
    adapt: Adapt, fake: FakeServer
) -> None:
    gate, reached = anyio.Event(), anyio.Event()

    async def run(it: Conversation) -> None:
        if gate.is_set():
            await it.emit(told.agent("Done."))
            return
        await it.emit(told.action("a1", command="make"))
        reached.set()
        await gate.wait()
        await it.emit(told.result("a1"))

    fake.on_message = run
    async with adapt() as client:
        running = client.send_prompt("hello")
        await reached.wait()
        session = {"sessionId": client.session_id}
        paused = client.send_request("_acp_bridge/pause", session)
        await fake.until(lambda: fake.only.status == "paused")
        gate.set()
        assert (await client.answer_to(paused))["result"] == {"paused": True}
        assert not client.recording.answers(running)
        await client.request("_acp_bridge/go", session)
        assert (await client.answer_to(running))["result"]["stopReason"] == "end_turn"
        assert client.text() == "Done."
        assert [u["status"] for u in client.updates() if "toolCallId" in u] == [
            "pending",
            "completed",
        ]


async def test_a_pause_in_the_last_call_is_answered_after_its_prompt(
    adapt: Adapt, fake: FakeServer
) -> None:
    gate, reached = anyio.Event(), anyio.Event()

    async def run(it: Conversation) -> None:
        reached.set()
        await gate.wait()
        await it.emit(told.agent("Done."))
        await it.set_status("finished")

    fake.on_message = run
    async with adapt() as client:
        running = client.send_prompt("hello")
        await reached.wait()
        paused = client.send_request("_acp_bridge/pause", {"sessionId": client.session_id})
        await fake.until(lambda: fake.only.status == "paused")
        gate.set()
        assert (await client.answer_to(paused))["result"] == {"paused": False}
        assert (await client.answer_to(running))["result"]["stopReason"] == "end_turn"
        ids = [each.get("id") for each in client.recording.incoming()]
        assert ids.index(running) < ids.index(paused)


async def test_a_pause_without_a_turn_waits_for_nothing(adapt: Adapt, fake: FakeServer) -> None:
    async with adapt() as client:
        session = {"sessionId": client.session_id}
        assert await client.request("_acp_bridge/pause", session) == {"paused": False}
        assert await client.request("_acp_bridge/go", session) == {}
        assert "POST pause" not in fake.asked


async def test_a_question_is_answered_beside_the_conversation(
    adapt: Adapt, fake: FakeServer
) -> None:
    async with adapt() as client:
        question = {"sessionId": client.session_id, "question": "why?"}
        answer = await client.request("_acp_bridge/ask", question)
        assert (answer, fake.messages()) == ({"answer": "You asked: why?"}, [])
