"""What the translator in front of an agent of version 2 knows of its work, and ends of it."""

from typing import Any

import pytest

from acp_bridge.core.agents.activity import Activity, Piece
from tests.versions.agent_wire import Wire, result


def test_what_the_agent_does_is_known_by_its_last_state_and_its_last_list() -> None:
    wire = Wire()
    assert wire.end.activity("s") == Activity(runs=False, background=None)
    assert wire.end.activity("no") == wire.end.activity(None) == wire.end.activity("s")
    wire.state("running", background=[])
    assert wire.end.activity("s") == Activity(runs=True, background=())
    wire.says("tool_call_update", toolCallId="c", title="C", capabilities={"cancel": {}})
    wire.says("terminal_update", terminalId="t", command="sleep 9")
    listed: list[Any] = [
        {"type": "tool_call", "toolCallId": "c"},
        {"type": "terminal", "terminalId": "t"},
        {"type": "_odd", "id": 1},
    ]
    wire.state("_odd", background=listed)
    call = Piece("tool_call", "c", "C", True, calls=("c",))
    terminal = Piece("terminal", "t", "sleep 9", False)
    pieces = (call, terminal, Piece("_odd", "", "_odd", False))
    assert wire.end.activity("s") == Activity(runs=True, background=pieces)
    wire.state("idle")
    assert wire.end.activity("s") == Activity(runs=False, background=pieces)


def test_a_prompt_that_runs_is_no_work_of_the_agents_own() -> None:
    wire = Wire()
    prompt = wire.prompt()
    wire.state("running")
    assert not wire.end.activity("s").runs
    assert wire.state("idle") == [result(prompt, stopReason="end_turn")]
    assert not wire.end.activity("s").runs
    wire.state("running")
    assert wire.end.activity("s").runs


@pytest.mark.parametrize("item", [{"toolCallId": "c"}, {"terminalId": "t"}])
def test_one_piece_of_work_is_ended_if_the_agent_lets_it(item: dict[str, str]) -> None:
    wire = Wire()
    named = "tool_call" if "toolCallId" in item else "terminal"
    kind, method = f"{named}_update", f"{named}/cancel"
    asked = {"sessionId": "s", **item}
    for capabilities in (None, {"cancel": None}):
        wire.says(kind, capabilities=capabilities, **item)
        (refused,) = wire.request("_acp_bridge/cancel_item", asked).to_bridge
        assert isinstance(refused, dict)
        assert refused["error"]["code"] == -32602
    wire.says(kind, capabilities={"cancel": {}}, **item)
    told = wire.ask("_acp_bridge/cancel_item", asked)
    assert (told["method"], told["params"]) == (method, asked)
    assert wire.agent_answers(told["id"], {}) == [result(told["id"])]
