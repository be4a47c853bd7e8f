"""`idempotencyKey`: a prompt of version 2 that is sent again, in each of its states."""

from pathlib import Path
from typing import Any

import pytest

from tests.core.sessions.agent import Agent, Json, until
from tests.versions.v2_editor import CWD, V2Bench, V2Editor, v2_bench

pytestmark = pytest.mark.hazard("X2")


def send(editor: V2Editor, session: str, text: str = "hello", key: Any = "k1") -> Any:
    block = {"type": "text", "text": text}
    params: Json = {"sessionId": session, "prompt": [block], "idempotencyKey": key}
    return editor.send("session/prompt", params)


def ran(it: V2Bench) -> list[str]:
    return [each["prompt"][0]["text"] for each in it.agent.params("session/prompt")]


async def test_sent_again_while_it_waits_both_are_answered_with_one_message(tmp_path: Path) -> None:
    gate = (agent := Agent()).stops_at("session/prompt")
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        await it.editor.result(it.editor.prompt(session, "before"))
        attempts = [send(it.editor, session), send(it.editor, session)]
        await it.editor.handled()
        gate.open()
        ids = {(await it.editor.result(each))["messageId"] for each in attempts}
        await it.editor.idle(session, 2)
        assert len(ids) == 1
        assert ran(it) == ["before", "hello"]
        assert it.editor.states(session) == ["running", "idle/end_turn"] * 2
        assert len(it.editor.updates(session, "user_message")) == 2


async def test_sent_again_while_it_runs_it_has_the_id_under_which_its_words_were_shown(
    tmp_path: Path,
) -> None:
    gate = (agent := Agent()).stops_at("session/prompt")
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        first = await it.editor.result(send(it.editor, session))
        second = await it.joined()
        await second.resumed(session)
        answer = await second.result(send(second, session))
        assert answer == first
        (words,) = second.updates(session, "user_message_chunk", "user_message")
        assert words["messageId"] == answer["messageId"]
        gate.open()
        await second.idle(session)
        assert ran(it) == ["hello"]
        assert second.states(session) == ["running", "idle/end_turn"]


@pytest.mark.parametrize("replays", [True, False])
async def test_sent_again_when_it_has_ended_nothing_runs(tmp_path: Path, replays: bool) -> None:
    async with v2_bench(tmp_path) as it:
        session = await it.new()
        first = await it.editor.result(send(it.editor, session))
        await it.editor.idle(session)
        again = await it.editor.result(send(it.editor, session))
        assert again == first
        second = await it.joined()
        how = {"replayFrom": {"type": "start"}} if replays else {}
        await second.ask("session/resume", {"sessionId": session, **CWD, **how})
        answer = await second.result(send(second, session))
        assert answer == first
        shown = second.updates(session, "user_message_chunk", "user_message")
        assert [each["messageId"] for each in shown] == [answer["messageId"]]
        assert ran(it) == ["hello"]
        assert it.editor.states(session) == ["running", "idle/end_turn"]
        assert second.states(session) == ["idle"]


async def test_sent_again_when_it_was_withdrawn_it_is_withdrawn(tmp_path: Path) -> None:
    gate = (agent := Agent()).stops_at("session/prompt")
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        await it.editor.result(it.editor.prompt(session, "before"))
        waiting = send(it.editor, session)
        await it.editor.handled()
        it.editor.cancel_request(waiting)
        assert (await it.editor.refusal(waiting)).code == -32800
        gate.open()
        await it.editor.idle(session)
        assert (await it.editor.refusal(send(it.editor, session))).code == -32800
        assert ran(it) == ["before"]


async def test_sent_twice_at_once_and_taken_back_once_it_is_answered_when_its_turn_begins(
    tmp_path: Path,
) -> None:
    gate = (agent := Agent()).stops_at("session/prompt")
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        first, second = send(it.editor, session), send(it.editor, session)
        it.editor.cancel_request(first)
        assert (await it.editor.refusal(first)).code == -32800
        await until(lambda: agent.params("session/prompt"))
        assert (await it.editor.result(second))["messageId"]
        assert it.editor.states(session) == ["running"]
        gate.open()
        await it.editor.idle(session)
        assert ran(it) == ["hello"]


async def test_sent_again_when_its_turn_was_stopped_it_is_the_message_of_then(
    tmp_path: Path,
) -> None:
    gate = (agent := Agent()).stops_at("session/prompt")
    async with v2_bench(tmp_path, agent, drain_timeout=60) as it:
        session = await it.new()
        await it.editor.result(send(it.editor, session))
        it.editor.notify("session/cancel", {"sessionId": session})
        await until(lambda: agent.params("session/cancel"))
        gate.open()
        await it.editor.idle(session)
        assert (await it.editor.result(send(it.editor, session)))["messageId"]
        assert it.editor.states(session) == ["running", "idle/cancelled"]
        assert ran(it) == ["hello"]


@pytest.mark.parametrize("key", ["", "x" * 256, 1])
async def test_a_bad_key_is_refused(tmp_path: Path, key: Any) -> None:
    async with v2_bench(tmp_path) as it:
        session = await it.new()
        block = {"type": "text", "text": "hello"}
        params = {"sessionId": session, "prompt": [block], "idempotencyKey": key}
        sent = {"id": "bad", "method": "session/prompt", "params": params}
        super(V2Editor, it.editor).says(sent)
        await until(lambda: it.editor.answers("bad"))
        (answer,) = it.editor.answers("bad")
        assert answer["error"]["code"] == -32602
        it.editor._read = len(it.editor.messages)


async def test_other_words_under_a_key_are_refused(tmp_path: Path) -> None:
    async with v2_bench(tmp_path) as it:
        session = await it.new()
        await it.editor.result(send(it.editor, session))
        await it.editor.idle(session)
        error = await it.editor.refusal(send(it.editor, session, "other words"))
        assert error.code == -32602
        assert ran(it) == ["hello"]
