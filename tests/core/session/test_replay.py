"""Loads: the transcript as it was shown, then the answer, then what happened meanwhile."""

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.history import History
from acp_bridge.core.journal import JournalError
from acp_bridge.core.protocol import (
    REQUEST_PERMISSION,
    SESSION_LOAD,
    SESSION_PROMPT,
    SESSION_RESUME,
    STATE,
    USER_MESSAGE,
    text_chunk,
    user_chunk,
)
from acp_bridge.core.updates import notices
from acp_bridge.core.wire.jsonrpc import RpcError, encode
from tests.core.session.journals import recorded, unreadable
from tests.core.session.living import DONE, Living, first, living
from tests.core.session.memory import ClientEnd, Json
from tests.core.session.waiting import Beside, beside, quiet, until

pytestmark = pytest.mark.usefixtures("no_errors")

LIMIT = 1000
#: more than one page of a replay holds.
LONG, MORE = "x" * 40_000, "y" * 40_000
OPTIONS = [{"id": "a", "type": "boolean"}, {"id": "b", "type": "select"}]
#: an agent that gives a session back by a load, which replays it.
REPLAYS = {"loadSession": True}


def user(text: str) -> Json:
    return user_chunk({"type": "text", "text": text})


def agent(text: str) -> Json:
    return text_chunk("agent_message_chunk", text, text[:5])


def records(here: Living, *updates: Json) -> None:
    """Write these as one read of an agent each."""
    for update in updates:
        here.journal.record(0, encode({"update": update}))


def say(here: Living, text: str) -> None:
    here.session.transcript.show({"update": agent(text)})
    here.session.transcript.flush()


async def load(
    here: Living, client: ClientEnd, history: History = History.FULL, *, attached: bool = False
) -> None:
    request = client.asks(SESSION_LOAD, {"sessionId": "s"}, len(client.requests) + 1)
    await here.session.replay.load(request, history, attached=attached)


async def loads(
    here: Living, client: ClientEnd, history: History = History.FULL, *, attached: bool = False
) -> tuple[list[Any], Json]:
    """Load the session; returns what was shown before the answer, and its result."""
    await load(here, client, history, attached=attached)
    *shown, answer = client.sent.take()
    return [shape(message) for message in shown], answer["result"]


def loading(here: Living, client: ClientEnd, failed: list[Exception] | None = None) -> Any:
    """Load the session beside the test, as a client that gets no further than a page.

    An error goes to `failed`.
    """

    async def run() -> None:
        try:
            await load(here, client)
        except (RpcError, JournalError) as error:
            assert failed is not None
            failed.append(error)

    return beside(run)


def stuck() -> ClientEnd:
    """Return a client that does not read."""
    client = ClientEnd()
    client.sent.stuck = LIMIT
    return client


def shown_to(client: ClientEnd) -> list[Any]:
    """Return what of the session the client was shown since it was looked at last."""
    sent = client.sent.take()
    return [shape(message) for message in sent if message.get("method") == "session/update"]


def shape(message: Json) -> Any:
    """Return the text of a message, or the whole of another update."""
    update = message["params"]["update"]
    return update["content"]["text"] if "messageId" in update else update


async def waits(client: ClientEnd, load: Beside) -> None:
    """Return when the load waits for the client behind the first page."""
    await until(lambda: client.sent.messages)
    await quiet()
    assert not load.ended


# --- what a client is shown -----------------------------------------------------------------------


@pytest.mark.hazard("R1.1", "R1.3", "R1.4")
async def test_a_load_shows_the_same_each_time_before_its_answer_and_changes_nothing(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as here:
        plan: Json = {"sessionUpdate": "plan", "entries": [1, None]}
        records(here, agent("hello"), {**plan, "_meta": {"x": 1}}, agent(LONG), agent("last"))
        before, first = await recorded(here.journal), ClientEnd()
        for client in (first, first, ClientEnd()):
            shown, result = await loads(here, client)
            assert shown == ["hello", {**plan, "_meta": {"x": 1}}, LONG, "last"]
            assert result == {"_meta": {"acp_bridge": {"agentSessionId": "0"}}}
        assert await recorded(here.journal) == before


@pytest.mark.hazard("R1.5")
async def test_a_resume_shows_nothing_and_is_answered_alike(tmp_path: Path) -> None:
    async with living(tmp_path) as here:
        client = ClientEnd()
        records(here, agent("hello"))
        here.session.user_settings.note_result({"modes": {"currentModeId": "m"}})
        resumed = await loads(here, client, History.PENDING)
        assert resumed == ([], (await loads(here, client))[1])
        say(here, "now")
        assert shown_to(client) == ["now"]


async def test_what_was_found_at_the_opening_is_shown_to_the_first_client_alone(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as here:
        here.session.replay.said = ["The folder differs."]
        shown, _ = await loads(here, ClientEnd())
        assert "".join(shown).strip() == "The folder differs."
        assert (await loads(here, ClientEnd()))[0] == []


@pytest.mark.hazard("R1", "T3")
async def test_the_last_state_of_each_kind_comes_last_in_one_order_fit_for_the_client(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as here:
        for kind in reversed(STATE):
            shown = {"update": {"sessionUpdate": kind, "configOptions": OPTIONS}}
            here.session.transcript.show(shown)
        records(here, agent("hello"))
        here.session.user_settings.note_result({"configOptions": OPTIONS})
        takes = ClientEnd({"session": {"configOptions": {"boolean": {}}}})
        for client, options in ((ClientEnd(), OPTIONS[1:]), (takes, OPTIONS)):
            (said, *states), result = await loads(here, client)
            assert said == "hello"
            assert [update["sessionUpdate"] for update in states] == list(STATE)
            told = {update["sessionUpdate"]: update["configOptions"] for update in states}
            assert told["config_option_update"] == options
            assert result["configOptions"] == options


@pytest.mark.hazard("R7.1")
async def test_a_replay_names_no_terminal(tmp_path: Path) -> None:
    async with living(tmp_path) as here:
        card: Json = {"sessionUpdate": "tool_call", "toolCallId": "t"}
        terminal = {"type": "terminal", "terminalId": "1"}
        records(here, {**card, "content": [terminal, {"type": "diff"}]})
        shown, _ = await loads(here, ClientEnd())
        assert shown[:1] == [{**card, "content": [{"type": "diff"}]}]


@pytest.mark.hazard("K2.2", "T3")
@pytest.mark.parametrize("record", [{"n": 1}, {"update": None}, {"update": ["odd"]}])
async def test_a_record_that_is_no_update_is_shown_as_it_is_and_hides_no_other(
    tmp_path: Path, record: Json
) -> None:
    async with living(tmp_path) as here:
        here.journal.record(0, encode(record))
        records(here, agent("next"))
        client = ClientEnd()
        await load(here, client)
        odd, following, _ = client.sent.take()
        assert odd["params"] == {"sessionId": "s", **record}
        assert shape(following) == "next"


@pytest.mark.hazard("R12.2")
@pytest.mark.parametrize("attached", [True, False])
@pytest.mark.parametrize("history", [History.FULL, History.PENDING])
async def test_held_prompts_are_named_in_the_session_and_in_the_answer_and_not_recorded(
    tmp_path: Path, history: History, attached: bool
) -> None:
    async with living(tmp_path) as here:
        words = [{"type": "text", "text": "old"}]
        here.journal.accept("p", {"sessionId": "s", "prompt": words})
        await here.session.recovery.run()
        (said,), result = await loads(here, ClientEnd(), history, attached=attached)
        assert "1 prompt was waiting" in said
        assert result["_meta"]["acp_bridge"]["held"] == [words]


async def test_who_wants_no_history_reads_of_unsent_prompts_in_the_answer_alone(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as here:
        words = [{"type": "text", "text": "old"}]
        here.journal.accept("p", {"sessionId": "s", "prompt": words})
        await here.session.recovery.run()
        shown, result = await loads(here, ClientEnd(), History.NONE, attached=True)
        assert shown == []
        assert result["_meta"]["acp_bridge"]["held"] == [words]
        assert await recorded(here.journal) == []


# --- what happens meanwhile -----------------------------------------------------------------------


@pytest.mark.hazard("R1", "R4.3", "T2")
async def test_what_happens_during_a_load_comes_once_and_after_its_answer(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, client_limit=LIMIT) as here:
        client = stuck()
        records(here, agent(LONG), agent(MORE), agent("end"))
        here.session.transcript.show({"update": agent("just said")})
        async with loading(here, client) as load:
            await waits(client, load)
            say(here, "meanwhile")
            assert here.texts() == ["just said", "meanwhile"]
            client.sent.take_all()
        *shown, answer, meanwhile = client.sent.take()
        assert [shape(message) for message in shown] == [LONG, MORE, "end", "just said"]
        assert answer["id"] == 1
        assert shape(meanwhile) == "meanwhile"
        say(here, "live")
        assert shown_to(client) == ["live"]
        assert here.texts()[2:] == ["live"]


@pytest.mark.hazard("R6.1", "P6")
async def test_no_more_than_a_page_is_read_for_a_client_that_does_not_read(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, client_limit=LIMIT) as here:
        client = stuck()
        records(here, *[agent(f"{number}{LONG}") for number in range(5)])
        async with loading(here, client) as load:
            await waits(client, load)
            assert len(client.sent.messages) == 1
            # Nobody else waits for that one.
            assert len((await loads(here, ClientEnd()))[0]) == 5
            client.sent.take_all()
        assert len(client.sent.messages) == 6


@pytest.mark.hazard("P11", "Q9")
async def test_a_session_that_is_closed_meanwhile_ends_the_load_as_unknown(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, client_limit=LIMIT) as here:
        client, failed = stuck(), list[Exception]()
        records(here, agent(LONG), agent(MORE), agent("end"))
        async with loading(here, client, failed) as load:
            await waits(client, load)
            say(here, "meanwhile")
            here.session.close()
            client.sent.take_all()
        (error,) = failed
        assert isinstance(error, RpcError)
        assert error.code == -32002
        # What waited behind it is on its way.
        assert shown_to(client) == [LONG, "meanwhile"]


@pytest.mark.hazard("Q8.1", "K4.1")
async def test_a_load_that_is_cancelled_lets_the_session_go_on_and_the_next_one_is_whole(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, client_limit=LIMIT) as here:
        client = stuck()
        records(here, agent(LONG), agent(MORE), agent("end"))
        async with loading(here, client) as load:
            await waits(client, load)
            say(here, "meanwhile")
            load.cancel()
        assert not here.journal._readers, "compaction would wait for it"
        assert shown_to(client) == [LONG, "meanwhile"]
        client.sent.take_all()
        shown, _ = await loads(here, client)
        assert shown == [LONG, MORE, "end", "meanwhile"]


@pytest.mark.hazard("Q8", "R3.2")
@pytest.mark.parametrize("table", ["updates", "settings"])
async def test_a_load_that_cannot_read_the_journal_fails_and_the_session_goes_on(
    tmp_path: Path, table: str
) -> None:
    async with living(tmp_path) as here:
        client, failed = ClientEnd(), list[Exception]()
        records(here, agent("hello"))
        here.session.transcript.attach(client.client)
        with unreadable(here.journal, table):
            async with loading(here, client, failed):
                say(here, "meanwhile")
        (error,) = failed
        assert isinstance(error, JournalError)
        assert "meanwhile" in shown_to(client)
        assert not any(view.full(1) for view in here.session.transcript.views)
        assert (await loads(here, client))[0][0] == "hello"


# --- what a process may repeat late ---------------------------------------------------------------


def repeats(here: Living, *updates: Json) -> list[bool]:
    """Return which of these the first process is known to repeat; it has the session then."""
    updates_of = here.session.updates
    late, updates_of.just_read = updates_of.just_read, None
    return [bool(late and late.covers(update)) for update in updates]


@pytest.mark.hazard("R11")
@pytest.mark.parametrize("times", [1, 2])
async def test_the_first_process_is_given_what_the_loads_have_read_and_no_other_one(
    tmp_path: Path, times: int
) -> None:
    async with living(tmp_path, capabilities=REPLAYS) as here:
        assert repeats(here, user("one")) == [False]
        records(here, user("one"), agent("first"))
        for _ in range(times):
            await loads(here, ClientEnd())
        said = (user("one"), agent("first"), agent("new"))
        assert repeats(here, *said) == [True, True, False]
        assert repeats(here, *said) == [False] * 3


@pytest.mark.hazard("R11", "T2")
async def test_a_load_of_a_session_that_a_process_has_or_gets_leaves_nothing_for_a_later_process(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, capabilities=REPLAYS, client_limit=LIMIT) as here:
        client = stuck()
        records(here, user("one"), agent(LONG), agent(MORE))
        async with loading(here, client) as load:
            await waits(client, load)
            here.session.wake()
            await until(lambda: here.session.link)
            client.sent.take_all()
        # Turns that ran since would not be in it.
        assert repeats(here, user("one")) == [False]
        await loads(here, ClientEnd())
        assert repeats(here, user("one")) == [False]


@pytest.mark.hazard("R11")
async def test_a_load_that_fails_or_a_resume_leaves_nothing_half_read(tmp_path: Path) -> None:
    async with living(tmp_path, capabilities=REPLAYS, client_limit=LIMIT) as here:
        client = stuck()
        records(here, user("one"), agent(LONG), agent(MORE))
        await loads(here, ClientEnd(), History.PENDING)
        async with loading(here, client) as load:
            await waits(client, load)
            load.cancel()
        assert repeats(here, user("one")) == [False]
        client.sent.take_all()


async def test_nothing_is_noted_for_an_agent_that_replays_nothing(tmp_path: Path) -> None:
    async with living(tmp_path) as here:
        records(here, user("one"))
        await loads(here, ClientEnd())
        assert repeats(here, user("one")) == [False]


@pytest.mark.hazard("R11")
async def test_what_the_bridge_itself_said_is_no_part_of_what_an_agent_repeats(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, capabilities=REPLAYS) as here:
        records(here, user("one"), agent("first"))
        here.session.transcript.record_only(notices.notice(notices.INTERRUPTED))
        here.session.transcript.flush()
        records(here, user("two"), agent("second"))
        await loads(here, ClientEnd())
        said = [user("one"), agent("first"), user("two"), agent("second")]
        assert repeats(here, *said) == [True] * 4


async def test_the_users_messages_have_an_id_in_a_replay_one_for_each_prompt(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        for words in ("one", "two"):
            asked = here.prompt(words)
            agent.answer(await agent.asked(SESSION_PROMPT), DONE)
            assert await here.answered(asked) == DONE
        given = {**user("its own"), "messageId": "theirs"}
        here.journal.record(0, encode({"update": given}))

        async def ids() -> list[Any]:
            client = ClientEnd()
            await load(here, client)
            updates = [m["params"]["update"] for m in client.sent.take() if "params" in m]
            return [u.get("messageId") for u in updates if u["sessionUpdate"] == USER_MESSAGE]

        one, two, third = await ids()
        assert isinstance(one, str)
        assert one
        assert one != two
        assert third == "theirs"
        assert await ids() == [one, two, third]


@pytest.mark.hazard("V3.6")
async def test_only_a_client_that_came_in_the_turn_is_asked_with_the_whole_call(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        played, late = await here.agent(), ClientEnd()
        here.prompt()
        turn = await played.asked(SESSION_PROMPT)
        played.update(sessionUpdate="tool_call", toolCallId="t", title="make", status="pending")
        here.session.transcript.attach(late.client)
        await here.session.replay.load(here.request(SESSION_RESUME), History.PENDING)
        options = [{"optionId": "y", "name": "Yes", "kind": "allow_once"}]
        asked = {"sessionId": "0", "toolCall": {"toolCallId": "t"}, "options": options}
        played.asks(REQUEST_PERMISSION, asked)
        for client, title in ((here.client, None), (late, "make")):
            (permission,) = [m for m in client.sent.take() if m.get("method") == REQUEST_PERMISSION]
            assert permission["params"]["toolCall"].get("title") == title
        played.answer(turn, DONE)
