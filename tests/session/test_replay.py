"""Loads: the transcript as it was shown, then the answer, then what happened meanwhile."""

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from acp_bridge.clients.client import Client, ClientRequest
from acp_bridge.journal import JournalError, SessionJournal
from acp_bridge.protocol import STATE, text_chunk, user_chunk
from acp_bridge.session.clients.audience import Audience
from acp_bridge.session.clients.replay import Replay
from acp_bridge.session.prompts.pauses import Pauses
from acp_bridge.session.prompts.prompts import Prompts
from acp_bridge.session.recovery import Recovery
from acp_bridge.session.requests.user_settings import UserSettings
from acp_bridge.session.transcript.transcript_out import TranscriptOut
from acp_bridge.updates import notices
from acp_bridge.updates.late_replay import LateReplay
from acp_bridge.updates.updates import Updates
from acp_bridge.wire.jsonrpc import RpcError, encode
from tests.session.journals import recorded, unreadable
from tests.session.memory import ClientEnd
from tests.session.played_core import PlayedCore
from tests.session.waiting import Beside, beside, quiet, until

Json = dict[str, Any]
LIMIT = 1000
#: more than one page of a replay holds.
LONG, MORE = "x" * 40_000, "y" * 40_000
OPTIONS = [{"id": "a", "type": "boolean"}, {"id": "b", "type": "select"}]


def user(text: str) -> Json:
    return user_chunk({"type": "text", "text": text})


def agent(text: str) -> Json:
    return text_chunk("agent_message_chunk", text, text[:5])


def prompt(words: str) -> Json:
    return {"sessionId": "s", "prompt": [{"type": "text", "text": words}]}


class PlayedAudience(Audience):
    """The clients of a session, as far as a load needs them."""

    def __init__(self) -> None:
        #: the clients that have been shown the session.
        self.welcomed: list[Client] = []
        #: what is said to a client that loads of work that goes on.
        self.work: str | None = None

    def welcome(self, client: Client) -> None:
        self.welcomed.append(client)

    def at_work(self, client: Client) -> str | None:
        return self.work


class Stage:
    """A session of the journal, before a process has it; clients load it."""

    def __init__(self, journal: SessionJournal, *, agent_replays: bool = True) -> None:
        self.journal = journal
        self.core = PlayedCore()
        self.core.epoch = 0
        self.audience = PlayedAudience()
        self.transcript = TranscriptOut("s", journal, Updates(set()))
        self.prompts = Prompts(journal, self.transcript, self.core, checkpoint)
        self.settings = UserSettings(journal)
        self.updates = updates = Updates(set())
        self.replay = Replay(
            self.core,
            journal,
            self.transcript,
            self.prompts,
            self.settings,
            Pauses(self.core, self.transcript, None),
            self.audience,
            Recovery(journal, self.prompts, updates),
            updates,
            LIMIT,
            agent_replays=agent_replays,
        )
        self.client = ClientEnd()
        #: how the latest load failed.
        self.failed: Exception | None = None
        self._asked = 0

    def replayed(self) -> LateReplay | None:
        """Take the conversation that a load has read, as the first process does."""
        replayed, self.updates.just_read = self.updates.just_read, None
        return replayed

    def records(self, *updates: Json, turn: int = 0) -> None:
        """Write these as one read of an agent each."""
        for update in updates:
            self.journal.record(turn, encode({"update": update}))

    def say(self, text: str) -> None:
        self.transcript.show({"update": agent(text)})
        self.transcript.flush()

    async def loads(
        self, client: ClientEnd | None = None, *, replay: bool = True
    ) -> tuple[list[Any], Json]:
        """Load the session; returns what was shown before the answer, and its result."""
        client = client or self.client
        with anyio.fail_after(5):
            await self.replay.load(self.request(client), replay=replay)
        *shown, answer = client.sent.take()
        return [shape(message) for message in shown], answer["result"]

    def request(self, client: ClientEnd) -> ClientRequest:
        self._asked += 1
        return client.asks("session/load", {"sessionId": "s"}, self._asked)

    def loading(self, client: ClientEnd | None = None) -> Any:
        """Load the session beside the test; a client that is stuck gets no further than a page."""

        async def load() -> None:
            try:
                await self.replay.load(self.request(client or self.client), replay=True)
            except (RpcError, JournalError) as error:
                self.failed = error

        self.failed = None
        return beside(load)


def shape(message: Json) -> Any:
    """Return the text of a message, or the whole of another update."""
    update = message["params"]["update"]
    return update["content"]["text"] if "messageId" in update else update


async def stuck(client: ClientEnd, load: Beside) -> None:
    """Return when the load waits for the client behind the first page."""
    await until(lambda: client.sent.messages)
    await quiet()
    assert not load.ended


# --- what a client is shown -----------------------------------------------------------------------


@pytest.mark.hazard("R1")
async def test_a_load_shows_the_same_each_time_before_its_answer_and_changes_nothing(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    plan: Json = {"sessionUpdate": "plan", "entries": [1, None]}
    stage.records(agent("hello"), {**plan, "_meta": {"x": 1}}, agent(LONG), agent("last"))
    before = await recorded(journal)
    for client in (stage.client, stage.client, ClientEnd()):
        shown, result = await stage.loads(client)
        assert shown == ["hello", {**plan, "_meta": {"x": 1}}, LONG, "last"]
        assert result == {"_meta": {"acp_bridge": {"agentSessionId": "0"}}}
    assert await recorded(journal) == before


@pytest.mark.hazard("R1")
async def test_a_resume_shows_nothing_and_is_answered_alike(journal: SessionJournal) -> None:
    stage = Stage(journal)
    stage.records(agent("hello"))
    stage.settings.note_result({"modes": {"currentModeId": "m"}})
    assert await stage.loads(replay=False) == ([], (await stage.loads())[1])
    stage.say("now")
    assert [shape(message) for message in stage.client.sent.take()] == ["now"]


@pytest.mark.hazard("R1", "T3")
async def test_the_last_state_of_each_kind_comes_last_in_one_order_fit_for_the_client(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    for kind in reversed(STATE):
        stage.transcript.show({"update": {"sessionUpdate": kind, "configOptions": OPTIONS}})
    stage.records(agent("hello"))
    stage.settings.note_result({"configOptions": OPTIONS})
    shown, result = await stage.loads()
    assert shown[0] == "hello"
    assert [update["sessionUpdate"] for update in shown[1:]] == list(STATE)
    options = {update["sessionUpdate"]: update["configOptions"] for update in shown[1:]}
    assert options["config_option_update"] == OPTIONS[1:]
    assert result["configOptions"] == OPTIONS[1:]
    takes = ClientEnd({"session": {"configOptions": {"boolean": {}}}})
    shown, result = await stage.loads(takes)
    assert all(update["configOptions"] == OPTIONS for update in shown[1:])
    assert result["configOptions"] == OPTIONS


@pytest.mark.hazard("R7")
async def test_a_replay_names_no_terminal(journal: SessionJournal) -> None:
    stage = Stage(journal)
    card: Json = {"sessionUpdate": "tool_call", "toolCallId": "t"}
    stage.records({**card, "content": [{"type": "terminal", "terminalId": "1"}, {"type": "diff"}]})
    shown, _ = await stage.loads()
    assert shown[:1] == [{**card, "content": [{"type": "diff"}]}]


@pytest.mark.hazard("R12")
@pytest.mark.parametrize("replay", [True, False])
async def test_held_prompts_are_named_in_the_session_and_in_the_answer_and_not_recorded(
    journal: SessionJournal, replay: bool
) -> None:
    stage = Stage(journal)
    stage.prompts.add_left_over(prompt("old"), 1)
    (said,), result = await stage.loads(replay=replay)
    assert "1 prompt was waiting" in said
    assert result["_meta"]["acp_bridge"]["held"] == [prompt("old")["prompt"]]
    assert await recorded(journal) == []


# --- what happens meanwhile -----------------------------------------------------------------------


@pytest.mark.hazard("R1", "R4", "T2")
async def test_what_happens_during_a_load_comes_once_and_after_its_answer(
    journal: SessionJournal,
) -> None:
    stage, other = Stage(journal), ClientEnd()
    stage.transcript.attach(other.client)
    stage.records(agent(LONG), agent(MORE), agent("end"))
    stage.transcript.show({"update": agent("just said")})
    stage.client.sent.stuck = LIMIT
    async with stage.loading() as load:
        await stuck(stage.client, load)
        stage.say("meanwhile")
        assert [shape(message) for message in other.sent.take()] == ["just said", "meanwhile"]
        stage.client.sent.take_all()
    *shown, answer, meanwhile = stage.client.sent.take()
    assert [shape(message) for message in shown] == [LONG, MORE, "end", "just said"]
    assert answer["id"] == 1
    assert shape(meanwhile) == "meanwhile"
    stage.say("live")
    for end in (stage.client, other):
        assert [shape(message) for message in end.sent.take()] == ["live"]


@pytest.mark.hazard("R6", "P6")
async def test_no_more_than_a_page_is_read_for_a_client_that_does_not_read(
    journal: SessionJournal,
) -> None:
    stage, quick = Stage(journal), ClientEnd()
    stage.records(*[agent(f"{number}{LONG}") for number in range(5)])
    stage.client.sent.stuck = LIMIT
    async with stage.loading() as load:
        await stuck(stage.client, load)
        assert len(stage.client.sent.messages) == 1
        # Nobody else waits for that one.
        assert len((await stage.loads(quick))[0]) == 5
        stage.client.sent.take_all()
    assert len(stage.client.sent.messages) == 6


@pytest.mark.hazard("P11", "Q9")
async def test_a_session_that_is_closed_meanwhile_ends_the_load_as_unknown(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.records(agent(LONG), agent(MORE), agent("end"))
    stage.client.sent.stuck = LIMIT
    async with stage.loading() as load:
        await stuck(stage.client, load)
        stage.core.closing = True
        stage.say("meanwhile")
        stage.client.sent.take_all()
    assert isinstance(stage.failed, RpcError)
    assert stage.failed.code == -32002
    # What waited behind it is on its way.
    assert [shape(message) for message in stage.client.sent.take()] == [LONG, "meanwhile"]


@pytest.mark.hazard("Q8", "K4")
async def test_a_load_that_is_cancelled_lets_the_session_go_on_and_the_next_one_is_whole(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.records(agent(LONG), agent(MORE), agent("end"))
    stage.client.sent.stuck = LIMIT
    async with stage.loading() as load:
        await stuck(stage.client, load)
        stage.say("meanwhile")
        load.cancel()
    assert not journal._readers, "compaction would wait for it"
    assert [shape(message) for message in stage.client.sent.take()] == [LONG, "meanwhile"]
    stage.client.sent.take_all()
    shown, _ = await stage.loads()
    assert shown == [LONG, MORE, "end", "meanwhile"]


@pytest.mark.hazard("Q8", "R3")
@pytest.mark.parametrize("table", ["updates", "settings"])
async def test_a_load_that_cannot_read_the_journal_fails_and_the_session_goes_on(
    journal: SessionJournal, table: str
) -> None:
    stage = Stage(journal)
    stage.records(agent("hello"))
    stage.transcript.attach(stage.client.client)
    with unreadable(journal, table):
        async with stage.loading():
            stage.say("meanwhile")
    assert isinstance(stage.failed, JournalError)
    assert "meanwhile" in [shape(message) for message in stage.client.sent.take()]
    assert not stage.transcript.views[0].full(1)
    assert (await stage.loads())[0][0] == "hello"


# --- what a process may repeat late ---------------------------------------------------------------


def repeats(stage: Stage, *updates: Json) -> list[bool]:
    late = stage.replayed()
    return [bool(late and late.covers(update)) for update in updates]


@pytest.mark.hazard("R11")
async def test_the_first_process_is_given_what_the_load_has_read_and_no_other_one(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    assert stage.replayed() is None
    stage.records(user("one"), agent("first"))
    await stage.loads()
    assert repeats(stage, user("one"), agent("first"), agent("new")) == [True, True, False]
    assert stage.replayed() is None


@pytest.mark.hazard("R11")
async def test_a_second_load_before_a_process_has_the_session_counts_as_the_first_does(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.records(user("one"))
    await stage.loads()
    await stage.loads(ClientEnd())
    assert repeats(stage, user("one")) == [True]


@pytest.mark.hazard("R11", "T2")
async def test_a_load_of_a_session_that_a_process_had_leaves_nothing_for_a_later_process(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.core.epoch = 1
    stage.records(user("one"))
    await stage.loads()
    # Turns that ran since would not be in it.
    assert stage.replayed() is None


@pytest.mark.hazard("R11", "T2")
async def test_a_process_that_was_given_the_session_during_the_load_leaves_nothing_either(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.records(user("one"), agent(LONG), agent(MORE))
    stage.client.sent.stuck = LIMIT
    async with stage.loading() as load:
        await stuck(stage.client, load)
        stage.core.epoch = 1
        assert stage.replayed() is None
        stage.client.sent.take_all()
    assert stage.replayed() is None


@pytest.mark.hazard("R11")
async def test_a_load_that_fails_or_a_resume_leaves_nothing_half_read(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.records(user("one"), agent(LONG), agent(MORE))
    await stage.loads(replay=False)
    stage.client.sent.stuck = LIMIT
    async with stage.loading() as load:
        await stuck(stage.client, load)
        load.cancel()
    assert stage.replayed() is None


async def test_nothing_is_noted_for_an_agent_that_replays_nothing(journal: SessionJournal) -> None:
    stage = Stage(journal, agent_replays=False)
    stage.records(user("one"))
    await stage.loads()
    assert stage.replayed() is None


@pytest.mark.hazard("R11")
async def test_what_the_bridge_itself_said_is_no_part_of_what_an_agent_repeats(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    stage.records(user("one"), agent("first"))
    stage.transcript.record_only(notices.notice(notices.INTERRUPTED))
    stage.transcript.flush()
    stage.records(user("two"), agent("second"))
    await stage.loads()
    said = [user("one"), agent("first"), user("two"), agent("second")]
    assert repeats(stage, *said) == [True] * 4
