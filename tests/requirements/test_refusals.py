"""What the client refuses is not done, in no mode and by no other way (invariant K8)."""

import pytest

from tests.requirements import subjects
from tests.requirements.subjects import BUILT_IN, START, Bench, Subject, each
from tests.support.client import RecordingClient
from tests.support.recording import Message, RpcError

pytestmark = [pytest.mark.process, pytest.mark.slow]

DIALOGUE = r"""
when: read
call: read_file {"path": "private.txt"}
---
text: {result}
when: write
call: write_file {"path": "made.txt", "content": "made"}
---
text: {result}
when: edit
call: edit_file {"path": "private.txt", "old": "secret", "new": "changed"}
---
text: {result}
when: run
call: shell {"command": "cp private.txt made.txt"}
---
text: {result}
"""
REASON = "the user keeps this private"


def refuses(params: Message) -> Message:
    raise RpcError(-32603, REASON)


async def set_mode(client: RecordingClient, mode: str) -> None:
    about = {"sessionId": client.session_id, "modeId": mode}
    await client.request("session/set_mode", about, within=START)


@pytest.mark.hazard("K8.1")
@each(BUILT_IN[:2])
async def test_a_read_a_write_and_a_command_that_the_client_refuses_are_not_done_another_way(
    bench: Bench, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subjects, "DIALOGUE", DIALOGUE)
    async with bench.start(subject) as client:
        private = bench.cwd / "private.txt"
        private.write_text("a secret\n")
        client.side.permission = "allow"
        for method in ("fs/read_text_file", "fs/write_text_file", "terminal/create"):
            client.side.handlers[method] = refuses
        await client.new_session(bench.cwd)
        for mode in ("ask", "plan", "edit", "auto"):
            await set_mode(client, mode)
            for prompt in ("read", "write", "edit", "run"):
                seen = client.mark()
                assert await client.prompt(prompt, within=START) == {"stopReason": "end_turn"}
                asked = {message.get("method") for message in client.recording.incoming(seen)}
                if mode != "plan" and client.side.handlers.keys() & asked:
                    assert REASON in client.text(since=seen)
                assert "a secret" not in str(client.updates(since=seen))
            assert private.read_text() == "a secret\n"
            assert not (bench.cwd / "made.txt").exists()
        asked = {message.get("method") for message in client.recording.incoming()}
        assert client.side.handlers.keys() <= asked
