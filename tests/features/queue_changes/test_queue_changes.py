"""The queue is edited: prompts that wait get other words or another place, or never run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.journal import PromptState, file
from tests.core.sessions.agent import Agent, Gate, Json, until
from tests.core.sessions.bench import Bench, bench
from tests.core.sessions.editor import Editor
from tests.core.sessions.world import SETUP
from tests.support.slow_disk import SlowDisk, break_disk

IMAGE: Json = {"type": "image", "data": "AAAA", "mimeType": "image/png"}


def words(text: str) -> list[Json]:
    return [{"type": "text", "text": text}]


@dataclass(slots=True)
class Queued:
    """A session whose turn runs until its gate opens, with prompts that wait: one, two, three."""

    it: Bench
    id: str
    gate: Gate
    #: the requests of the running prompt and of those that wait.
    asked: list[Any]

    @property
    def editor(self) -> Editor:
        return self.it.editor

    @property
    def prompted(self) -> list[str]:
        """The texts of the prompts that the agent got."""
        return [each["prompt"][0]["text"] for each in self.it.agent.params("session/prompt")]

    async def says(self, text: str, client: Editor | None = None) -> str:
        """Let a client type a command; returns the bridge's answer."""
        client = client or self.editor
        assert await client.stop_reason(client.prompt(self.id, text)) == "end_turn"
        return client.texts(self.id)[-1].strip()

    async def listed(self) -> list[Json]:
        answer = await self.editor.ask("_acp_bridge/queue/list", {"sessionId": self.id})
        return list(answer["prompts"])

    async def order(self) -> list[str]:
        return [row["prompt"][0]["text"] for row in await self.listed()]

    async def id_of(self, text: str) -> str:
        rows = await self.listed()
        return next(str(row["promptId"]) for row in rows if row["prompt"][0]["text"] == text)

    async def params(self, text: str, **more: Any) -> Json:
        return {"sessionId": self.id, "promptId": await self.id_of(text), **more}

    def waiting(self) -> list[str]:
        """The words of the prompts that wait, as the journal has them."""
        rows = self.it.bridge._sessions.live[self.id].journal.prompts(PromptState.WAITING)
        return [row.params["prompt"][0]["text"] for row in rows]

    async def ends(self) -> list[Any]:
        """Let everything run; returns how each prompt was answered."""
        self.gate.open()
        return [await self.editor.stop_reason(each) for each in self.asked]


@asynccontextmanager
async def queued(home: Path, **more: Any) -> AsyncIterator[Queued]:
    agent = Agent()
    gate = agent.stops_at("session/prompt")
    async with bench(home, agent, **more) as it:
        opened = await it.editor.ask("session/new", {"cwd": str(home), "mcpServers": []})
        session_id = opened["sessionId"]
        asked = [it.editor.prompt(session_id, "runs")]
        await until(lambda: gate.reached)
        asked += [it.editor.prompt(session_id, text) for text in ("one", "two", "three")]
        await it.settled()
        await it.bridge._sessions.live[session_id].journal.sync()
        await it.settled()
        yield Queued(it, session_id, gate, asked)


@asynccontextmanager
async def left_over_queue(home: Path) -> AsyncIterator[Queued]:
    """The same session in the next bridge, with one, two and three left over."""
    async with queued(home) as here:
        session_id = here.id
    async with bench(home) as it:
        await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})
        yield Queued(it, session_id, Gate(), [])


# --- in words ------------------------------------------------------------------------------------


@pytest.mark.hazard("Q16.1")
async def test_the_queue_shows_numbers_that_prompts_keep_until_they_end(tmp_path: Path) -> None:
    async with queued(tmp_path) as here:
        assert "- 2: one\n- 3: two\n- 4: three" in await here.says("/queue")
        await here.says("/queue move 4 before 2")
        assert "- 4: three\n- 2: one\n- 3: two" in await here.says("/queue")
        assert await here.ends() == ["end_turn"] * 4
        assert here.prompted == ["runs", "three", "one", "two"]


@pytest.mark.hazard("Q16.2")
async def test_a_prompt_is_moved_to_the_end(tmp_path: Path) -> None:
    async with queued(tmp_path) as here:
        assert "Moved prompt 2" in await here.says("/queue move 2 last")
        assert here.waiting() == ["two", "three", "one"]
        await here.ends()
        assert here.prompted == ["runs", "two", "three", "one"]


@pytest.mark.hazard("Q16.2")
@pytest.mark.parametrize(
    ("how", "order"),
    [
        ("4 first", ["three", "one", "two"]),
        ("2 first", ["one", "two", "three"]),
        ("3 last", ["one", "three", "two"]),
        ("2 after 3", ["two", "one", "three"]),
        ("2 after 4", ["two", "three", "one"]),
        ("4 after 2", ["one", "three", "two"]),
        ("3 after 2", ["one", "two", "three"]),
    ],
)
async def test_a_prompt_is_moved_first_last_or_behind_another(
    tmp_path: Path, how: str, order: list[str]
) -> None:
    async with queued(tmp_path) as here:
        assert f"Moved prompt {how[0]}" in await here.says(f"/queue move {how}")
        assert here.waiting() == order
        await here.ends()
        assert here.prompted == ["runs", *order]


@pytest.mark.hazard("Q16.2")
async def test_an_edit_replaces_the_texts_and_keeps_the_images(tmp_path: Path) -> None:
    async with queued(tmp_path) as here:
        blocks = [*words("look"), IMAGE, *words("well")]
        params = {"sessionId": here.id, "prompt": blocks}
        last = here.editor.send("session/prompt", params)
        await here.it.settled()
        said = await here.says("/queue edit 5  look  twice ")
        assert said == "Prompt 5 is now: `look twice`"
        await here.ends()
        assert await here.editor.stop_reason(last) == "end_turn"
        sent = here.it.agent.params("session/prompt")[-1]
        assert sent["prompt"] == [*words("look  twice"), IMAGE]


@pytest.mark.hazard("Q16.3")
async def test_edited_words_are_shown_to_the_client_that_sent_other_ones(tmp_path: Path) -> None:
    async with queued(tmp_path) as here:
        await here.says("/queue edit 2 first")
        assert await here.ends() == ["end_turn"] * 4
        texts = here.editor.texts(here.id)
        assert "first" in texts
        assert "two" not in texts


@pytest.mark.hazard("Q16.13", "Q9")
async def test_a_dropped_prompt_is_answered_cancelled_and_never_runs(tmp_path: Path) -> None:
    async with queued(tmp_path) as here:
        assert await here.says("/queue drop 3") == "Dropped prompt 3."
        assert await here.editor.stop_reason(here.asked[2]) == "cancelled"
        assert await here.ends() == ["end_turn", "end_turn", "cancelled", "end_turn"]
        assert here.prompted == ["runs", "one", "three"]


@pytest.mark.hazard("Q16.9")
@pytest.mark.parametrize(
    "command",
    [
        "drop 1",
        "edit 1 x",
        "move 1 last",
        "move 2 before 1",
        "move 2 before 2",
        "drop 9",
        "move 9 last",
        "move 1 first",
        "move 2 after 1",
        "move 2 after 2",
        "move 2 after 9",
    ],
)
async def test_a_number_that_has_begun_or_never_was_is_an_error_and_nothing_changes(
    tmp_path: Path, command: str
) -> None:
    async with queued(tmp_path) as here:
        assert (await here.says(f"/queue {command}")).startswith("Nothing is changed: ")
        assert here.waiting() == ["one", "two", "three"]
        assert await here.ends() == ["end_turn"] * 4
        assert here.prompted == ["runs", "one", "two", "three"]


@pytest.mark.hazard("Q16.2", "R12")
async def test_what_is_left_over_can_be_edited_moved_and_dropped(tmp_path: Path) -> None:
    async with left_over_queue(tmp_path) as here:
        it, session_id = here.it, here.id
        assert [(row["number"], row["state"]) for row in await here.listed()] == [
            (2, "held"),
            (3, "held"),
            (4, "held"),
        ]
        await here.says("/queue move 4 before 2")
        await here.says("/queue edit 3 second")
        await here.says("/queue drop 2")
        assert await here.order() == ["three", "second"]
        assert await it.editor.stop_reason(it.editor.prompt(session_id, "/queue run")) == "end_turn"
        assert here.prompted == ["three", "second"]


@pytest.mark.hazard("Q16.14", "R12")
async def test_the_next_bridge_has_the_order_and_the_words_that_were_answered(
    tmp_path: Path,
) -> None:
    async with queued(tmp_path) as here:
        await here.says("/queue move 4 before 2")
        await here.says("/queue edit 2 first")
        await here.says("/queue drop 3")
        session_id = here.id
    async with bench(tmp_path) as it:
        loaded = await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})
        held = loaded["_meta"]["acp_bridge"]["held"]
        assert [blocks[0]["text"] for blocks in held] == ["three", "first"]


@pytest.mark.hazard("Q16.13", "R12")
async def test_a_prompt_of_a_run_that_is_dropped_is_not_left_over_again(tmp_path: Path) -> None:
    async with queued(tmp_path) as here:
        session_id = here.id
    agent = Agent()
    gate = agent.stops_at("session/prompt")
    async with bench(tmp_path, agent) as it:
        await it.editor.ask("session/load", {**SETUP, "sessionId": session_id})
        run = it.editor.prompt(session_id, "/queue run")
        await until(lambda: gate.reached)
        here = Queued(it, session_id, gate, [run])
        for number in (4, 3):
            assert await here.says(f"/queue drop {number}") == f"Dropped prompt {number}."
        assert await here.ends() == ["end_turn"]
        assert (here.prompted, await here.listed()) == (["one"], [])


# --- by methods, and by others -------------------------------------------------------------------


@pytest.mark.hazard("Q16.2")
async def test_the_methods_move_edit_and_drop_by_the_prompts_id(tmp_path: Path) -> None:
    async with queued(tmp_path) as here:
        before = await here.id_of("one")
        for method, params in (
            ("move", await here.params("three", before=before)),
            ("edit", await here.params("one", prompt=[*words("first"), IMAGE])),
            ("drop", await here.params("two")),
        ):
            assert await here.editor.ask(f"_acp_bridge/queue/{method}", params) == {}
        assert await here.order() == ["three", "first"]
        assert await here.ends() == ["end_turn", "end_turn", "cancelled", "end_turn"]
        assert here.it.agent.params("session/prompt")[-1]["prompt"] == [*words("first"), IMAGE]


@pytest.mark.hazard("Q16.3")
async def test_a_client_is_told_what_another_one_changed_of_its_prompts(tmp_path: Path) -> None:
    async with queued(tmp_path) as here:
        other = await here.it.attached(here.id)
        await other.ask("_acp_bridge/queue/edit", await here.params("one", prompt=words("first")))
        told = here.editor.texts(here.id)[-1]
        assert "Another client has changed your prompt. Prompt 2 is now: `first`" in told
        assert not any("Another client" in text for text in other.texts(here.id))
        await here.ends()


@pytest.mark.hazard("Q16.3")
@pytest.mark.parametrize("queue", [False, True])
async def test_a_move_is_said_to_a_client_that_is_not_told_the_order_anyway(
    tmp_path: Path, *, queue: bool
) -> None:
    async with queued(tmp_path) as here:
        other = await here.it.attached(here.id, queue=queue)
        asked = other.prompt(here.id, "theirs")
        await here.it.settled()
        moved = await here.params("theirs", before=await here.id_of("one"))
        await here.editor.ask("_acp_bridge/queue/move", moved)
        assert any("Moved prompt 5" in text for text in other.texts(here.id)) is not queue
        await here.ends()
        assert await other.stop_reason(asked) == "end_turn"


@pytest.mark.hazard("Q16.2")
async def test_an_observer_sees_the_queue_and_changes_nothing(tmp_path: Path) -> None:
    async with queued(tmp_path) as here:
        looks = await here.it.attached(here.id, observer=True)
        answer = await looks.ask("_acp_bridge/queue/list", {"sessionId": here.id})
        assert len(answer["prompts"]) == 3
        refused = await looks.refused("_acp_bridge/queue/drop", await here.params("one"))
        assert "observer" in refused.message
        assert here.waiting() == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("drop", {}),
        ("drop", {"promptId": 3}),
        ("move", {"before": "x"}),
        ("edit", {"prompt": []}),
        ("edit", {}),
        ("edit", {"prompt": [{"type": "text"}]}),
    ],
)
async def test_bad_parameters_of_a_change_get_one_error(
    tmp_path: Path, method: str, params: Json
) -> None:
    async with queued(tmp_path) as here:
        params = {**(await here.params("one") if method != "drop" else {}), **params}
        params["sessionId"] = here.id
        await here.editor.refused(f"_acp_bridge/queue/{method}", params)
        assert here.waiting() == ["one", "two", "three"]


@pytest.mark.hazard("Q16")
async def test_a_client_that_wants_to_know_is_told_the_queue_at_each_change(tmp_path: Path) -> None:
    async with queued(tmp_path) as here:
        watcher = await here.it.attached(here.id, queue=True)

        def told() -> list[tuple[int, str, bool]]:
            rows = watcher.asked("_acp_bridge/queue")[-1]["params"]["prompts"]
            return [(row["number"], row["text"], row["mine"]) for row in rows]

        await watcher.got("_acp_bridge/queue")
        assert told() == [(2, "one", False), (3, "two", False), (4, "three", False)]
        await here.says("/queue edit 3 second")
        await until(lambda: told()[1] == (3, "second", False))
        watcher.prompt(here.id, "mine")
        await until(lambda: told()[-1] == (5, "mine", True))
        await here.ends()
        await until(lambda: told() == [])
        assert not here.editor.asked("_acp_bridge/queue")


@pytest.mark.hazard("Q16")
async def test_a_client_that_is_told_the_state_knows_a_turn_whose_words_were_edited(
    tmp_path: Path,
) -> None:
    async with queued(tmp_path) as here:
        watcher = await here.it.attached(here.id, state=True)
        await here.says("/queue edit 3 second")
        await here.ends()

        def edited() -> list[str]:
            turns = [each["params"].get("turn", {}) for each in watcher.asked("_acp_bridge/state")]
            return [turn["text"] for turn in turns if turn.get("edited")]

        await until(edited)
        assert set(edited()) == {"second"}


# --- the disk ------------------------------------------------------------------------------------


@pytest.mark.hazard("Q16.5", "K1")
async def test_neither_old_words_nor_the_old_order_run_while_a_change_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk()
    async with queued(tmp_path) as here:
        monkeypatch.setattr(file, "sync_file", disk.sync)
        move = here.editor.prompt(here.id, "/queue move 4 before 2")
        await until(lambda: disk.reached.is_set())
        here.gate.open()
        assert await here.editor.stop_reason(here.asked[0]) == "end_turn"
        assert here.prompted == ["runs"]
        assert not here.editor.answers(move)
        disk.goes_on.set()
        assert await here.ends() == ["end_turn"] * 4
        assert here.prompted == ["runs", "three", "one", "two"]


@pytest.mark.hazard("Q16.6", "Q13")
@pytest.mark.parametrize("command", ["move 4 before 2", "edit 2 first"])
async def test_a_change_that_can_not_be_synced_is_refused_and_leaves_all_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    async with queued(tmp_path) as here:
        with monkeypatch.context() as patch:
            break_disk(patch)
            said = await here.says(f"/queue {command}")
        assert said.startswith("Nothing is changed: the journal can't be written")
        assert here.waiting() == await here.order() == ["one", "two", "three"]
        assert await here.ends() == ["end_turn"] * 4
        assert here.prompted == ["runs", "one", "two", "three"]


@pytest.mark.hazard("Q16", "C20")
async def test_the_oldest_for_a_stop_is_the_next_to_run(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        session_id = await it.new()
        await it.editor.ask("_acp_bridge/hold", {"sessionId": session_id})
        asked = [it.editor.prompt(session_id, text) for text in ("one", "two")]
        await it.settled()
        here = Queued(it, session_id, Gate(), asked)
        await here.says("/queue move 2 before 1")
        it.editor.notify("session/cancel", {"sessionId": session_id})
        assert await it.editor.stop_reason(asked[1]) == "cancelled"
        await here.says("/queue go")
        assert await it.editor.stop_reason(asked[0]) == "end_turn"
        assert here.prompted == ["one"]


@pytest.mark.hazard("Q16.12", "Q15")
async def test_hooks_run_on_the_words_that_an_edit_gave(tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "hooks.toml").write_text(
        f"[[UserPromptSubmit]]\ncommand = 'cat >> {log}; echo >> {log}'\n"
    )
    async with queued(tmp_path) as here:
        await here.says("/queue edit 2 first")
        assert await here.ends() == ["end_turn"] * 4
        assert '"prompt":"first"' in log.read_text().replace(": ", ":")
        assert '"prompt":"one"' not in log.read_text().replace(": ", ":")
