"""Prompts: written down in the order of reading, answered once, held for the user's word."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from acp_bridge.journal import Journal, PromptState, SessionJournal
from acp_bridge.journal.errors import JournalError
from acp_bridge.machine import events as ev
from acp_bridge.machine.effects import Cancelled, Done, Failed, Failure, Outcome, Replied
from acp_bridge.protocol import ACCEPTED, text_chunk
from acp_bridge.runtime import waits
from acp_bridge.session.prompts.prompts import Prompts
from acp_bridge.session.transcript.transcript_out import TranscriptOut
from acp_bridge.updates.updates import Updates
from acp_bridge.wire.jsonrpc import Err, Ok, RpcError
from tests.session.journals import break_sync, failing, recorded_texts, states
from tests.session.memory import ClientEnd, Outgoing
from tests.session.played_core import PlayedCore
from tests.session.waiting import quiet, until

Json = dict[str, Any]
HEARS: Json = {"_meta": {"acp_bridge": {"accepted": True}}}
WAITING, HELD, SENT, DONE = PromptState
END_TURN: Json = {"stopReason": "end_turn"}


def prompt(words: str) -> Json:
    return {"sessionId": "s", "prompt": [{"type": "text", "text": words}]}


class Stage:
    """A session that a client has, and its prompts."""

    def __init__(
        self, journal: SessionJournal, tasks: TaskGroup | None, client: ClientEnd | None = None
    ) -> None:
        self.journal = journal
        self.client = client or ClientEnd()
        self.core = PlayedCore(tasks)
        self.transcript = TranscriptOut("s", journal, Updates(set()))
        self.view = self.transcript.attach(self.client.client)
        self.touched, self.untouchable = 0, False
        self.prompts = Prompts(journal, self.transcript, self.core, self.touch)

    async def touch(self) -> None:
        self.touched += 1
        if self.untouchable:
            raise JournalError("no")

    def receives(self, request_id: Any, end: ClientEnd | None = None) -> int:
        """Take a prompt of a client; returns its key."""
        params = prompt(str(request_id))
        asked = (end or self.client).asks("session/prompt", params, request_id)
        return self.prompts.add(params, asked)

    async def accepted(self, *request_ids: Any) -> list[int]:
        """Take prompts up to their commit; returns their keys."""
        keys = [self.receives(request_id) for request_id in request_ids]
        for key in keys:
            self.prompts.commit(key)
        await until(lambda: len(self.core.fed) == len(keys))
        assert self.core.take() == [ev.Committed(key) for key in keys]
        return keys

    async def running(self, request_id: Any = 1) -> int:
        """Take a prompt up to its turn; returns its key."""
        (key,) = await self.accepted(request_id)
        self.transcript.seq = self.prompts.get(key).seq
        self.journal.start_turn(self.transcript.seq)
        return key

    def said(self, text: str) -> None:
        self.transcript.show({"update": text_chunk("agent_message_chunk", text, text)})


@asynccontextmanager
async def staged(journal: SessionJournal, client: ClientEnd | None = None) -> AsyncIterator[Stage]:
    """Give a stage; what it spawned has ended when the block is left."""
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            yield Stage(journal, tasks, client)


# --- accept ---------------------------------------------------------------------------------------


@pytest.mark.hazard("K1", "Q3", "Q10")
async def test_prompts_are_written_at_once_in_the_order_of_reading_and_committed_when_durable(
    journal: SessionJournal,
) -> None:
    async with staged(journal) as stage:
        keys = [stage.receives(number) for number in (1, 2)]
        async with journal._file._syncing:
            for key in keys:
                stage.prompts.commit(key)
            assert [row.params for row in journal.prompts()] == [prompt("1"), prompt("2")]
            await quiet()
            assert stage.core.fed == []
    assert stage.core.fed == [ev.Committed(key) for key in keys]
    assert [stage.prompts.get(key).seq for key in keys] == [row.seq for row in journal.prompts()]


@pytest.mark.hazard("K1")
@pytest.mark.parametrize("hears", [True, False])
async def test_a_client_that_asked_for_it_is_told_when_its_prompt_is_on_disk(
    journal: SessionJournal, hears: bool
) -> None:
    async with staged(journal, ClientEnd(HEARS if hears else {})) as stage:
        await stage.accepted("mine")
    (row,) = journal.prompts()
    told = {"sessionId": "s", "requestId": "mine", "promptId": row.prompt_id}
    expected = [{"jsonrpc": "2.0", "method": ACCEPTED, "params": told}]
    assert stage.client.sent.take() == (expected if hears else [])


@pytest.mark.hazard("K1", "Q9")
@pytest.mark.parametrize("write", ["INSERT ON prompts", "INSERT ON prompt_params", "sync"])
async def test_a_prompt_that_cannot_be_written_is_refused_and_never_offered_again(
    journal: SessionJournal, write: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(journal, ClientEnd(HEARS)) as stage:
        key = stage.receives(1)
        if write == "sync":
            break_sync(monkeypatch)
            stage.prompts.commit(key)
        else:
            with failing(journal, write):
                stage.prompts.commit(key)
        await until(lambda: stage.core.fed)
        (failed,) = stage.core.fed
        assert isinstance(failed, ev.CommitFailed)
        assert failed.key == key
        assert stage.client.sent.take() == []
        stage.prompts.answer(key, Failed(Failure.JOURNAL, failed.detail))
    assert "not taken" in stage.client.sent.take()[0]["error"]["message"]
    assert journal.recover() == []


@pytest.mark.hazard("K1", "Q9")
async def test_a_prompt_for_a_session_whose_file_was_removed_is_refused_and_the_client_told_why(
    journal: SessionJournal,
) -> None:
    async with staged(journal) as stage:
        shutil.rmtree(journal._file.path.parent)
        key = stage.receives(1)
        stage.prompts.commit(key)
        await until(lambda: stage.core.fed)
        (failed,) = stage.core.fed
        assert isinstance(failed, ev.CommitFailed)
        stage.prompts.answer(key, Failed(Failure.JOURNAL, failed.detail))
    (told,) = stage.client.sent.take()
    assert "was removed or replaced" in told["error"]["message"]
    assert str(journal._file.path.parent) not in told["error"]["message"]


@pytest.mark.hazard("K1", "Q8", "Q13")
async def test_prompts_are_taken_again_though_nobody_speaks_when_a_failed_fsync_is_made_good(
    journal: SessionJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "JOURNAL_RETRY", 0)
    async with staged(journal) as stage:
        key = stage.receives(1)
        tried: list[object] = []

        def refuse(path: object) -> bool:
            tried.append(path)
            raise JournalError("no")

        with monkeypatch.context() as patch:
            break_sync(patch)
            patch.setattr("acp_bridge.journal.file._checkpoint", refuse)
            stage.prompts.commit(key)
            await until(lambda: stage.core.fed)
            stage.prompts.answer(key, Failed(Failure.JOURNAL, "no"))
            await until(lambda: tried)
        stage.core.take()
        await until(lambda: not journal.broken)
        await stage.accepted(2)


@pytest.mark.hazard("C20", "Q5", "Q9")
async def test_a_prompt_that_is_cancelled_while_it_is_written_is_not_told_as_accepted(
    journal: SessionJournal,
) -> None:
    async with staged(journal, ClientEnd(HEARS)) as stage:
        key = stage.receives(1)
        async with journal._file._syncing:
            stage.prompts.commit(key)
            await quiet()
            stage.prompts.answer(key, Cancelled())
        await until(lambda: stage.core.fed)
        # The machine drops it: the prompt has its answer.
        assert stage.core.fed == [ev.Committed(key)]
    assert [m["result"] for m in stage.client.sent.take()] == [{"stopReason": "cancelled"}]
    assert states(journal) == [DONE]


@pytest.mark.hazard("K1", "R12")
async def test_a_bridge_that_ends_while_a_prompt_is_written_leaves_it_to_the_next_one(
    journal: SessionJournal,
) -> None:
    with anyio.fail_after(5):
        async with journal._file._syncing, anyio.create_task_group() as tasks:
            stage = Stage(journal, tasks, ClientEnd(HEARS))
            stage.prompts.commit(stage.receives(1))
            await quiet()
            tasks.cancel_scope.cancel()
    assert stage.core.fed == []
    assert stage.client.sent.take() == []
    assert [row.params for row in journal.recover()] == [prompt("1")]


# --- outcome --------------------------------------------------------------------------------------

ERROR = RpcError.received(-5, "no", {"kept": 1})


@pytest.mark.hazard("Q4", "C13", "C5")
@pytest.mark.parametrize(
    ("outcome", "told", "own"),
    [
        (Replied(Ok({**END_TURN, "x": 1})), {**END_TURN, "x": 1}, {**END_TURN, "x": 1}),
        (Replied(Err(ERROR)), {"error": ERROR.to_wire()}, {"error": ERROR.to_wire()}),
        (Cancelled(), {"stopReason": "cancelled"}, None),
        (Done(), END_TURN, None),
    ],
)
async def test_an_outcome_is_in_the_journal_before_the_client_is_told(
    journal: SessionJournal, outcome: Outcome, told: Json, own: Json | None
) -> None:
    class Witness(Outgoing):
        def write(self, data: bytes) -> None:
            super().write(data)
            kept.append(journal.prompts()[0].outcome)

    kept: list[Json | None] = []
    async with staged(journal, ClientEnd(sent=Witness())) as stage:
        stage.prompts.answer(await stage.running(), outcome)
    assert kept == [told]
    (row,) = journal.prompts()
    assert (row.state, row.outcome, row.agent_outcome) == (DONE, told, own)
    (answer,) = stage.client.sent.take()
    assert (answer.get("result") or {"error": answer["error"]}) == told


@pytest.mark.hazard("T2", "Q4")
async def test_what_was_shown_is_of_the_turn_and_comes_before_its_answer(
    journal: SessionJournal,
) -> None:
    async with staged(journal) as stage:
        key = await stage.running()
        stage.said("of the turn")
        stage.prompts.answer(key, Replied(Ok(END_TURN)))
        stage.said("of none")
        stage.transcript.flush()
    first, answer, last = stage.client.sent.take()
    assert (answer["id"], "method" in first, "method" in last) == (1, True, True)
    rows = journal._file.db.execute("SELECT turn FROM updates ORDER BY id").fetchall()
    assert [row[0] for row in rows] == [1, 0]


@pytest.mark.hazard("R1", "Q9")
async def test_an_answer_goes_to_the_client_that_asked_and_waits_behind_its_replay(
    journal: SessionJournal,
) -> None:
    other = ClientEnd()
    async with staged(journal) as stage:
        stage.transcript.attach(other.client)
        mine, others = await stage.accepted(7), stage.receives(7, other)
        stage.view.begin_replay()
        stage.prompts.answer(mine[0], Cancelled())
        stage.prompts.answer(others, Done())
        assert stage.client.sent.take() == []
        assert other.sent.take()[0]["result"] == END_TURN
        stage.view.end_replay()
    assert stage.client.sent.take()[0]["result"] == {"stopReason": "cancelled"}
    assert other.sent.take() == []


@pytest.mark.hazard("K1", "Q8", "Q9")
@pytest.mark.parametrize("write", ["UPDATE ON prompts", "INSERT ON updates"])
async def test_an_outcome_that_cannot_be_written_is_told_all_the_same(
    journal: SessionJournal, write: str
) -> None:
    async with staged(journal) as stage:
        key = await stage.running()
        stage.said("a")
        with failing(journal, write):
            stage.prompts.answer(key, Replied(Ok(END_TURN)))
    assert stage.client.sent.take()[-1]["result"] == END_TURN
    assert stage.prompts.key_of(stage.client.client, 1) is None


@pytest.mark.hazard("C13", "C5")
async def test_the_agents_own_outcome_of_a_cancelled_prompt_is_kept_and_the_first_one_stays(
    journal: SessionJournal,
) -> None:
    async with staged(journal) as stage:
        key = await stage.running()
        stage.prompts.note(key, Ok(END_TURN))
        assert stage.client.sent.take() == []
        stage.prompts.answer(key, Cancelled())
    (row,) = journal.prompts()
    assert (row.outcome, row.agent_outcome) == ({"stopReason": "cancelled"}, END_TURN)
    assert journal.turns_finished() == 1


@pytest.mark.hazard("Q5", "Q9")
async def test_a_prompt_without_a_request_or_a_number_ends_without_a_word(
    journal: SessionJournal,
) -> None:
    async with staged(journal) as stage:
        stage.prompts.add_left_over(prompt("old"), 0)
        stage.prompts.answer(stage.prompts.add(prompt("carrier"), None), Done())
    assert (stage.client.sent.take(), journal.prompts(), stage.touched) == ([], [], 0)


@pytest.mark.hazard("Q6")
async def test_a_prompt_that_runs_at_the_bridges_end_is_interrupted_and_says_so_when_loaded(
    journal: SessionJournal,
) -> None:
    async with staged(journal) as stage:
        key = await stage.running()
        stage.said("half")
        stage.prompts.interrupt(key)
    _, half, interrupted = await recorded_texts(journal)
    assert half == "half"
    assert interrupted.strip().startswith("[acp-bridge] Interrupted")
    assert [m["method"] for m in stage.client.sent.take()] == ["session/update"]
    (row,) = journal.prompts()
    assert (row.state, row.outcome, row.agent_outcome) == (DONE, {"interrupted": True}, None)
    rows = journal._file.db.execute("SELECT DISTINCT turn FROM updates").fetchall()
    assert rows == [(row.seq,)]


@pytest.mark.hazard("Q6", "Q8", "Q13")
async def test_an_interruption_that_cannot_be_written_is_written_later_or_found_by_the_next_bridge(
    journal: SessionJournal,
) -> None:
    async with staged(journal) as stage:
        key = await stage.running()
        with failing(journal, "UPDATE ON prompts"):
            stage.prompts.interrupt(key)
            assert states(journal) == [SENT]
    assert states(journal) == [DONE]


# --- after a turn ---------------------------------------------------------------------------------


@pytest.mark.hazard("K1")
async def test_after_a_turn_the_session_is_listed_with_its_new_time_whatever_else_fails(
    journal: SessionJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(journal) as stage:
        key = await stage.running()
        break_sync(monkeypatch)
        stage.untouchable = True
        stage.prompts.answer(key, Replied(Ok(END_TURN)))
        assert stage.client.sent.take()[0]["result"] == END_TURN
    assert stage.touched == 1


async def test_a_journal_that_is_closed_meanwhile_is_left_alone(
    journal: SessionJournal,
) -> None:
    async with staged(journal) as stage:
        key = await stage.running()
        stage.prompts.answer(key, Replied(Ok(END_TURN)))
        await journal.close()
    assert stage.touched == 0


# --- held -----------------------------------------------------------------------------------------


@pytest.mark.hazard("R12")
async def test_held_prompts_keep_their_order_and_nobody_waits_for_their_answer(
    journal: SessionJournal,
) -> None:
    async with staged(journal) as stage:
        keys = await stage.accepted(1, 2)
        stage.prompts.leave_over(tuple(keys))
        assert stage.prompts.left_over == {keys[0]: prompt("1"), keys[1]: prompt("2")}
        assert states(journal) == [HELD, HELD]
        assert stage.prompts.key_of(stage.client.client, 1) is None
        stage.prompts.release(keys[0])
        assert (list(stage.prompts.left_over), states(journal)) == ([keys[1]], [WAITING, HELD])
        stage.prompts.drop(keys[1])
        assert (stage.prompts.left_over, states(journal)) == ({}, [WAITING, DONE])
        with pytest.raises(KeyError):
            stage.prompts.get(keys[1])
        stage.prompts.answer(keys[0], Cancelled())
    assert stage.client.sent.take() == []


@pytest.mark.hazard("R12", "Q8")
async def test_a_release_or_a_drop_that_cannot_be_written_leaves_the_prompt_held(
    journal: SessionJournal,
) -> None:
    async with staged(journal) as stage:
        (key,) = await stage.accepted(1)
        stage.prompts.leave_over((key,))
        for change in (stage.prompts.release, stage.prompts.drop):
            with failing(journal, "UPDATE ON prompts"), pytest.raises(JournalError):
                change(key)
            assert (list(stage.prompts.left_over), states(journal)) == ([key], [HELD])
        stage.prompts.release(key)
        assert states(journal) == [WAITING]


@pytest.mark.hazard("R12", "Q8")
@pytest.mark.parametrize("then", ["release", "drop"])
async def test_a_prompt_that_could_not_be_written_as_held_is_held_all_the_same(
    journal: SessionJournal, then: str
) -> None:
    async with staged(journal) as stage:
        (key,) = await stage.accepted(1)
        with failing(journal, "UPDATE ON prompts"):
            stage.prompts.leave_over((key,))
        assert list(stage.prompts.left_over) == [key]
        getattr(stage.prompts, then)(key)
        assert stage.prompts.left_over == {}
        assert states(journal) == [WAITING if then == "release" else DONE]


# --- whose prompt it is ---------------------------------------------------------------------------


@pytest.mark.hazard("P13", "C3")
async def test_a_prompt_is_found_by_its_client_and_the_id_there(journal: SessionJournal) -> None:
    other = ClientEnd()
    stage = Stage(journal, None)
    mine, others, null = stage.receives(1), stage.receives(1, other), stage.receives(None)
    assert len({mine, others, null}) == 3
    assert stage.prompts.key_of(stage.client.client, 1) == mine
    assert stage.prompts.key_of(other.client, 1) == others
    for unknown in ("1", 2, [1], {"id": 1}):
        assert stage.prompts.key_of(stage.client.client, unknown) is None
    assert stage.prompts.key_of(other.client, None) is None
    stage.prompts.answer(mine, Cancelled())
    assert stage.prompts.key_of(stage.client.client, 1) is None
    assert stage.prompts.key_of(other.client, 1) == others


async def test_another_bridges_prompts_are_held_with_their_numbers(tmp_path: Any) -> None:
    home = Journal(tmp_path)
    journal = await home.create("s", cwd="/w", agent="a")
    journal.accept("id", prompt("old"))
    stage = Stage(journal, None)
    for row in journal.recover():
        stage.prompts.add_left_over(row.params, row.seq)
    (key,) = stage.prompts.left_over
    stage.prompts.release(key)
    assert states(journal) == [WAITING]
    await home.close()
