"""The agent on the wire: the official SDK on pipes, judged by the bytes that a client records."""

from pathlib import Path

import anyio
import pytest

from tests.agent.conftest import Talk
from tests.support.client import RecordingClient
from tests.support.gates import Gates
from tests.support.recording import Message, RpcError

HELLO = "turn\ntext: one two"
#: tells two words, then stays at a gate
GATED = "when: slow\ntext: one two\ngate: g\ntext: three\nwhen: who\nremember\nturn\ntext: fine"
SHELL = 'when: run\ncall: shell {"command": "echo hi"}\n---\ntext: done\nturn\ntext: fine'


async def opened(client: RecordingClient, cwd: Path) -> str:
    await client.initialize()
    return await client.new_session(cwd)


def kinds(client: RecordingClient, since: int = 0) -> list[str]:
    return [update["sessionUpdate"] for update in client.updates(since=since)]


async def error_of(client: RecordingClient, method: str, params: object) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await client.request(method, params)
    return caught.value


# initialize


async def test_version_65535_with_an_unknown_info_gets_version_1(talk: Talk) -> None:
    async with talk(HELLO) as client:
        params = {"protocolVersion": 65535, "info": {"x": [1]}, "clientCapabilities": {}}
        result = await client.request("initialize", params)
    assert result["protocolVersion"] == 1
    assert result["authMethods"] == []
    assert result["agentInfo"]["name"] == "acp-bridge-agent"
    assert result["agentCapabilities"] == {
        "loadSession": True,
        "promptCapabilities": {"embeddedContext": True},
        "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}},
    }


async def test_requests_before_initialize_are_refused(talk: Talk, cwd: Path) -> None:
    async with talk(HELLO) as client:
        for method in ("session/new", "session/list", "session/prompt", "nope"):
            assert (await error_of(client, method, {"cwd": str(cwd)})).code == -32600
        await opened(client, cwd)


# sessions


@pytest.mark.hazard("P8")
async def test_nothing_of_a_session_comes_before_its_response(talk: Talk, cwd: Path) -> None:
    async with talk(HELLO) as client:
        await opened(client, cwd)
        await client.prompt("x")
        messages = client.recording.incoming()
    response = next(i for i, m in enumerate(messages) if "sessionId" in m.get("result", {}))
    assert messages[response + 1]["params"]["update"]["sessionUpdate"] == (
        "available_commands_update"
    )
    assert not [m for m in messages[:response] if "method" in m]


async def test_modes_and_their_option_are_offered_and_ask_is_the_default(
    talk: Talk, cwd: Path
) -> None:
    async with talk(HELLO) as client:
        await client.initialize()
        result = await client.request("session/new", {"cwd": str(cwd), "mcpServers": []})
    assert result["modes"]["currentModeId"] == "ask"
    assert [mode["id"] for mode in result["modes"]["availableModes"]] == ["ask", "auto"]
    (option,) = result["configOptions"]
    assert (option["id"], option["type"], option["currentValue"]) == ("mode", "select", "ask")


@pytest.mark.parametrize("method", ["session/new", "session/load", "session/resume"])
async def test_a_relative_cwd_is_refused(talk: Talk, cwd: Path, method: str) -> None:
    async with talk(HELLO) as client:
        session_id = await opened(client, cwd)
        params = {"sessionId": session_id, "cwd": "rel/path", "mcpServers": []}
        assert (await error_of(client, method, params)).code == -32602


@pytest.mark.hazard("R2")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/prompt", {"prompt": [{"type": "text", "text": "x"}]}),
        ("session/load", {"cwd": "/", "mcpServers": []}),
        ("session/resume", {"cwd": "/"}),
        ("session/close", {}),
        ("session/set_mode", {"modeId": "auto"}),
        ("session/set_config_option", {"configId": "mode", "value": "auto"}),
    ],
)
async def test_an_unknown_session_is_an_error(talk: Talk, method: str, params: Message) -> None:
    async with talk(HELLO) as client:
        await client.initialize()
        error = await error_of(client, method, {"sessionId": "nobody", **params})
        assert error.code == -32002
        client.cancel("nobody")
        assert (await client.request("session/list", {}))["sessions"] == []


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


async def test_a_title_is_told_once_after_the_first_turn(talk: Talk, cwd: Path) -> None:
    async with talk(HELLO) as client:
        await opened(client, cwd)
        await client.prompt("Mend the door")
        await client.prompt("And the roof")
        titles = [u["title"] for u in client.updates() if "title" in u]
    assert titles == ["Mend the door"]


@pytest.mark.hazard("R1")
async def test_a_load_shows_all_of_it_before_its_response_each_time(talk: Talk, cwd: Path) -> None:
    async with talk(SHELL) as client:
        session_id = await opened(client, cwd)
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
    assert shown[0][2]["rawOutput"] == {"exitCode": 0, "output": "hi\n"}


@pytest.mark.hazard("R1")
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


@pytest.mark.hazard("R4")
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


async def test_mode_and_option_are_two_views_of_one_setting(talk: Talk, cwd: Path) -> None:
    async with talk(HELLO) as client:
        session_id = await opened(client, cwd)
        change = {"sessionId": session_id, "modeId": "auto"}
        assert await client.request("session/set_mode", change) == {}
        option = {"sessionId": session_id, "configId": "mode", "value": "ask"}
        result = await client.request("session/set_config_option", option)
        assert result["configOptions"][0]["currentValue"] == "ask"
        await client.prompt("x")  # what follows those responses has come by then
        by_kind = {update["sessionUpdate"]: update for update in client.updates()}
        assert by_kind["config_option_update"]["configOptions"][0]["currentValue"] == "auto"
        assert by_kind["current_mode_update"]["currentModeId"] == "ask"
        wrong = [{"modeId": "root"}, {"configId": "mode", "value": "root"}]
        for params in wrong:
            method = "session/set_mode" if "modeId" in params else "session/set_config_option"
            error = await error_of(client, method, {"sessionId": session_id, **params})
            assert error.code == -32602


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


# prompts and cancels


@pytest.mark.hazard("Q2")
async def test_prompts_of_a_session_are_answered_one_after_the_other(
    talk: Talk, cwd: Path, gates: Gates
) -> None:
    async with talk(GATED) as client:
        await opened(client, cwd)
        first, second, third = (client.send_prompt(text) for text in ("slow", "b", "slow"))
        await gates.reached("g")
        assert client.text() == "one two"
        gates.open("g")
        await client.answer_to(second)
        gates.open("g")
        await client.answer_to(third)
        assert client.text() == "one two threefineone two three"
        answered = [m["id"] for m in client.recording.incoming() if "stopReason" in str(m)]
        assert answered == [first, second, third]


@pytest.mark.hazard("P6")
async def test_one_session_does_not_wait_for_another(talk: Talk, cwd: Path, gates: Gates) -> None:
    async with talk(GATED) as client:
        busy = await opened(client, cwd)
        running = client.send_prompt("slow")
        await gates.reached("g")
        await client.new_session(cwd)
        assert (await client.prompt("b"))["stopReason"] == "end_turn"
        assert client.recording.answers(running) == []
        client.cancel(busy)
        assert (await client.answer_to(running))["result"] == {"stopReason": "cancelled"}


@pytest.mark.hazard("C3", "C5", "C9", "C17")
async def test_cancelled_in_the_middle_it_says_so_once_and_remembers(
    talk: Talk, cwd: Path, gates: Gates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "model.log"
    monkeypatch.setenv("ACP_BRIDGE_MODEL_LOG", str(log))
    async with talk(GATED) as client:
        await opened(client, cwd)
        running = client.send_prompt("slow")
        await gates.reached("g")
        client.cancel()
        client.cancel()
        assert (await client.answer_to(running))["result"] == {"stopReason": "cancelled"}
        since = client.mark()
        await client.prompt("who am I?")
        assert client.text(since=since) == "You told me: slow"
        assert len(client.recording.answers(running)) == 1
    assert '"content": "one two"' in log.read_text().splitlines()[-1]


@pytest.mark.hazard("C3", "C20")
async def test_cancelled_right_behind_the_prompt_no_model_is_called(
    talk: Talk, cwd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "model.log"
    monkeypatch.setenv("ACP_BRIDGE_MODEL_LOG", str(log))
    async with talk(HELLO) as client:
        await opened(client, cwd)
        running = client.send_prompt("x")
        client.cancel()
        assert (await client.answer_to(running))["result"] == {"stopReason": "cancelled"}
        assert client.text() == ""
    assert not log.exists()


@pytest.mark.hazard("C1", "C2")
async def test_a_cancel_with_nothing_running_touches_no_later_prompt(talk: Talk, cwd: Path) -> None:
    async with talk(HELLO) as client:
        await opened(client, cwd)
        client.cancel()
        assert (await client.prompt("x"))["stopReason"] == "end_turn"
        client.cancel()
        client.cancel()
        assert (await client.prompt("x"))["stopReason"] == "end_turn"


@pytest.mark.hazard("C1")
async def test_a_cancel_is_for_the_running_prompt_not_for_those_behind_it(
    talk: Talk, cwd: Path, gates: Gates
) -> None:
    async with talk(GATED) as client:
        await opened(client, cwd)
        running, behind = client.send_prompt("slow"), client.send_prompt("b")
        await gates.reached("g")
        client.cancel()
        assert (await client.answer_to(running))["result"]["stopReason"] == "cancelled"
        assert (await client.answer_to(behind))["result"]["stopReason"] == "end_turn"


@pytest.mark.hazard("C15", "C16", "C18")
async def test_cancelled_while_the_user_is_asked_the_card_is_closed_and_nothing_is_run(
    talk: Talk, cwd: Path
) -> None:
    async with talk(SHELL) as client:
        await opened(client, cwd)
        client.side.permission = "never"
        running = client.send_prompt("run")
        await client.until_request("session/request_permission")
        client.cancel()
        assert (await client.answer_to(running))["result"] == {"stopReason": "cancelled"}
        cards = [u["status"] for u in client.updates() if "toolCallId" in u]
        assert cards == ["pending", "failed"]
        assert (await client.prompt("x"))["stopReason"] == "end_turn"


async def test_a_permission_answered_cancelled_is_a_cancelled_turn(talk: Talk, cwd: Path) -> None:
    async with talk(SHELL) as client:
        await opened(client, cwd)
        client.side.permission = "cancel"
        assert (await client.prompt("run"))["stopReason"] == "cancelled"
        assert "session_info_update" not in kinds(client)


@pytest.mark.hazard("C18")
async def test_a_client_s_error_or_nonsense_is_no_permission(talk: Talk, cwd: Path) -> None:
    def refuse(params: Message) -> Message:
        raise RpcError(-32601, "no such method")

    async with talk(SHELL) as client:
        await opened(client, cwd)
        nonsense: list[Message] = [{}, {"outcome": 7}, {"outcome": {"outcome": "selected"}}]
        answers = iter(nonsense)
        client.side.handlers["session/request_permission"] = lambda _: next(answers)
        for _ in nonsense:
            assert (await client.prompt("run"))["stopReason"] == "end_turn"
        client.side.handlers["session/request_permission"] = refuse
        assert (await client.prompt("run"))["stopReason"] == "end_turn"
        ends = [u["status"] for u in client.updates() if u.get("status") in ("completed", "failed")]
    assert ends == ["failed"] * 4


async def test_closing_answers_the_running_prompt_first(
    talk: Talk, cwd: Path, gates: Gates
) -> None:
    async with talk(GATED) as client:
        session_id = await opened(client, cwd)
        running, behind = client.send_prompt("slow"), client.send_prompt("b")
        await gates.reached("g")
        closing = client.send_request("session/close", {"sessionId": session_id})
        await client.answer_to(closing)
        order = [m["id"] for m in client.recording.incoming() if "method" not in m][-3:]
        assert order[-1] == closing
        for prompt in (running, behind):
            assert client.recording.answers(prompt)[0]["result"]["stopReason"] == "cancelled"
        with pytest.raises(RpcError, match="-32002"):
            await client.prompt("x")
        await client.load_session(session_id, cwd)
        assert (await client.prompt("x"))["stopReason"] == "end_turn"


# what goes on the wire when something is wrong


async def test_a_model_that_fails_is_an_error_without_its_text(
    talk: Talk, cwd: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with talk("when: bad\nerror: /secret/key\nturn\ntext: fine") as client:
        await opened(client, cwd)
        with pytest.raises(RpcError, match="-32603 The model could not answer") as caught:
            await client.prompt("bad")
        assert caught.value.data["id"] in caplog.text
        assert "/secret/key" in caplog.text
        assert (await client.prompt("x"))["stopReason"] == "end_turn"
        assert "/secret" not in str(client.recording)


async def test_wrong_parameters_are_told_by_place_without_their_value(
    talk: Talk, cwd: Path
) -> None:
    async with talk(HELLO) as client:
        session_id = await opened(client, cwd)
        for prompt in ("s3cret", [{"type": "text", "text": {"s3cret": 1}}], [], ["s3cret"]):
            error = await error_of(
                client, "session/prompt", {"sessionId": session_id, "prompt": prompt}
            )
            assert error.code == -32602
            assert "s3cret" not in f"{error.message} {error.data}"
            assert "pydantic" not in str(error.data)
        image = [{"type": "image", "data": "", "mimeType": "image/png"}]
        params = {"sessionId": session_id, "prompt": image}
        assert (await error_of(client, "session/prompt", params)).code == -32602
        assert (await error_of(client, "session/new", None)).code == -32602
        assert (await error_of(client, "nope/nope", {})).code == -32601


async def test_meta_overrides_no_parameter(talk: Talk, cwd: Path) -> None:
    async with talk(HELLO) as client:
        await client.initialize()
        meta = {"cwd": "rel", "self": 1, "anything": 2}
        session_id = await client.new_session(cwd, _meta=meta)
        meta = {"session_id": "other", "prompt": []}
        assert (await client.prompt("x", session_id, _meta=meta))["stopReason"] == "end_turn"


async def test_with_no_capabilities_the_client_is_asked_for_no_file(talk: Talk, cwd: Path) -> None:
    (cwd / "a.txt").write_text("on disk")
    dialogue = 'turn\ncall: read_file {"path": "a.txt"}\n---\ntext: {result}'
    async with talk(dialogue) as client:
        await client.initialize({})
        await client.new_session(cwd)
        await client.prompt("x")
        assert client.text() == "on disk"
        assert not client.recording.requests("fs/read_text_file")
    async with talk(dialogue) as client:
        client.side.files[str(cwd / "a.txt")] = "unsaved"
        await opened(client, cwd)
        await client.prompt("x")
        assert client.text() == "unsaved"
        card = next(u for u in client.updates() if u["sessionUpdate"] == "tool_call")
        assert (card["kind"], card["title"]) == ("read", "Read a.txt")
        assert card["locations"] == [{"path": str(cwd / "a.txt")}]


@pytest.mark.hazard("T2")
async def test_an_empty_token_is_shown_and_none_is_not(talk: Talk, cwd: Path) -> None:
    async with talk('turn\ntoken: "a"\ntoken: ""\ntoken: null\ntoken: "b"') as client:
        await opened(client, cwd)
        await client.prompt("x")
        assert client.texts() == ["a", "", "b"]


# the end


@pytest.mark.hazard("P2", "C16")
async def test_at_eof_a_running_turn_is_ended_and_answered(
    talk: Talk, cwd: Path, gates: Gates
) -> None:
    async with talk(GATED) as client:
        await opened(client, cwd)
        running = client.send_prompt("slow")
        await gates.reached("g")
        client.close_stdin()
        with anyio.fail_after(5):
            await client.closed.wait()
        assert client.recording.answers(running)[0]["result"] == {"stopReason": "cancelled"}


@pytest.mark.hazard("P2")
async def test_at_eof_what_was_asked_before_is_still_answered(talk: Talk, cwd: Path) -> None:
    async with talk(HELLO) as client:
        await opened(client, cwd)
        asked = client.send_prompt("x")
        client.close_stdin()
        with anyio.fail_after(5):
            await client.closed.wait()
        assert client.recording.answers(asked)[0]["result"] == {"stopReason": "end_turn"}
        assert client.text() == "one two"
