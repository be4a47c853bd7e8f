"""What is left of a request to open a session that is refused, breaks off or is given up."""

import pytest

from tests.remote.connect.model import BROKEN, REFUSED, Transcript, World
from tests.remote.connect.test_machine import greeted
from tests.remote.connect.test_machine_cases import error, notices, opened, running, working


def whole(world: World) -> list[tuple[str, str]]:
    """Put a session on the server that the editor has not opened; returns what was said in it."""
    entries = [("user_message_chunk", "do it"), ("agent_message_chunk", "done")]
    world.server.sessions["s0"] = Transcript(entries)
    return entries


def on_the_next_line(world: World, session: Transcript) -> None:
    """Drop the line; on the next one the editor has seen each word once, and no notice."""
    world.cut()
    world.server.step(session, 0)
    world.connect()
    world.settle()
    assert world.texts("s0") == session.entries[-1][1]
    assert notices(world) == []


@pytest.mark.hazard("N2")
@pytest.mark.parametrize("late", [False, True], ids=["in order", "the first answer comes last"])
@pytest.mark.parametrize("folders", [(REFUSED, "/w"), ("/w", REFUSED)], ids=str)
def test_of_two_loads_at_once_the_refused_one_does_not_take_the_session_from_the_other(
    folders: tuple[str, str], *, late: bool
) -> None:
    world = greeted()
    entries = whole(world)
    asked = [world.load("s0", folder) for folder in folders]
    world.server_reads()
    first = list(world.to_machine)
    world.server_reads()
    if late:
        second = list(world.to_machine)[len(first) :]
        world.to_machine = type(world.to_machine)(second + first)
    world.settle()
    assert ["result" in world.answered[each] for each in asked] == [
        folder == "/w" for folder in folders
    ]
    world.cut()
    entries.append(("agent_message_chunk", "more"))
    world.connect()
    world.settle()
    assert world.server.has == {"s0"}
    assert world.texts("s0").endswith("more")


@pytest.mark.hazard("N2")
@pytest.mark.parametrize("how", ["load", "resume"])
@pytest.mark.parametrize("reads", [True, False])
def test_a_refused_load_of_an_open_session_leaves_it_as_it_was_on_the_next_line_too(
    how: str, *, reads: bool
) -> None:
    """Whether the refusal is read before the line drops or not."""
    world, session = working(2)
    params = {"sessionId": "s0", "cwd": REFUSED, "mcpServers": []}
    asked = world.send(f"session/{how}", params)
    if reads:
        world.settle()
    on_the_next_line(world, session)
    assert error(world, asked) == "cwd: is refused"


@pytest.mark.hazard("N2")
@pytest.mark.parametrize("cut", [False, True])
def test_a_load_of_an_open_session_that_breaks_in_its_replay_doubles_nothing_on_the_next_line(
    *, cut: bool
) -> None:
    """Whether the line drops in the replay, too, or only behind the error."""
    world, session = working(2)
    asked = world.load("s0", BROKEN)
    world.server_reads()
    world.machine_reads()
    if not cut:
        world.settle()
    on_the_next_line(world, session)
    assert error(world, asked) == "it broke"


@pytest.mark.hazard("N2")
@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("method", ["session/resume", "_acp_bridge/attach"])
def test_a_cursor_that_the_editor_itself_named_is_named_again_on_the_next_line(
    method: str, *, refused: bool
) -> None:
    world = greeted()
    whole(world)
    own = {"_meta": {"acp_bridge": {"after": "1:2"}}}
    asked = world.send(method, {"sessionId": "s0", "cwd": "/w", "mcpServers": [], **own})
    world.cut()
    world.server.refuses_cursors = refused
    world.connect()
    world.settle()
    assert ("error" in world.answered[asked]) is refused
    assert world.shown.get("s0", []) == ([] if refused else [("agent_message_chunk", "ne")])


@pytest.mark.hazard("N2")
def test_a_load_that_is_given_up_while_the_session_is_opened_again_is_given_up_there() -> None:
    world = greeted()
    whole(world)
    asked = world.load("s0", "/w")
    world.cut()
    world.connect()
    world.server_reads()
    world.machine_reads()
    opens = world.to_server[-1]["id"]
    world.notify("$/cancel_request", {"requestId": asked})
    assert world.to_server[-1]["params"] == {"requestId": opens}
    world.settle()  # too late: it is done
    assert "result" in world.answered[asked]
    world.cut()
    world.connect()
    world.settle()
    assert world.server.has == {"s0"}


@pytest.mark.hazard("N2", "X3")
@pytest.mark.parametrize("how", ["refused", "ended"])
def test_a_turn_of_version_2_in_a_session_that_is_lost_ends(how: str) -> None:
    here = running()
    if how == "ended":
        here.do(here.machine.end("the token was refused"))
    else:
        here.do(here.machine.line_up())
        here.greets()
        refusal = {"id": here.to_server.pop(0)["id"], "error": {"code": -32603, "message": "no"}}
        here.do(here.machine.from_server({"jsonrpc": "2.0", **refusal}))
    assert here.states() == ["running/", "idle/end_turn"]


@pytest.mark.hazard("N2")
@pytest.mark.parametrize("refused", [False, True])
def test_a_session_that_the_editor_has_deleted_is_not_said_to_be_lost(*, refused: bool) -> None:
    """Where the answer was lost, but where the delete is refused the session is the editor's."""
    world = opened()
    asked = world.send("session/delete", {"sessionId": "s0"})
    answer = {"id": asked, "error": {"code": -32603, "message": "no"}}
    if refused:
        world._do(world.machine.from_server({"jsonrpc": "2.0", **answer}))
    world.cut()
    world.connect()
    world.server_reads()
    world.machine_reads()
    gone = {"code": -32002, "message": "unknown"}
    while world.to_server:
        again = {"jsonrpc": "2.0", "id": world.to_server.popleft()["id"], "error": gone}
        world._do(world.machine.from_server(again))
    assert ("error" in world.answered[asked]) is refused
    assert len(notices(world)) == refused


def test_an_initialize_whose_answer_was_lost_does_not_wait_without_end_either() -> None:
    world = World()
    world.connect()
    asked = world.send("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
    world.cut()
    world._do(world.machine.wait_no_more())
    assert "there is no line to host" in error(world, asked)
    world.connect()
    again = world.send("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
    world.settle()
    assert "result" in world.answered[again]
