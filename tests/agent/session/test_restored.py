"""A session that is opened again by a new process: what it keeps, and what the program decides."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from agent.conversation.transcript import Transcript
from agent.model import Model, ModelError
from agent.scripted.dialogue import parse_dialogue
from agent.scripted.scripted_model import ScriptedModel
from tests.agent.conftest import Talk
from tests.agent.mcp_servers.recorded_servers import RecordedServers
from tests.agent.session.several_models import SeveralModels, several, thinker
from tests.agent.talking import error_of, opened
from tests.support.client import RecordingClient
from tests.support.recording import Message

SHELL = 'when: run\ncall: shell {"command": "echo hi"}\n---\ntext: done\nturn\ntext: fine'
ONE = {"name": "one", "command": "/bin/one", "args": [], "env": []}
ALWAYS = {"outcome": {"outcome": "selected", "optionId": "allow_always"}}
NEVER = {"outcome": {"outcome": "selected", "optionId": "reject_always"}}


async def choose(client: RecordingClient, option: str, value: str) -> Message:
    params = {"sessionId": client.session_id, "configId": option, "value": value}
    result: Message = await client.request("session/set_config_option", params)
    return result


def values(result: Message) -> dict[str, str]:
    return {each["id"]: each["currentValue"] for each in result["configOptions"]}


def answering(client: RecordingClient, answer: Message) -> None:
    client.side.handlers["session/request_permission"] = lambda params: answer


def asked(client: RecordingClient) -> int:
    return len(client.recording.requests("session/request_permission"))


async def reopened(client: RecordingClient, session_id: str, cwd: Path, **more: Any) -> Message:
    await client.initialize({})
    result: Message = await client.load_session(session_id, cwd, **more)
    return result


# model, mode and options


@pytest.mark.hazard("R9", "R13")
@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_what_was_chosen_last_holds_whatever_the_command_line_says(
    talk: Talk, cwd: Path, method: str
) -> None:
    def models(*names: str) -> SeveralModels:
        return SeveralModels(*(thinker(name, "low", "high") for name in names))

    async with talk(models("a", "b", "c")) as client:
        session_id = await opened(client, cwd)
        for option, value in (
            *(("model", "c"), ("mode", "auto"), ("thought_level", "low")),
            *(("mode", "plan"), ("model", "b"), ("thought_level", "high")),
        ):
            await choose(client, option, value)
    again = models("c", "b", "a")
    async with talk(again) as client:
        await client.initialize({})
        load = {"sessionId": session_id, "cwd": str(cwd), "mcpServers": []}
        result = await client.request(method, load)
        assert values(result) == {"model": "b", "mode": "plan", "thought_level": "high"}
        assert result["modes"]["currentModeId"] == "plan"
        await client.prompt("x", session_id)
    assert again.opened[-1] == ("b", "high")


async def test_what_nobody_chose_is_as_the_command_line_says(talk: Talk, cwd: Path) -> None:
    async with talk(several("a", "b")) as client:
        session_id = await opened(client, cwd)
        await client.prompt("x")
    async with talk(several("b", "a")) as client:
        result = await reopened(client, session_id, cwd)
        assert values(result) == {"model": "b", "mode": "ask"}


async def test_a_mode_that_was_set_as_a_mode_holds_too(talk: Talk, cwd: Path) -> None:
    async with talk(several("a")) as client:
        session_id = await opened(client, cwd)
        await client.request("session/set_mode", {"sessionId": session_id, "modeId": "plan"})
    async with talk(several("a")) as client:
        assert values(await reopened(client, session_id, cwd))["mode"] == "plan"


@pytest.mark.hazard("R13.5")
@pytest.mark.parametrize("mode", ["edit", "auto"])
async def test_a_record_is_no_word_of_the_user_s_for_a_mode_that_asks_less(
    talk: Talk, cwd: Path, mode: str
) -> None:
    """What runs as the user can write it."""
    async with talk(several("a")) as client:
        session_id = await opened(client, cwd)
        await choose(client, "mode", mode)
    async with talk(several("a")) as client:
        assert values(await reopened(client, session_id, cwd))["mode"] == "ask"


async def test_a_choice_that_was_refused_is_not_kept(talk: Talk, cwd: Path) -> None:
    models = several("a", "b")
    models.keys.remove("b")
    async with talk(models) as client:
        session_id = await opened(client, cwd)
        for option, value in (("model", "b"), ("model", "x"), ("mode", "root")):
            params = {"sessionId": session_id, "configId": option, "value": value}
            await error_of(client, "session/set_config_option", params)
    async with talk(several("a", "b")) as client:
        assert values(await reopened(client, session_id, cwd)) == {"model": "a", "mode": "ask"}


@pytest.mark.hazard("R1.4")
async def test_a_load_and_a_choice_that_is_set_again_write_nothing(
    talk: Talk, cwd: Path, tmp_path: Path
) -> None:
    async with talk(several("a", "b")) as client:
        session_id = await opened(client, cwd)
        await choose(client, "model", "b")
        await choose(client, "mode", "auto")
        await client.prompt("x")
    file = tmp_path / "sessions" / f"{session_id}.jsonl"
    before = file.read_bytes()
    async with talk(several("a", "b")) as client:
        await reopened(client, session_id, cwd)
        await choose(client, "model", "b")
        await choose(client, "mode", "auto")
    assert file.read_bytes() == before


async def test_choices_before_the_first_prompt_hide_no_session(talk: Talk, cwd: Path) -> None:
    async with talk(several("a")) as client:
        await opened(client, cwd)
        for mode in ["plan", "edit", "auto", "ask"] * 5:
            await choose(client, "mode", mode)
        await client.prompt("x")
        listed = await client.request("session/list", {})
        assert [each["title"] for each in listed["sessions"]] == ["x"]


@pytest.mark.hazard("R13", "Q13.1")
async def test_a_mode_that_could_not_be_written_is_written_as_soon_as_that_works(
    talk: Talk, cwd: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if b'"chosen"' in data:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data)

    async with talk(several("a")) as client:
        session_id = await opened(client, cwd)
        await choose(client, "mode", "plan")
        monkeypatch.setattr("agent.conversation.transcript.os.write", full)
        await choose(client, "mode", "ask")
        monkeypatch.setattr("agent.conversation.transcript.os.write", write)
        await client.prompt("x")
    async with talk(several("a")) as client:
        assert values(await reopened(client, session_id, cwd))["mode"] == "ask"
    assert "the transcript can't be written" in caplog.text


# a model that is gone


def without(models: SeveralModels, gone: str, kind: Any = "unknown_model") -> SeveralModels:
    """The models of a program in which nobody knows one of them."""
    known = models.open

    def open(model_id: str, thought_level: str | None = None) -> Model:
        if model_id == gone:
            raise ModelError(f"There is no model {gone}.", kind)
        return known(model_id, thought_level)

    models.keys.discard(gone)
    models.open = open  # type: ignore[method-assign]
    return models


def scripted_as(name: str, dialogue: str) -> ScriptedModel:
    return ScriptedModel(parse_dialogue(dialogue), name)


async def with_b(talk: Talk, cwd: Path) -> str:
    async with talk(several("a", "b")) as client:
        session_id = await opened(client, cwd)
        await choose(client, "model", "b")
        await client.prompt("before")
    return session_id


@pytest.mark.hazard("R8")
async def test_a_model_that_is_gone_is_named_and_replaced_by_the_user_s_choice_alone(
    talk: Talk, cwd: Path
) -> None:
    session_id = await with_b(talk, cwd)
    models = without(several("a", "b"), "b")
    async with talk(models) as client:
        assert values(await reopened(client, session_id, cwd))["model"] == "b"
        prompt = {"sessionId": session_id, "prompt": [{"type": "text", "text": "lost"}]}
        for _ in range(2):
            error = await error_of(client, "session/prompt", prompt)
            assert (error.code, "There is no model b." in error.message) == (-32603, True)
        assert client.text().count("The model of this session, `b`, is not known any more") == 1
        assert not models.opened
        await choose(client, "model", "a")
        await client.prompt("after")
        assert "From here on `a` answers, in place of `b`" in client.text()
        await choose(client, "mode", "plan")
        await client.prompt("and then")
        assert client.text().count("From here on") == 1
    async with talk(without(several("c", "a"), "b")) as client:
        assert values(await reopened(client, session_id, cwd))["model"] == "a"
        await client.prompt("again")
        assert "not known any more" not in client.text()


async def test_a_model_that_only_its_provider_knows_to_be_gone_is_replaced_in_the_same_way(
    talk: Talk, cwd: Path
) -> None:
    gone = scripted_as("b", "turn\nerror: unknown_model The provider knows no model b.")
    session_id = await with_b(talk, cwd)
    async with talk(SeveralModels(scripted_as("a", "turn\ntext: fine"), gone)) as client:
        await reopened(client, session_id, cwd)
        prompt = {"sessionId": session_id, "prompt": [{"type": "text", "text": "lost"}]}
        assert "no model b" in (await error_of(client, "session/prompt", prompt)).message
        await choose(client, "model", "a")
        await client.prompt("after")
        assert "From here on `a` answers, in place of `b`" in client.text()


async def test_a_model_that_is_known_again_is_not_said_to_be_gone(talk: Talk, cwd: Path) -> None:
    session_id = await with_b(talk, cwd)
    models = several("a", "b")
    known = models.open
    async with talk(without(models, "b")) as client:
        await reopened(client, session_id, cwd)
        prompt = {"sessionId": session_id, "prompt": [{"type": "text", "text": "lost"}]}
        await error_of(client, "session/prompt", prompt)
        models.keys.add("b")
        models.open = known  # type: ignore[method-assign]
        await client.prompt("after")
        await choose(client, "model", "a")
        await client.prompt("and then")
        assert "From here on" not in client.text()


@pytest.mark.hazard("R8")
async def test_the_bridge_may_set_a_model_again_that_is_gone(talk: Talk, cwd: Path) -> None:
    session_id = await with_b(talk, cwd)
    async with talk(without(several("a", "b"), "b")) as client:
        await reopened(client, session_id, cwd)
        assert values(await choose(client, "model", "b"))["model"] == "b"


async def test_a_key_that_is_gone_is_named_by_the_prompt_and_a_new_one_counts(
    talk: Talk, cwd: Path
) -> None:
    session_id = await with_b(talk, cwd)
    models = several("a", "b")
    models.keys.discard("b")
    async with talk(models) as client:
        assert values(await reopened(client, session_id, cwd))["model"] == "b"
        prompt = {"sessionId": session_id, "prompt": [{"type": "text", "text": "lost"}]}
        error = await error_of(client, "session/prompt", prompt)
        assert (error.code, "SOME_API_KEY" in error.message) == (-32000, True)
        models.keys.add("b")
        await client.prompt("after")
        assert models.opened[-1][0] == "b"


# what was always allowed


@pytest.mark.hazard("R13", "C18")
@pytest.mark.parametrize("answer", [ALWAYS, NEVER])
async def test_what_was_always_answered_is_not_asked_again(
    talk: Talk, cwd: Path, answer: Message
) -> None:
    async with talk(SHELL) as client:
        await client.initialize({})
        session_id = await client.new_session(cwd)
        answering(client, answer)
        await client.prompt("run it")
        assert asked(client) == 1
    async with talk(SHELL) as client:
        await reopened(client, session_id, cwd)
        since = client.mark()
        await client.prompt("run it")
        assert asked(client) == 0
        ends = [u["status"] for u in client.updates(since=since) if "rawOutput" in u]
        assert ends == (["completed"] if answer is ALWAYS else [])
        await choose(client, "mode", "plan")
        since = client.mark()
        await client.prompt("run it")
        assert [u for u in client.updates(since=since) if "rawOutput" in u] == []


async def test_once_is_not_always(talk: Talk, cwd: Path) -> None:
    async with talk(SHELL) as client:
        await client.initialize({})
        session_id = await client.new_session(cwd)
        client.side.permission = "allow"
        await client.prompt("run it")
    async with talk(SHELL) as client:
        await reopened(client, session_id, cwd)
        await client.prompt("run it")
        assert asked(client) == 1


@pytest.mark.hazard("R13")
async def test_a_command_that_was_allowed_in_one_folder_is_asked_for_in_another(
    talk: Talk, cwd: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with talk(SHELL) as client:
        await client.initialize({})
        session_id = await client.new_session(cwd)
        answering(client, ALWAYS)
        await client.prompt("run it")
        await client.load_session(session_id, other)
        await client.prompt("run it")
        assert asked(client) == 2
        await client.load_session(session_id, cwd)
        await client.prompt("run it")
        assert asked(client) == 2
    async with talk(SHELL) as client:
        third = tmp_path / "third"
        third.mkdir()
        await reopened(client, session_id, third)
        await client.prompt("run it")
        assert asked(client) == 1


@pytest.mark.hazard("R13")
async def test_an_allowed_folder_that_is_no_longer_the_session_s_is_asked_for(
    talk: Talk, cwd: Path, tmp_path: Path
) -> None:
    extra = tmp_path / "extra"
    extra.mkdir()
    dialogue = "\n".join(
        f'when: {name}\ncall: write_file {{"path": "{folder}/{name}.txt", "content": "x"}}'
        for name, folder in (("first", extra), ("second", extra), ("third", extra / "below"))
    )
    async with talk(dialogue) as client:
        await client.initialize({})
        session_id = await client.new_session(cwd, additionalDirectories=[str(extra)])
        answering(client, ALWAYS)
        await client.prompt("first")
    for roots, name, times in (
        ([str(extra)], "second", 0),
        ([str(extra)], "third", 1),
        ([], "second", 1),
    ):
        (extra / "second.txt").unlink(missing_ok=True)
        async with talk(dialogue) as client:
            await reopened(client, session_id, cwd, additionalDirectories=roots)
            await client.prompt(name)
            assert asked(client) == times


async def test_what_was_allowed_is_gone_with_the_session(
    talk: Talk, cwd: Path, tmp_path: Path
) -> None:
    async with talk(SHELL) as client:
        await client.initialize({})
        session_id = await client.new_session(cwd)
        answering(client, ALWAYS)
        await client.prompt("run it")
        await client.request("session/delete", {"sessionId": session_id})
        assert not os.listdir(tmp_path / "sessions")
        await client.new_session(cwd)
        await client.prompt("run it")
        assert asked(client) == 2


@pytest.mark.hazard("R13")
@pytest.mark.parametrize("open_too", [True, False])
async def test_a_fork_is_asked_anew_and_keeps_what_was_rejected(
    talk: Talk, cwd: Path, open_too: bool
) -> None:
    sing = 'when: sing\ncall: shell {"command": "touch sung"}\n---\n'
    dialogue = sing + SHELL
    async with talk(dialogue) as client:
        await client.initialize({})
        session_id = await client.new_session(cwd)
        answering(client, ALWAYS)
        await client.prompt("run it")
        answering(client, NEVER)
        await client.prompt("sing it")
        if open_too:
            await forked_asks(client, session_id, cwd)
    async with talk(dialogue) as client:
        await client.initialize({})
        await forked_asks(client, session_id, cwd)


async def forked_asks(client: RecordingClient, session_id: str, cwd: Path) -> None:
    params = {"sessionId": session_id, "cwd": str(cwd), "mcpServers": []}
    forked = (await client.request("session/fork", params))["sessionId"]
    before = asked(client)
    await client.prompt("run it", forked)
    assert asked(client) == before + 1
    await client.prompt("sing it", forked)
    assert asked(client) == before + 1


# tools that are gone


@pytest.mark.hazard("R8")
async def test_the_model_is_told_of_tools_that_are_gone_and_of_those_that_come_back(
    talk: Talk, cwd: Path, mcp_servers: list[RecordedServers], tmp_path: Path
) -> None:
    greet = "when: greet\ncall: mcp__one__greet {}\n---\ntext: ok\nturn\necho"
    async with talk(greet) as client:
        await client.initialize({})
        session_id = await client.new_session(cwd, mcpServers=[ONE])
        await client.prompt("greet")
        await client.prompt("plain")
        assert client.text().endswith("plain")
    for servers, gone, back in (([], 1, 0), ([], 1, 0), ([ONE], 1, 1), ([], 2, 1)):
        async with talk(greet) as client:
            await reopened(client, session_id, cwd, mcpServers=servers)
            await client.prompt("what now?")
        told = str(Transcript.load(tmp_path / "sessions", session_id).history.messages())
        words = "called before are not there any more, and nothing stands for them: mcp__one__greet"
        assert told.count(words) == gone
        assert told.count("are there again: mcp__one__greet") == back


# a turn that was running


@pytest.mark.hazard("C17.2", "R8")
async def test_calls_without_a_result_get_one_each_however_often_it_is_loaded(
    talk: Talk, cwd: Path, tmp_path: Path
) -> None:
    async with talk(SHELL) as client:
        session_id = await opened(client, cwd)
        await client.prompt("hello")
    folder = tmp_path / "sessions"
    running = Transcript.load(folder, session_id)
    running.append({"t": "user", "blocks": [{"type": "text", "text": "both"}]})
    for number in (1, 2):
        card = {"toolCallId": f"call-{number}", "title": "t"}
        running.append(
            {"t": "call", "id": f"c{number}", "name": "shell", "arguments": "{}", "card": card}
        )
    running.close()
    for _ in range(2):
        async with talk(SHELL) as client:
            await reopened(client, session_id, cwd)
            cards = [u["status"] for u in client.updates() if "toolCallId" in u]
            assert cards == ["pending", "failed"] * 2
            await client.prompt("go on")
    messages = Transcript.load(folder, session_id).history.messages()
    results = [m["tool_call_id"] for m in messages if m["role"] == "tool"]
    assert results == ["c1", "c2"]
