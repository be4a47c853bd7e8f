"""What disturbs a change of the queue: the disk, the session's end, other words of the user."""

from pathlib import Path

import pytest

from acp_bridge.journal import file
from tests.bridge.test_queue_changes import IMAGE, Queued, queued, words
from tests.bridge.test_words_that_join import running
from tests.journal.test_unwritten import full
from tests.sessions.agent import Agent, Gate, Json, Process, until
from tests.sessions.bench import bench
from tests.sessions.world import SETUP
from tests.support.slow_disk import SlowDisk


class FailingDisk(SlowDisk):
    """A disk whose fsync fails when a test lets it end."""

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        raise OSError(5, "no disk")


@pytest.mark.hazard("Q16", "Q9")
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
        print(await here.editor.refusal(asked[-1]))
        print(here.editor.texts(here.id))
        for each in here.asked:
            await until(lambda each=each: here.editor.answers(each))


def _breaks(_descriptor: int) -> None:
    raise OSError(5, "no disk")


@pytest.mark.hazard("Q16", "K1")
async def test_a_drop_that_can_not_be_synced_is_said_to_be_done_and_not_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queued(tmp_path) as here:
        params = await here.params("three")
        with monkeypatch.context() as patch:
            patch.setattr(file, "sync_file", _breaks)
            said = await here.says("/queue drop 3")
            refused = await here.editor.refused("_acp_bridge/queue/drop", params)
        assert said.startswith("Dropped prompt 3, but the disk has not taken that")
        assert refused.message.startswith("Dropped prompt 4, but the disk has not taken that")
        assert await here.ends() == ["end_turn", "end_turn", "cancelled", "cancelled"]
        assert here.prompted == ["runs", "one"]


@pytest.mark.hazard("Q16", "Q13")
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
        return [blocks[0]["text"] for blocks in loaded["_meta"]["acp_bridge"]["held"]]


@pytest.mark.hazard("Q16", "R12")
async def test_a_move_keeps_the_places_of_those_that_can_not_be_moved_any_more(
    tmp_path: Path,
) -> None:
    async with queued(tmp_path) as here:
        await here.says("/queue move 4 before 2")
        await here.says("/queue steer 4")
        await here.says("/queue move 3 before 2")
        assert await here.order() == ["three", "two", "one"]
    assert await left_over(here) == ["three", "two", "one"]


@pytest.mark.hazard("Q16")
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


@pytest.mark.hazard("Q16")
async def test_left_over_words_do_not_run_before_their_edit_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queued(tmp_path) as here:
        session_id = here.id
    disk = FailingDisk()
    async with bench(tmp_path) as it:
        await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})
        here = Queued(it, session_id, Gate(), [])
        with monkeypatch.context() as patch:
            patch.setattr(file, "sync_file", disk.sync)
            edit = it.editor.prompt(session_id, "/queue edit 2 first")
            await until(lambda: disk.reached.is_set())
            run = it.editor.prompt(session_id, "/queue run")
            await it.settled()
            assert here.prompted == []
            disk.goes_on.set()
            await it.editor.stop_reason(edit)
        print(it.editor.texts(session_id))
        await it.editor.stop_reason(run)
        assert here.prompted == ["one", "two", "three"]


@pytest.mark.hazard("Q16", "Q9")
@pytest.mark.parametrize("disk", [SlowDisk, FailingDisk])
async def test_changes_of_left_over_prompts_are_answered_when_the_session_is_closed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: type[SlowDisk]
) -> None:
    async with queued(tmp_path) as here:
        session_id = here.id
    slow = disk()
    async with bench(tmp_path) as it:
        await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})
        here = Queued(it, session_id, Gate(), [])
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
        for each in asked:
            await until(lambda each=each: it.editor.answers(each))
        print(it.editor.texts(session_id), it.editor.answers(asked[-1]))
    print(await left_over(here))


@pytest.mark.hazard("Q16")
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


@pytest.mark.hazard("Q16", "Q11")
async def test_a_prompt_is_answered_as_its_turn_ended_when_the_feedback_about_it_is_dropped(
    tmp_path: Path,
) -> None:
    (tmp_path / "hooks.toml").write_text("[[Stop]]\ncommand = 'echo more >&2; exit 2'\n")
    agent = Agent()

    async def full_up(process: Process, params: Json) -> Json:
        return {"stopReason": "max_tokens"}

    agent.script["session/prompt"] = full_up
    gate = agent.stops_at("session/prompt")
    async with bench(tmp_path, agent) as it:
        opened = await it.editor.ask("session/new", {"cwd": str(tmp_path), "mcpServers": []})
        session_id = opened["sessionId"]
        asked = it.editor.prompt(session_id, "runs")
        await until(lambda: gate.reached)
        here = Queued(it, session_id, gate, [asked])
        await it.editor.ask("_acp_bridge/hold", {"sessionId": session_id})
        gate.open()

        async def waits() -> bool:
            return bool(await here.listed())

        while not await waits():
            await it.settled()
        assert await here.says("/queue drop 2") == "Dropped prompt 2."
        assert await it.editor.stop_reason(asked) == "max_tokens"


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
        other = await there.it.joined()
        await other.ask("session/load", {**SETUP, "sessionId": here.id})
        print(other.texts(here.id))
