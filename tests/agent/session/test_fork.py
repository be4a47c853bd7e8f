"""`session/fork`: what was said so far goes on in a session of its own."""

import json
from pathlib import Path

import pytest

from agent.conversation.transcript import Transcript, UnknownSession, list_sessions
from tests.agent.conftest import Talk
from tests.agent.session.several_models import several
from tests.agent.talking import error_of, kinds, of_kind, opened
from tests.support.client import RecordingClient
from tests.support.gates import Gates
from tests.support.recording import Message

REMEMBERS = "when: slow\ntext: one\ngate: g\nwhen: who\nremember\nturn\ntext: fine"


async def fork(client: RecordingClient, session_id: str, cwd: Path) -> Message:
    params = {"sessionId": session_id, "cwd": str(cwd), "mcpServers": []}
    result: Message = await client.request("session/fork", params)
    return result


async def said(client: RecordingClient, session_id: str, text: str) -> str:
    since = client.mark()
    await client.prompt(text, session_id)
    return client.text(session_id, since)


async def test_the_fork_remembers_and_the_two_go_on_apart(talk: Talk, cwd: Path) -> None:
    async with talk(REMEMBERS) as client:
        first = await opened(client, cwd)
        await client.prompt("I am Ann", first)
        second = (await fork(client, first, cwd))["sessionId"]
        assert second != first
        await client.prompt("I sail", second)
        await client.prompt("I ride", first)
        assert await said(client, first, "who?") == "You told me: I am Ann; I ride"
        assert await said(client, second, "who?") == "You told me: I am Ann; I sail"
    async with talk(REMEMBERS) as client:
        await client.initialize()
        await client.load_session(second, cwd)
        shown = [u["content"]["text"] for u in of_kind(client, "user_message_chunk")]
        assert shown == ["I am Ann", "I sail", "who?"]


async def test_a_session_that_is_not_open_can_be_forked(talk: Talk, cwd: Path) -> None:
    async with talk(REMEMBERS) as client:
        first = await opened(client, cwd)
        await client.prompt("I am Ann")
    async with talk(REMEMBERS) as client:
        await client.initialize()
        second = (await fork(client, first, cwd))["sessionId"]
        assert await said(client, second, "who?") == "You told me: I am Ann"


@pytest.mark.hazard("P8")
async def test_a_fork_replays_nothing_and_says_nothing_before_its_response(
    talk: Talk, cwd: Path
) -> None:
    async with talk(REMEMBERS) as client:
        first = await opened(client, cwd)
        await client.prompt("I am Ann")
        since = client.mark()
        second = (await fork(client, first, cwd))["sessionId"]
        await client.prompt("x", second)
        messages = client.recording.incoming(since)
        answered = next(i for i, m in enumerate(messages) if "result" in m)
        assert not [m for m in messages[:answered] if "method" in m]
        assert "user_message_chunk" not in kinds(client, since)
        assert kinds(client, since)[0] == "available_commands_update"


@pytest.mark.hazard("C17")
async def test_a_running_turn_goes_on_in_the_old_session_alone(
    talk: Talk, cwd: Path, gates: Gates
) -> None:
    async with talk(REMEMBERS) as client:
        first = await opened(client, cwd)
        running = client.send_prompt("slow", first)
        await gates.reached("g")
        second = (await fork(client, first, cwd))["sessionId"]
        assert await said(client, second, "who?") == "You told me: slow"
        gates.open("g")
        assert (await client.answer_to(running))["result"]["stopReason"] == "end_turn"


async def test_a_fork_has_the_options_of_its_session_and_so_no_more_rights(
    talk: Talk, cwd: Path
) -> None:
    async with talk(several("a", "b")) as client:
        first = await opened(client, cwd)
        for option, value in (("model", "b"), ("mode", "plan")):
            choice = {"sessionId": first, "configId": option, "value": value}
            await client.request("session/set_config_option", choice)
        forked = await fork(client, first, cwd)
        assert [each["currentValue"] for each in forked["configOptions"]] == ["b", "plan"]
        assert forked["modes"]["currentModeId"] == "plan"
        choice = {"sessionId": first, "configId": "mode", "value": "auto"}
        await client.request("session/set_config_option", choice)
        forked = await client.load_session(forked["sessionId"], cwd)
        assert forked["modes"]["currentModeId"] == "plan"


@pytest.mark.hazard("R13")
async def test_a_fork_keeps_the_mode_that_its_session_has_and_not_one_of_before(
    talk: Talk, cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Transcript.append

    def full(self: Transcript, record: Message) -> None:
        self.history.fold(record)
        raise OSError("the disk is full")

    async with talk(several("a")) as client:
        first = await opened(client, cwd)
        for mode, appends in (("auto", append), ("ask", full)):
            monkeypatch.setattr(Transcript, "append", appends)
            await client.request("session/set_mode", {"sessionId": first, "modeId": mode})
        monkeypatch.setattr(Transcript, "append", append)
        second = (await fork(client, first, cwd))["sessionId"]
    async with talk(several("a")) as client:
        await client.initialize()
        assert (await client.load_session(second, cwd))["modes"]["currentModeId"] == "ask"


@pytest.mark.hazard("R2")
@pytest.mark.parametrize("session_id", ["nobody", "../keys", ""])
async def test_what_is_not_there_can_not_be_forked(talk: Talk, cwd: Path, session_id: str) -> None:
    async with talk(REMEMBERS) as client:
        await client.initialize()
        params = {"sessionId": session_id, "cwd": str(cwd), "mcpServers": []}
        assert (await error_of(client, "session/fork", params)).code == -32002
        assert (await client.request("session/list", {}))["sessions"] == []


async def test_a_fork_is_advertised(talk: Talk) -> None:
    async with talk(REMEMBERS) as client:
        told = await client.initialize()
        assert told["agentCapabilities"]["sessionCapabilities"]["fork"] == {}


def test_the_copy_has_a_header_of_its_own_and_skips_what_is_broken(tmp_path: Path) -> None:
    old = Transcript.create(tmp_path, "old", "/old")
    old.append({"t": "user", "blocks": [{"type": "text", "text": "hello"}]})
    old.close()
    with (tmp_path / "old.jsonl").open("ab") as file:
        file.write(b'{"t": "text", "d": "cut')
    forked = Transcript.fork(tmp_path, "old", "new", "/new")
    forked.append({"t": "text", "d": "hi"})
    forked.close()
    lines = [json.loads(line) for line in (tmp_path / "new.jsonl").read_text().splitlines()]
    assert lines[0] == {"t": "session", "v": 1, "id": "new", "cwd": "/new"}
    assert [line["t"] for line in lines] == ["session", "user", "text"]
    assert Transcript.load(tmp_path, "new").history.replay() == forked.history.replay()
    assert {(each.id, each.cwd) for each in list_sessions(tmp_path)} == {
        ("old", "/old"),
        ("new", "/new"),
    }
    assert (tmp_path / "new.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("session_id", ["nobody", "../old"])
def test_a_copy_of_nothing_leaves_nothing(tmp_path: Path, session_id: str) -> None:
    with pytest.raises(UnknownSession):
        Transcript.fork(tmp_path, session_id, "new", "/new")
    assert list(tmp_path.iterdir()) == []


def test_a_copy_that_can_not_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Transcript.create(tmp_path, "old", "/old")
    old.append({"t": "user", "blocks": []})
    old.close()
    appended = Transcript.append

    def full(self: Transcript, record: Message) -> None:
        if record["t"] == "user":
            raise OSError("the disk is full")
        appended(self, record)

    monkeypatch.setattr(Transcript, "append", full)
    with pytest.raises(OSError, match="full"):
        Transcript.fork(tmp_path, "old", "new", "/new")
    assert [path.name for path in tmp_path.iterdir()] == ["old.jsonl"]
