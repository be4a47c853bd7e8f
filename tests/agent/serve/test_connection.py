"""The agent on the wire: the official SDK on pipes, judged by the bytes that a client records."""

from pathlib import Path

import anyio
import pytest

from acp_bridge.core.clients import handshake
from tests.agent.conftest import Talk
from tests.agent.talking import error_of, kinds, opened
from tests.support.gates import Gates
from tests.support.recording import Message, RpcError

HELLO = "turn\ntext: one two"
#: tells two words, then stays at a gate
GATED = "when: slow\ntext: one two\ngate: g\ntext: three\nwhen: who\nremember\nturn\ntext: fine"
SHELL = 'when: run\ncall: shell {"command": "echo hi"}\n---\ntext: done\nturn\ntext: fine'


# initialize


async def test_version_65535_with_an_unknown_info_gets_version_1(talk: Talk) -> None:
    async with talk(HELLO) as client:
        params = {"protocolVersion": 65535, "info": {"x": [1]}, "clientCapabilities": {}}
        result = await client.request("initialize", params)
    assert result["protocolVersion"] == 1
    assert result == handshake.BUILTIN


async def test_requests_before_initialize_are_refused(talk: Talk, cwd: Path) -> None:
    async with talk(HELLO) as client:
        for method in ("session/new", "session/list", "session/prompt", "nope"):
            assert (await error_of(client, method, {"cwd": str(cwd)})).code == -32600
        await opened(client, cwd)


# sessions


@pytest.mark.hazard("P8.1")
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


@pytest.mark.hazard("R2.1")
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


async def test_a_title_is_told_once_after_the_first_turn(talk: Talk, cwd: Path) -> None:
    async with talk(HELLO) as client:
        await opened(client, cwd)
        await client.prompt("Mend the door")
        await client.prompt("And the roof")
        titles = [u["title"] for u in client.updates() if "title" in u]
    assert titles == ["Mend the door"]


# prompts and cancels


@pytest.mark.hazard("Q2.1")
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


@pytest.mark.hazard("P6.1")
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


@pytest.mark.hazard("C3", "C5.2", "C9", "C17")
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


@pytest.mark.hazard("C3.2", "C20.1", "C20.2")
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


@pytest.mark.hazard("C1.3", "C2.2")
async def test_a_cancel_with_nothing_running_touches_no_later_prompt(talk: Talk, cwd: Path) -> None:
    async with talk(HELLO) as client:
        await opened(client, cwd)
        client.cancel()
        assert (await client.prompt("x"))["stopReason"] == "end_turn"
        client.cancel()
        client.cancel()
        assert (await client.prompt("x"))["stopReason"] == "end_turn"


@pytest.mark.hazard("C1.1")
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


@pytest.mark.hazard("C15", "C16.2", "C18.1")
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


@pytest.mark.hazard("C18.2")
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


# what the client says of itself


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
        assert "on disk" in client.text()
        assert not client.recording.requests("fs/read_text_file")
    async with talk(dialogue) as client:
        client.side.files[str(cwd / "a.txt")] = "unsaved"
        await opened(client, cwd)
        await client.prompt("x")
        assert "unsaved" in client.text()
        card = next(u for u in client.updates() if u["sessionUpdate"] == "tool_call")
        assert (card["kind"], card["title"]) == ("read", "Read a.txt")
        assert card["locations"] == [{"path": str(cwd / "a.txt")}]


@pytest.mark.hazard("T2.4")
async def test_neither_an_empty_token_nor_none_becomes_a_chunk(talk: Talk, cwd: Path) -> None:
    async with talk('turn\ntoken: "a"\ntoken: ""\ntoken: null\ntoken: "b"') as client:
        await opened(client, cwd)
        await client.prompt("x")
        assert client.texts() == ["a", "b"]


# the end


@pytest.mark.hazard("P2.2", "C16")
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
