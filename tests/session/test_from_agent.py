"""What a process says is taken as the session's state has it, at the pace of the clients."""

from typing import Any

import anyio
import pytest

from acp_bridge.agents.outcome import Exit
from acp_bridge.journal import SessionJournal
from acp_bridge.machine import events as ev
from acp_bridge.machine.states import Phase, State
from acp_bridge.protocol import AGENT_MESSAGE, REQUEST_PERMISSION, TOOL_CALL
from tests.session.from_agent_stage import LIMIT, USAGE, Stage, card, chunk
from tests.session.journals import failing, recorded, recorded_texts
from tests.session.memory import ClientEnd, MemoryLink
from tests.session.waiting import beside, quiet

Json = dict[str, Any]
CAN_ALL: Json = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}
CANCELLED = -32800


# --- updates --------------------------------------------------------------------------------------


@pytest.mark.hazard("T2", "K1")
async def test_the_updates_of_one_read_are_one_record_and_shown_when_it_has_been_read(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.from_agent.on_update(stage.link, {"sessionId": "0", "update": chunk("a")})
    stage.from_agent.on_update(stage.link, {"sessionId": "0", "update": chunk("b", "n")})
    assert (stage.shown(), await recorded(journal)) == ([], [])
    stage.from_agent.on_batch_end(stage.link)
    assert stage.shown() == [chunk("a"), chunk("b", "n")]
    assert journal._file.db.execute("SELECT count(*) FROM updates").fetchone() == (1,)


@pytest.mark.hazard("T3")
async def test_an_update_keeps_all_its_fields_but_the_agents_id_of_the_session(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.says({**chunk("a"), "x": [1, None]}, _meta={"y": 1}, z=None)
    shown = stage.client.sent.take()[0]["params"]
    kept: Json = {"update": {**chunk("a"), "x": [1, None]}, "_meta": {"y": 1}, "z": None}
    assert shown == {"sessionId": "s", **kept}
    assert await recorded(journal) == [kept]


@pytest.mark.hazard("C6", "R11", "P9")
@pytest.mark.parametrize(
    ("phase", "conversation", "state", "unclean"),
    [
        (Phase.LIVE, True, True, False),
        (Phase.REPLAY, False, True, False),
        (Phase.LEAK, False, True, False),
        (Phase.NOTHING, False, False, False),
    ],
)
async def test_each_phase_takes_or_drops_the_conversation_and_the_state(
    journal: SessionJournal, phase: Phase, conversation: bool, state: bool, unclean: bool
) -> None:
    stage = Stage(journal)
    stage.enter(State.IDLE, phase)
    stage.says(chunk("a"), USAGE)
    assert stage.shown() == [chunk("a")] * conversation + [USAGE] * state
    assert stage.settings.kept == [USAGE] * state
    works = [ev.WorkSeen(1)] * conversation
    assert stage.core.fed == works + [ev.Leaked(1)] * unclean
    assert await recorded_texts(journal) == ["a"] * conversation
    assert journal.get("state:usage_update") == ({"update": USAGE} if state else None)


@pytest.mark.hazard("C6", "P12")
async def test_what_a_process_of_another_epoch_says_is_nobodys_whichever_comes_first(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    old, spare = stage.process(0), stage.process(2)
    for _ in range(2):
        stage.says(chunk("old"), USAGE, link=old)
        stage.says(chunk("new"))
        stage.says(chunk("spare"), link=spare)
    assert [update["content"]["text"] for update in stage.shown()] == ["new", "new"]
    assert stage.settings.kept == []


@pytest.mark.hazard("C6")
async def test_a_change_of_the_state_counts_from_the_next_update_on_also_within_one_read(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    update: Json = {"sessionId": "0", "update": chunk("a")}
    stage.from_agent.on_update(stage.link, update)
    stage.enter(State.KILLING)
    stage.from_agent.on_update(stage.link, update)
    stage.enter(State.RELOADING)
    stage.from_agent.on_update(stage.link, update)
    stage.enter(State.RUNNING)
    stage.from_agent.on_update(stage.link, update)
    stage.from_agent.on_batch_end(stage.link)
    assert len(stage.shown()) == 2


@pytest.mark.hazard("C6", "C16")
async def test_a_leak_of_a_turn_before_makes_the_process_unclean_and_the_rest_is_shown(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.says(card("old"))
    stage.updates.close_cards()
    stage.updates.new_turn(2)
    stage.shown()
    stage.says(chunk("before"), {**card("old", opens=False), "status": "completed"}, chunk("after"))
    assert stage.shown() == [chunk("before"), chunk("after")]
    assert stage.core.fed == [ev.Leaked(1)]


async def test_the_title_of_a_tool_call_or_of_usage_is_not_that_of_the_session(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.says({**card("c"), "title": "mend"}, {**USAGE, "title": "not a title"})
    assert "_keep" not in stage.core.spawned
    stage.says({"sessionUpdate": "session_info_update", "title": "a title"})
    assert "_keep" in stage.core.spawned


@pytest.mark.hazard("T3", "K2")
@pytest.mark.parametrize("odd", [None, [], "text", {}, {"sessionUpdate": 5}, {"sessionUpdate": []}])
async def test_an_update_without_a_kind_is_dropped_and_hides_no_other(
    journal: SessionJournal, odd: Any
) -> None:
    stage = Stage(journal)
    stage.says(chunk("a"), odd, chunk("b"))
    assert stage.shown() == [chunk("a"), chunk("b")]


@pytest.mark.hazard("P13")
async def test_ids_that_were_given_out_are_kept_for_the_next_bridge(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.says(card("t"), chunk("a", "m"))
    assert journal.used_ids() == {"t", "m"}


@pytest.mark.hazard("K1", "Q8")
@pytest.mark.parametrize("write", ["INSERT ON used_ids", "INSERT ON updates", "INSERT ON settings"])
async def test_a_journal_that_cannot_be_written_keeps_nothing_from_the_client(
    journal: SessionJournal, write: str
) -> None:
    stage = Stage(journal)
    with failing(journal, write):
        stage.says(card("t"), USAGE)
    shown = [update for update in stage.shown() if "content" not in update]  # but the notice
    assert shown == [card("t"), USAGE]
    stage.says(chunk("on"))
    assert stage.shown() == [chunk("on")]


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.hazard("T2")
async def test_a_request_comes_after_what_was_said_before_it_in_the_same_read(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.from_agent.on_update(stage.link, {"sessionId": "0", "update": card("t")})
    stage.link.asks("fs/read_text_file", {"sessionId": "0", "path": "/x"})
    shown, asked = stage.client.sent.take()
    assert shown["params"]["update"] == card("t")
    assert asked["params"] == {"sessionId": "s", "path": "/x"}
    assert len(await recorded(journal)) == 1
    stage.client.answers(asked["id"], {"content": "c"})
    assert stage.answers() == [{"content": "c"}]


@pytest.mark.hazard("P12", "C19")
@pytest.mark.parametrize("state", State)
async def test_who_does_not_have_the_session_asks_the_client_only_early_for_a_login(
    journal: SessionJournal, state: State
) -> None:
    stage = Stage(journal)
    stage.enter(state)
    stage.link.asks("_x/login", {"url": "u"})
    stage.process(2).asks("_x/login", {"url": "u"})
    early = {State.STARTING, State.BLOCKED, State.UNAUTHENTICATED}
    having = {State.RELOADING, State.IDLE, State.WORKING, State.RUNNING, State.DRAINING}
    assert len(stage.client.sent.take()) == (state in early | having)
    assert stage.answers() == ([] if state in early | having else [CANCELLED])


@pytest.mark.hazard("P12")
async def test_a_request_of_another_epoch_is_refused_in_every_state(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    for state in State:
        stage.enter(state)
        other = stage.process(2)
        other.asks("fs/read_text_file", {"sessionId": "0"})
        assert stage.answers(other) == [CANCELLED]
    assert stage.client.sent.take() == []


@pytest.mark.hazard("C19", "C15")
async def test_while_draining_changes_are_refused_and_the_process_is_not_unclean_for_it(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.enter(State.DRAINING)
    stage.link.asks("fs/write_text_file", {}, 1)
    stage.link.asks(REQUEST_PERMISSION, {}, 2)
    stage.link.asks("fs/read_text_file", {}, 3)
    assert stage.answers() == [CANCELLED, {"outcome": {"outcome": "cancelled"}}]
    assert [message["method"] for message in stage.client.sent.take()] == ["fs/read_text_file"]
    assert stage.core.fed == []


@pytest.mark.hazard("C6", "C19")
async def test_a_change_after_a_cancelled_turn_is_refused_and_makes_the_process_unclean(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.enter(State.IDLE, Phase.LEAK)
    stage.link.asks("fs/read_text_file", {}, 1)
    assert stage.core.take() == []
    for number, method in enumerate(["terminal/create", REQUEST_PERMISSION], 2):
        stage.link.asks(method, {}, number)
        assert stage.core.take() == [ev.Leaked(1)]
    assert stage.answers() == [CANCELLED, {"outcome": {"outcome": "cancelled"}}]
    assert [message["method"] for message in stage.client.sent.take()] == ["fs/read_text_file"]


@pytest.mark.hazard("C6")
@pytest.mark.parametrize("said", [chunk("x", "m"), card("t"), card("t", opens=False), card("new")])
async def test_what_is_of_a_cancelled_turn_or_new_work_after_it_is_unclean(
    journal: SessionJournal, said: Json
) -> None:
    stage = Stage(journal)
    stage.says(chunk("a", "m"), card("t"))
    stage.updates.close_cards()
    stage.client.sent.take()
    stage.enter(State.IDLE, Phase.LEAK)
    stage.says(said)
    assert stage.core.fed == [ev.Leaked(1)]
    assert stage.shown() == []


@pytest.mark.hazard("C6")
async def test_what_the_client_asked_for_after_a_cancelled_turn_is_shown_but_no_rest_of_that_turn(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.says(chunk("a", "m"), card("t"))
    stage.updates.close_cards()
    stage.client.sent.take()
    stage.enter(State.IDLE, Phase.LEAK)
    stage.to_agent.busy = True
    stage.says(chunk("[MODE_UPDATE] plan", "other"), card("new"))
    assert [update["sessionUpdate"] for update in stage.shown()] == [AGENT_MESSAGE, TOOL_CALL]
    stage.link.asks(REQUEST_PERMISSION, {"toolCall": {"toolCallId": "new"}})
    assert [message["method"] for message in stage.client.sent.take()] == [REQUEST_PERMISSION]
    assert stage.core.fed == []
    stage.says(card("t", opens=False))
    assert stage.core.fed == [ev.Leaked(1)]


@pytest.mark.hazard("C16", "P13")
async def test_a_permission_in_a_later_turn_is_asked_afresh_though_its_id_was_used_before(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.link.asks(REQUEST_PERMISSION, {"toolCall": {"toolCallId": "always"}})
    stage.updates.close_cards()
    stage.updates.new_turn(2)
    stage.client.sent.take()
    stage.link.asks(REQUEST_PERMISSION, {"toolCall": {"toolCallId": "always"}}, 1)
    (asked,) = stage.client.sent.take()
    assert asked["params"]["toolCall"]["toolCallId"] == "always~2"
    assert stage.core.fed == []


# --- notifications --------------------------------------------------------------------------------


def notifies(link: MemoryLink, method: str, params: Any) -> None:
    link.says({"method": method, "params": params})


@pytest.mark.hazard("T3", "P13")
async def test_a_notification_passes_in_its_place_with_the_sessions_own_id(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal, ClientEnd(), ClientEnd())
    stage.from_agent.on_update(stage.link, {"sessionId": "0", "update": chunk("a")})
    notifies(stage.link, "_x/y", {"sessionId": "0", "n": 1})
    notifies(stage.link, "_x/y", [1])
    for end in stage.clients:
        shown, named, bare = end.sent.take()
        assert shown["params"]["update"] == chunk("a")
        assert named["params"] == {"sessionId": "s", "n": 1}
        assert bare["params"] == [1]


@pytest.mark.parametrize("state", State)
async def test_notifications_pass_only_while_a_process_of_this_epoch_may_say_something(
    journal: SessionJournal, state: State
) -> None:
    stage = Stage(journal)
    stage.enter(state)
    notifies(stage.link, "_x/y", {"n": 1})
    notifies(stage.process(2), "_x/y", {"n": 2})
    silent = state in (State.COLD, State.KILLING, State.CLOSED)
    assert [m["params"] for m in stage.client.sent.take()] == ([] if silent else [{"n": 1}])


@pytest.mark.hazard("P13")
async def test_an_agent_takes_its_request_back_by_the_id_that_the_client_knows(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.link.asks("_x/y", {}, "mine")
    (asked,) = stage.client.sent.take()
    notifies(stage.link, "$/cancel_request", {"requestId": "another"})
    notifies(stage.link, "$/cancel_request", ["mine"])
    assert stage.client.sent.take() == []
    stage.enter(State.KILLING)
    notifies(stage.link, "$/cancel_request", {"requestId": "mine"})
    assert stage.client.sent.take()[0]["params"] == {"requestId": asked["id"]}


# --- pace -----------------------------------------------------------------------------------------


async def test_an_agent_is_read_at_once_while_every_client_reads(journal: SessionJournal) -> None:
    stage = Stage(journal, ClientEnd(), ClientEnd())
    stage.client.sent.stuck = LIMIT - 1
    with anyio.fail_after(5):
        await stage.from_agent.room(stage.link)


@pytest.mark.hazard("R6")
async def test_an_agent_is_read_on_when_the_slowest_of_the_clients_reads_again(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal, ClientEnd(), ClientEnd())
    for end in stage.clients:
        end.sent.stuck = LIMIT
    async with beside(stage.from_agent.room, stage.link) as room:
        stage.clients[0].sent.take_all()
        await quiet()
        assert not room.ended
        stage.clients[1].sent.take_all()


@pytest.mark.hazard("R6")
async def test_an_agent_waits_too_for_a_client_that_is_behind_with_a_replay(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.views[0].begin_replay()
    stage.says(chunk("x" * LIMIT))
    async with beside(stage.from_agent.room, stage.link) as room:
        assert not room.ended
        stage.views[0].end_replay()
    assert stage.shown() == [chunk("x" * LIMIT)]


@pytest.mark.hazard("C7", "C4")
@pytest.mark.parametrize("behind", [True, False])
async def test_a_cancel_lets_an_agent_be_read_on_whose_client_does_not_read(
    journal: SessionJournal, behind: bool
) -> None:
    stage = Stage(journal)
    if behind:
        stage.views[0].begin_replay()
        stage.says(chunk("x" * LIMIT))
    else:
        stage.client.sent.stuck = LIMIT
    async with beside(stage.from_agent.room, stage.link) as room:
        stage.from_agent.follow(stage.core.state, stage.core.state)
        await quiet()
        assert not room.ended
        stage.enter(State.DRAINING)
    with anyio.fail_after(5):
        await stage.from_agent.room(stage.link)
    # The next turn waits for the client as before.
    stage.enter(State.RUNNING)
    async with beside(stage.from_agent.room, stage.link) as room:
        assert not room.ended
        stage.enter(State.KILLING)


@pytest.mark.hazard("C7")
async def test_a_spare_process_is_always_read_and_takes_no_cancel_from_the_one_that_waits(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.client.sent.stuck = LIMIT
    async with beside(stage.from_agent.room, stage.link) as current:
        async with beside(stage.from_agent.room, stage.process(2)) as spare:
            await quiet()
            assert spare.ended
        assert not current.ended
        stage.enter(State.DRAINING)


@pytest.mark.hazard("Q8")
async def test_a_reader_that_is_cancelled_while_it_waits_leaves_the_next_one_free_to_wait(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.client.sent.stuck = LIMIT
    async with beside(stage.from_agent.room, stage.link) as room:
        room.cancel()
    stage.from_agent.follow(stage.core.state, stage.core.state)
    async with beside(stage.from_agent.room, stage.link) as room:
        assert not room.ended
        stage.client.sent.take_all()


@pytest.mark.hazard("P3")
async def test_the_end_of_a_process_is_told_with_its_epoch(journal: SessionJournal) -> None:
    stage = Stage(journal)
    exited = Exit(3, None)
    stage.from_agent.on_gone(stage.process(2), exited)
    stage.from_agent.on_dead(stage.link)
    assert stage.core.fed == [ev.AgentExited(2, exited), ev.TreeDead(1)]
