"""Requests to the client: whose they are, what a stopped turn may ask, what a dead agent owes."""

from typing import Any

import pytest

from acp_bridge.journal import SessionJournal
from acp_bridge.machine.states import Phase
from acp_bridge.protocol import REQUEST_PERMISSION
from acp_bridge.session.clients.to_client import ToClient
from acp_bridge.session.transcript.transcript_out import TranscriptOut
from acp_bridge.updates.updates import Updates
from tests.session.memory import ClientEnd, MemoryLink, Outgoing

Json = dict[str, Any]
CAN_ALL: Json = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "elicitation": {"form": {}, "url": None},
}
OPTIONS = [{"optionId": "a", "name": "A", "kind": "allow_once"}]


class Stage:
    """What stands between a client and agents in memory."""

    def __init__(self, abilities: Json | None = None, session_id: str | None = "ours") -> None:
        self.client = ClientEnd(CAN_ALL if abilities is None else abilities)
        self.updates = Updates({"t"})
        self.updates.new_turn(1)
        self.to_client = ToClient(session_id, lambda: self.client.client, self.updates)

    def ask(
        self,
        link: MemoryLink,
        method: str,
        params: Any,
        request_id: Any = 0,
        *,
        stopped: bool = False,
    ) -> bool:
        return self.to_client.forward(link, link.asks(method, params, request_id), stopped=stopped)


@pytest.mark.hazard("P13", "P10", "T3")
async def test_requests_of_two_agents_with_one_id_are_two_at_the_client_and_answered_apart() -> (
    None
):
    stage, one, two = Stage(), MemoryLink("one"), MemoryLink("two")
    for link in (one, two):
        stage.ask(link, "_x/y", {"sessionId": "0", "from": link.name, "n": [1, 1.0, None]})
    asked = stage.client.sent.take()
    assert [m["params"] for m in asked] == [
        {"sessionId": "ours", "from": "one", "n": [1, 1.0, None]},
        {"sessionId": "ours", "from": "two", "n": [1, 1.0, None]},
    ]
    assert asked[0]["id"] != asked[1]["id"]
    stage.client.answers(asked[1]["id"], {"for": "two"})
    stage.client.refuses(asked[0]["id"], -7)
    assert two.sent.take() == [{"jsonrpc": "2.0", "id": 0, "result": {"for": "two"}}]
    error = {"code": -7, "message": "no", "data": {"kept": 1}}
    assert one.sent.take() == [{"jsonrpc": "2.0", "id": 0, "error": error}]


@pytest.mark.parametrize("params", [None, [1], "text", {"sessionId": 5, "toolCall": "odd"}])
@pytest.mark.hazard("T3")
async def test_parameters_that_are_odd_pass_as_they_are(params: Any) -> None:
    stage = Stage(session_id=None)
    stage.ask(MemoryLink(), "_x/y", params)
    assert stage.client.sent.take()[0].get("params") == params


@pytest.mark.hazard("P13")
async def test_cards_are_named_as_the_client_knows_them() -> None:
    stage, link = Stage(), MemoryLink()
    stage.ask(link, REQUEST_PERMISSION, {"sessionId": "0", "toolCall": {"toolCallId": "t", "x": 1}})
    stage.ask(link, "elicitation/create", {"mode": "form", "toolCallId": "t"}, 1)
    stage.ask(link, "_x/y", {"toolCallId": "unknown"}, 2)
    permission, elicitation, other = (m["params"] for m in stage.client.sent.take())
    assert permission["toolCall"] == {"toolCallId": "t~2", "x": 1}
    assert elicitation["toolCallId"] == "t~2"
    assert other["toolCallId"] == "unknown"


@pytest.mark.parametrize(
    ("method", "params", "can", "cannot"),
    [
        ("fs/read_text_file", {}, {"fs": {"readTextFile": True}}, {"fs": {"writeTextFile": True}}),
        ("fs/write_text_file", {}, {"fs": {"writeTextFile": True}}, {"fs": True}),
        ("terminal/create", {}, {"terminal": True}, {"terminal": False}),
        ("terminal/x", {}, {"terminal": {}}, {"terminal": None}),
        ("elicitation/create", {"mode": "url"}, {"elicitation": {"url": {}}}, {"elicitation": {}}),
        ("elicitation/create", {}, None, {"elicitation": {"form": {}}}),
        (REQUEST_PERMISSION, {}, {}, None),
        ("_x/y", {}, {}, None),
    ],
)
async def test_what_the_client_did_not_say_it_can_never_reaches_it(
    method: str, params: Json, can: Json | None, cannot: Json | None
) -> None:
    for abilities, reaches in ((can, True), (cannot, False)):
        if abilities is None:
            continue
        stage, link = Stage(abilities), MemoryLink()
        assert not stage.ask(link, method, params)
        assert len(stage.client.sent.take()) == reaches
        codes = [message["error"]["code"] for message in link.sent.take()]
        assert codes == ([] if reaches else [-32601])


@pytest.mark.hazard("C19", "C18")
async def test_after_a_cancel_changes_are_refused_at_once_and_looking_is_not() -> None:
    stage, link = Stage(), MemoryLink()
    refused = ("fs/write_text_file", "terminal/create", "elicitation/create", REQUEST_PERMISSION)
    for number, method in enumerate(refused):
        assert stage.ask(link, method, {"mode": "form"}, number, stopped=True)
    *errors, permission = link.sent.take()
    assert [message["error"]["code"] for message in errors] == [-32800] * 3
    assert permission["result"] == {"outcome": {"outcome": "cancelled"}}
    assert stage.client.sent.take() == []
    looking = ("fs/read_text_file", "terminal/output", "terminal/kill", "terminal/release", "_x")
    for number, method in enumerate(looking, 10):
        assert not stage.ask(link, method, {}, number, stopped=True)
    assert [message["method"] for message in stage.client.sent.take()] == list(looking)


@pytest.mark.hazard("C15")
async def test_questions_end_with_the_turn_and_a_late_answer_of_the_client_is_nobodys() -> None:
    stage, link = Stage(), MemoryLink()
    stage.ask(link, REQUEST_PERMISSION, {"options": OPTIONS}, "p")
    stage.ask(link, "elicitation/create", {"mode": "form"}, "e")
    stage.ask(link, "fs/read_text_file", {}, "r")
    permission, question, reading = stage.client.sent.take()
    link.at_clients.end_questions()
    called_back = [message["params"]["requestId"] for message in stage.client.sent.take()]
    assert called_back == [permission["id"], question["id"]]
    first, second = link.sent.take()
    assert (first["id"], first["result"]) == ("p", {"outcome": {"outcome": "cancelled"}})
    assert (second["id"], second["error"]["code"]) == ("e", -32800)
    chosen = {"outcome": {"outcome": "selected", "optionId": "a"}}
    stage.client.answers(permission["id"], chosen)
    stage.client.answers(question["id"], {"action": "accept"})
    assert link.sent.take() == []
    stage.client.answers(reading["id"], {"content": "c"})
    assert link.sent.take()[0]["result"] == {"content": "c"}
    link.at_clients.end_questions()
    assert stage.client.sent.take() == []


@pytest.mark.hazard("C19", "C10")
async def test_a_dead_agents_terminals_are_released_its_requests_called_back_and_no_others() -> (
    None
):
    stage, dead, other = Stage(), MemoryLink("dead"), MemoryLink("other")
    for number, (link, terminal) in enumerate([(dead, "t1"), (dead, "t2"), (other, "t3")]):
        stage.ask(link, "terminal/create", {}, number)
        stage.client.answers(stage.client.sent.take()[0]["id"], {"terminalId": terminal})
    stage.ask(dead, "terminal/release", {"terminalId": "t2"}, "r")
    stage.client.answers(stage.client.sent.take()[0]["id"], {})
    stage.ask(dead, "terminal/create", {}, "late")
    stage.ask(other, "_x/y", {}, "kept")
    late, _kept = stage.client.sent.take()
    dead.at_clients.release()
    called_back, released = stage.client.sent.take()
    assert called_back["params"] == {"requestId": late["id"]}
    assert released["method"] == "terminal/release"
    assert released["params"] == {"sessionId": "ours", "terminalId": "t1"}
    # The client made it nevertheless: nobody else would release it.
    stage.client.answers(late["id"], {"terminalId": "t4"})
    assert stage.client.sent.take()[0]["params"]["terminalId"] == "t4"
    dead.at_clients.release()
    assert stage.client.sent.take() == []


@pytest.mark.hazard("P13")
async def test_an_agent_takes_back_its_own_requests_only() -> None:
    stage, one, two = Stage(), MemoryLink("one"), MemoryLink("two")
    for link in (one, two):
        stage.ask(link, "_x/y", {}, "same")
    asked = stage.client.sent.take()
    for odd in ("unknown", None, [1], {"a": 1}):
        two.at_clients.take_back(odd)
    assert stage.client.sent.take() == []
    two.at_clients.take_back("same")
    assert stage.client.sent.take()[0]["params"] == {"requestId": asked[1]["id"]}
    # Its answer comes all the same, and once.
    stage.client.refuses(asked[1]["id"], -32800)
    stage.client.refuses(asked[1]["id"], -32800)
    assert len(two.sent.take()) == 1


@pytest.mark.hazard("P13")
async def test_true_is_no_number_where_the_id_of_a_request_is_meant() -> None:
    stage, link = Stage(), MemoryLink()
    client_id = "mine"
    number = link.request_for(stage.client.asks("_x", {}, client_id), "_x", {}, lambda _: None)
    assert number == 1
    stage.ask(link, "_x/y", {}, 1)
    (asked,) = stage.client.sent.take()
    for odd in (True, "1", [1], None):
        link.at_clients.take_back(odd)
        assert stage.client.sent.take() == []
        stage.ask(link, "elicitation/create", {"mode": "form", "requestId": odd}, f"of {odd!r}")
        (question,) = stage.client.sent.take()
        assert question["params"]["requestId"] == odd
    for same in (1, 1.0):  # one number in JSON
        link.at_clients.take_back(same)
        assert stage.client.sent.take()[0]["params"] == {"requestId": asked["id"]}
        stage.ask(
            link, "elicitation/create", {"mode": "form", "requestId": same}, f"of {same!r} too"
        )
        assert stage.client.sent.take()[0]["params"]["requestId"] == client_id


@pytest.mark.hazard("C19")
@pytest.mark.parametrize("odd", [True, 1, None, ["t1"]])
async def test_a_release_that_names_no_terminal_releases_none(odd: object) -> None:
    stage, link = Stage(), MemoryLink()
    for name in ("True", "1", "None"):
        stage.ask(link, "terminal/create", {}, name)
        stage.client.answers(stage.client.sent.take()[0]["id"], {"terminalId": name})
    stage.ask(link, "terminal/release", {"terminalId": odd}, "r")
    stage.client.answers(stage.client.sent.take()[0]["id"], {})
    link.at_clients.release()
    released = [message["params"]["terminalId"] for message in stage.client.sent.take()]
    assert released == ["True", "1", "None"]


@pytest.mark.hazard("C19", "P13")
async def test_a_terminal_is_released_and_a_question_called_back_at_the_client_that_has_it() -> (
    None
):
    stage, link, other = Stage(), MemoryLink(), ClientEnd(CAN_ALL)
    first = stage.client
    stage.ask(link, "terminal/create", {}, 1)
    first.answers(first.sent.take()[0]["id"], {"terminalId": "t1"})
    stage.ask(link, "_x/y", {}, 2)
    (asked,) = first.sent.take()
    stage.client = other  # from now on another client is asked
    stage.ask(link, "_x/y", {}, 3)
    link.at_clients.release()
    called_back, released = first.sent.take()
    assert called_back["params"] == {"requestId": asked["id"]}
    assert released["params"]["terminalId"] == "t1"
    assert [message["method"] for message in other.sent.take()] == ["_x/y", "$/cancel_request"]


@pytest.mark.hazard("P13")
async def test_a_question_for_a_request_names_it_as_the_client_that_sent_it_does() -> None:
    stage, link, other = Stage(), MemoryLink(), ClientEnd(CAN_ALL)
    mine = link.request_for(stage.client.asks("_x", {}, "mine"), "_x", {}, lambda answer: None)
    others = link.request_for(other.asks("_x", {}, "others"), "_x", {}, lambda answer: None)
    own = link.request_for(None, "_x", {}, lambda answer: None)
    link.sent.take()
    for number, named in enumerate([mine, others, own, "odd", None]):
        stage.ask(link, "elicitation/create", {"mode": "form", "requestId": named}, number)
    asked = [message["params"]["requestId"] for message in stage.client.sent.take()]
    assert asked == ["mine", others, own, "odd", None]


@pytest.mark.hazard("Q9")
async def test_without_a_client_every_request_is_refused_at_once() -> None:
    link = MemoryLink()
    to_client = ToClient("ours", lambda: None, Updates(set()))
    assert not to_client.forward(link, link.asks("fs/read_text_file", {}), stopped=False)
    assert link.sent.take()[0]["error"]["code"] == -32601


@pytest.mark.hazard("P3", "C10")
async def test_an_answer_to_a_dead_agent_is_nobodys_and_an_agent_is_answered_once() -> None:
    stage, link = Stage(), MemoryLink()
    stage.ask(link, "_x/y", {}, 1)
    stage.ask(link, "_x/y", {}, 2)
    first, second = (message["id"] for message in stage.client.sent.take())
    stage.client.answers(first, {"n": 1})
    stage.client.answers(first, {"n": 2})
    assert [message["result"] for message in link.sent.take()] == [{"n": 1}]
    link.at_clients.release()
    stage.client.answers(second, {"n": 3})
    assert link.sent.take() == []


@pytest.mark.hazard("K1")
async def test_a_card_that_only_a_permission_request_has_shown_is_recorded_once() -> None:
    stage, link, recorded = Stage(), MemoryLink(), list[Json]()
    client = stage.client.client
    stage.to_client = ToClient("ours", lambda: client, stage.updates, recorded.append)
    call = {"toolCallId": "new", "title": "Edit", "kind": "edit"}
    for request_id in (1, 2):
        stage.ask(link, REQUEST_PERMISSION, {"toolCall": call}, request_id)
    shown = {"sessionUpdate": "tool_call", "status": "pending", **call}
    assert recorded == [{"update": shown}]


class Watched(Outgoing):
    """Notes what the journal has at each write: used ids, and the number of rows."""

    def __init__(self, journal: SessionJournal) -> None:
        super().__init__()
        self._journal = journal
        self.known: list[tuple[set[str], int]] = []

    def write(self, data: bytes) -> None:
        rows = self._journal._file.db.execute("SELECT count(*) FROM updates").fetchone()[0]
        self.known.append((set(self._journal.used_ids()), rows))
        super().write(data)


@pytest.mark.hazard("T2", "P13")
async def test_ids_and_asked_cards_are_in_the_journal_before_the_client_can_know_them(
    journal: SessionJournal,
) -> None:
    updates, sent = Updates(set()), Watched(journal)
    updates.new_turn(1)
    transcript = TranscriptOut("s", journal, updates)
    transcript.attach(ClientEnd(CAN_ALL, sent).client)
    to_client = ToClient("s", transcript.asked, updates, transcript.record_at_once)
    card = {"sessionUpdate": "tool_call", "toolCallId": "shown"}
    transcript.show({"update": updates.incoming(card, Phase.LIVE)})
    # A state is shown at once, in the middle of a read.
    transcript.show({"update": {"sessionUpdate": "current_mode_update", "currentModeId": "m"}})
    assert sent.known[0] == ({"shown"}, 1)
    params = {"sessionId": "0", "toolCall": {"toolCallId": "asked"}}
    link = MemoryLink()
    to_client.forward(link, link.asks(REQUEST_PERMISSION, params), stopped=False)
    assert sent.known[-1] == ({"shown", "asked"}, 2)
