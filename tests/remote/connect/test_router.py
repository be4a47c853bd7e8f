"""A session that is on another machine: followed once, to where the user has logged in alone."""

from typing import Any

import pytest

from tests.remote.connect.model import Transcript
from tests.remote.connect.places import Far, Places, greeted, place
from tests.remote.connect.test_machine_cases import error, notices

pytestmark = pytest.mark.hazard("N2")
OPEN_B, LEAVE_B = "open b.example", "leave b.example"


def load(world: Places, name: str = "s0") -> int:
    asked = world.send("session/load", {"sessionId": name, "cwd": "/w", "mcpServers": []})
    world.settle()
    return asked


def prompt(world: Places, text: str = "do it", name: str = "s0") -> int:
    block = {"type": "text", "text": text}
    asked = world.send("session/prompt", {"sessionId": name, "prompt": [block]})
    world.settle()
    return asked


def new(world: Places) -> str:
    asked = world.send("session/new", {"cwd": "/w", "mcpServers": []})
    world.settle()
    return str(world.answered[asked]["result"]["sessionId"])


def happens(world: Places, server: Far, *steps: int, name: str = "s0") -> None:
    for step in steps:
        server.step(server.sessions[name], step)
        world.hears(server)
    world.settle()


def working_at_b(*logins: str) -> Places:
    """A session that the first server says to be at the other one, which has said two words."""
    world = greeted(*logins)
    new(world)
    world.a.sessions["s0"].entries += [("user_message_chunk", "x"), ("agent_message_chunk", "old")]
    world.send("session/close", {"sessionId": "s0"})
    world.settle()
    world.moves("s0", world.b)
    return world


def test_a_load_is_followed_to_the_machine_that_has_the_session_and_so_is_all_about_it() -> None:
    world = working_at_b()
    asked = load(world)
    assert "result" in world.answered[asked]
    assert world.texts("s0") == "old"
    answer = prompt(world)
    happens(world, world.b, 0, 0, 0, 6)
    assert world.answered[answer]["result"] == {"stopReason": "end_turn"}
    assert (world.a.runs, world.b.runs) == ([], ["do it"])
    new(world)
    assert list(world.a.sessions) == ["s0"]
    assert world.steps == [OPEN_B]


@pytest.mark.hazard("N1.15", "N1.16")
def test_without_a_login_nothing_is_sent_there_and_the_error_says_what_to_do() -> None:
    world = working_at_b("https://a.example")
    asked = load(world)
    assert error(world, asked) == "it is open there. To open it from here: log in at " + (
        world.b.address
    )
    data = world.answered[asked]["error"]["data"]
    assert data["details"] == error(world, asked)
    assert (world.steps, world.b.client, world.b.loads) == ([], "", 0)


def test_what_is_sent_right_behind_a_load_follows_it() -> None:
    world = working_at_b()
    asked = world.send("session/load", {"sessionId": "s0", "cwd": "/w", "mcpServers": []})
    behind = prompt(world)
    assert "result" in world.answered[asked]
    happens(world, world.b, 0, 0, 6)
    assert world.answered[behind]["result"] == {"stopReason": "end_turn"}
    assert world.b.runs == ["do it"]


def test_two_machines_that_each_name_the_other_are_asked_once_for_one_load() -> None:
    world = working_at_b()
    world.b.sessions.clear()
    asked = load(world)
    assert error(world, asked) == "it is open there"
    assert (world.a.loads, world.b.loads) == (1, 1)
    assert world.steps == [OPEN_B, LEAVE_B]
    load(world)
    assert (world.a.loads, world.b.loads) == (2, 2)


def test_a_server_that_names_itself_is_asked_once() -> None:
    world = working_at_b()
    world.a.refers = world.a
    assert error(world, load(world)) == "it is open there"
    assert (world.a.loads, world.steps) == (1, [])


def test_a_session_that_has_come_back_is_found_at_the_first_server_with_its_open_prompts() -> None:
    world = working_at_b()
    load(world)
    asked = prompt(world)
    happens(world, world.b, 0, 0)
    world.line_down(world.b)
    world.moves("s0", world.a)
    world.shown.clear()
    load(world)
    assert world.a.keys == world.b.keys
    happens(world, world.a, 0, 6)
    assert world.answered[asked]["result"] == {"stopReason": "end_turn"}
    said = world.a.sessions["s0"].entries
    assert world.texts("s0") == "".join(text for kind, text in said if kind.startswith("agent"))
    assert world.steps == [OPEN_B, LEAVE_B]


@pytest.mark.hazard("N2.22")
def test_a_session_that_is_found_elsewhere_is_closed_where_it_was() -> None:
    world = working_at_b()
    load(world)
    world.moves("s0", world.a)
    world.b.has.add("s0")  # it does not know yet
    load(world)
    assert world.b.has == set()
    assert world.steps == [OPEN_B, LEAVE_B]


def moved(world: Places) -> None:
    """The first server is started again, and another machine has the session."""
    world.line_down(world.a)
    world.moves("s0", world.b)
    world.line_up(world.a)
    world.settle()


@pytest.mark.hazard("N2.21")
def test_a_session_moves_with_what_was_shown_of_it_and_its_prompts_under_their_keys() -> None:
    world = greeted()
    new(world)
    first = prompt(world, "first")
    second = prompt(world, "second")
    happens(world, world.a, 0, 0, 0)
    shown = world.texts("s0")
    moved(world)
    assert world.texts("s0") == shown
    assert world.b.keys == world.a.keys
    happens(world, world.b, 0, 0, 6, 0, 0, 6)
    for each in (first, second):
        assert world.answered[each]["result"] == {"stopReason": "end_turn"}
    said = world.b.sessions["s0"].entries
    assert world.texts("s0") == "".join(text for kind, text in said if kind.startswith("agent"))
    assert [kind for kind, _ in world.shown["s0"] if kind.startswith("user")] == []
    assert notices(world) == ["[acp-bridge] This session goes on at b.example, which has it now."]


@pytest.mark.hazard("N2.15")
def test_where_the_place_is_refused_after_a_move_what_was_not_shown_is_shown() -> None:
    world = greeted()
    new(world)
    prompt(world)
    happens(world, world.a, 0, 0, 0)
    world.b.refuses_cursors = True
    moved(world)
    happens(world, world.b, 0, 6)
    said = world.b.sessions["s0"].entries
    assert world.texts("s0") == "".join(text for kind, text in said if kind.startswith("agent"))


def test_a_load_whose_answer_was_lost_goes_where_the_session_is_by_then() -> None:
    world = working_at_b()
    asked = world.send("session/load", {"sessionId": "s0", "cwd": "/w", "mcpServers": []})
    world.line_down(world.a)
    world.line_up(world.a)
    world.settle()
    assert "result" in world.answered[asked]
    assert world.texts("s0") == "old"
    assert (world.a.loads, world.b.loads) == (1, 1)


def test_a_load_whose_answer_was_lost_is_followed_once() -> None:
    world = working_at_b()
    world.b.sessions.clear()
    asked = world.send("session/load", {"sessionId": "s0", "cwd": "/w", "mcpServers": []})
    world.line_down(world.a)
    world.line_up(world.a)
    world.settle()
    assert error(world, asked) == "it is open there"
    assert (world.a.loads, world.b.loads) == (1, 1)


@pytest.mark.hazard("N1")
def test_a_load_whose_answer_was_lost_says_once_what_to_do_where_nobody_has_logged_in() -> None:
    world = working_at_b("https://a.example")
    asked = world.send("session/load", {"sessionId": "s0", "cwd": "/w", "mcpServers": []})
    world.line_down(world.a)
    world.line_up(world.a)
    world.settle()
    assert error(world, asked) == "it is open there. To open it from here: log in at " + (
        world.b.address
    )


def test_an_id_of_the_editors_is_not_taken_for_one_that_a_second_machine_is_asked_under() -> None:
    world = working_at_b()
    asked = load(world)
    request = {"jsonrpc": "2.0", "id": "acp-bridge connect", "method": "session/set_mode"}
    params = {"sessionId": "s0", "modeId": "m"}
    world._do(world.router.from_editor({**request, "params": params}))
    world.settle()
    assert list(world.answered) == [*range(asked + 1), request["id"]]
    assert world.steps == [OPEN_B]


@pytest.mark.hazard("N1.16")
def test_a_session_that_moves_to_where_nobody_has_logged_in_says_so_and_its_prompts_end() -> None:
    world = greeted("https://a.example")
    new(world)
    asked = prompt(world)
    moved(world)
    (said,) = notices(world)
    assert "does not show this session any more" in said
    assert "log in at https://b.example" in said
    assert error(world, asked) == "unknown session"
    assert (world.steps, world.b.client) == ([], "")


def test_a_session_that_has_moved_to_a_machine_that_names_another_one_moves_no_further() -> None:
    world = greeted()
    new(world)
    world.line_down(world.a)
    world.a.sessions.clear()
    world.line_up(world.a)
    world.settle()
    (said,) = notices(world)
    assert "b.example does not show this session any more: it is open there" in said
    assert (world.a.loads, world.b.loads) == (1, 1)
    assert world.steps == [OPEN_B, LEAVE_B]


def test_a_load_of_a_session_that_is_back_before_it_was_opened_elsewhere_is_answered_once() -> None:
    world = greeted()
    new(world)
    first = world.send("session/load", {"sessionId": "s0", "cwd": "/w", "mcpServers": []})
    world.line_down(world.a)
    world.moves("s0", world.b)
    world.line_up(world.a)
    for server in (world.a, world.a, world.b):  # greeted, and referred to where it is asked for
        if server in world.wanted():
            world.line_up(server)
        world.reads(server)
    world.moves("s0", world.a)
    second = world.send("session/load", {"sessionId": "s0", "cwd": "/w", "mcpServers": []})
    world.reads(world.a)
    world.settle()
    assert "result" in world.answered[first]
    assert "result" in world.answered[second]
    assert notices(world) == []
    assert world.steps == [OPEN_B, LEAVE_B]


def test_what_is_behind_a_load_that_is_given_up_while_it_is_sent_again_is_sent() -> None:
    world = working_at_b()
    world.moves("s0", world.a)
    first = world.send("session/load", {"sessionId": "s0", "cwd": "/w", "mcpServers": []})
    world.line_down(world.a)
    world.line_up(world.a)
    world.reads(world.a)
    behind = world.send("session/load", {"sessionId": "s0", "cwd": "/w", "mcpServers": []})
    world.notify("$/cancel_request", {"requestId": first})
    world.settle()
    assert "result" in world.answered[behind]


@pytest.mark.hazard("N2.21")
def test_a_session_moves_back_and_forth_as_often_as_its_machines_change() -> None:
    world = greeted()
    new(world)
    asked = prompt(world)
    happens(world, world.a, 0, 0)
    for there, here in ((world.b, world.a), (world.a, world.b)) * 2:
        world.line_down(here)
        world.moves("s0", there)
        if place(here) == world.router.first or world.wanted():
            world.line_up(here)
        world.settle()
        happens(world, there, 0)
    happens(world, world.a, 6)
    assert world.answered[asked]["result"] == {"stopReason": "end_turn"}
    said = world.a.sessions["s0"].entries
    assert world.texts("s0") == "".join(text for kind, text in said if kind.startswith("agent"))
    assert world.steps == [OPEN_B, LEAVE_B] * 2


def test_questions_of_two_machines_have_ids_of_their_own_and_answers_reach_theirs() -> None:
    world = working_at_b()
    load(world)
    world.a.sessions["another"] = Transcript()
    for server, name in ((world.a, new(world)), (world.b, "s0")):
        prompt(world, name, name)
        happens(world, server, 0, 3, name=name)
    assert len(world.dialogs) == 2
    for dialog in list(world.dialogs):
        world.answer(dialog)
    world.settle()
    assert world.a.answers == {"q1": {"outcome": "for q1"}}
    assert world.b.answers == {"q1001": {"outcome": "for q1001"}}


def test_a_question_is_withdrawn_when_its_session_moves() -> None:
    world = greeted()
    new(world)
    prompt(world)
    happens(world, world.a, 0, 3)
    assert len(world.dialogs) == 1
    moved(world)
    assert world.dialogs == {}


def test_a_stop_goes_to_the_machine_that_has_the_session() -> None:
    world = working_at_b()
    load(world)
    asked = prompt(world)
    world.notify("session/cancel", {"sessionId": "s0"})
    world.settle()
    assert world.answered[asked]["result"] == {"stopReason": "cancelled"}
    assert (world.a.cancelled, world.b.cancelled) == ([], ["do it"])


def test_a_machine_that_can_not_be_reached_fails_the_load_and_is_tried_with_the_next_one() -> None:
    world = working_at_b()
    world.away = True
    asked = load(world)
    world._do(world.router.unreached(place(world.b), "no route"))
    assert error(world, asked) == "there is no line to b.example: no route"
    world.away = False
    assert "result" in world.answered[load(world)]
    assert world.steps == [OPEN_B, LEAVE_B, OPEN_B]


def test_a_load_waits_for_no_machine_that_is_away_and_asks_here_first_the_next_time() -> None:
    world = working_at_b()
    load(world)
    world.line_down(world.b)
    world.away = True
    asked = load(world)
    world._do(world.router.is_down_for_long(place(world.b)))
    assert error(world, asked) == "there is no line to b.example: load it again"
    again = error(world, load(world))
    assert again.endswith("To open it from here: load it again when b.example can be reached")
    world.moves("s0", world.a)
    assert "result" in world.answered[load(world)]


def test_a_load_is_followed_to_a_machine_that_was_away_and_is_back() -> None:
    world = working_at_b()
    load(world)
    world.line_down(world.b)
    world._do(world.router.is_down_for_long(place(world.b)))
    world.line_up(world.b)
    assert "result" in world.answered[load(world)]


def test_a_machine_that_is_gone_before_it_has_answered_a_load_is_not_waited_for_for_ever() -> None:
    world = working_at_b()
    world.away = True
    asked = load(world)
    world.line_up(world.b)
    world.line_down(world.b)
    world._do(world.router.is_down_for_long(place(world.b)))
    assert error(world, asked) == "there is no line to b.example: the line has dropped"
    assert world.steps == [OPEN_B, LEAVE_B]


def test_a_machine_that_refuses_the_token_ends_alone() -> None:
    world = working_at_b()
    load(world)
    asked = prompt(world)
    world.line_down(world.b)
    world._do(world.router.refused(place(world.b), "it is revoked"))
    assert "it is revoked" in error(world, asked)
    assert "b.example has refused the token" in notices(world)[-1]
    new(world)
    assert world.steps == [OPEN_B, LEAVE_B]


def test_when_the_first_machine_refuses_the_token_all_that_is_open_is_answered() -> None:
    world = working_at_b()
    load(world)
    asked = prompt(world)
    world._do(world.router.end("it is revoked"))
    assert "it is revoked" in error(world, asked)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"error": {"code": -32600, "message": "not you"}}, "not you"),
        ({"result": {"protocolVersion": 2}}, "another version of the protocol"),
    ],
)
def test_a_machine_that_an_editor_can_not_speak_with_is_none(answer: Any, why: str) -> None:
    world = working_at_b()
    world.away = True
    asked = load(world)
    world.line_up(world.b)
    (hello,) = world.lines[place(world.b)]
    said = {"jsonrpc": "2.0", "id": hello["id"], **answer}
    world._do(world.router.from_server(place(world.b), said))
    assert why in error(world, asked)
    assert world.steps == [OPEN_B, LEAVE_B]


@pytest.mark.parametrize("data", [None, [], "x", {"reason": "elsewhere"}, {"machine": "m"}])
@pytest.mark.parametrize("address", [None, 1, "http://b.example", "https://b.example/x", "x\n"])
@pytest.mark.hazard("N1")
def test_what_is_no_refusal_with_an_origin_is_passed_on_as_it_is(data: Any, address: Any) -> None:
    world = working_at_b()
    if isinstance(data, dict):
        data = {**data, "reason": "elsewhere", "machine": "m", "address": address}
    asked = world.send("session/load", {"sessionId": "s0", "cwd": "/w", "mcpServers": []})
    told = {"code": -32600, "message": "no", "data": data}
    answer = {"jsonrpc": "2.0", "id": asked, "error": told}
    world._do(world.router.from_server(place(world.a), answer))
    assert world.answered[asked] == answer
    assert world.steps == []
