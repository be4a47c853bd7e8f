"""The commands on live sessions, as processes, on the real bridge of an editor."""

import json
import signal

import anyio
import pytest

from acp_bridge.core.journal.reading import all_sessions
from acp_bridge.terminal.shared import live
from acp_bridge.terminal.shared.known import NotFound
from tests.support.client import RecordingClient
from tests.support.fixture_agents import fixture_command
from tests.whole.bridge_support import World

pytestmark = pytest.mark.process

#: for what starts an interpreter
_SECONDS = 30.0


async def listed(world: World, editor: RecordingClient, **wanted: object) -> None:
    """Until the session is listed like this."""
    with anyio.fail_after(_SECONDS):
        while True:
            answers = await live.ask_all(await live.bridges_of(world.home), 5)
            sessions = [about for answer in answers for about in answer.sessions or []]
            if any(
                {"sessionId": editor.session_id, **wanted}.items() <= s.items() for s in sessions
            ):
                return


async def test_a_session_of_an_editor_is_seen_fed_answered_and_ended_from_a_terminal(
    world: World,
) -> None:
    async with world.bridge(capabilities={}) as editor:
        editor.side.permission = "never"
        first = editor.send_prompt("permission; gate middle; say never")
        await editor.until_request("session/request_permission")
        session = editor.session_id
        code, out, _ = await world.command("send", session[:6], "say queued")
        assert (code, out.split()[:4]) == (0, ["In", "the", "queue", "of"])
        await listed(world, editor, state="permission", waiting=1, clients=1)
        code, out, _ = await world.command("approve", session[:6], "--option", "allow")
        assert (code, out.splitlines()[-1].split()[:2]) == (0, ["Approved", "(Allow):"])
        await editor.until_request("$/cancel_request")
        await editor.until_text("[permission allow]")
        await world.gates.reached("middle")
        assert (await world.command("cancel", session))[0] == 0
        assert (await editor.answer_to(first))["result"]["stopReason"] == "cancelled"
        await editor.until_text("queued")  # it was kept, though who sent it has left
        assert (await world.command("close", session))[0] == 0
        code, out, _ = await world.command("send", session, "say held")
        assert (code, "is not live: recorded, and left over" in out) == (0, True)
        assert [row.params["prompt"][0]["text"] for row in await world.journal(session)][2:] == [
            "say held"
        ]
        assert (await world.command("delete", session, "--yes", "--", *fixture_command()))[0] == 0
        assert all_sessions(world.home) == []


@pytest.mark.hazard("V9.3")
async def test_a_question_that_names_only_a_card_is_shown_with_its_command_in_a_terminal(
    world: World,
) -> None:
    call = {"toolCallId": "c", "title": "List files", "rawInput": {"command": ["rm", "-rf", "a b"]}}
    update = json.dumps({"sessionUpdate": "tool_call", "kind": "read", **call})
    options = [{"optionId": "allow", "name": "Allow", "kind": "allow_once"}]
    asked = json.dumps({"toolCall": {"toolCallId": "c"}, "options": options})
    async with world.bridge(capabilities={}) as editor:
        editor.side.permission = "never"
        editor.send_prompt(f"update {update}; ask session/request_permission {asked}")
        await editor.until_request("session/request_permission")
        _, out, _ = await world.command("ps")
        assert "asks: List files: command: rm -rf 'a b' (acp-bridge approve" in out
        code, out, _ = await world.command("approve", editor.session_id, "--option", "allow")
        assert (code, "\ncommand: rm -rf 'a b'\n" in out) == (0, True)


async def test_a_bridge_that_is_stopped_is_not_answering_and_holds_up_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SEARCH", 0.2)
    async with world.bridge(capabilities={}) as editor:
        await listed(world, editor, state="idle")
        bridges = await live.bridges_of(world.home)
        editor.terminate(signal.SIGSTOP)
        try:
            with anyio.fail_after(5):
                (answer,) = await live.ask_all(bridges, live.GLANCE)
                assert (answer.sessions, answer.silence) == (None, "not answering")
                with pytest.raises(NotFound, match="is not answering"):
                    await live.Here(world.home).find(editor.session_id)
        finally:
            editor.terminate(signal.SIGCONT)
