"""What a process says is taken as the session stands: shown, passed on, refused or dropped."""

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.agents.activity import Activity, Piece
from acp_bridge.core.agents.requests import MOST_OPEN
from acp_bridge.core.clients.abilities import ClientAbilities
from acp_bridge.core.journal import SessionJournal
from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import (
    AGENT_MESSAGE,
    CANCEL_REQUEST,
    CREATE_ELICITATION,
    CREATE_TERMINAL,
    REQUEST_PERMISSION,
    SESSION_PROMPT,
    SESSION_RESUME,
    TOOL_CALL,
    TOOL_CALL_UPDATE,
    text_chunk,
)
from acp_bridge.core.wire.jsonrpc import encode
from tests.core.session.journals import failing, recorded
from tests.core.session.living import (
    CANCELLED,
    DONE,
    Living,
    does_nothing,
    first,
    living,
    never_starts,
    wants_a_login,
)
from tests.core.session.memory import ClientEnd, Json, MemoryLink, Outgoing
from tests.core.session.played_agent import PlayedAgent
from tests.core.session.waiting import until

pytestmark = pytest.mark.usefixtures("no_errors")

USAGE: Json = {"sessionUpdate": "usage_update", "used": 1, "size": 2}
REFUSED = -32800
LOOKS = "terminal/output"


def chunk(text: str, message_id: str = "m") -> Json:
    return text_chunk(AGENT_MESSAGE, text, message_id)


def card(card_id: str = "t", *, opens: bool = True) -> Json:
    if not opens:
        return {"sessionUpdate": TOOL_CALL_UPDATE, "toolCallId": card_id}
    return {"sessionUpdate": TOOL_CALL, "toolCallId": card_id, "title": "T"}


def update(said: Any, **more: Any) -> Json:
    return {"method": "session/update", "params": {"sessionId": "0", "update": said, **more}}


def without_update(params: Json) -> Json:
    return {name: params[name] for name in params if name not in ("sessionId", "update")}


def writes(agent: MemoryLink, *messages: Json) -> None:
    """Let the agent send messages in one write."""
    agent.peer.feed(b"".join(encode({"jsonrpc": "2.0", **message}) for message in messages))


def says(agent: MemoryLink, *said: Any) -> None:
    """Let the agent send updates in one write."""
    writes(agent, *(update(each) for each in said))


def told(agent: MemoryLink) -> list[Any]:
    """Return what the agent was answered: results, and codes of errors."""
    return [
        message["error"]["code"] if "error" in message else message["result"]
        for message in agent.sent.messages
        if "method" not in message
    ]


def asked(here: Living, method: str | None = None) -> list[str]:
    """Return the requests that the client got."""
    got = [message["method"] for message in here.got if "method" in message and "id" in message]
    return [each for each in got if method in (None, each)]


async def turn(here: Living) -> tuple[PlayedAgent, Json]:
    """Begin a turn; returns the agent, and what it was asked."""
    agent = here.context.agents[-1]
    here.prompt()
    return agent, await agent.asked(SESSION_PROMPT)


async def stopped(here: Living, *said: Json) -> PlayedAgent:
    """Cancel a turn in which the agent has said this, and let it end; returns the agent."""
    agent, request = await turn(here)
    says(agent, *said)
    here.session.feed(ev.Cancel())
    agent.answer(request, CANCELLED)
    here.session.transcript.end_quiet(here.client.client)
    return agent


async def replaced(here: Living, agent: PlayedAgent) -> bool:
    """Return True if the next prompt goes to another process."""
    here.prompt("next")
    await until(lambda: len(agent.params(SESSION_PROMPT)) == 2 or len(here.context.agents) == 2)
    return agent.dead.is_set()


# --- updates --------------------------------------------------------------------------------------


@pytest.mark.hazard("T2.2", "K1", "T3")
async def test_the_updates_of_one_read_are_one_record_with_all_their_fields_but_the_sessions_id(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        own: Json = {**chunk("a"), "x": [1, None]}
        writes(agent, update(own, _meta={"y": 1}, z=None), update(chunk("b", "n")))
        kept: list[Json] = [
            {"update": own, "_meta": {"y": 1}, "z": None},
            {"update": chunk("b", "n")},
        ]
        assert [m["params"] for m in here.got] == [{"sessionId": "s", **each} for each in kept]
        assert {m["jsonrpc"] for m in here.got} == {"2.0"}
        assert await recorded(here.journal) == kept
        assert rows(here.journal) == 1
        assert here.journal.used_ids() == {"m", "n"}  # for the next bridge


def rows(journal: SessionJournal) -> int:
    (count,) = journal._file.db.execute("SELECT count(*) FROM updates").fetchone()
    assert isinstance(count, int)
    return count


@pytest.mark.hazard("C6", "R11", "P9")
async def test_while_it_is_given_the_session_the_state_that_a_process_tells_is_shown_alone(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, does_nothing) as here:
        here.session.wake()
        agent = await here.agent()
        resumed = await agent.asked(SESSION_RESUME)
        says(agent, chunk("a"), USAGE)
        agent.answer(resumed, {})
        await here.turn(agent)
        assert here.updates() == [USAGE]
        assert here.journal.get("state:usage_update") == {"update": USAGE}


@pytest.mark.hazard("C6")
async def test_the_end_of_a_turn_counts_from_the_next_update_on_also_within_one_read(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request = await turn(here)
        here.session.feed(ev.Cancel())
        here.session.transcript.end_quiet(here.client.client)
        writes(
            agent,
            update(chunk("a")),
            {"id": request["id"], "result": CANCELLED},
            update(chunk("b")),
            update(USAGE),
        )
        assert here.texts() == ["a"]
        assert await replaced(here, agent)


@pytest.mark.hazard("C6", "P12", "C19")
async def test_what_a_process_says_that_has_the_session_no_more_or_not_yet_is_nobodys(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), drain_timeout=0.0) as here:
        old, _ = await turn(here)
        old.immortal = True
        here.session.feed(ev.Cancel())
        spare = await here.agent(2)
        await until(lambda: here.session.now.state.name == "KILLING")
        here.session.transcript.end_quiet(here.client.client)
        for process in (old, spare):
            process.agent_session_id = "0"
            before = len(told(process))
            writes(
                process,
                update(chunk("x")),
                update(USAGE),
                {"method": "_x/y", "params": {"n": 1}},
                {"id": "q", "method": "_x/login", "params": {"url": "u"}},
            )
            assert told(process)[before:] == [REFUSED]
        assert [m for m in here.got if m.get("method") in ("session/update", "_x/y")] == []
        assert asked(here) == []
        spare.agent_session_id = None
        old.dies()


@pytest.mark.hazard("P12")
async def test_what_two_processes_say_in_turns_is_that_of_the_one_which_has_the_session(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request = await turn(here)
        other = PlayedAgent(owner=here.session.from_agent)
        other.agent_session_id, other.epoch = "0", agent.epoch + 1
        for number in range(2):
            says(other, chunk("nobody's"))
            says(agent, chunk(f"live {number}"))
        assert here.texts() == ["live 0", "live 1"]
        agent.answer(request, DONE)


class Listing(PlayedAgent):
    """One of version 2, which lists a terminal that runs in the background."""

    activity = Activity(runs=False, background=(Piece("terminal", "t", "make", False),))


async def test_only_the_process_that_has_the_session_lists_what_runs_in_its_background(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request = await turn(here)
        other = Listing(owner=here.session.from_agent)
        other.agent_session_id, other.epoch = "0", agent.epoch + 1
        says(other, chunk("nobody's"))
        assert here.session.background.listed is None
        other.epoch = agent.epoch
        says(other, chunk("live"))
        assert here.session.background.listed == ({"type": "terminal", "terminalId": "t"},)
        assert here.session.busy
        agent.answer(request, DONE)


@pytest.mark.parametrize("prepare", [never_starts, wants_a_login])
async def test_a_process_that_wants_a_login_may_ask_for_it_before_it_has_the_session(
    tmp_path: Path, prepare: Any
) -> None:
    async with living(tmp_path, prepare) as here:
        here.session.wake()
        agent = await here.agent()
        if prepare is never_starts:
            await agent.asked("initialize")
        else:
            await until(lambda: here.session.now.state.name == "UNAUTHENTICATED")
        agent.asks("_x/login", {"url": "u"}, "l")
        agent.says({"method": "_x/y", "params": {"n": 1}})
        assert asked(here) == ["_x/login"]
        assert here.got[-1]["params"] == {"n": 1}


@pytest.mark.hazard("C6.2", "C16")
@pytest.mark.parametrize(
    ("of_turn", "leaks"),
    [
        (card("old"), {**card("old", opens=False), "status": "completed"}),
        (chunk("begun", "old"), chunk("rest", "old")),
    ],
    ids=["a tool call", "words"],
)
async def test_a_leak_of_a_turn_before_makes_the_process_unclean_and_the_rest_is_shown(
    of_turn: Json, leaks: Json, tmp_path: Path
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await stopped(here, of_turn)
        here.prompt("two")
        request = await agent.asked(SESSION_PROMPT)
        says(agent, chunk("before"), leaks, chunk("after"))
        assert [text for text in here.texts() if text != "begun"] == ["before", "after"]
        agent.answer(request, DONE)
        await here.turn(await here.agent(2), "three")
        assert agent.dead.is_set()


@pytest.mark.hazard("T3")
async def test_what_stands_beside_words_is_shown_and_recorded_with_them(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request = await turn(here)
        without_id = {"method": "session/update", "params": {"update": chunk("c"), "x": 3}}
        writes(agent, update(chunk("a"), _meta={"x": 1}), update(chunk("b"), x=2), without_id)
        shown = [each["params"] for each in here.got if each.get("method") == "session/update"]
        beside: list[Json] = [{"_meta": {"x": 1}}, {"x": 2}, {"x": 3}]
        assert [without_update(each) for each in shown] == beside
        assert [without_update(each) for each in (await recorded(here.journal))[1:]] == beside
        agent.answer(request, DONE)


@pytest.mark.hazard("T3", "K2.2")
async def test_an_update_without_an_id_is_of_the_session(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        writes(agent, {"method": "session/update", "params": {"update": chunk("a")}})
        assert here.texts() == ["a"]


async def test_an_update_without_a_kind_is_dropped_and_hides_no_other(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        odd: list[Any] = [None, [], "text", {}, {"sessionUpdate": 5}, {"sessionUpdate": []}]
        says(await here.agent(), chunk("a"), *odd, chunk("b"))
        assert here.updates() == [chunk("a"), chunk("b")]


@pytest.mark.hazard("K1", "Q8.1")
@pytest.mark.parametrize("write", ["INSERT ON used_ids", "INSERT ON updates", "INSERT ON settings"])
async def test_a_journal_that_cannot_be_written_keeps_nothing_from_the_client(
    tmp_path: Path, write: str
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        with failing(here.journal, write):
            says(agent, card("t"), USAGE)
        shown = [each for each in here.updates() if "content" not in each]  # but the notice
        assert shown == [card("t"), USAGE]
        says(agent, chunk("on"))
        assert here.updates()[-1] == chunk("on")


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.hazard("T2")
async def test_a_request_comes_after_what_was_said_before_it_in_the_same_read(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        params = {"sessionId": "0", "command": "x"}
        request = {"id": 1, "method": CREATE_TERMINAL, "params": params}
        known: list[int] = []
        write = here.client.sent.write

        def noted(data: bytes) -> None:
            known.append(rows(here.journal))
            write(data)

        here.client.sent.write = noted  # type: ignore[method-assign]
        writes(agent, update(card("t")), request)
        shown, question = here.got
        assert shown["params"]["update"] == card("t")
        assert question["params"] == {"sessionId": "s", "command": "x"}
        assert known[0] == 1
        here.client.answers(question["id"], {"terminalId": "t"})
        assert told(agent) == [{"terminalId": "t"}]


class Watched(Outgoing):
    """Notes what the journal has at each write: the ids in use, and the number of rows."""

    def __init__(self, journal: SessionJournal) -> None:
        super().__init__()
        self._journal = journal
        self.known: list[tuple[set[str], int]] = []

    def write(self, data: bytes) -> None:
        self.known.append((set(self._journal.used_ids()), rows(self._journal)))
        super().write(data)


@pytest.mark.hazard("K1.3", "T2", "P13")
async def test_ids_and_cards_are_in_the_journal_before_the_client_can_know_them(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        watched = Watched(here.journal)
        here.session.transcript.attach(ClientEnd(sent=watched).client)
        agent, request = await turn(here)
        says(agent, card("shown"), USAGE)  # a state is shown at once, in the middle of a read
        assert watched.known[-2:] == [({"shown"}, 2)] * 2
        call = {"toolCallId": "asked", "title": "Edit", "kind": "edit"}
        for number in (1, 2):
            agent.asks(REQUEST_PERMISSION, {"sessionId": "0", "toolCall": call}, number)
            assert watched.known[-1] == ({"shown", "asked"}, 3)
        opened = [params["update"] for params in await recorded(here.journal)]
        agent.answer(request, DONE)
        assert opened[2:] == [{"sessionUpdate": TOOL_CALL, "status": "pending", **call}]


@pytest.mark.hazard("C19.1", "C15", "C18")
async def test_while_draining_changes_are_refused_and_the_process_is_not_unclean_for_it(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request = await turn(here)
        here.session.feed(ev.Cancel())
        changes = ("fs/write_text_file", CREATE_TERMINAL, "elicitation/create", REQUEST_PERMISSION)
        looking = (LOOKS, "terminal/kill", "terminal/release", "_x/y")
        for number, method in enumerate((*changes, *looking)):
            agent.asks(method, {"sessionId": "0", "mode": "form"}, number)
        assert told(agent) == [*[REFUSED] * 3, {"outcome": {"outcome": "cancelled"}}]
        assert asked(here) == [*looking]
        agent.answer(request, CANCELLED)
        assert not await replaced(here, agent)


@pytest.mark.hazard("C6.2", "C19.1")
@pytest.mark.parametrize(
    ("method", "answer", "unclean"),
    [
        (LOOKS, None, False),
        (CREATE_TERMINAL, REFUSED, True),
        (REQUEST_PERMISSION, {"outcome": {"outcome": "cancelled"}}, True),
    ],
)
async def test_a_change_after_a_cancelled_turn_is_refused_and_makes_the_process_unclean(
    tmp_path: Path, method: str, answer: Any, unclean: bool
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await stopped(here)
        agent.asks(method, {"sessionId": "0"}, 1)
        assert told(agent) == ([answer] if unclean else [])
        assert asked(here) == ([] if unclean else [LOOKS])
        assert await replaced(here, agent) is unclean


@pytest.mark.hazard("C6.2")
@pytest.mark.parametrize("said", [chunk("x", "m"), card("t"), card("t", opens=False), card("new")])
async def test_what_is_of_a_cancelled_turn_or_new_work_after_it_is_unclean_and_its_state_is_shown(
    tmp_path: Path, said: Json
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await stopped(here, chunk("a", "m"), card("t"))
        before = len(here.updates())
        says(agent, USAGE, said)
        assert here.updates()[before:] == [USAGE]
        assert await replaced(here, agent)


@pytest.mark.hazard("C6.4")
async def test_what_the_client_asked_for_after_a_cancelled_turn_is_shown_but_no_rest_of_that_turn(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await stopped(here, chunk("a", "m"), card("t"))
        before, request_id = len(here.updates()), here.asks("session/set_mode", modeId="plan")
        says(agent, chunk("[MODE_UPDATE] plan", "other"), card("new"))
        shown = [each["sessionUpdate"] for each in here.updates()[before:]]
        assert shown == [AGENT_MESSAGE, TOOL_CALL]
        assert not here.session.now.works
        agent.asks(REQUEST_PERMISSION, {"sessionId": "0", "toolCall": {"toolCallId": "new"}})
        assert asked(here) == [REQUEST_PERMISSION]
        says(agent, card("t", opens=False))
        agent.answer(await agent.asked("session/set_mode"), {})
        assert await here.answered(request_id) == {}
        assert await replaced(here, agent)


@pytest.mark.hazard("C6.4", "C19.1")
async def test_a_question_about_a_call_of_a_cancelled_turn_is_refused_whatever_else_is_asked_for(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await stopped(here, card("t"))
        request_id = here.asks("session/set_mode", modeId="plan")
        params = {"sessionId": "0", "toolCall": {"toolCallId": "t"}}
        agent.asks(REQUEST_PERMISSION, params, 1)
        assert told(agent) == [REFUSED]
        assert asked(here) == []
        agent.answer(await agent.asked("session/set_mode"), {})
        assert await here.answered(request_id) == {}
        assert await replaced(here, agent)


@pytest.mark.hazard("C16", "P13.1")
async def test_a_permission_in_a_later_turn_is_asked_afresh_though_its_id_was_used_before(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        params = {"sessionId": "0", "toolCall": {"toolCallId": "always"}}
        for number, ends in enumerate((CANCELLED, DONE), 1):
            agent, request = await turn(here)
            agent.asks(REQUEST_PERMISSION, params, number)
            if ends is CANCELLED:
                here.session.feed(ev.Cancel())
            agent.answer(request, ends)
        questions = [m["params"] for m in here.got if m.get("method") == REQUEST_PERMISSION]
        assert [each["toolCall"]["toolCallId"] for each in questions] == ["always", "always~2"]
        for card_id, known in (("always", "always~2"), ("unknown", "unknown")):
            agent.asks("_x/y", {"toolCallId": card_id}, card_id)
            assert here.got[-1]["params"] == {"toolCallId": known}
        assert not agent.dead.is_set()


# --- subagents ------------------------------------------------------------------------------------

KID: Json = {"sessionUpdate": "subagent_update", "sessionId": "kid", "title": "Look around"}


@pytest.mark.hazard("C6")
async def test_an_agent_that_has_subagents_is_unclean_for_its_own_words_of_a_cancelled_turn(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await stopped(here, chunk("a", "m"), KID)
        says(agent, chunk("x", "m"))
        assert await replaced(here, agent)


@pytest.mark.hazard("C6")
async def test_a_subagent_that_begins_what_the_client_asked_for_after_a_cancelled_turn_is_shown(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        here.client.client.abilities = ClientAbilities({"subagents": {}})
        agent = await stopped(here)
        request_id = here.asks("session/set_mode", modeId="plan")
        says(agent, {**KID, "state": {"state": "running"}})
        assert [each["title"] for each in here.updates()[-1:]] == ["Look around"]
        agent.answer(await agent.asked("session/set_mode"), {})
        assert await here.answered(request_id) == {}
        says(agent, {**KID, "state": {"state": "idle"}})
        assert not await replaced(here, agent)


@pytest.mark.hazard("P13")
async def test_a_notification_of_a_subagents_reaches_nobody(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        says(agent, KID)
        for session_id in ("kid", "0"):
            writes(agent, {"method": "_x/y", "params": {"sessionId": session_id}})
        passed = [each["params"] for each in here.got if each["method"] == "_x/y"]
        assert passed == [{"sessionId": "s"}]


# --- version 2 ------------------------------------------------------------------------------------


async def test_who_only_asks_in_its_turn_has_said_something(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        here.client.client.abilities = ClientAbilities({"elicitation": {"form": {}}})
        agent, request = await turn(here)
        asked = {"sessionId": "0", "mode": "form", "message": "which?", "requestedSchema": {}}
        agent.asks(CREATE_ELICITATION, asked)
        (question,) = [each for each in here.got if "id" in each]
        here.client.answers(question["id"], {"action": "decline"})
        agent.says({"id": request["id"], "result": DONE})
        await until(lambda: here.got[-1].get("result") == DONE)
        assert here.texts() == []


async def test_of_too_many_open_requests_the_clients_are_told_once(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, _ = await turn(here)
        for number in range(MOST_OPEN + 2):
            agent.asks(LOOKS, {"terminalId": "t"}, number)
        assert [str(MOST_OPEN) in each for each in here.texts()] == [True]


# --- notifications --------------------------------------------------------------------------------


@pytest.mark.hazard("T3", "P13")
async def test_a_notification_passes_in_its_place_with_the_sessions_own_id(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, other = await here.agent(), ClientEnd()
        here.session.transcript.attach(other.client)
        named = {"method": "_x/y", "params": {"sessionId": "0", "n": 1}}
        writes(agent, update(chunk("a")), named, {"method": "_x/y", "params": [1]})
        for end in (here.client, other):
            params = [message["params"] for message in end.sent.messages]
            assert params[0]["update"] == chunk("a")
            assert params[1:] == [{"sessionId": "s", "n": 1}, [1]]


@pytest.mark.hazard("P13.2")
async def test_an_agent_takes_its_request_back_by_the_id_that_the_client_knows(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        for own_id in ("mine", None):  # null is an id, too
            agent.asks("_x/y", {}, own_id)
        question, another = here.got
        for odd in ({"requestId": "another"}, ["mine"], {}):
            agent.says({"method": CANCEL_REQUEST, "params": odd})
        assert here.got == [question, another]
        agent.says({"method": CANCEL_REQUEST, "params": {"requestId": "mine"}})
        assert here.got[-1]["params"] == {"requestId": question["id"]}
