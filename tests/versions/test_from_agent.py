"""What an agent of version 2 says reaches its session."""

from pathlib import Path

import pytest

from acp_bridge.core.protocol import (
    SAID_UPDATE,
    SESSION_RESUME,
    TOOL_CALL,
)
from acp_bridge.core.wire.jsonrpc import encode
from acp_bridge.versions.translated import Translated
from tests.core.session.journals import recorded
from tests.core.session.living import (
    first,
    living,
)
from tests.core.session.memory import ClientEnd
from tests.core.session.test_from_agent import update
from tests.core.session.turned_clock import TurnedClock

pytestmark = pytest.mark.usefixtures("no_errors")


@pytest.mark.hazard("T3", "X1.8")
async def test_what_version_1_can_not_say_of_an_update_is_recorded_beside_it_for_version_2(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        newer = ClientEnd({"_meta": {"acp_bridge": {"said": True}}})
        here.session.transcript.attach(newer.client)
        agent.connection.translated = wire = Translated(agent.peer, lambda line: None, lambda: None)
        given = {"sessionId": "0", "cwd": "/w", "mcpServers": []}
        wire.send(encode({"jsonrpc": "2.0", "id": 9, "method": SESSION_RESUME, "params": given}))
        own = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "pending", "_x": 1}
        wire.feed(encode({"jsonrpc": "2.0", **update(own)}))
        kept = [params["update"] for params in await recorded(here.journal)]
        assert [each["sessionUpdate"] for each in kept] == [TOOL_CALL, SAID_UPDATE]
        assert kept[1]["said"] == own
        assert here.updates() == kept[:1]
        piece = {"type": "content", "content": {"type": "text", "text": "a line"}}
        chunk = {"sessionUpdate": "tool_call_content_chunk", "toolCallId": "t", "content": piece}
        wire.feed(encode({"jsonrpc": "2.0", **update(chunk)}))
        told = [each["params"]["update"] for each in newer.sent.messages]
        assert told[:2] == kept
        assert told[2] == {"sessionUpdate": SAID_UPDATE, "said": chunk}


@pytest.mark.hazard("T2.6")
async def test_an_output_that_grows_is_kept_once_and_pieces_of_one_are_all_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TurnedClock(monkeypatch)
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        agent.connection.translated = wire = Translated(agent.peer, lambda line: None, lambda: None)
        given = {"sessionId": "0", "cwd": "/w", "mcpServers": []}
        wire.send(encode({"jsonrpc": "2.0", "id": 9, "method": SESSION_RESUME, "params": given}))

        def says(kind: str, **members: object) -> None:
            own = {"sessionUpdate": kind, "toolCallId": "t", **members}
            wire.feed(encode({"jsonrpc": "2.0", **update(own)}))

        def block(text: str) -> object:
            return {"type": "content", "content": {"type": "text", "text": text}}

        says("tool_call_update", title="make")
        for text in ("a", "ab", "abc"):
            says("tool_call_update", content=[block(text)])
        assert len(here.updates()) == 4
        for text in ("d", "e"):
            says("tool_call_content_chunk", content=block(text))
        here.session.transcript.flush()
        kept = [params["update"] for params in await recorded(here.journal)]
        texts = [
            "".join(each["content"]["text"] for each in update["content"])
            for update in kept
            if update["sessionUpdate"] == "tool_call_update"
        ]
        assert texts == ["abc", "abcde"]
        said = [each["said"] for each in kept if each["sessionUpdate"] == SAID_UPDATE]
        assert [each["content"] for each in said] == [block("de")]
