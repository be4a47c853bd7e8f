"""`/queue`: what is one, and what it does; it is answered at once and runs nothing by itself."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.journal import JournalError, PromptState, SessionJournal
from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import (
    SESSION_CANCEL,
    SESSION_PROMPT,
    SESSION_RESUME,
    USER_MESSAGE,
    queue_words,
)
from acp_bridge.core.updates.notices import (
    DROP_STOPPED,
    NOTHING_LEFT,
    RUN_STOPPED,
    running,
)
from tests.core.session.journals import failing, recorded, recorded_texts
from tests.core.session.living import CANCELLED, DONE, Living, first, living
from tests.core.session.played_agent import UNKNOWN, PlayedAgent
from tests.core.session.waiting import until

pytestmark = pytest.mark.usefixtures("no_errors")

WAITING, LEFT_OVER, SENT, ENDED = PromptState


def text(words: str) -> list[Any]:
    return [{"type": "text", "text": words}]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (text("/queue"), []),
        (text("  /queue\n"), []),
        (text("/queue run"), ["run"]),
        (text("/queue  drop  2 "), ["drop", "2"]),
        (text("/queued"), None),
        (text("say /queue"), None),
        (text("queue"), None),
        (text(""), None),
        (text("/queue") + text("run"), None),
        ([{"type": "image", "data": "/queue"}], None),
        ([{"type": "text", "text": None}], None),
        (["/queue"], None),
    ],
)
def test_a_prompt_is_a_queue_command_when_it_is_that_word_alone_or_with_more_behind_it(
    given: list[Any], words: list[str] | None
) -> None:
    assert queue_words(given) == words


@asynccontextmanager
async def left(folder: Path, *words: str) -> AsyncIterator[Living]:
    """A session of which another bridge has left these prompts."""
    async with living(folder, first=first()) as here:
        for each in words:
            here.journal.accept(each, {"sessionId": "s", "prompt": text(each)})
        await here.session.recovery.run()
        yield here


def types(here: Living, words: str) -> list[Any]:
    """Let the client type this; returns what it is sent at once: texts, and results of prompts."""
    before = len(here.got)
    here.prompt(words)
    return sent(here, before)


async def types_and_waits(here: Living, words: str) -> list[Any]:
    """Let the client type this; returns what it is sent up to the answer."""
    before = len(here.got)
    await here.answered(here.prompt(words))
    return sent(here, before)


def sent(here: Living, before: int) -> list[Any]:
    here.session.transcript.flush()
    return [
        message["result"]
        if "result" in message
        else message["params"]["update"]["content"]["text"].strip()
        for message in here.got[before:]
        if "result" in message or "content" in message["params"].get("update", {})
    ]


def left_over(here: Living) -> list[str]:
    """Return the words of what waits for the user's word."""
    rows = here.journal.prompts(LEFT_OVER)
    return [row.params["prompt"][0]["text"] for row in rows]


@pytest.mark.hazard("R12", "Q10")
async def test_it_shows_what_waits_and_what_is_left_over_and_then_is_answered(
    tmp_path: Path,
) -> None:
    async with left(tmp_path, "old") as here:
        agent = await here.agent()
        for words in ("runs", "next", "later"):
            here.prompt(words)
        await agent.asked(SESSION_PROMPT)
        await until(lambda: [m.get("method") for m in here.got].count("_acp_bridge/accepted") == 3)
        shown, done = types(here, "/queue")
        assert shown.startswith(
            "2 waiting.\n\n- 3: next\n- 4: later\n\nLeft over since a restart:\n\n- 1: old\n"
        )
        assert (done, left_over(here)) == (DONE, ["old"])


@pytest.mark.hazard("T2", "K1")
async def test_the_words_and_the_answer_are_kept_in_the_transcript(tmp_path: Path) -> None:
    async with left(tmp_path) as here:
        shown, _ = types(here, "/queue")
        kept = await recorded_texts(here.journal)
        assert [said.strip() for said in kept] == ["/queue", shown]


@pytest.mark.hazard("R12.3")
async def test_run_lets_all_that_is_left_over_run_in_order_and_stays_open_meanwhile(
    tmp_path: Path,
) -> None:
    async with left(tmp_path, "a", "b") as here:
        agent = await here.agent()
        carrier = here.prompt("/queue run")
        assert left_over(here) == []
        assert here.texts()[0] == running(2)
        turn = await agent.asked(SESSION_PROMPT)
        assert here.states() == [SENT, WAITING]
        # Whoever says it again meanwhile finds nothing more to run.
        assert types(here, "/queue run")[0] == NOTHING_LEFT
        for words in ("a", "b"):
            assert turn["params"]["prompt"] == text(words)
            assert carrier not in here.answers()
            agent.answer(turn, DONE)
            if words == "a":
                turn = await agent.asked(SESSION_PROMPT)
        assert await here.answered(carrier) == DONE


@pytest.mark.hazard("R12")
async def test_what_the_stop_of_a_run_leaves_over_runs_in_its_order_when_that_is_asked_for_again(
    tmp_path: Path,
) -> None:
    async with left(tmp_path, "a", "b", "c") as here:
        agent = await here.agent()
        carrier = here.prompt("/queue run")
        turn = await agent.asked(SESSION_PROMPT)
        here.session.feed(ev.Cancel())
        agent.answer(turn, CANCELLED)
        assert await here.answered(carrier) == CANCELLED
        assert left_over(here) == ["b", "c"]
        carrier = here.prompt("/queue run")
        for words in ("b", "c"):
            turn = await agent.asked(SESSION_PROMPT)
            assert turn["params"]["prompt"] == text(words)
            agent.answer(turn, DONE)
        assert await here.answered(carrier) == DONE


@pytest.mark.hazard("R12.3", "Q5.1")
async def test_what_a_stopped_run_has_left_over_unwritten_runs_once_when_that_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(journal: SessionJournal, seq: int) -> None:
        raise JournalError("no later try can work")

    async with left(tmp_path, "a", "b") as here:
        agent = await here.agent()
        carrier = here.prompt("/queue run")
        turn = await agent.asked(SESSION_PROMPT)
        with monkeypatch.context() as patch:
            patch.setattr(SessionJournal, "leave_over", refuse)
            here.session.feed(ev.Cancel())
        agent.answer(turn, CANCELLED)
        assert await here.answered(carrier) == CANCELLED
        carrier = here.prompt("/queue run")
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(carrier) == DONE
        assert types(here, "/queue run")[0] == NOTHING_LEFT


@pytest.mark.hazard("R12", "Q8")
async def test_a_journal_that_cannot_be_written_stops_a_run_and_what_was_not_released_stays(
    tmp_path: Path,
) -> None:
    async with left(tmp_path, "a", "b") as here:
        agent = await here.agent()
        with failing(here.journal, "UPDATE ON prompts WHEN old.seq = 2"):
            assert types(here, "/queue run")[:2] == [RUN_STOPPED, running(1)]
        assert left_over(here) == ["b"]
        turn = await agent.asked(SESSION_PROMPT)
        assert turn["params"]["prompt"] == text("a")
        agent.answer(turn, DONE)
        assert types(here, "/queue run")[0] == running(1)
        assert (await agent.asked(SESSION_PROMPT))["params"]["prompt"] == text("b")


@pytest.mark.parametrize("words", ["0", "3", "-1", "x", "1 2", "1.0", "9" * 5000, "²"])
@pytest.mark.hazard("R12")
async def test_dropping_what_is_no_number_of_a_left_over_prompt_drops_nothing(
    tmp_path: Path, words: str
) -> None:
    async with left(tmp_path, "a", "b") as here:
        said, done = await types_and_waits(here, f"/queue drop {words}")
        assert said.startswith(("Nothing is changed: no prompt ", "Usage: "))
        assert (done, left_over(here)) == (DONE, ["a", "b"])


@pytest.mark.hazard("R12", "Q8")
async def test_a_journal_that_cannot_be_written_stops_a_drop_and_the_rest_stays(
    tmp_path: Path,
) -> None:
    async with left(tmp_path, "a", "b", "c") as here:
        with failing(here.journal, "UPDATE ON prompts WHEN old.seq = 2"):
            assert types(here, "/queue drop") == [DROP_STOPPED, DONE]
        assert left_over(here) == ["b", "c"]


@pytest.mark.parametrize("words", ["runs", "run now", "help"])
async def test_other_words_get_the_usage_and_do_nothing(tmp_path: Path, words: str) -> None:
    async with left(tmp_path, "a") as here:
        (usage, done) = types(here, f"/queue {words}")
        assert (usage[:7], done) == ("Usage: ", DONE)
        assert left_over(here) == ["a"]
        assert (await here.agent()).heard == ["initialize"]


@pytest.mark.hazard("R1", "Q10")
async def test_during_a_replay_it_is_done_at_once_and_its_answer_comes_behind_the_replay(
    tmp_path: Path,
) -> None:
    async with left(tmp_path, "a") as here:
        (view,) = here.session.transcript.views
        view.begin_replay()
        assert types(here, "/queue drop") == []
        assert left_over(here) == []
        view.end_replay()
        assert sent(here, 0) == ["Dropped 1.", DONE]


async def test_a_command_that_is_typed_during_a_turn_stays_apart_from_that_turns_prompt(
    tmp_path: Path,
) -> None:
    async with left(tmp_path) as here:
        here.prompt("run this")
        await (await here.agent()).asked(SESSION_PROMPT)
        for words in ("/queue run", "/queue drop", "/queue drop"):
            here.prompt(words)
        said = [
            params["update"]["content"]["text"]
            for params in await recorded(here.journal)
            if params["update"]["sessionUpdate"] == USER_MESSAGE
        ]
        assert said == ["run this", "/queue run", "/queue drop", "/queue drop"]


async def test_where_the_agent_has_a_command_of_that_name_ours_is_taken_while_something_runs(
    tmp_path: Path,
) -> None:
    async with left(tmp_path) as here:
        agent = await here.agent()
        own = [{"name": "queue", "description": "mine"}]
        agent.update(sessionUpdate="available_commands_update", availableCommands=own)
        for words in ("/queue wait", "/queue stop"):
            await here.turn(agent, words)
        running_one = here.prompt("run this")
        turn = await agent.asked(SESSION_PROMPT)
        waits, more = here.prompt("/queue wait"), here.prompt("/queue stop more")
        stops = here.prompt("/queue stop")
        assert agent.heard[-1] == SESSION_CANCEL
        agent.answer(turn, DONE)
        for request_id in (running_one, waits, stops):
            await here.answered(request_id)
        turn = await agent.asked(SESSION_PROMPT)
        assert turn["params"]["prompt"] == text("/queue stop more")
        agent.answer(turn, DONE)
        assert await here.answered(more) == DONE


# --- an agent with a `/queue` of its own -----------------------------------------------------


def lists(agent: PlayedAgent, *names: str) -> None:
    commands = [{"name": name, "description": "the agent's"} for name in names]
    agent.update(sessionUpdate="available_commands_update", availableCommands=commands)


def offered_last(here: Living) -> list[str]:
    listed = [u for u in here.updates() if u["sessionUpdate"] == "available_commands_update"]
    return [each["name"] for each in listed[-1]["availableCommands"]]


@pytest.mark.parametrize(
    ("names", "listed", "typed"),
    [
        (["compact"], "queue", "/queue"),
        (["queue"], "bridge", "/bridge queue"),
        (["/queue", "compact"], "bridge", "/bridge queue"),
        (["queue", "bridge"], "acp-bridge", "/acp-bridge queue"),
        (["queue", "bridge", "acp-bridge"], "acp-bridge", "/acp-bridge queue"),
        (["bridge"], "queue", "/queue"),
    ],
)
async def test_beside_the_agents_own_command_ours_has_another_name_which_notices_use(
    tmp_path: Path, names: list[str], listed: str, typed: str
) -> None:
    async with left(tmp_path, "old `/queue run`") as here:
        agent = await here.agent()
        lists(agent, *names)
        await until(lambda: here.updates() != [])
        assert offered_last(here) == [*names, listed]
        for words, expected in (
            (f"{typed} hold", f"`{typed} go`"),
            (f"{typed} go", "Going on."),
            (f"{typed} go", f"`{typed} run`"),
            (typed, f"`{typed} run` runs them, `{typed} drop [NUMBER]` forgets."),
            (f"{typed} nonsense", f"`{typed}`, `{typed} hold`, `{typed} go`"),
        ):
            *shown, done = types(here, words)
            assert done == DONE
            assert any(expected in each for each in shown), (words, shown)
            assert typed == "/queue" or not any("`/queue" in each for each in shown[1:])
        assert agent.heard.count(SESSION_PROMPT) == 0


async def test_the_other_name_is_known_again_before_the_agent_has_listed_its_commands(
    tmp_path: Path,
) -> None:
    listed = [{"name": "queue", "description": "its own"}]
    update = {"sessionUpdate": "available_commands_update", "availableCommands": listed}

    def kept(journal: SessionJournal) -> None:
        journal.set("state:available_commands_update", {"update": update})

    async with living(tmp_path, first=first(), before=kept) as here:
        shown, _ = types(here, "/bridge queue hold")
        assert "`/bridge queue go`" in shown


async def test_errors_name_the_command_as_it_is_offered(tmp_path: Path) -> None:
    def forgets(agent: PlayedAgent) -> None:
        agent.reply(SESSION_RESUME, UNKNOWN)

    async with living(tmp_path, forgets, first=first()) as here:
        agent = await here.agent()
        lists(agent, "queue")
        await here.turn(agent)
        agent.dies()
        error = await here.answered(here.prompt("next"))
        assert "`/bridge queue memory new`" in error["message"]
        assert "`/queue" not in str(error)
