"""`/queue wait` and `/queue stop` on anybody's turn, and what a load says of work that goes on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.machine.states import State
from acp_bridge.core.settings import OnCancel
from acp_bridge.core.updates.notices import NEXT, NOTHING_RUNS
from tests.core.sessions.agent import Gate, until
from tests.core.sessions.bench import Bench, Served, bench
from tests.core.sessions.world import SETUP


@dataclass(slots=True)
class Left:
    """A session in which the agent has the prompt of a client that is gone."""

    it: Bench
    id: str
    gate: Gate

    async def stops(self, client: Served) -> None:
        client.notify("session/cancel", {"sessionId": self.id})
        await client.handled()

    @property
    def cancelled(self) -> bool:
        """The agent was told to end its turn."""
        return bool(self.it.agent.params("session/cancel"))

    async def load(self, client: Served, how: str = "session/load") -> list[str]:
        """Let a client load the session; returns what it is shown."""
        before = len(client.texts(self.id))
        await client.ask(how, {**SETUP, "sessionId": self.id})
        return client.texts(self.id)[before:]

    def waits(self, client: Served) -> Any:
        return client.prompt(self.id, "/queue wait")


@asynccontextmanager
async def left(home: Path, *queued: str, **more: Any) -> AsyncIterator[Left]:
    """A turn of a client that is gone, with more prompts of it `queued`."""
    async with bench(home, **{"drain_timeout": 60, **more}) as it:
        session_id = await it.new()
        gone = await it.attached(session_id)
        gate = it.agent.stops_at("session/prompt")
        gone.prompt(session_id, "runs")
        await until(lambda: gate.reached)
        for text in queued:
            gone.prompt(session_id, text)
        await gone.handled()
        gone.leaves()
        await gone.parted.wait()
        it.editor.out.take()
        yield Left(it, session_id, gate)
        gate.open()


def said(client: Served, session_id: str, words: str) -> int:
    """Return how often a client was told this."""
    return sum(words in text for text in client.texts(session_id))


# --- /queue wait -----------------------------------------------------------------------------


@pytest.mark.hazard("V2", "Q9")
async def test_a_wait_is_answered_when_the_turn_that_runs_has_ended(tmp_path: Path) -> None:
    async with left(tmp_path) as here:
        editor, other = here.it.editor, await here.it.attached(here.id)
        waits = [(client, here.waits(client)) for client in (editor, other, editor)]
        await editor.handled()
        await other.handled()
        assert [client.answers(asked) for client, asked in waits] == [[], [], []]
        here.gate.open()
        for client, asked in waits:
            assert await client.stop_reason(asked) == "end_turn"
            assert len(client.answers(asked)) == 1
        assert said(editor, here.id, NEXT) == 0


@pytest.mark.hazard("C1", "C20", "V4.8")
@pytest.mark.parametrize("request_itself", [False, True])
async def test_a_stop_of_one_that_waits_ends_the_turn_that_it_waits_for(
    tmp_path: Path, request_itself: bool
) -> None:
    async with left(tmp_path, "next") as here:
        editor = here.it.editor
        waits = here.waits(editor)
        if request_itself:
            editor.cancel_request(waits)
            await editor.handled()
        else:
            await here.stops(editor)
        assert (here.cancelled, editor.answers(waits)) == (True, [])
        here.gate.open()
        assert await editor.stop_reason(waits) == "cancelled"
        await until(lambda: "echo next" in editor.texts(here.id))
        assert len(editor.answers(waits)) == 1


@pytest.mark.hazard("V4")
async def test_a_turn_that_a_client_waits_for_is_its_own_for_a_stop_and_for_those_of_others(
    tmp_path: Path,
) -> None:
    async with left(tmp_path) as here:
        editor, other = here.it.editor, await here.it.attached(here.id)
        waits = here.waits(other)
        await other.handled()
        await here.stops(editor)  # some send one before every prompt
        assert not here.cancelled
        await here.stops(other)
        assert here.cancelled
        here.gate.open()
        assert await other.stop_reason(waits) == "cancelled"


@pytest.mark.hazard("V4", "V2")
async def test_a_stop_of_one_that_waits_for_the_turn_of_another_ends_it_for_both(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, drain_timeout=60) as it:
        session_id = await it.new()
        other = await it.attached(session_id)
        gate = it.agent.stops_at("session/prompt")
        runs = it.editor.prompt(session_id, "runs")
        await until(lambda: gate.reached)
        own = other.prompt(session_id, "waits in the queue")
        waits = other.prompt(session_id, "/queue wait")
        other.notify("session/cancel", {"sessionId": session_id})
        await until(lambda: it.agent.params("session/cancel"))
        gate.open()
        assert await it.editor.stop_reason(runs) == "cancelled"
        assert await other.stop_reason(waits) == "cancelled"
        assert await other.stop_reason(own) == "end_turn"
        assert said(other, session_id, NEXT) == 0  # its own follows


@pytest.mark.hazard("V4.8", "C3")
async def test_a_stop_of_one_that_waits_clears_only_its_own_prompts(tmp_path: Path) -> None:
    async with left(tmp_path, "others", on_cancel=OnCancel.CLEAR) as here:
        editor = here.it.editor
        waits, own = here.waits(editor), editor.prompt(here.id, "own")
        await here.stops(editor)
        here.gate.open()
        for asked in (waits, own):
            assert await editor.stop_reason(asked) == "cancelled"
        await until(lambda: "echo others" in editor.texts(here.id))


@pytest.mark.hazard("V5")
async def test_a_turn_goes_on_when_the_one_that_waits_for_it_leaves(tmp_path: Path) -> None:
    async with left(tmp_path) as here:
        other = await here.it.attached(here.id)
        here.waits(other)
        await other.handled()
        other.leaves()
        await other.parted.wait()
        assert not here.cancelled
        await here.stops(here.it.editor)  # nobody waits for it any more
        assert here.cancelled


@pytest.mark.hazard("Q9")
async def test_a_wait_says_what_the_turn_has_died_of(tmp_path: Path) -> None:
    async with left(tmp_path) as here:
        waits = here.waits(here.it.editor)
        await here.it.settled()
        here.it.agent.processes[0].dies()
        assert "the agent ended" in (await here.it.editor.refusal(waits)).message


@pytest.mark.hazard("Q9")
@pytest.mark.parametrize("how", ["_acp_bridge/close", "session/delete"])
async def test_a_wait_ends_with_the_session(tmp_path: Path, how: str) -> None:
    async with left(tmp_path) as here:
        waits, stranger = here.waits(here.it.editor), await here.it.joined()
        closed = stranger.send(how, {"sessionId": here.id})
        await until(lambda: here.cancelled)
        here.gate.open()
        assert await here.it.editor.stop_reason(waits) == "cancelled"
        await stranger.result(closed)


@pytest.mark.hazard("Q1")
async def test_a_wait_is_for_one_turn_and_says_if_more_follows(tmp_path: Path) -> None:
    async with left(tmp_path, "next") as here:
        editor, waits = here.it.editor, here.waits(here.it.editor)
        await editor.handled()
        here.gate.open()
        assert await editor.stop_reason(waits) == "end_turn"
        answer = editor.messages.index(editor.answers(waits)[0])
        assert said(editor, here.id, NEXT) == 1
        assert any(NEXT in str(message) for message in editor.messages[:answer])


@pytest.mark.hazard("C3", "C20")
async def test_under_a_hold_a_wait_is_for_the_first_prompt_in_the_queue(tmp_path: Path) -> None:
    async with left(tmp_path, "next", "last") as here:
        editor = here.it.editor
        await editor.ask("_acp_bridge/hold", {"sessionId": here.id})
        here.gate.open()
        await until(lambda: here.it.bridge._sessions.live[here.id].now.state is State.IDLE)
        waits = here.waits(editor)
        await here.stops(editor)
        assert await editor.stop_reason(waits) == "cancelled"
        await editor.ask("_acp_bridge/go", {"sessionId": here.id})
        await until(lambda: "echo last" in editor.texts(here.id))
        assert "echo next" not in editor.texts(here.id)


@pytest.mark.parametrize("word", ["wait", "stop"])
async def test_where_nothing_runs_there_is_nothing_to_wait_for_or_to_stop(
    tmp_path: Path, word: str
) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        assert await it.editor.stop_reason(it.editor.prompt(session_id, f"/queue {word}"))
        assert said(it.editor, session_id, NOTHING_RUNS) == 1
        assert await it.editor.stop_reason(it.editor.prompt(session_id, "next")) == "end_turn"


@pytest.mark.hazard("C23.1")
async def test_after_a_wait_was_cancelled_its_client_is_shown_nothing_until_it_speaks(
    tmp_path: Path,
) -> None:
    async with left(tmp_path) as here:
        editor, other = here.it.editor, await here.it.attached(here.id)
        waits = here.waits(editor)
        await here.stops(editor)
        here.gate.open()
        assert await editor.stop_reason(waits) == "cancelled"
        await other.ask("_acp_bridge/hold", {"sessionId": here.id})
        assert editor.messages[-1] == editor.answers(waits)[0]
        editor.prompt(here.id, "/queue")
        await until(lambda: said(editor, here.id, "On hold"))


# --- /queue stop -----------------------------------------------------------------------------


@pytest.mark.hazard("C1.5")
async def test_the_word_stop_ends_the_turn_of_whoever_and_what_waits_goes_on(
    tmp_path: Path,
) -> None:
    async with left(tmp_path, "next") as here:
        editor, waits = here.it.editor, here.waits(here.it.editor)
        assert await editor.stop_reason(editor.prompt(here.id, "/queue stop")) == "end_turn"
        assert (here.cancelled, said(editor, here.id, "Stopping “runs”.")) == (True, 1)
        here.gate.open()
        assert await editor.stop_reason(waits) == "cancelled"
        await until(lambda: "echo next" in editor.texts(here.id))


@pytest.mark.hazard("V4")
async def test_one_that_looks_on_neither_waits_nor_stops(tmp_path: Path) -> None:
    async with left(tmp_path) as here:
        watcher = await here.it.attached(here.id, observer=True)
        for word in ("wait", "stop"):
            error = await watcher.refusal(watcher.prompt(here.id, f"/queue {word}"))
            assert "observer" in error.message
        assert not here.cancelled


# --- what a load says ------------------------------------------------------------------------


@pytest.mark.hazard("V1")
@pytest.mark.parametrize("how", ["session/load", "session/resume"])
async def test_a_load_says_last_what_runs_and_what_waits_and_to_its_client_alone(
    tmp_path: Path, how: str
) -> None:
    async with left(tmp_path, "next", "last") as here:
        editor, other = here.it.editor, await here.it.joined()
        told = (await here.load(other, how))[-1]
        for words in (
            "A turn runs in this session: “runs”.",
            "2 prompts wait",
            "- 2: next\n- 3: last",
        ):
            assert words in told
        for word in ("wait", "stop"):
            assert f"`/queue {word}`" in told
        assert said(editor, here.id, "A turn runs") == 0
        again = await here.load(editor)
        assert [text for text in again if "A turn runs" in text] == [again[-1]]


@pytest.mark.hazard("V1", "T2")
async def test_a_load_says_nothing_of_work_where_none_goes_on_or_all_is_the_client_s_own(
    tmp_path: Path,
) -> None:
    async with left(tmp_path) as here:
        editor = here.it.editor
        assert said(await here.it.attached(here.id), here.id, "A turn runs") == 0
        here.waits(editor)
        assert not any("A turn runs" in text for text in await here.load(editor))
        here.gate.open()
        await until(lambda: "echo runs" in editor.texts(here.id))
        await until(lambda: here.it.bridge._sessions.live[here.id].now.state is State.IDLE)
        late = await here.it.joined()
        assert not any("A turn runs" in text for text in await here.load(late))


@pytest.mark.parametrize("how", ["session/load", "session/resume"])
async def test_a_client_with_a_stop_of_its_own_gets_no_notice_of_the_work_that_goes_on(
    tmp_path: Path, how: str
) -> None:
    async with left(tmp_path, "next") as here:
        other = await here.it.joined(stop=True)
        assert not any("/queue" in text for text in await here.load(other, how))


@pytest.mark.hazard("R12")
async def test_what_waits_in_a_hold_is_told_without_a_turn(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        await it.editor.ask("_acp_bridge/hold", {"sessionId": session_id})
        it.editor.prompt(session_id, "kept back")
        await it.settled()
        late = await it.joined()
        await late.ask("session/load", {**SETUP, "sessionId": session_id})
        told = late.texts(session_id)[-1]
        assert "A turn runs" not in told
        assert told.strip().startswith(
            "[acp-bridge] 1 prompt waits in the queue:\n\n- 1: kept back"
        )
