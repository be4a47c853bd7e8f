"""Single cases of a line that drops."""

from typing import Any

import pytest

from acp_bridge.core.protocol import own_meta
from acp_bridge.remote.connect.machine import Machine
from acp_bridge.remote.connect.way_out import HangUp, ToEditor, ToServer
from tests.remote.connect.model import CAPABILITIES, Transcript, World
from tests.remote.connect.test_machine import greeted

WORDS = [{"type": "text", "text": "do it"}]


def opened() -> World:
    world = greeted()
    world.send("session/new", {"cwd": "/w", "mcpServers": []})
    world.settle()
    return world


def prompt(world: World, text: str = "do it") -> int:
    block = {"type": "text", "text": text}
    return world.send("session/prompt", {"sessionId": "s0", "prompt": [block]})


def working(words: int) -> tuple[World, Transcript]:
    """A session in whose turn the agent has said so many words, all of which are shown."""
    world = opened()
    prompt(world)
    world.settle()
    session = world.server.sessions["s0"]
    for _ in range(words):
        world.server.step(session, 0)
    world.collect()
    world.settle()
    return world, session


def notices(world: World) -> list[str]:
    return [
        message["params"]["update"]["content"]["text"].strip()
        for message in world.got
        if message.get("method") == "session/update" and own_meta(message["params"]).get("notice")
    ]


def error(world: World, id: int) -> str:
    return str(world.answered[id]["error"]["message"])


def test_a_new_session_whose_answer_is_lost_is_an_error_and_is_not_made_again() -> None:
    world = greeted()
    asked = world.send("session/new", {"cwd": "/w", "mcpServers": []})
    world.server_reads()
    world.cut()
    assert "this may have been done, and is not sent again" in error(world, asked)
    world.connect()
    world.settle()
    assert len(world.server.sessions) == 1


def test_a_new_session_that_was_never_sent_waits_for_a_line_and_not_without_end() -> None:
    world = greeted()
    world.cut()
    first = world.send("session/new", {"cwd": "/w", "mcpServers": []})
    world.connect()
    world.settle()
    assert world.answered[first]["result"] == {"sessionId": "s0"}
    world.cut()
    second = world.send("session/new", {"cwd": "/w", "mcpServers": []})
    world._do(world.machine.wait_no_more())
    third = world.send("session/new", {"cwd": "/w", "mcpServers": []})
    assert "there is no line to host" in error(world, second)
    assert "there is no line to host" in error(world, third)


@pytest.mark.hazard("N2.18")
def test_a_stop_for_a_prompt_that_was_never_sent_answers_it_here() -> None:
    world = opened()
    world.cut()
    asked = prompt(world)
    world.notify("session/cancel", {"sessionId": "s0"})
    assert world.answered[asked]["result"] == {"stopReason": "cancelled"}
    world.connect()
    world.settle()
    assert world.server.sessions["s0"].prompts == []


@pytest.mark.hazard("N2.18")
def test_a_stop_said_while_no_prompt_is_open_and_no_line_is_there_reaches_nobody() -> None:
    world = opened()
    world.cut()
    world.notify("session/cancel", {"sessionId": "s0"})
    world.connect()
    assert "session/cancel" not in str(world.to_server)
    world.settle()
    assert "session/cancel" not in str(world.to_server)


@pytest.mark.hazard("N2")
def test_a_command_about_what_runs_now_is_not_kept_for_later() -> None:
    world = opened()
    world.cut()
    asked = [prompt(world, "/queue stop"), world.send("_acp_bridge/cancel", {"sessionId": "s0"})]
    for each in asked:
        assert "there is no line to host" in error(world, each)


def test_five_seconds_without_a_line_are_said_once_and_so_is_its_return() -> None:
    world = opened()
    for _ in range(2):
        world.cut()
        world._do(world.machine.is_down_for_long())
        world._do(world.machine.is_down_for_long())
        world.connect()
        world.cut()
        world.connect()
        world.settle()
    down, back = "[acp-bridge] The line to host is down.", "[acp-bridge] The line to host is back."
    assert [each[: len(down)] for each in notices(world)] == [down, back, down, back]


def test_an_answer_to_initialize_that_has_changed_is_said_once() -> None:
    world = opened()
    info = {"agentInfo": {"name": "another"}}
    for _ in range(2):
        world.cut()
        world.connect()
        world.server_reads()
        world.to_machine[0]["result"].update(info)
        world.settle()
    (said,) = notices(world)
    assert "What answers at host is not what it was: agentInfo differ" in said


def test_an_initialize_that_is_refused_on_another_connection_ends_that_connection() -> None:
    world = opened()
    world.cut()
    world.connect()
    asked = world.to_server.popleft()
    refusal = {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32600, "message": "no"}}
    assert world.machine.from_server(refusal) == [HangUp("initialize was refused: no")]


@pytest.mark.hazard("N2.14", "N2.15")
def test_a_cursor_that_is_refused_has_what_was_not_shown_shown_from_the_middle_of_a_chunk() -> None:
    world, session = working(3)
    world.cut()
    world.server.step(session, 0)
    world.server.refuses_cursors = True
    world.connect()
    world.settle()
    assert world.texts("s0") == session.entries[-1][1]
    assert world.shown["s0"][-1][1] == "<2.10>"
    assert notices(world) == []


@pytest.mark.hazard("N2")
def test_of_a_session_whose_holder_knows_no_cursors_what_was_shown_is_not_shown_again() -> None:
    world = opened()
    prompt(world)
    world.settle()
    session = world.server.sessions["s0"]
    for _ in range(3):
        world.server.step(session, 0)
    world.collect()
    for message in world.to_machine:
        message["params"].pop("_meta", None)
    world.settle()
    shown = world.texts("s0")
    world.cut()
    world.server.step(session, 0)
    world.connect()
    world.settle()
    assert len(world.texts("s0")) > len(shown)
    assert world.texts("s0") == session.entries[-1][1]


@pytest.mark.hazard("N2")
def test_a_load_that_is_cut_off_behind_what_happened_before_it_shows_the_whole() -> None:
    world = opened()
    prompt(world)
    world.settle()
    session = world.server.sessions["s0"]
    world.server.step(session, 0)
    world.server.step(session, 0)
    world.collect()
    asked = world.send("session/load", {"sessionId": "s0", "cwd": "/w", "mcpServers": []})
    while world.to_machine:
        world.machine_reads()
    since = len(world.shown["s0"])
    world.cut()
    world.server.step(session, 0)
    world.connect()
    world.settle()
    assert "result" in world.answered[asked]
    assert world.shown["s0"][since:] == session.entries


@pytest.mark.hazard("N2")
@pytest.mark.parametrize("others", [0, 1])
def test_a_second_load_that_is_cut_off_shows_the_whole_once(others: int) -> None:
    """In its replay, or behind words of others that were on their way."""
    world = greeted()
    entries = [("user_message_chunk", "do it"), ("agent_message_chunk", "done")]
    world.server.sessions["s0"] = Transcript(entries)
    for count in (2, 1):  # all is read of the first replay, and one update of the second
        world.shown.clear()
        world.send("session/load", {"sessionId": "s0", "cwd": "/w", "mcpServers": []})
        if others and count == 1:
            world.server._show("s0", "user_message_chunk", "of others", "9:9")
            world.collect()
        else:
            world.server_reads()
        which = "another" if others and count == 1 else "the first"
        own_meta(world.to_machine[0]["params"])["promptId"] = which
        for _ in range(count):
            world.machine_reads()
        if count == 2:
            world.settle()
    world.cut()
    world.connect()
    world.settle()
    assert world.shown["s0"][others:] == entries


@pytest.mark.hazard("N2")
def test_what_the_bridge_has_recorded_twice_is_shown_twice_over_a_line_that_dropped() -> None:
    world, _ = working(2)
    for cursor in ("1:1", "1:2", None, None):
        own = {"notice": True, **({"cursor": cursor} if cursor else {})}
        text = "recorded" if cursor else "not recorded"
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
        params = {"sessionId": "s0", "update": update, "_meta": {"acp_bridge": own}}
        world.cut()
        world.connect()
        world.server_reads()
        world.machine_reads()
        shown = {"jsonrpc": "2.0", "method": "session/update", "params": params}
        world._do(world.machine.from_server(shown))
        world.settle()
    assert notices(world) == ["recorded", "recorded", "not recorded"]


def test_a_transcript_that_does_not_go_on_what_was_shown_is_said_to_be_another() -> None:
    world, session = working(3)
    world.cut()
    session.entries[-1] = ("agent_message_chunk", "something else, and longer")
    world.server.refuses_cursors = True
    world.connect()
    world.settle()
    (said,) = notices(world)
    assert "not what the session holds now: load this session again" in said


def test_a_session_that_is_not_there_any_more_is_said_and_its_prompt_is_answered() -> None:
    world = opened()
    asked = prompt(world)
    world.settle()
    world.cut()
    world.connect()
    world.server_reads()
    world.machine_reads()
    resume = world.to_server.popleft()
    gone = {"jsonrpc": "2.0", "id": resume["id"], "error": {"code": -32002, "message": "unknown"}}
    world._do(world.machine.from_server(gone))
    assert "host does not show this session any more: unknown" in notices(world)[0]
    again = world.to_server.popleft()
    world._do(world.machine.from_server({**gone, "id": again["id"]}))
    assert world.answered[asked]["error"]["code"] == -32002


def test_a_request_that_is_given_up_while_the_line_is_down_is_answered_at_once() -> None:
    world = opened()
    world.cut()
    listed, asked = world.send("session/list", {}), prompt(world)
    for each in (listed, asked):
        world.notify("$/cancel_request", {"requestId": each})
        assert world.answered[each]["error"]["code"] == -32800


def test_a_prompt_that_was_sent_and_is_given_up_is_given_up_there() -> None:
    world = opened()
    asked = prompt(world)
    world.settle()
    world.cut()
    world.notify("$/cancel_request", {"requestId": asked})
    world.connect()
    seen = []
    while world.to_server or world.to_machine:
        seen += [message["method"] for message in world.to_server]
        world.to_server = type(world.to_server)(
            each for each in world.to_server if each["method"] != "$/cancel_request"
        )
        world.server_reads()
        world.machine_reads()
    assert seen[-2:] == ["session/prompt", "$/cancel_request"]


def question(id: int, title: str, **own: Any) -> Any:
    meta = {"acp_bridge": {"question": "q", **own}}
    params = {"sessionId": "s0", "toolCall": {"toolCallId": "t", "title": title}, "_meta": meta}
    return {"jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": params}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.hazard("V9.8", "N2")
def test_a_yes_to_what_was_shown_before_is_none_to_what_is_asked_now(*, whole: bool) -> None:
    world = World()
    world.connect()
    able = {"_meta": {"acp_bridge": {"wholeCalls": True}}} if whole else {}
    world.send("initialize", {"protocolVersion": 1, "clientCapabilities": able})
    world.settle()
    world.send("session/new", {"cwd": "/w", "mcpServers": []})
    world.settle()
    world._do(world.machine.from_server(question(1, "ls")))
    world.cut()
    (dialog,) = world.dialogs
    world._do(world.machine.from_editor({"jsonrpc": "2.0", "id": dialog, "result": {"yes": 1}}))
    del world.dialogs[dialog]
    world.asked.clear()
    world.connect()
    for _ in range(2):  # it comes right behind the answer that opens the session again
        world.server_reads()
        world.machine_reads()
    world._do(world.machine.from_server(question(1, "rm")))
    if whole:
        assert len(world.dialogs) == 1
        assert [each for each in world.to_server if "result" in each] == []
    else:
        assert not world.dialogs
        assert world.to_server.pop() == {"jsonrpc": "2.0", "id": 1, "result": {"yes": 1}}


def test_a_dialog_is_withdrawn_when_the_other_end_withdraws_its_question() -> None:
    world = opened()
    world._do(world.machine.from_server(question(7, "ls")))
    told = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 7}}
    world._do(world.machine.from_server(told))
    assert world.got[-1]["method"] == "$/cancel_request"
    assert world.got[-1]["params"]["requestId"] == world.got[-2]["id"]


# --- version 2


class Second:
    """An editor of version 2, whose other end the test plays."""

    def __init__(self, **own: bool) -> None:
        self.machine = Machine("the name", "host", lambda: "key 1")
        self.to_server: list[Any] = []
        self.got: list[Any] = []
        self.do(self.machine.line_up())
        info = {"name": "e", "version": "1"}
        able = {"_meta": {"acp_bridge": own}}
        params = {"protocolVersion": 2, "capabilities": able, "info": info}
        self.says("initialize", params, id=0)
        self.greets()
        self.says("session/new", {"cwd": "/w", "mcpServers": []}, id=1)
        self.answers({"sessionId": "s0"})

    def do(self, actions: list[Any]) -> None:
        self.to_server += [each.message for each in actions if isinstance(each, ToServer)]
        self.got += [each.message for each in actions if isinstance(each, ToEditor)]

    def says(self, method: str, params: Any, **more: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params, **more}
        self.do(self.machine.from_editor(message))

    def greets(self) -> None:
        info = {"name": "a", "version": "1"}
        self.answers({"protocolVersion": 2, "capabilities": CAPABILITIES, "info": info})

    def answers(self, result: Any) -> Any:
        asked = self.to_server.pop(0)
        told = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
        self.do(self.machine.from_server(told))
        return asked

    def update(self, **update: Any) -> None:
        own = {"acp_bridge": {"cursor": update.pop("cursor")}} if "cursor" in update else {}
        params = {"sessionId": "s0", "update": update, "_meta": own}
        told = {"jsonrpc": "2.0", "method": "session/update", "params": params}
        self.do(self.machine.from_server(told))

    def states(self) -> list[str]:
        updates = [each["params"]["update"] for each in self.got if "params" in each]
        states = [each for each in updates if each["sessionUpdate"] == "state_update"]
        return [f"{each['state']}/{each.get('stopReason', '')}" for each in states]


def running() -> Second:
    here = Second()
    here.says("session/prompt", {"sessionId": "s0", "prompt": WORDS}, id=2)
    here.update(sessionUpdate="state_update", state="running")
    sent = here.answers({"messageId": "m1"})
    assert sent["params"]["idempotencyKey"] == "key 1"
    here.update(sessionUpdate="agent_message_chunk", messageId="a", cursor="c5")
    here.do(here.machine.line_down())
    return here


def test_the_end_of_a_turn_of_version_2_that_was_missed_is_told() -> None:
    here = running()
    here.do(here.machine.line_up())
    here.greets()
    here.update(sessionUpdate="state_update", state="idle")
    own = {"state": {"state": "idle", "last": {"promptId": "m1", "stopReason": "max_tokens"}}}
    resumed = here.answers({"_meta": {"acp_bridge": own}})
    assert resumed["method"] == "session/resume"
    assert resumed["params"]["replayFrom"] == {"type": "_acp_bridge_after", "cursor": "c5"}
    assert here.states() == ["running/", "idle/max_tokens", "idle/"]
    assert here.to_server == []


def test_a_stop_for_a_turn_of_version_2_follows_only_while_that_turn_runs() -> None:
    for runs in (True, False):
        here = running()
        here.says("session/cancel", {"sessionId": "s0"})
        here.do(here.machine.line_up())
        here.greets()
        state = {"turn": {"promptId": "m1"}} if runs else {"last": {"promptId": "m1"}}
        here.answers({"_meta": {"acp_bridge": {"state": state}}})
        stops = [each for each in here.to_server if each["method"] == "session/cancel"]
        assert [own_meta(each["params"]) for each in stops] == [{"promptKey": "key 1"}] * runs


def accepted(here: Second, id: int, turn: str, **more: bool) -> None:
    params = {"sessionId": "s0", "requestId": id, "promptId": turn, **more}
    told = {"jsonrpc": "2.0", "method": "_acp_bridge/accepted", "params": params}
    here.do(here.machine.from_server(told))


def test_of_two_prompts_of_version_2_whose_beginnings_were_missed_the_ended_one_ends() -> None:
    here = Second()
    for id in (2, 3):
        here.says("session/prompt", {"sessionId": "s0", "prompt": WORDS}, id=id)
    here.update(sessionUpdate="agent_message_chunk", messageId="a", cursor="c5")
    here.do(here.machine.line_down())
    here.to_server.clear()
    here.do(here.machine.line_up())
    here.greets()
    here.update(sessionUpdate="state_update", state="running")
    last = {"promptId": "m1", "stopReason": "refusal"}
    own = {"state": {"state": "running", "turn": {"promptId": "m2"}, "last": last}}
    here.answers({"_meta": {"acp_bridge": own}})
    accepted(here, 2, "m1", ended=True, begun=True)
    here.answers({"messageId": "m1"})
    accepted(here, 3, "m2")
    here.answers({"messageId": "m2"})
    here.update(sessionUpdate="state_update", state="idle", stopReason="end_turn")
    assert here.states() == ["running/", "idle/refusal", "running/", "idle/end_turn"]
    assert "_acp_bridge/accepted" not in str(here.got)


def test_words_of_version_2_that_were_shown_whole_are_not_shown_again_in_pieces() -> None:
    here = running()
    here.do(here.machine.line_up())
    here.update(sessionUpdate="user_message", messageId="whole", content=WORDS)
    here.do(here.machine.line_down())
    here.to_server.clear()
    here.do(here.machine.line_up())
    here.greets()
    for message in ("whole", "others"):
        here.update(
            sessionUpdate="user_message_chunk", messageId=message, content=WORDS[0], cursor="c9"
        )
    here.update(sessionUpdate="replay_complete")
    here.answers({})
    kinds = [each["params"]["update"] for each in here.got if "params" in each]
    assert [each["messageId"] for each in kinds if "user" in each["sessionUpdate"]] == [
        "whole",
        "others",
    ]
    assert "replay_complete" not in str(kinds)


# --- odd messages

ODD: tuple[Any, ...] = (
    None,
    1,
    "text",
    [],
    [1],
    {},
    {"_meta": 1},
    {"sessionId": 3},
    {"update": []},
    {"_meta": {}},
)
OF_EDITOR = ("session/prompt", "session/load", "session/new", "session/cancel", "$/cancel_request")
OF_SERVER = (
    *("session/update", "session/request_permission", "$/cancel_request"),
    *("_acp_bridge/accepted", "_acp_bridge/state", "_acp_bridge/let_go"),
)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("odd", ODD, ids=str)
def test_an_odd_message_of_either_side_raises_nothing_here(version: int, odd: Any) -> None:
    here = Second() if version == 2 else None
    machine = here.machine if here else opened().machine
    for id in ({}, {"id": None}, {"id": 1.5}, {"id": "x"}):
        for method in OF_EDITOR:
            for session in ({}, {"sessionId": "s0"}):
                params = {**odd, **session} if isinstance(odd, dict) else odd
                machine.from_editor({"method": method, "params": params, **id})
        for method in OF_SERVER:
            for session in ({}, {"sessionId": "s0"}):
                params = {**odd, **session} if isinstance(odd, dict) else odd
                machine.from_server({"method": method, "params": params, **id})
        for answer in ({"result": odd}, {"error": odd}):
            machine.from_editor({**id, **answer})
            machine.from_server({**id, **answer})
    machine.line_down()
    (greeting,) = [each for each in machine.line_up() if isinstance(each, ToServer)]
    machine.from_server({"id": greeting.message["id"], "result": odd})
    machine.line_down()
    machine.end("why")


def test_a_whole_resume_of_version_2_that_was_cut_before_its_first_word_is_asked_for_again() -> (
    None
):
    here = Second()
    start = {"sessionId": "s9", "cwd": "/w", "replayFrom": {"type": "start"}}
    here.says("session/resume", start, id=7)
    here.do(here.machine.line_down())
    here.to_server.clear()
    here.do(here.machine.line_up())
    here.greets()
    (again,) = [each for each in here.to_server if each["params"]["sessionId"] == "s9"]
    assert again["params"] == start
    while here.to_server[0] is not again:
        here.answers({})
    here.answers({"configOptions": []})
    assert here.got[-1] == {"jsonrpc": "2.0", "id": 7, "result": {"configOptions": []}}


def test_an_editor_is_told_once_that_a_prompt_is_accepted_that_is_sent_again() -> None:
    here = Second(accepted=True)
    here.says("session/prompt", {"sessionId": "s0", "prompt": WORDS}, id=2)
    for _ in range(2):
        accepted(here, 2, "m1")
        here.do(here.machine.line_down())
        here.do(here.machine.line_up())
    assert str(here.got).count("_acp_bridge/accepted") == 1


def test_when_initialize_was_refused_the_other_end_says_what_is_wrong_with_the_rest() -> None:
    machine = Machine("the name", "host", lambda: "key 1")
    machine.line_up()
    machine.from_editor(asks("initialize", 0))
    machine.from_editor(asks("session/list", 1))
    failed = {"jsonrpc": "2.0", "id": 0, "error": {"code": -32603, "message": "no agent"}}
    waited = machine.from_server(failed)
    later = machine.from_editor(asks("session/list", 2))
    sent = [each.message["id"] for each in (*waited, *later) if isinstance(each, ToServer)]
    assert sent == [1, 2]


def asks(method: str, id: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {"protocolVersion": 1}}
