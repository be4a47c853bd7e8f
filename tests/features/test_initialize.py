"""What `initialize` names, in a bridge with all features."""

from pathlib import Path

import pytest

from acp_bridge.core.protocol import ASK, CAN_STEER, QUEUE_CHANGES, QUEUE_LIST, TITLE
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.sessions.agent import Agent
from tests.core.sessions.bench import HELLO, bench
from tests.core.sessions.test_initialize import EVERYTHING


@pytest.mark.parametrize("forks", [True, False])
async def test_each_method_that_is_named_is_answered_and_no_other(
    tmp_path: Path, *, forks: bool
) -> None:
    (agent := Agent(able={"fork": {}} if forks else {})).script["session/fork"] = {"sessionId": "f"}
    async with bench(tmp_path, agent, initialized=False) as it:
        told = await it.editor.ask("initialize", HELLO)
        named = told["agentCapabilities"]["_meta"]["acp_bridge"]["methods"]
        assert ({ASK, TITLE, QUEUE_LIST, *QUEUE_CHANGES} - {*named}) == (set() if forks else {ASK})
        assert told["_meta"] == CAN_STEER
        session = {"sessionId": await it.new(), **EVERYTHING}
        for method in {*named, ASK}:
            try:
                await it.editor.ask(method, session)
                answered = True
            except RpcError as error:
                answered = error.code != -32601
            assert answered == (method in named)
