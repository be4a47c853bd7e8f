"""A session as a whole: prompts from reading to answer, and cancels."""

import shutil
from pathlib import Path

import pytest

from acp_bridge.core.agents.process import Exit
from acp_bridge.core.history import History
from acp_bridge.core.journal import PromptState
from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import (
    ACCEPTED,
    CREATE_TERMINAL,
    RELEASE_TERMINAL,
    SESSION_CANCEL,
    SESSION_LOAD,
    SESSION_PROMPT,
    SESSION_RESUME,
)
from acp_bridge.core.runtime import waits
from acp_bridge.core.settings import Delivery, OnCancel
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.session.journals import failing, recorded_texts
from tests.core.session.living import CANCELLED, DONE, first, living
from tests.core.session.memory import ClientEnd
from tests.core.session.waiting import quiet, until
from tests.support.slow_disk import break_disk

pytestmark = pytest.mark.usefixtures("no_errors")


# --- prompts --------------------------------------------------------------------------------------


@pytest.mark.hazard("K1", "Q13.11", "Q13.12")
async def test_a_turn_whose_folder_is_removed_goes_on_unrecorded_and_nothing_after_it_is_taken(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as here:
        request_id = here.prompt("mend")
        agent = await here.agent()
        turn = await agent.asked(SESSION_PROMPT)
        shutil.rmtree(here.journal._file.path.parent)
        for text in ("one", "two"):
            agent.says_text(text)
            await quiet()
        agent.answer(turn, DONE)
        assert await here.answered(request_id) == DONE
        assert here.texts()[0] == "one"
        assert sum("not recorded" in text for text in here.texts()) == 1
        refused = await here.answered(here.prompt("more"))
        assert "not taken: the file of this session was removed" in refused["message"]
        assert str(tmp_path) not in str(refused)
        with pytest.raises(RpcError, match="can't be read: the file of this session was removed"):
            await here.session.replay.load(here.request(SESSION_LOAD), History.FULL)


@pytest.mark.hazard("Q1", "K1.4", "T2")
async def test_a_prompt_goes_to_disk_then_to_an_agent_that_has_the_session_and_its_answer_back(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as here:
        request_id = here.prompt("mend")
        agent = await here.agent()
        turn = await agent.asked(SESSION_PROMPT)
        assert agent.heard == ["initialize", SESSION_RESUME, SESSION_PROMPT]
        assert turn["params"]["sessionId"] == "0"
        assert here.states() == [PromptState.SENT]
        agent.says_text("mended")
        agent.answer(turn, {**DONE, "_x": 1})
        assert await here.answered(request_id) == {**DONE, "_x": 1}
        assert [m.get("method") for m in here.got] == [ACCEPTED, "session/update", None]
        assert here.texts() == ["mended"]
        assert here.outcomes() == [({**DONE, "_x": 1}, {**DONE, "_x": 1})]
        assert await recorded_texts(here.journal) == ["mend", "mended"]
        assert agent.lock == here.lease


@pytest.mark.hazard("Q2.1", "Q3.3")
async def test_prompts_run_one_at_a_time_in_the_order_of_reading(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        ids = [here.prompt(text) for text in ("one", "two", "three")]
        for number, request_id in enumerate(ids, 1):
            turn = await agent.asked(SESSION_PROMPT)
            await quiet()
            assert len(agent.params(SESSION_PROMPT)) == number
            assert list(here.answers()) == ids[: number - 1]
            agent.answer(turn, {**DONE, "n": number})
            assert (await here.answered(request_id))["n"] == number
        sent = [params["prompt"][0]["text"] for params in agent.params(SESSION_PROMPT)]
        assert sent == ["one", "two", "three"]
        assert here.states() == [PromptState.DONE] * 3


@pytest.mark.hazard("K1.1", "Q9")
@pytest.mark.parametrize("at", ["INSERT ON prompts", "INSERT ON prompt_params", "sync"])
async def test_a_prompt_that_the_journal_does_not_take_is_answered_and_never_sent(
    tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        if at == "sync":
            monkeypatch.setattr(waits, "JOURNAL_RETRY", 0.01)
            break_disk(monkeypatch)
            request_id = here.prompt()
        else:
            with failing(here.journal, at):
                request_id = here.prompt()
        error = await here.answered(request_id)
        assert error["message"] == "the prompt could not be written to the journal: not taken"
        assert agent.heard == ["initialize"]
        assert ACCEPTED not in [message.get("method") for message in here.got]
        assert await here.journal.recover() == []  # it is not offered again


@pytest.mark.hazard("P3.4")
async def test_an_agent_that_ends_while_it_is_idle_is_started_again_for_the_next_prompt(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        (await here.agent()).dies(Exit(0, None))
        await quiet()
        assert len(here.context.agents) == 1
        request_id = here.prompt()
        agent = await here.agent(2)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(request_id) == DONE
        assert here.texts() == []


@pytest.mark.parametrize(
    ("setting", "asked", "interrupts"),
    [
        (Delivery.QUEUE, None, False),
        (Delivery.QUEUE, "interrupt", True),
        (Delivery.INTERRUPT, None, True),
        (Delivery.INTERRUPT, "queue", False),
        (Delivery.INTERRUPT, 5, False),
    ],
)
async def test_a_prompt_takes_the_place_of_the_running_one_only_if_that_is_asked_for(
    tmp_path: Path, setting: Delivery, asked: object, interrupts: bool
) -> None:
    async with living(tmp_path, first=first(), delivery=setting) as here:
        agent, before = await here.agent(), here.prompt("one")
        turn = await agent.asked(SESSION_PROMPT)
        meta = {"_meta": {"acp_bridge": {"delivery": asked}}} if asked else {}
        after = here.prompt("two", **meta)
        await until(lambda: here.states() == [PromptState.SENT, PromptState.WAITING])
        await until(lambda: sum(m.get("method") == ACCEPTED for m in here.got) == 2)
        await quiet()
        assert (SESSION_CANCEL in agent.heard) is interrupts
        agent.answer(turn, DONE)
        assert await here.answered(before) == (CANCELLED if interrupts else DONE)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(after) == DONE


async def test_the_queue_command_is_answered_by_the_bridge_unless_the_agent_has_its_own(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        assert await here.answered(here.prompt("/queue")) == DONE
        assert here.texts() == ["Nothing is waiting."]
        assert agent.heard == ["initialize"]
        commands = [{"name": "queue", "description": "mine"}]
        agent.update(sessionUpdate="available_commands_update", availableCommands=commands)
        await here.turn(agent, "/queue")


# --- cancel ---------------------------------------------------------------------------------------


@pytest.mark.hazard("C5", "C10.1", "C13", "C9")
async def test_a_cancelled_prompt_is_answered_when_the_agent_has_ended_its_turn(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request_id = await here.agent(), here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        agent.update(sessionUpdate="tool_call", toolCallId="t", title="a", status="pending")
        here.session.feed(ev.Cancel())
        here.session.feed(ev.Cancel())
        assert agent.params(SESSION_CANCEL) == [{"sessionId": "0"}]
        assert here.answers() == {}
        agent.answer(turn, DONE)
        assert await here.answered(request_id) == CANCELLED
        assert here.outcomes() == [(CANCELLED, DONE)]
        assert here.journal.turns_finished() == 1
        (_, closed) = here.updates()
        assert (closed["toolCallId"], closed["status"]) == ("t", "failed")
        await here.turn(agent, "next")  # in the same process


@pytest.mark.hazard("C20.2", "C3.1")
async def test_a_cancel_that_comes_before_the_prompt_is_on_disk_keeps_it_from_the_agent(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        request_id = here.prompt()
        here.session.feed(ev.Cancel())
        assert here.answers() == {request_id: CANCELLED}
        await quiet()
        agent = await here.agent()
        await here.turn(agent, "next")
        assert [each["prompt"][0]["text"] for each in agent.params(SESSION_PROMPT)] == ["next"]
        assert [message.get("method") for message in here.got].count(ACCEPTED) == 1


@pytest.mark.hazard("C8.1", "C9", "C10.2", "P12")
async def test_an_agent_that_ignores_the_cancel_is_killed_and_the_next_prompt_gets_another(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), drain_timeout=0.0) as here:
        deaf, request_id = await here.agent(), here.prompt()
        await deaf.asked(SESSION_PROMPT)
        made = deaf.asks(CREATE_TERMINAL, {"sessionId": "0", "command": "x"})
        assert made.method == CREATE_TERMINAL
        here.client.answers(here.got[-1]["id"], {"terminalId": "t"})
        deaf.update(sessionUpdate="tool_call", toolCallId="c", title="a", status="pending")
        following = here.prompt("next")
        given: list[bool] = []
        here.session.feed(ev.Cancel())
        agent = await here.agent(2)
        agent.on_sent = lambda: given.append(deaf.dead.is_set())
        assert await here.answered(request_id) == CANCELLED
        assert deaf.dead.is_set()
        what = [m.get("method") or m.get("id") for m in here.got]
        end = what.index(RELEASE_TERMINAL)
        assert what[end : end + 3] == [RELEASE_TERMINAL, "session/update", request_id]
        assert here.updates()[-1]["status"] == "failed"
        turn = await agent.asked(SESSION_PROMPT)
        assert [m for m in agent.heard if m != "initialize"] == [SESSION_RESUME, SESSION_PROMPT]
        assert all(given[agent.heard.index(SESSION_RESUME) - 1 :])
        agent.answer(turn, DONE)
        assert await here.answered(following) == DONE


@pytest.mark.hazard("C19.3")
async def test_a_terminal_that_the_client_makes_after_its_agents_death_is_released(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        agent.asks(CREATE_TERMINAL, {"sessionId": "0", "command": "x"})
        made = here.got[-1]
        agent.dies()
        here.client.answers(made["id"], {"terminalId": "late"})
        assert here.got[-1]["method"] == RELEASE_TERMINAL
        assert here.got[-1]["params"] == {"sessionId": "s", "terminalId": "late"}


@pytest.mark.hazard("C21.2", "Q9", "P12.2")
async def test_a_tree_that_will_not_die_keeps_nobody_waiting_and_no_other_gets_the_session(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), drain_timeout=0.0, kill_timeout=0.0) as here:
        deaf, request_id = await here.agent(), here.prompt()
        deaf.immortal = True
        await deaf.asked(SESSION_PROMPT)
        here.session.feed(ev.Cancel())
        assert await here.answered(request_id) == CANCELLED
        error = await here.answered(here.prompt("next"))
        assert "could not be made ready" in error["message"]
        assert not any(SESSION_RESUME in agent.heard for agent in here.context.agents)
        deaf.immortal = False
        deaf.dies()
        request_id = here.prompt("after")
        await until(lambda: any(SESSION_PROMPT in a.heard for a in here.context.agents[1:]))
        agent = here.context.agents[-1]
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(request_id) == DONE


@pytest.mark.hazard("C6.3", "C12.1")
async def test_an_agent_that_goes_on_after_it_was_cancelled_is_replaced_before_the_next_prompt(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request_id = await here.agent(), here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        agent.says_text("half")
        here.session.feed(ev.Cancel())
        agent.answer(turn, CANCELLED)
        assert await here.answered(request_id) == CANCELLED
        agent.says_text("leaked")
        await here.turn(await here.agent(2), "next")
        assert agent.dead.is_set()
        assert here.texts() == ["half"]


@pytest.mark.hazard("C1.6", "Q5.2")
async def test_a_request_to_cancel_means_that_clients_prompt_and_no_other(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, one, two = await here.agent(), here.prompt("one"), here.prompt("two")
        turn = await agent.asked(SESSION_PROMPT)
        for client, request_id in ((ClientEnd().client, two), (here.client.client, 99)):
            assert not here.session.cancel_request(client, request_id)
        assert here.session.cancel_request(here.client.client, two)
        assert here.answers() == {two: CANCELLED}
        assert SESSION_CANCEL not in agent.heard
        assert here.session.cancel_request(here.client.client, one)
        assert agent.heard[-1] == SESSION_CANCEL
        agent.answer(turn, CANCELLED)
        assert await here.answered(one) == CANCELLED
        assert not here.session.cancel_request(here.client.client, one)
        assert len(agent.params(SESSION_PROMPT)) == 1


@pytest.mark.parametrize(("choice", "dropped"), [(OnCancel.KEEP, False), (OnCancel.CLEAR, True)])
async def test_a_cancel_drops_the_prompts_that_wait_only_if_the_user_chose_that(
    tmp_path: Path, choice: OnCancel, dropped: bool
) -> None:
    async with living(tmp_path, first=first(), on_cancel=choice) as here:
        agent, one, two = await here.agent(), here.prompt("one"), here.prompt("two")
        turn = await agent.asked(SESSION_PROMPT)
        here.session.feed(ev.Cancel())
        assert here.answers() == ({two: CANCELLED} if dropped else {})
        agent.answer(turn, CANCELLED)
        assert await here.answered(one) == CANCELLED
        if not dropped:
            agent.answer(await agent.asked(SESSION_PROMPT), DONE)
            assert await here.answered(two) == DONE


async def test_an_event_is_taken_to_its_end_before_one_that_comes_meanwhile(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), on_cancel=OnCancel.CLEAR) as here:
        agent, one, two = await here.agent(), here.prompt("one"), here.prompt("two")
        turn = await agent.asked(SESSION_PROMPT)
        agent.on_sent = lambda: agent.answer(turn, CANCELLED)  # while the cancel is being sent
        here.session.feed(ev.Cancel())
        assert list(here.answers().items()) == [(two, CANCELLED), (one, CANCELLED)]


# --- what is kept of the session ------------------------------------------------------------------


@pytest.mark.hazard("R12", "T2")
async def test_a_prompt_that_was_held_runs_behind_the_words_that_let_it_run(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, held = await here.agent(), [{"type": "text", "text": "held"}]
        here.journal.accept("p", {"sessionId": "s", "prompt": held})
        await here.session.recovery.run()
        carrier = here.prompt("/queue run")
        turn = await agent.asked(SESSION_PROMPT)
        assert turn["params"]["prompt"] == held
        assert here.answers() == {}
        agent.says_text("done")
        agent.answer(turn, DONE)
        assert await here.answered(carrier) == DONE
        said = ["Running 1 left-over prompt.", "held", "done"]
        assert here.texts() == said
        recorded = [text.strip() for text in await recorded_texts(here.journal)]
        assert recorded == ["/queue run", *said]


@pytest.mark.hazard("V2", "R12")
async def test_a_prompt_that_was_held_is_stopped_by_who_names_it_while_it_runs(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        here.journal.accept("old", {"prompt": [{"type": "text", "text": "old"}]})
        await here.session.recovery.run()
        carrier = here.prompt("/queue run")
        turn = await agent.asked(SESSION_PROMPT)
        shown = here.session.audience.standing.told_to(here.client.client)["turn"]
        assert shown["mine"]
        seen = {"sessionId": "s", "promptId": shown["promptId"]}
        answer = here.session.audience.cancel_turn(seen)
        assert answer == {"cancelled": True}
        assert SESSION_CANCEL in agent.heard
        agent.answer(turn, CANCELLED)
        assert await here.answered(carrier) == CANCELLED


async def test_a_turn_makes_the_session_the_newest_in_the_listing(tmp_path: Path) -> None:
    async with living(tmp_path, first=first(), title="old") as here:
        listing = here.context.journal
        await listing.create("newer", cwd="/w", agent="a")
        assert [row.session_id for row in (await listing.list())[0]] == ["newer", "s"]
        before = here.journal.info.updated_at
        await here.turn(await here.agent())
        await until(lambda: here.journal.info.updated_at > before)
        here.session.close()
        await here.session.closed.wait()
        assert [row.session_id for row in (await listing.list())[0]] == ["s", "newer"]
