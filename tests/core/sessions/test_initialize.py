"""What `initialize` names, in a bridge without features."""

from pathlib import Path

from acp_bridge.core.protocol import ASK, CAN_STEER, GO, HOLD, QUEUE_CHANGES, QUEUE_LIST, TITLE
from tests.core.sessions.agent import Agent
from tests.core.sessions.bench import HELLO, bench

#: the parameters of every method of our own.
EVERYTHING = {
    "question": "why?",
    "title": "a",
    "number": 1,
    "seq": 1,
    "to": 1,
    "position": 1,
    "id": "1",
    "prompt": [{"type": "text", "text": "a"}],
}


async def test_no_method_is_named_that_nothing_in_the_bridge_answers(tmp_path: Path) -> None:
    (agent := Agent()).script["initialize"]["_meta"] = {**CAN_STEER, "kept": 1}
    async with bench(tmp_path, agent, initialized=False) as it:
        told = await it.editor.ask("initialize", HELLO)
        assert told["agentCapabilities"]["_meta"]["acp_bridge"]["methods"] == [HOLD, GO]
        assert told["_meta"] == {"kept": 1}
        session = {"sessionId": await it.new(), **EVERYTHING}
        for method in (ASK, TITLE, QUEUE_LIST, *QUEUE_CHANGES):
            assert (await it.editor.refused(method, session)).code == -32601
        assert await it.editor.ask(HOLD, {"sessionId": session["sessionId"]}) == {"state": "held"}
