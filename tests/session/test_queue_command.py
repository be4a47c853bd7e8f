"""`/queue`: what is one, and what it does; it is answered at once and runs nothing by itself."""

from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from acp_bridge.journal import PromptState, SessionJournal
from acp_bridge.machine import events as ev
from acp_bridge.protocol import USER_MESSAGE
from acp_bridge.session.process.memory import Memory
from acp_bridge.session.prompts import queue_command
from acp_bridge.session.prompts.pauses import Pauses
from acp_bridge.session.prompts.prompts import Prompts
from acp_bridge.session.prompts.queue_command import QueueCommand, parse
from acp_bridge.session.transcript.transcript_out import TranscriptOut
from acp_bridge.updates.notices import (
    ASK_WHAT,
    DROP_STOPPED,
    NOTHING_LEFT,
    RUN_STOPPED,
    running,
    titled,
)
from acp_bridge.updates.updates import Updates
from tests.session.journals import failing, recorded, recorded_texts, states
from tests.session.memory import ClientEnd
from tests.session.played_core import PlayedCore

Json = dict[str, Any]
DONE = {"stopReason": "end_turn"}


def text(words: str) -> list[Any]:
    return [{"type": "text", "text": words}]


def prompt(words: str) -> Json:
    return {"sessionId": "s", "prompt": text(words)}


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
    assert parse(given) == words


class Stage:
    """A session with prompts `held`, and a client that types."""

    def __init__(self, journal: SessionJournal, *held: str) -> None:
        self.journal = journal
        self.client = ClientEnd()
        self.core = PlayedCore()
        self.transcript = TranscriptOut("s", journal, Updates(set()))
        self.transcript.attach(self.client.client)
        self.prompts = Prompts(journal, self.transcript, self.core, checkpoint)
        for words in held:
            seq = journal.accept(words, prompt(words))
            journal.leave_over(seq)
            self.prompts.add_left_over(prompt(words), seq)
        self.command = QueueCommand(
            self.core,
            self.prompts,
            self.transcript,
            Memory(journal),
            Pauses(self.core, self.transcript, None),
            lambda request, question: self.asked.append(question),
            str.upper,
            queue_command.offered(None),
            can_steer=False,
        )
        self._asked = 0
        #: the questions beside the session.
        self.asked: list[str] = []

    def types(self, words: str) -> list[Any]:
        """Return what the client is sent: texts, and results of prompts."""
        self._asked += 1
        params = prompt(words)
        request = self.client.asks("session/prompt", params, self._asked)
        found = parse(params["prompt"])
        assert found is not None
        self.command.run(request, params, found)
        return self.sent()

    def sent(self) -> list[Any]:
        self.transcript.flush()
        return [
            message["result"]
            if "result" in message
            else message["params"]["update"]["content"]["text"].strip()
            for message in self.client.sent.take()
        ]

    @property
    def held(self) -> list[str]:
        return [params["prompt"][0]["text"] for params in self.prompts.left_over.values()]


@pytest.mark.hazard("R12", "Q10")
async def test_it_shows_what_waits_and_what_is_held_and_then_is_answered(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal, "old")
    stage.core.waiting = (
        stage.prompts.add(prompt("next"), None),
        stage.prompts.add(prompt("later"), None),
    )
    shown, done = stage.types("/queue")
    assert shown.startswith(
        "2 waiting.\n\n1. next\n2. later\n\nLeft over since a restart:\n\n1. old\n"
    )
    assert done == DONE
    assert (stage.core.fed, stage.held) == ([], ["old"])


@pytest.mark.hazard("T2", "K1")
async def test_the_words_and_the_answer_are_kept_in_the_transcript(journal: SessionJournal) -> None:
    stage = Stage(journal)
    shown, _ = stage.types("/queue")
    assert [said.strip() for said in await recorded_texts(journal)] == ["/queue", shown]


@pytest.mark.hazard("R12")
async def test_run_lets_all_held_prompts_run_in_order_and_stays_open_meanwhile(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal, "a", "b")
    keys = tuple(stage.prompts.left_over)
    assert stage.types("/queue run") == [running(2)]
    (event,) = stage.core.fed
    assert isinstance(event, ev.RunLeftOver)
    assert event.keys == keys
    carrier = stage.prompts.get(event.carrier)
    assert carrier.request is stage.client.requests[-1]
    assert (stage.held, states(journal)) == ([], [PromptState.WAITING] * 2)
    # Whoever says it again meanwhile finds nothing more to run.
    assert stage.types("/queue run") == [NOTHING_LEFT]
    assert isinstance(stage.core.fed[1], ev.RunLeftOver)
    assert stage.core.fed[1].keys == ()


@pytest.mark.hazard("R12", "Q8")
async def test_a_journal_that_cannot_be_written_stops_a_run_and_what_was_not_released_stays_held(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal, "a", "b")
    second = list(stage.prompts.left_over)[1]
    seq = stage.prompts.get(second).seq
    with failing(journal, f"UPDATE ON prompts WHEN old.seq = {seq}"):
        assert stage.types("/queue run") == [RUN_STOPPED, running(1)]
    (event,) = stage.core.take()
    assert isinstance(event, ev.RunLeftOver)
    assert len(event.keys) == 1
    assert (stage.held, states(journal)) == (["b"], [PromptState.WAITING, PromptState.LEFT_OVER])
    stage.types("/queue run")
    (event,) = stage.core.take()
    assert isinstance(event, ev.RunLeftOver)
    assert event.keys == (second,)


@pytest.mark.hazard("R12")
async def test_drop_forgets_all_or_the_one_of_that_number_for_good(journal: SessionJournal) -> None:
    stage = Stage(journal, "a", "b", "c")
    assert stage.types("/queue drop 2") == ["Dropped 1.", DONE]
    assert stage.held == ["a", "c"]
    assert stage.types("/queue drop") == ["Dropped 2.", DONE]
    assert stage.held == []
    assert stage.types("/queue drop") == [NOTHING_LEFT, DONE]
    assert [row.outcome for row in journal.prompts()] == [{"dropped": True}] * 3
    assert journal.recover() == []


@pytest.mark.parametrize("words", ["0", "3", "-1", "x", "1 2", "1.0", "9" * 5000, "²"])
@pytest.mark.hazard("R12")
async def test_dropping_what_is_no_number_of_a_held_prompt_drops_nothing(
    journal: SessionJournal, words: str
) -> None:
    stage = Stage(journal, "a", "b")
    said, done = stage.types(f"/queue drop {words}")
    assert said.startswith("There is no left-over prompt ")
    assert (done, stage.held) == (DONE, ["a", "b"])


@pytest.mark.hazard("R12", "Q8")
async def test_a_journal_that_cannot_be_written_stops_a_drop_and_the_rest_stays_held(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal, "a", "b", "c")
    seq = stage.prompts.get(list(stage.prompts.left_over)[1]).seq
    with failing(journal, f"UPDATE ON prompts WHEN old.seq = {seq}"):
        assert stage.types("/queue drop") == [DROP_STOPPED, DONE]
    assert stage.held == ["b", "c"]


@pytest.mark.parametrize("words", ["runs", "run now", "help"])
async def test_other_words_get_the_usage_and_do_nothing(
    journal: SessionJournal, words: str
) -> None:
    stage = Stage(journal, "a")
    assert stage.types(f"/queue {words}") == [
        queue_command.usage(queue_command.offered(None)),
        DONE,
    ]
    assert (stage.held, stage.core.fed) == (["a"], [])


@pytest.mark.hazard("R1", "Q10")
async def test_during_a_replay_it_is_done_at_once_and_its_answer_comes_behind_the_replay(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal, "a")
    (view,) = stage.transcript.views
    view.begin_replay()
    assert stage.types("/queue drop") == []
    assert stage.held == []
    view.end_replay()
    assert stage.sent() == ["Dropped 1.", DONE]


async def test_a_command_that_is_typed_during_a_turn_stays_apart_from_that_turns_prompt(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    seq = journal.accept("running", prompt("run this"))
    journal.start_turn(seq)
    stage.transcript.seq = seq
    stage.types("/queue run")
    stage.types("/queue drop")
    stage.types("/queue drop")
    said = [
        params["update"]["content"]["text"]
        for params in await recorded(journal)
        if params["update"]["sessionUpdate"] == USER_MESSAGE
    ]
    assert said == ["run this", "/queue run", "/queue drop", "/queue drop"]


async def test_a_question_is_handed_on_as_it_was_written_and_leaves_no_trace(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    assert stage.types("  /queue  ask  why\n  so, \tand how? ") == []
    assert stage.asked == ["why\n  so, \tand how?"]
    assert await recorded(journal) == []
    assert stage.types("/queue ask") == [ASK_WHAT, DONE]
    assert len(stage.asked) == 1


async def test_where_the_agent_has_a_command_of_that_name_ours_is_taken_while_something_runs(
    journal: SessionJournal,
) -> None:
    stage = Stage(journal)
    for word in ("wait", "stop"):
        assert stage.command.takes([word], agent_has_one=False)
        assert not stage.command.takes([word], agent_has_one=True)
    stage.core.unanswered = (1,)
    for word in ("wait", "stop"):
        assert stage.command.takes([word], agent_has_one=True)
        assert not stage.command.takes([word, "more"], agent_has_one=True)


async def test_a_title_is_given_in_words(journal: SessionJournal) -> None:
    stage = Stage(journal)
    assert stage.types("/queue title  the  roof ") == [titled("THE ROOF"), DONE]
    assert stage.types("/queue title") == [titled(""), DONE]
