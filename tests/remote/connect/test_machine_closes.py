"""A session that is closed, and perhaps loaded at once, while the line drops."""

from typing import Any

import pytest

from tests.remote.connect.model import CAPABILITIES
from tests.remote.connect.test_machine_cases import opened, prompt, working


def test_a_close_that_may_have_been_done_is_sent_again_and_done() -> None:
    world = opened()
    asked = world.send("session/close", {"sessionId": "s0"})
    world.cut()
    world.connect()
    sent = []
    for answer in ({"protocolVersion": 1, "agentCapabilities": CAPABILITIES}, {}, None):
        message = world.to_server.popleft()
        sent.append(message["method"])
        told: Any = {"result": answer} if answer is not None else {"error": {"code": -32002}}
        world._do(world.machine.from_server({"jsonrpc": "2.0", "id": message["id"], **told}))
    assert sent == ["initialize", "session/load", "session/close"]
    assert world.answered[asked]["result"] == {}


@pytest.mark.hazard("N2")
def test_a_session_that_is_closed_and_loaded_at_once_is_opened_again_on_another_line() -> None:
    world, session = working(2)
    world.send("session/close", {"sessionId": "s0"})
    world.send("session/load", {"sessionId": "s0", "cwd": "/w", "mcpServers": []})
    since = len(world.shown["s0"])
    world.settle()
    prompt(world, "the next")
    world.settle()
    world.cut()
    world.server.step(session, 0)
    world.connect()
    world.settle()
    assert world.server.has == {"s0"}
    assert world.shown["s0"][since][0] == "user_message_chunk"
    assert "".join(text for _, text in world.shown["s0"][since + 1 :]) == session.entries[-1][1]


@pytest.mark.hazard("N2")
@pytest.mark.parametrize("reads", [0, 1, 2])
def test_a_load_behind_a_close_stays_behind_it_on_another_line(reads: int) -> None:
    world, session = working(2)
    close = world.send("session/close", {"sessionId": "s0"})
    load = world.send("session/load", {"sessionId": "s0", "cwd": "/w", "mcpServers": []})
    since = len(world.shown["s0"])
    world.server.may_show_nothing = True
    for _ in range(reads):
        world.server_reads()
    world.cut()
    world.connect()
    world.settle()
    assert list(world.answered)[-2:] == [close, load]
    assert world.shown["s0"][since:] == session.entries
    prompt(world, "the next")
    world.settle()
    assert world.server.has == {"s0"}
