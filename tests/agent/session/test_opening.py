"""Sessions on the wire: opened, opened again, listed, deleted; with what the client gives them."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.model import ModelError
from tests.agent.conftest import Talk
from tests.agent.mcp_servers.recorded_servers import RecordedServers
from tests.agent.session.several_models import several
from tests.agent.talking import error_of, kinds, of_kind, opened
from tests.support.gates import Gates
from tests.support.recording import RpcError

HELLO = "turn\ntext: one two"
#: tells two words, then stays at a gate
GATED = "when: slow\ntext: one two\ngate: g\ntext: three\nwhen: who\nremember\nturn\ntext: fine"
SHELL = 'when: run\ncall: shell {"command": "echo hi"}\n---\ntext: done\nturn\ntext: fine'
GREET = "turn\ncall: mcp__one__greet {}\n---\ntext: {result}"
ONE = {"name": "one", "command": "/bin/one", "args": [], "env": [{"name": "A", "value": "b"}]}
TWO = {"type": "http", "name": "two", "url": "http://127.0.0.1:1/", "headers": []}
OPENINGS = ["session/new", "session/load", "session/resume"]


@pytest.mark.parametrize("method", OPENINGS)
@pytest.mark.parametrize("name", ["cwd", "additionalDirectories"])
async def test_a_relative_folder_is_refused_and_named(
    talk: Talk, cwd: Path, method: str, name: str
) -> None:
    async with talk(HELLO) as client:
        session_id = await opened(client, cwd)
        params = {"sessionId": session_id, "cwd": str(cwd), "mcpServers": []}
        wrong = "rel/path" if name == "cwd" else ["/", "rel/path"]
        error = await error_of(client, method, {**params, name: wrong})
        assert (error.code, name in error.message) == (-32602, True)


async def test_sessions_are_listed_by_folder_with_a_title(talk: Talk, cwd: Path) -> None:
    async with talk(HELLO) as client:
        session_id = await opened(client, cwd)
        await client.prompt("Mend the door\nplease")
        await client.new_session(cwd)  # nothing was said in it
        listed = await client.request("session/list", {"cwd": str(cwd)})
        assert [(s["sessionId"], s["title"]) for s in listed["sessions"]] == [
            (session_id, "Mend the door")
        ]
        unused = await client.request("session/list", {"cwd": "/unused"})
        assert unused == {"sessions": []}
        assert (await error_of(client, "session/list", {"cursor": "x"})).code == -32602


@pytest.mark.hazard("R1.1", "R1.3")
async def test_a_load_shows_all_of_it_before_its_response_each_time(talk: Talk, cwd: Path) -> None:
    async with talk(SHELL) as client:
        await client.initialize({})  # without terminals
        session_id = await client.new_session(cwd)
        await client.request("session/set_mode", {"sessionId": session_id, "modeId": "auto"})
        await client.prompt("run it")
    async with talk(SHELL) as client:
        await client.initialize()
        shown = []
        for _ in range(2):
            since = client.mark()
            await client.load_session(session_id, cwd)
            messages = client.recording.incoming(since)
            answered = next(i for i, m in enumerate(messages) if "result" in m)
            updates = [m["params"]["update"] for m in messages[:answered]]
            shown.append([u for u in updates if u["sessionUpdate"] != "available_commands_update"])
    assert shown[0] == shown[1]
    assert [u["sessionUpdate"] for u in shown[0]] == [
        "user_message_chunk",
        "tool_call",
        "tool_call_update",
        "agent_message_chunk",
    ]
    assert shown[0][2]["status"] == "completed"
    assert shown[0][2]["rawOutput"]["output"] == "hi\n"


@pytest.mark.hazard("R1.5")
async def test_a_resume_shows_nothing_and_remembers(talk: Talk, cwd: Path) -> None:
    async with talk(GATED) as client:
        session_id = await opened(client, cwd)
        await client.prompt("I am Ann")
    async with talk(GATED) as client:
        await client.initialize()
        since = client.mark()
        await client.request("session/resume", {"sessionId": session_id, "cwd": str(cwd)})
        client.session_id = session_id
        await client.prompt("who am I?")
        assert "user_message_chunk" not in kinds(client, since)
        assert client.text() == "You told me: I am Ann"


@pytest.mark.hazard("R4.1")
async def test_a_load_of_a_running_session_attaches_to_it(
    talk: Talk, cwd: Path, gates: Gates
) -> None:
    async with talk(GATED) as client:
        session_id = await opened(client, cwd)
        running = client.send_prompt("slow")
        await gates.reached("g")
        since = client.mark()
        await client.load_session(session_id, cwd)
        gates.open("g")
        await client.answer_to(running)
        shown = [
            update["content"]["text"]
            for update in client.updates(since=since)
            if "content" in update
        ]
    assert shown == ["slow", "one two", " three"]


async def test_a_deleted_session_is_gone_and_deleting_an_unknown_one_succeeds(
    talk: Talk, cwd: Path
) -> None:
    async with talk(HELLO) as client:
        session_id = await opened(client, cwd)
        await client.prompt("x")
        await client.request("session/delete", {"sessionId": session_id})
        await client.request("session/delete", {"sessionId": session_id})
        assert (await client.request("session/list", {}))["sessions"] == []
        load = {"sessionId": session_id, "cwd": str(cwd), "mcpServers": []}
        assert (await error_of(client, "session/load", load)).code == -32002


def transcripts(folder: Path) -> list[Path]:
    return list(folder.rglob("*.jsonl"))


@pytest.mark.hazard("K6.1")
@pytest.mark.parametrize("how", ["new", "loaded"])
async def test_a_session_that_is_deleted_while_it_answers_leaves_nothing_on_the_disk(
    talk: Talk, cwd: Path, gates: Gates, tmp_path: Path, how: str
) -> None:
    async with talk(GATED) as client:
        session_id = await opened(client, cwd)
        if how == "loaded":
            await client.request("session/close", {"sessionId": session_id})
            await client.load_session(session_id, cwd)
        running = client.send_prompt("slow")
        await gates.reached("g")
        await client.request("session/delete", {"sessionId": session_id})
        assert (await client.answer_to(running))["result"] == {"stopReason": "cancelled"}
        assert transcripts(tmp_path) == []
        load = {"sessionId": session_id, "cwd": str(cwd), "mcpServers": []}
        assert (await error_of(client, "session/load", load)).code == -32002


# keys


async def test_without_a_key_no_session_is_opened_until_it_is_there(talk: Talk, cwd: Path) -> None:
    models = several("a")
    models.keys.clear()
    async with talk(models) as client:
        await client.initialize()
        new = {"cwd": str(cwd), "mcpServers": []}
        error = await error_of(client, "session/new", new)
        assert (error.code, error.message) == (-32000, "a needs a key: set SOME_API_KEY.")
        method = {"methodId": "api-key"}
        assert (await error_of(client, "authenticate", method)).message == error.message
        assert (await client.request("session/list", {}))["sessions"] == []
        models.keys.add("a")
        assert await client.request("authenticate", method) == {}
        await client.new_session(cwd)
        assert (await client.prompt("x"))["stopReason"] == "end_turn"


async def test_an_authentication_that_is_not_offered_is_refused(talk: Talk, cwd: Path) -> None:
    async with talk(HELLO) as client:
        await client.initialize()
        assert (await error_of(client, "authenticate", {"methodId": "no"})).code == -32602


@pytest.mark.hazard("R3")
@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_without_a_key_an_old_session_is_shown_and_its_prompts_fail(
    talk: Talk, cwd: Path, method: str
) -> None:
    models = several("a")
    async with talk(models) as client:
        session_id = await opened(client, cwd)
        await client.prompt("before")
    models.keys.clear()
    async with talk(models) as client:
        await client.initialize()
        load = {"sessionId": session_id, "cwd": str(cwd), "mcpServers": []}
        await client.request(method, load)
        prompt = [{"type": "text", "text": "lost"}]
        asked = {"sessionId": session_id, "prompt": prompt}
        assert (await error_of(client, "session/prompt", asked)).code == -32000
        models.keys.add("a")
        assert (await client.prompt("after", session_id))["stopReason"] == "end_turn"
        since = client.mark()
        await client.load_session(session_id, cwd)
        said = [u["content"]["text"] for u in of_kind(client, "user_message_chunk", since)]
    assert said == ["before", "after"]


@pytest.mark.parametrize("kind", ["unknown_model", "other"])
async def test_what_else_is_wrong_with_a_model_is_told_by_the_prompt(
    talk: Talk, cwd: Path, kind: Any
) -> None:
    models = several("a", "b")

    def fail(model_id: str, thought_level: str | None = None) -> Any:
        raise ModelError("There is no model a.", kind)

    models.open = fail  # type: ignore[method-assign]
    async with talk(models) as client:
        await opened(client, cwd)
        with pytest.raises(RpcError, match=r"-32603 There is no model a\."):
            await client.prompt("x")
        error = await error_of(client, "authenticate", {"methodId": "api-key"})
        assert (error.code, error.message) == (-32000, "There is no model a.")


async def test_the_model_is_warmed_once_initialize_is_answered(talk: Talk, cwd: Path) -> None:
    models = several("a")
    async with talk(models) as client:
        assert not models.warmed.is_set()
        await client.initialize()
        with anyio.fail_after(5):
            await models.warmed.wait()


@pytest.mark.hazard("P6")
async def test_a_model_that_can_t_be_warmed_ends_nothing(
    talk: Talk, cwd: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise RuntimeError("no library")

    models = several("a")
    models.warm = fail  # type: ignore[method-assign]
    async with talk(models) as client:
        await opened(client, cwd)
        assert (await client.prompt("x"))["stopReason"] == "end_turn"
    assert "no library" in caplog.text


# folders


@pytest.mark.hazard("R5.1", "R8")
async def test_the_folders_given_last_are_the_session_s(
    talk: Talk, cwd: Path, tmp_path: Path
) -> None:
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "a.txt").write_text("words")
    dialogue = f'turn\ncall: read_file {{"path": "{extra}/a.txt"}}\n---\ntext: ok'
    async with talk(dialogue) as client:
        await client.initialize({})
        session_id = await client.new_session(cwd, additionalDirectories=[str(extra)])
        await client.prompt("x")
        assert client.recording.requests("session/request_permission") == []
        await client.load_session(session_id, cwd)
        await client.prompt("x")
        assert len(client.recording.requests("session/request_permission")) == 1
        await client.load_session(session_id, extra)
        await client.prompt("x")
        assert len(client.recording.requests("session/request_permission")) == 1


# what the client can do


async def test_files_and_terminals_are_the_client_s_where_it_has_them(
    talk: Talk, cwd: Path
) -> None:
    write = f'call: write_file {{"path": "{cwd}/a.txt", "content": "new"}}'
    dialogue = f'turn\n{write}\ncall: shell {{"command": "echo hi"}}\n---\ntext: ok'
    for capabilities, there in ((None, True), ({}, False)):
        async with talk(dialogue) as client:
            await client.initialize(capabilities)
            await client.new_session(cwd)
            client.side.permission = "allow"
            await client.prompt("x")
            asked = client.recording.requests
            assert bool(asked("fs/write_text_file")) is there
            assert bool(asked("terminal/create")) is there
            assert (cwd / "a.txt").exists() is not there


# MCP servers


async def test_the_client_s_servers_are_served_in_its_folder_and_closed_with_the_session(
    talk: Talk, cwd: Path, mcp_servers: list[RecordedServers]
) -> None:
    async with talk(GREET) as client:
        await client.initialize()
        session_id = await client.new_session(cwd, mcpServers=[ONE, TWO])
        await client.prompt("x")
        assert client.text() == "hello from mcp__one__greet"
        (servers,) = mcp_servers
        assert (servers.given, servers.cwd) == ((ONE, TWO), cwd)
        await client.request("session/close", {"sessionId": session_id})
        assert servers.closed.is_set()


@pytest.mark.hazard("K5")
async def test_what_the_client_gives_its_servers_alone_is_masked(
    talk: Talk, cwd: Path, mcp_servers: list[RecordedServers]
) -> None:
    token, bearer, key, plain = "tok-01234567", "bea-01234567", "key-01234567", "production"
    given = [
        {**ONE, "env": [{"name": "A_TOKEN", "value": token}, {"name": "STAGE", "value": plain}]},
        {
            **TWO,
            "headers": [{"name": "Authorization", "value": f"Bearer {bearer}"}],
            "url": f"http://127.0.0.1:1/?api_key={key}",
        },
    ]
    (cwd / "a.txt").write_text(f"{token}, {bearer}, {key}, {plain}")
    async with talk('turn\ncall: read_file {"path": "a.txt"}\n---\ntext: {result}') as client:
        await client.initialize({})
        await client.new_session(cwd, mcpServers=given)
        await client.prompt("x")
        assert client.text().endswith("\t***, ***, ***, production")


@pytest.mark.hazard("P7.1")
async def test_the_servers_are_closed_when_the_client_is_gone(
    talk: Talk, cwd: Path, mcp_servers: list[RecordedServers]
) -> None:
    async with talk(GREET) as client:
        await client.initialize()
        await client.new_session(cwd, mcpServers=[ONE])
        await client.new_session(cwd, mcpServers=[ONE])
    assert [servers.closed.is_set() for servers in mcp_servers] == [True, True]


@pytest.mark.hazard("R5.1", "R8", "P7.1")
async def test_servers_given_with_a_load_replace_those_before(
    talk: Talk, cwd: Path, mcp_servers: list[RecordedServers]
) -> None:
    async with talk(GREET) as client:
        await client.initialize()
        session_id = await client.new_session(cwd, mcpServers=[ONE])
        await client.load_session(session_id, cwd, mcpServers=[ONE])
        assert len(mcp_servers) == 1
        await client.load_session(session_id, cwd, mcpServers=[TWO])
        await client.prompt("x")
        assert [servers.closed.is_set() for servers in mcp_servers] == [True, False]
        assert "There is no tool named mcp__one__greet" in client.text()


@pytest.mark.hazard("R8")
@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_tools_that_the_history_used_and_that_are_gone_are_named_once(
    talk: Talk, cwd: Path, mcp_servers: list[RecordedServers], method: str
) -> None:
    async with talk(GREET) as client:
        await client.initialize()
        session_id = await client.new_session(cwd, mcpServers=[ONE])
        await client.prompt("x")
    for given, notices in (([ONE], 0), ([TWO], 1), ([], 1)):
        async with talk(HELLO) as client:
            await client.initialize()
            load = {"sessionId": session_id, "cwd": str(cwd), "mcpServers": given}
            await client.request(method, load)
            await client.request(method, load)
            await client.prompt("x", session_id)
            assert client.text().count("not there any more: mcp__one__greet.") == notices


@pytest.mark.hazard("C21", "C3")
async def test_the_first_prompt_waits_for_servers_and_can_be_cancelled_meanwhile(
    talk: Talk, cwd: Path, mcp_servers: list[RecordedServers]
) -> None:
    async with talk(HELLO) as client:
        await client.initialize()
        await client.new_session(cwd, mcpServers=[{**ONE, "name": "slow"}])
        first, second = client.send_prompt("a"), client.send_prompt("b")
        with anyio.fail_after(5):
            await mcp_servers[0].waits[1].wait()
        client.cancel()
        assert (await client.answer_to(first))["result"]["stopReason"] == "cancelled"
        assert client.text() == ""
        mcp_servers[0].started.set()
        assert (await client.answer_to(second))["result"]["stopReason"] == "end_turn"
        assert client.text() == "one two"


@pytest.mark.hazard("P8.1")
async def test_of_a_session_that_was_closed_nothing_more_is_said(
    talk: Talk, cwd: Path, mcp_servers: list[RecordedServers]
) -> None:
    async with talk(GREET) as client:
        await client.initialize()
        session_id = await client.new_session(cwd, mcpServers=[ONE])
        await client.prompt("x")
        await client.request("session/close", {"sessionId": session_id})
        await client.load_session(session_id, cwd, mcpServers=[{**ONE, "name": "slow"}])
        with anyio.fail_after(5):
            await mcp_servers[1].waits[0].wait()
        since = client.mark()
        await client.request("session/close", {"sessionId": session_id})
        await client.new_session(cwd)
        assert "not there any more" not in str(client.recording.incoming(since))
