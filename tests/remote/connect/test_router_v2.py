"""Sessions of editors of version 2 that are on another machine; the test plays both machines."""

from collections.abc import Iterator
from typing import Any

import pytest

from acp_bridge.remote.connect.machine import Machine
from acp_bridge.remote.connect.router import At, Place, Router
from acp_bridge.remote.connect.way_out import ToEditor, ToServer
from tests.remote.connect.model import CAPABILITIES

pytestmark = pytest.mark.hazard("N2", "X3")
A, B = (Place(f"https://{name}.example", name) for name in "ab")
INFO = {"name": "e", "version": "1"}
WORDS = [{"type": "text", "text": "do it"}]
WHOLE = {"sessionId": "s0", "cwd": "/w", "replayFrom": {"type": "start"}}


class Editor:
    """An editor of version 2 with a session at the first place, in which its prompt runs."""

    def __init__(self) -> None:
        def make(name: str, questions: Iterator[int]) -> Machine:
            return Machine("the name", name, lambda: "key 1", questions)

        self.router = Router(A, make, lambda address: Place(address, address[8:9]))
        self.to: dict[Place, list[Any]] = {A: [], B: []}
        self.got: list[Any] = []
        self.do(self.router.line_up(A))
        hello = {"protocolVersion": 2, "capabilities": {}, "info": INFO}
        self.says("initialize", hello, 0)
        self.greets(A)
        self.says("session/new", {"cwd": "/w", "mcpServers": []}, 1)
        self.answers(A, {"sessionId": "s0"})
        self.says("session/prompt", {"sessionId": "s0", "prompt": WORDS}, 2)
        self.answers(A, {"messageId": "m1"})

    def do(self, steps: list[Any]) -> None:
        for step in steps:
            match step:
                case ToEditor(message):
                    self.got.append(message)
                case At(place, ToServer(message)):
                    self.to[place].append(message)

    def says(self, method: str, params: Any, id: int) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params, "id": id}
        self.do(self.router.from_editor(message))

    def greets(self, place: Place) -> None:
        self.answers(place, {"protocolVersion": 2, "capabilities": CAPABILITIES, "info": INFO})

    def answers(self, place: Place, result: Any) -> None:
        self._answers(place, {"result": result})

    def refers(self, place: Place, there: Place) -> None:
        data = {"reason": "elsewhere", "machine": there.name, "address": there.url}
        self._answers(place, {"error": {"code": -32600, "message": "there", "data": data}})

    def _answers(self, place: Place, answer: Any) -> None:
        asked = self.to[place].pop(0)
        self.do(self.router.from_server(place, {"jsonrpc": "2.0", "id": asked["id"], **answer}))

    def moves(self) -> None:
        """Its machine is started again, and says that the other one has the session."""
        self.do(self.router.line_down(A))
        self.do(self.router.line_up(A))
        self.greets(A)
        self.refers(A, B)
        self.do(self.router.line_up(B))
        self.greets(B)

    def ends(self) -> list[Any]:
        updates = [each["params"]["update"] for each in self.got if "params" in each]
        return [each for each in updates if each.get("stopReason")]


def ended(reason: str) -> Any:
    return {"_meta": {"acp_bridge": {"state": {"last": {"promptId": "m1", "stopReason": reason}}}}}


def test_a_turn_that_ended_while_its_session_moved_is_told_to_have_ended() -> None:
    editor = Editor()
    editor.moves()
    assert editor.to[B][0]["method"] == "session/resume"
    editor.answers(B, ended("max_tokens"))
    assert [each["stopReason"] for each in editor.ends()] == ["max_tokens"]


def test_a_turn_that_began_elsewhere_is_told_to_have_ended_where_the_session_is_found() -> None:
    editor = Editor()
    editor.moves()
    editor.answers(B, {"_meta": {"acp_bridge": {"state": {"turn": {"promptId": "m1"}}}}})
    assert editor.ends() == []
    editor.do(editor.router.line_down(B))
    editor.says("session/resume", WHOLE, 3)
    editor.answers(A, ended("refusal"))
    assert editor.got[-2] == {"jsonrpc": "2.0", "id": 3, "result": ended("refusal")}
    assert [each["stopReason"] for each in editor.ends()] == ["refusal"]
    editor.says("session/prompt", {"sessionId": "s0", "prompt": WORDS}, 4)
    assert [each["id"] for each in editor.to[A]] == [4]


@pytest.mark.hazard("N2.21")
def test_a_prompt_is_sent_again_where_the_session_has_moved_under_the_same_key() -> None:
    editor = Editor()
    editor.says("session/prompt", {"sessionId": "s0", "prompt": WORDS}, 5)
    (first,) = editor.to[A]
    editor.to[A].clear()
    editor.moves()
    editor.answers(B, {})
    assert editor.to[B] == [first]
    editor.answers(B, {"messageId": "m2"})
    assert editor.got[-1] == {"jsonrpc": "2.0", "id": 5, "result": {"messageId": "m2"}}


def test_a_turn_that_runs_on_where_a_load_finds_its_session_has_not_ended() -> None:
    editor = Editor()
    editor.to[A].clear()
    for id, session_id in ((3, "s1"), (4, "s0")):
        editor.says("session/resume", {**WHOLE, "sessionId": session_id}, id)
        editor.refers(A, B)
        if id == 3:
            editor.do(editor.router.line_up(B))
            editor.greets(B)
            editor.answers(B, {})
    editor.answers(B, {"_meta": {"acp_bridge": {"state": {"turn": {"promptId": "m1"}}}}})
    assert editor.ends() == []


@pytest.mark.parametrize("lost", [False, True])
def test_a_turn_that_has_ended_where_a_load_finds_its_session_is_told_to(lost: bool) -> None:
    editor = Editor()
    editor.to[A].clear()
    editor.says("session/resume", WHOLE, 3)
    editor.refers(A, B)
    for _ in range(2 if lost else 1):
        editor.to[B].clear()
        editor.do(editor.router.line_down(B))
        editor.do(editor.router.line_up(B))
        editor.greets(B)
    assert editor.ends() == []
    editor.answers(B, ended("refusal"))
    assert [each["stopReason"] for each in editor.ends()] == ["refusal"]


def test_a_turn_whose_session_is_back_before_its_load_is_answered_is_told_to_have_ended() -> None:
    editor = Editor()
    editor.to[A].clear()
    editor.says("session/resume", WHOLE, 3)
    editor.refers(A, B)
    for refers in (False, True):
        editor.to[B].clear()
        editor.do(editor.router.line_down(B))
        editor.do(editor.router.line_up(B))
        editor.greets(B)
        if refers:
            editor.refers(B, A)
    editor.answers(A, ended("refusal"))
    assert [each["stopReason"] for each in editor.ends()] == ["refusal"]


@pytest.mark.parametrize("how", ["refused", "given up", "unreached"])
def test_a_turn_of_a_session_that_is_not_found_where_its_load_was_followed_to_ends(
    how: str,
) -> None:
    editor = Editor()
    editor.to[A].clear()
    editor.says("session/resume", WHOLE, 3)
    editor.refers(A, B)
    if how != "unreached":
        editor.do(editor.router.line_up(B))
        editor.greets(B)
    if how == "refused":
        editor._answers(B, {"error": {"code": -32603, "message": "no"}})
    elif how == "unreached":
        editor.do(editor.router.unreached(B, "no"))
    else:
        told = {"method": "$/cancel_request", "params": {"requestId": 3}}
        editor.do(editor.router.from_editor({"jsonrpc": "2.0", **told}))
        editor.do(editor.router.line_down(B))
    assert "error" in next(each for each in editor.got if each.get("id") == 3)
    assert [each["stopReason"] for each in editor.ends()] == ["end_turn"]
