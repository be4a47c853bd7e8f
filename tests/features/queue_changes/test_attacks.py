"""What disturbs a change of the queue: the disk, the session's end, other words of the user."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from acp_bridge.core.journal import file
from tests.core.journal.test_unwritten import full
from tests.core.sessions.agent import Agent, Gate, until
from tests.core.sessions.bench import bench
from tests.core.sessions.world import SETUP
from tests.features.queue_changes.test_queue_changes import (
    IMAGE,
    Queued,
    left_over_queue,
    queued,
    words,
)
from tests.features.steering.test_words_that_join import running
from tests.support.slow_disk import FailingDisk, SlowDisk, break_disk


@pytest.mark.hazard("Q16.8", "Q9")
async def test_a_prompt_that_is_to_join_the_turn_while_it_is_moved_keeps_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk()
    async with queued(tmp_path) as here:
        monkeypatch.setattr(file, "sync_file", disk.sync)
        move = here.editor.prompt(here.id, "/queue move 4 before 2")
        await until(lambda: disk.reached.is_set())
        await here.says("/queue steer 4")
        disk.goes_on.set()
        assert await here.editor.stop_reason(move) == "end_turn"
        assert await here.ends() == ["end_turn"] * 4
        assert here.prompted == ["runs", "three", "one", "two"]


@pytest.mark.hazard("Q16", "Q9")
@pytest.mark.parametrize("keeps", [True, False])
async def test_changes_of_a_session_that_is_closed_meanwhile_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    disk = SlowDisk()
    async with queued(tmp_path) as here:
        monkeypatch.setattr(file, "sync_file", disk.sync)
        asked = [
            here.editor.prompt(here.id, f"/queue {command}")
            for command in ("move 4 before 2", "edit 3 x", "move 2 last", "drop 3")
        ]
        asked.append(here.editor.send("_acp_bridge/queue/move", await here.params("two")))
        await until(lambda: disk.reached.is_set())
        method = "_acp_bridge/close" if keeps else "session/close"
        closed = here.editor.send(method, {"sessionId": here.id})
        await here.it.settled()
        disk.goes_on.set()
        await here.editor.result(closed)
        for each in asked[:-1]:
            assert await here.editor.stop_reason(each) == "end_turn"
        assert "is being closed" in (await here.editor.refusal(asked[-1])).message
        said = "".join(here.editor.texts(here.id))
        assert "Moved prompt 4" in said
        assert said.count("Nothing is changed: the session is being closed") == 3
        await until(lambda: all(here.editor.answers(each) for each in here.asked))
    assert await left_over(here) == (["three", "one", "two"] if keeps else [])


@pytest.mark.hazard("Q16.7", "K1")
async def test_a_drop_that_can_not_be_synced_is_said_to_be_done_and_not_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queued(tmp_path) as here:
        params = await here.params("three")
        with monkeypatch.context() as patch:
            break_disk(patch)
            said = await here.says("/queue drop 3")
            refused = await here.editor.refused("_acp_bridge/queue/drop", params)
        assert said.startswith("Dropped prompt 3, but the disk has not taken that")
        assert refused.message.startswith("Dropped prompt 4, but the disk has not taken that")
        assert await here.ends() == ["end_turn", "end_turn", "cancelled", "cancelled"]
        assert here.prompted == ["runs", "one"]


@pytest.mark.hazard("Q16.6", "Q13.11")
@pytest.mark.parametrize("command", ["drop 3", "edit 3 x", "move 3 last"])
async def test_a_change_that_can_not_be_written_changes_nothing(
    tmp_path: Path, command: str
) -> None:
    async with queued(tmp_path) as here:
        with full(here.it.bridge._sessions.live[here.id].journal):
            await here.says(f"/queue {command}")
            said = "".join(here.editor.texts(here.id))
        assert "Nothing is changed: the journal can't be written" in said
        assert await here.order() == ["one", "two", "three"]
        assert await here.ends() == ["end_turn"] * 4
        assert here.prompted == ["runs", "one", "two", "three"]


async def left_over(here: Queued) -> list[str]:
    """Return the texts that the next bridge has left over, in order."""
    async with bench(here.it.context.settings.home) as it:
        loaded = await it.editor.ask("session/load", {**SETUP, "sessionId": here.id})
        held = loaded["_meta"]["acp_bridge"].get("held", [])
        return [blocks[0]["text"] for blocks in held]


@pytest.mark.hazard("Q16.8", "R12")
async def test_a_move_keeps_the_places_of_those_that_can_not_be_moved_any_more(
    tmp_path: Path,
) -> None:
    async with queued(tmp_path) as here:
        await here.says("/queue move 4 before 2")
        await here.says("/queue steer 4")
        await here.says("/queue move 3 before 2")
        assert await here.order() == ["three", "two", "one"]
    assert await left_over(here) == ["three", "two", "one"]


@pytest.mark.hazard("Q16.2")
async def test_an_edit_in_words_keeps_the_images_of_the_edit_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk()
    async with queued(tmp_path) as here:
        monkeypatch.setattr(file, "sync_file", disk.sync)
        here.editor.prompt(here.id, "/queue move 4 before 2")
        await until(lambda: disk.reached.is_set())
        params = await here.params("one", prompt=[*words("look"), IMAGE])
        here.editor.send("_acp_bridge/queue/edit", params)
        last = here.editor.prompt(here.id, "/queue edit 2 well")
        await here.it.settled()
        disk.goes_on.set()
        await here.editor.result(last)
        await here.ends()
        assert [*words("well"), IMAGE] in [
            each["prompt"] for each in here.it.agent.params("session/prompt")
        ]


@pytest.mark.hazard("Q16.5")
async def test_left_over_words_do_not_run_before_their_edit_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FailingDisk()
    async with left_over_queue(tmp_path) as here:
        it, session_id = here.it, here.id
        with monkeypatch.context() as patch:
            patch.setattr(file, "sync_file", disk.sync)
            edit = it.editor.prompt(session_id, "/queue edit 2 first")
            await until(lambda: disk.reached.is_set())
            run = it.editor.prompt(session_id, "/queue run")
            await it.settled()
            assert here.prompted == []
            disk.goes_on.set()
            await it.editor.stop_reason(edit)
        await it.editor.stop_reason(run)
        assert here.prompted == ["one", "two", "three"]


@pytest.mark.hazard("Q16", "Q9")
@pytest.mark.parametrize("disk", [SlowDisk, FailingDisk])
async def test_changes_of_left_over_prompts_are_answered_when_the_session_is_closed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: type[SlowDisk]
) -> None:
    slow = disk()
    async with left_over_queue(tmp_path) as here:
        it, session_id = here.it, here.id
        with monkeypatch.context() as patch:
            patch.setattr(file, "sync_file", slow.sync)
            asked = [
                it.editor.prompt(session_id, f"/queue {command}")
                for command in ("move 4 before 2", "edit 3 x", "move 2 last", "drop 3")
            ]
            asked.append(it.editor.send("_acp_bridge/queue/move", await here.params("two")))
            await until(lambda: slow.reached.is_set())
            closed = it.editor.send("_acp_bridge/close", {"sessionId": session_id})
            await it.settled()
            slow.goes_on.set()
            await it.editor.result(closed)
        await until(lambda: all(it.editor.answers(each) for each in asked))
        said = "".join(it.editor.texts(session_id))
        assert said.count("Nothing is changed: the session is being closed") == 3
    changed = ["three", "one", "two"]
    assert await left_over(here) == (["one", "two", "three"] if disk is FailingDisk else changed)


@pytest.mark.hazard("Q16.8")
async def test_a_prompt_that_was_moved_before_words_for_the_turn_can_be_moved_again(
    tmp_path: Path,
) -> None:
    async with queued(tmp_path) as here:
        await here.editor.ask("_acp_bridge/hold", {"sessionId": here.id})
        await here.says("/queue steer 4")
        here.gate.open()
        assert await here.editor.stop_reason(here.asked[0]) == "end_turn"
        assert "Moved" in await here.says("/queue move 3 before 4")
        assert await here.order() == ["two", "three", "one"]
        assert "Moved" in await here.says("/queue move 3 last")
        assert await here.order() == ["three", "one", "two"]
        await here.says("/queue go")
        assert await here.ends() == ["end_turn"] * 4
        assert here.prompted == ["runs", "three", "one", "two"]


@asynccontextmanager
async def with_feedback(home: Path) -> AsyncIterator[Queued]:
    """A session on hold in which a hook's feedback, 3, and a prompt, 2, wait."""
    (home / "hooks.toml").write_text("[[Stop]]\ncommand = 'echo more >&2; exit 2'\n")
    agent = Agent()
    agent.script["session/prompt"] = {"stopReason": "max_tokens"}
    gate = agent.stops_at("session/prompt")
    async with bench(home, agent) as it:
        opened = await it.editor.ask("session/new", {"cwd": str(home), "mcpServers": []})
        asked = [it.editor.prompt(opened["sessionId"], text) for text in ("runs", "one")]
        await until(lambda: gate.reached)
        here = Queued(it, opened["sessionId"], gate, asked)
        await it.editor.ask("_acp_bridge/hold", {"sessionId": here.id})
        gate.open()
        while len(await here.listed()) < 2:
            await it.settled()
        yield here


@pytest.mark.hazard("Q16", "Q11.1")
async def test_a_prompt_is_answered_as_its_turn_ended_when_the_feedback_about_it_is_dropped(
    tmp_path: Path,
) -> None:
    async with with_feedback(tmp_path) as here:
        assert await here.says("/queue drop 3") == "Dropped prompt 3."
        assert await here.editor.stop_reason(here.asked[0]) == "max_tokens"


@pytest.mark.hazard("Q16.10", "Q16.11", "Q11")
@pytest.mark.parametrize("command", ["move 3 last", "move 2 before 3", "edit 3 x"])
async def test_feedback_keeps_its_words_and_its_place_when_it_is_left_over(
    tmp_path: Path, command: str
) -> None:
    async with with_feedback(tmp_path) as here:
        assert (await here.says(f"/queue {command}")).startswith("Nothing is changed")
    async with bench(tmp_path) as it:
        await it.editor.ask("session/load", {**SETUP, "sessionId": here.id})
        here = Queued(it, here.id, Gate(), [])
        assert [row["number"] for row in await here.listed()] == [3, 2]
        assert (await here.says(f"/queue {command}")).startswith("Nothing is changed")
        assert [row["number"] for row in await here.listed()] == [3, 2]


@pytest.mark.hazard("Q16", "Q15")
async def test_words_that_were_edited_are_no_longer_perhaps_read(tmp_path: Path) -> None:
    async with running(tmp_path) as there:
        asked = there.steers("first")
        await until(lambda: there.steered == ["first"])
        await there.it.settled()
        there.process.says({"id": there.first_id(), "result": {"stopReason": "end_turn"}})
        await there.it.editor.refusal(asked)
        here = Queued(there.it, there.id, there.gate, [])
        assert "(perhaps not read)" in await here.says("/queue")
        await here.says("/queue edit 2 second")
        assert "second" in (said := await here.says("/queue"))
        assert "(perhaps not read)" not in said


@pytest.mark.hazard("Q16", "Q15")
async def test_words_that_the_agent_did_not_take_are_shown_as_they_were_edited(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as there:
        there.outcomes.append({"outcome": "promptRequired"})
        asked = there.steers("first")
        await until(lambda: there.steered == ["first"])
        await there.it.settled()
        here = Queued(there.it, there.id, there.gate, [there.turn, asked])
        assert "is now" in await here.says("/queue edit 2 second")
        assert await here.ends() == ["end_turn"] * 2
        assert here.prompted == ["runs", "second"]
        assert "second" in here.editor.texts(here.id)


@pytest.mark.hazard("Q16.4", "K1")
async def test_a_prompt_whose_hooks_run_is_dropped_on_disk_before_that_is_answered(
    tmp_path: Path,
) -> None:
    hook = "[[UserPromptSubmit]]\ncommand = 'touch begun; sleep 60'\n"
    (tmp_path / "hooks.toml").write_text(hook)
    async with bench(tmp_path) as it:
        opened = await it.editor.ask("session/new", {"cwd": str(tmp_path), "mcpServers": []})
        asked = it.editor.prompt(opened["sessionId"], "one")
        await until((tmp_path / "begun").exists)
        here = Queued(it, opened["sessionId"], Gate(), [asked])
        assert await here.says("/queue drop 1") == "Dropped prompt 1."
        assert here.waiting() == []
        assert await it.editor.stop_reason(asked) == "cancelled"
        assert here.prompted == []


@pytest.mark.hazard("Q16.3", "C23")
@pytest.mark.parametrize("in_words", [True, False])
async def test_who_sent_a_prompt_that_another_client_drops_is_told_before_it_is_cancelled(
    tmp_path: Path, in_words: bool
) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        await it.editor.ask("_acp_bridge/hold", {"sessionId": session_id})
        asked = it.editor.prompt(session_id, "one")
        await it.settled()
        here = Queued(it, session_id, Gate(), [asked])
        other = await it.attached(session_id)
        if in_words:
            assert await here.says("/queue drop 1", other) == "Dropped prompt 1."
        else:
            await other.ask("_acp_bridge/queue/drop", await here.params("one"))
        assert await it.editor.stop_reason(asked) == "cancelled"
        assert "Another client has changed your prompt" in "".join(it.editor.texts(session_id))
        assert it.editor.answers(asked) == it.editor.messages[-1:]


@pytest.mark.hazard("Q16", "Q15")
async def test_words_whose_edit_fails_are_left_over_as_they_were_when_the_agent_dies_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FailingDisk()
    async with running(tmp_path) as there:
        landing = there.it.agent.stops_at("_session/steering")
        there.steers("sent")
        await until(lambda: landing.reached)
        waits = there.steers("waits")
        await there.it.settled()
        await there.it.bridge._sessions.live[there.id].journal.sync()
        here = Queued(there.it, there.id, there.gate, [])
        with monkeypatch.context() as patch:
            patch.setattr(file, "sync_file", disk.sync)
            edit = here.editor.prompt(here.id, "/queue edit 3 other")
            await until(lambda: disk.reached.is_set())
            there.process.dies()
            await here.editor.refusal(waits)
            disk.goes_on.set()
            await here.editor.stop_reason(edit)
        assert (await here.order(), there.left_over()) == (["waits"], ["waits"])
