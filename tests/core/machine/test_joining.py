"""Words that join a turn, in any history: each is answered once, and none is sent twice.

A small reference beside that of the other prompts: it knows what each prompt asked for and what the
agent made of it, and judges what the machine sends, gives back and answers.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from acp_bridge.core.machine.effects import (
    AnswerPrompt,
    Arm,
    CloseAgent,
    CloseCards,
    Commit,
    Disarm,
    Effect,
    Failed,
    Failure,
    GiveBack,
    Interrupted,
    Kill,
    LeaveOver,
    Open,
    Queued,
    Replied,
    RunHooks,
    SendCancel,
    SendPrompt,
    Start,
    Steer,
)
from acp_bridge.core.machine.events import (
    AgentAnswered,
    AgentExited,
    Cancel,
    CancelPrompt,
    Close,
    CommitFailed,
    Committed,
    Deadline,
    Event,
    Go,
    HoldQueue,
    HooksDone,
    Loaded,
    MaySteer,
    Moment,
    PromptReceived,
    RunLeftOver,
    Shutdown,
    Started,
    SteerAnswered,
    Steered,
    SteerWaiting,
    Timer,
    TreeDead,
    WordsFollowed,
)
from acp_bridge.core.machine.turns import TurnMachine
from tests.core.machine.bench import Bench, cancelled, failed, replied
from tests.core.machine.world import SEEDS

#: more rounds than any of these histories needs until nothing is due.
ROUNDS = 400


class Joining:
    """Holds a machine whose agent takes words, and what is known of each prompt."""

    def __init__(self, random: Random, *, hooks: frozenset[Moment], able: bool) -> None:
        self.random, self.able = random, able
        self.turns = TurnMachine(epoch=1, hooks=hooks, steers=able)
        self.keys = 0
        self.due: list[Event] = []
        self.armed: dict[Timer, int] = {}
        #: by key: what the agent answered to it; None: it was sent, and has no answer.
        self.sent: dict[int, Steered | None] = {}
        #: keys that are to join the turn that runs.
        self.wants: set[int] = set()
        #: those of a turn which was stopped: they never run.
        self.stopped: set[int] = set()
        self.ends: Counter[int] = Counter()
        self.told: Counter[int] = Counter()
        self.ran: list[int] = []
        #: the process that takes words, as the machine was told.
        self.takes = 0

    def feed(self, event: Event) -> list[Effect]:
        before = self.turns.snapshot
        if isinstance(event, SteerAnswered) and event.key in self.sent:
            self.sent[event.key] = event.how
        if isinstance(event, MaySteer):
            self.takes = event.epoch if event.now else 0
        effects = self.turns.step(event)
        runs = before.state.name == "RUNNING"
        if runs and isinstance(event, Cancel):
            self.stopped |= {key for key in self.wants if not self.ends[key]}
        if runs and isinstance(event, PromptReceived) and event.steers:
            self.wants.add(event.key)
        for effect in effects:
            self.note(effect)
        return effects

    def note(self, effect: Effect) -> None:
        """Note what is due after an effect, and judge it."""
        match effect:
            case Commit(key):
                self.due.append(Committed(key))
            case RunHooks(key):
                self.due.append(HooksDone(key, "no" if self.random.random() < 0.1 else None))
            case Start(epoch):
                self.due.append(Started(epoch))
            case Open(epoch):
                self.due.append(Loaded(epoch))
            case Kill(epoch) | CloseAgent(epoch):
                self.due.append(TreeDead(epoch))
            case Arm(timer, token):
                self.armed[timer] = token
            case Disarm(timer):
                del self.armed[timer]
            case _:
                self.note_words(effect)

    def note_words(self, effect: Effect) -> None:
        now = self.turns.snapshot
        match effect:
            case SendPrompt(epoch, key):
                assert self.sent.get(key, Steered.NOT_TAKEN) is Steered.NOT_TAKEN, "sent twice"
                assert key not in self.stopped, "it was given back"
                assert None not in self.sent.values(), "the agent has not said what it took"
                self.ran.append(key)
                self.wants.clear()
                self.due.append(AgentAnswered(epoch, key, f"answer {key}"))
            case Steer(epoch, key):
                assert self.able
                assert now.state.name == "RUNNING"
                assert (epoch, epoch) == (self.takes, now.epoch)
                assert now.standstill.name == "OPEN"
                assert None not in self.sent.values(), "two at once"
                assert self.sent.get(key, Steered.NOT_TAKEN) is Steered.NOT_TAKEN, "sent twice"
                assert key not in self.stopped
                self.sent[key] = None
                self.due.append(SteerAnswered(key, self.random.choice(list(Steered))))
            case Queued(key):
                self.told[key] += 1
            case AnswerPrompt(key, outcome):
                self.ends[key] += 1
                self.judge(key, outcome)
            case LeaveOver(keys):
                self.ends.update(keys)
            case Interrupted(key):
                self.ends[key] += 1

    def judge(self, key: int, outcome: object) -> None:
        """Judge the answer to a prompt; that of one which was never to join a turn is not ours."""
        how = self.sent.pop(key, Steered.NOT_TAKEN)
        if isinstance(outcome, Replied) and key not in self.ran:
            assert how in (Steered.JOINED, Steered.UNKNOWN), "it was answered, and never sent"
        if isinstance(outcome, Failed) and outcome.why is Failure.PERHAPS_UNREAD:
            assert how is not Steered.NOT_TAKEN

    def happen(self) -> None:
        """Let one thing happen."""
        random, epoch = self.random, self.turns.snapshot.epoch
        self.keys += 1
        ends: list[Event] = [Close(), Close(keeps_prompts=True), Shutdown()]
        kinds: list[tuple[float, Event]] = [
            (3, PromptReceived(self.keys, steers=True)),
            (1, PromptReceived(self.keys, steers=True, lapses=True)),
            (1, PromptReceived(self.keys)),
            (0.3, PromptReceived(self.keys, interrupt=True)),
            (2 if self.able else 0, MaySteer(epoch, random.random() < 0.8)),
            (1.5, WordsFollowed(epoch)),
            (1, SteerWaiting(random.randint(1, self.keys))),
            (0.7, Cancel()),
            (0.7, CancelPrompt(random.randint(1, self.keys))),
            (0.4, HoldQueue()),
            (0.8, Go()),
            (0.3, AgentExited(epoch)),
            (0.2, CommitFailed(random.randint(1, self.keys))),
            (0.03, random.choice(ends)),
        ]
        for _ in range(random.randint(0, 2)):
            self.as_it_should()
        weights = [weight for weight, _ in kinds]
        (chosen,) = random.choices([event for _, event in kinds], weights)
        self.feed(chosen)

    def as_it_should(self) -> bool:
        """Let something happen that is due; returns False if nothing is."""
        if not self.due:
            return False
        self.feed(self.due.pop(self.random.randrange(len(self.due))))
        return True

    def come_to_rest(self) -> None:
        """Let the world do what it should until nothing is due, and nothing is held."""
        for _ in range(ROUNDS):
            self.feed(Go())
            if self.as_it_should():
                continue
            for timer, token in list(self.armed.items()):
                del self.armed[timer]
                self.feed(Deadline(timer, token))
            if not self.due and not self.turns.snapshot.unanswered:
                return
        raise AssertionError(f"it never comes to rest: {self.turns.snapshot}")


@pytest.mark.hazard("Q15.12", "Q9.1")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_after_any_history_words_are_answered_once_and_never_sent_twice(seed: int) -> None:
    random = Random(seed)
    for number in range(12):
        hooks = frozenset(Moment) if number % 2 else frozenset[Moment]()
        world = Joining(random, hooks=hooks, able=number % 3 > 0)
        for _ in range(60):
            world.happen()
        world.come_to_rest()
        assert set(world.ends.values()) <= {1}
        assert set(world.told.values()) <= {1}
        assert not set(world.ran) & world.stopped


@pytest.mark.hazard("Q15.5")
def test_a_stop_after_the_turn_gives_back_words_that_the_agent_has_not_answered() -> None:
    bench = Bench(steers=True)
    bench.do(PromptReceived(1), Committed(1), MaySteer(1))
    bench.do(PromptReceived(2, steers=True), Committed(2), AgentAnswered(1, 1))
    assert GiveBack(2) in bench.do(Cancel())
    assert bench.do(SteerAnswered(2, Steered.NOT_TAKEN)) == []
    assert bench.now.unanswered == ()


@pytest.mark.hazard("Q15.5")
def test_words_of_which_the_agent_says_nothing_after_a_stop_are_given_back_with_the_turn() -> None:
    bench = Bench(steers=True)
    bench.do(PromptReceived(1), Committed(1), MaySteer(1))
    bench.do(PromptReceived(2, steers=True), Committed(2), Cancel())
    bench.do(SteerAnswered(2, Steered.UNKNOWN))
    assert GiveBack(2) in bench.do(AgentAnswered(1, 1))


@pytest.mark.hazard("Q15.4")
def test_words_that_the_agent_did_not_take_stand_as_they_were_sent_and_before_later_ones() -> None:
    bench = Bench(steers=True)
    bench.prompt(1)
    bench.do(MaySteer(1))
    for key in (2, 3):
        bench.do(PromptReceived(key, steers=True), Committed(key))
    bench.do(PromptReceived(4, steers=True))
    for key in (2, 3):
        bench.do(SteerAnswered(key, Steered.NOT_TAKEN))
    assert bench.now.waiting == (2, 3, 4)


@pytest.mark.hazard("Q15")
def test_words_for_one_turn_only_are_answered_as_soon_as_the_agent_has_not_taken_them() -> None:
    bench = Bench(steers=True)
    bench.prompt(1)
    bench.do(MaySteer(1), PromptReceived(2, steers=True, lapses=True), Committed(2))
    assert bench.do(SteerAnswered(2, Steered.NOT_TAKEN)) == [failed(2, Failure.NO_TURN)]
    assert bench.now.unanswered == (1,)


@pytest.mark.hazard("Q15.4")
def test_words_that_the_agent_refuses_after_the_turn_run_as_the_next_one() -> None:
    bench = Bench(steers=True)
    bench.prompt(1)
    bench.do(MaySteer(1), PromptReceived(2, steers=True), Committed(2), AgentAnswered(1, 1))
    assert bench.do(SteerAnswered(2, Steered.NOT_TAKEN)) == [Queued(2), SendPrompt(1, 2)]


def test_what_a_carrier_runs_or_is_to_interrupt_joins_no_turn() -> None:
    bench = Bench(steers=True)
    bench.prompt(1)
    bench.do(RunLeftOver(9, (2,)), PromptReceived(3, interrupt=True))
    for key in (2, 3):
        assert bench.do(SteerWaiting(key)) == []
        assert bench.dropped[-1] == SteerWaiting(key)


@pytest.mark.hazard("Q15.4")
def test_a_prompt_that_was_to_join_the_turn_and_came_too_late_is_the_next() -> None:
    bench = Bench(steers=True)
    bench.prompt(1, 2, 3)
    bench.do(SteerWaiting(3))
    out = bench.do(AgentAnswered(1, 1))
    assert out[-2:] == [Queued(3), SendPrompt(1, 3)]


@pytest.mark.hazard("Q15.12")
def test_words_that_joined_a_turn_have_its_answer_also_while_its_hooks_run() -> None:
    bench = Bench(steers=True, hooks=frozenset({Moment.TURN_END}))
    bench.prompt(1)
    bench.do(MaySteer(1), PromptReceived(2, steers=True), Committed(2))
    bench.do(SteerAnswered(2, Steered.JOINED), WordsFollowed(1))
    out = bench.do(AgentAnswered(1, 1, "end_turn"))
    assert replied(2) in out
    assert replied(1) not in out


def test_an_answer_to_words_that_were_not_sent_is_dropped() -> None:
    bench = Bench(steers=True)
    bench.prompt(1)
    stray = SteerAnswered(7, Steered.JOINED)
    assert bench.do(stray) == []
    assert bench.dropped == [stray]


@pytest.mark.hazard("Q15")
def test_what_a_hook_wants_of_the_turn_goes_before_words_that_the_agent_then_refuses() -> None:
    bench = Bench(steers=True, hooks=frozenset({Moment.TURN_END}))
    bench.prompt(1)
    bench.do(MaySteer(1), PromptReceived(2, steers=True), Committed(2), AgentAnswered(1, 1))
    bench.hooks(1, feedback=10)
    bench.do(SteerAnswered(2, Steered.NOT_TAKEN))
    assert bench.now.waiting == (10, 2)


@pytest.mark.hazard("Q15")
def test_each_that_a_turn_has_ended_without_is_told_that_it_waits_for_one_of_its_own() -> None:
    bench = Bench(steers=True)
    bench.prompt(1)
    for key in (2, 3):
        bench.do(PromptReceived(key, steers=True), Committed(key))
    out = bench.do(AgentAnswered(1, 1))
    assert out[-3:] == [Queued(2), Queued(3), SendPrompt(1, 2)]


@pytest.mark.hazard("Q15")
def test_words_for_one_turn_only_that_was_over_first_are_answered_and_not_told_to_wait() -> None:
    bench = Bench(steers=True)
    bench.prompt(1)
    bench.do(PromptReceived(2, steers=True, lapses=True), Committed(2))
    assert bench.do(AgentAnswered(1, 1, "end_turn")) == [replied(1), failed(2, Failure.NO_TURN)]


@pytest.mark.hazard("Q15")
def test_words_for_one_turn_alone_that_were_told_to_wait_for_their_own_get_it() -> None:
    bench = Bench()
    bench.prompt(1)
    out = bench.do(PromptReceived(2, steers=True, lapses=True), Committed(2))
    assert out == [Commit(2), Queued(2)]
    assert bench.answer() == [replied(1), SendPrompt(1, 2)]


def sent() -> Bench:
    """The agent runs 1 and was given the words 2 for that turn."""
    bench = Bench(steers=True)
    bench.prompt(1)
    assert bench.do(MaySteer(1), PromptReceived(2, steers=True), Committed(2))[-1] == Steer(1, 2)
    return bench


@pytest.mark.hazard("Q15.12")
def test_words_after_which_the_agent_showed_nothing_are_perhaps_unread() -> None:
    for follows in (False, True):
        bench = sent()
        bench.do(SteerAnswered(2, Steered.JOINED))
        bench.do(*[WordsFollowed(1)] * follows)
        assert bench.dropped == []
        end = replied(2) if follows else failed(2, Failure.PERHAPS_UNREAD)
        assert bench.answer() == [replied(1), end]


@pytest.mark.hazard("Q15.12")
def test_words_that_the_agent_took_after_the_turn_are_perhaps_unread() -> None:
    bench = sent()
    assert bench.answer() == [replied(1)]
    assert bench.do(SteerAnswered(2, Steered.JOINED)) == [failed(2, Failure.PERHAPS_UNREAD)]


@pytest.mark.hazard("Q15")
def test_a_stop_gives_back_words_that_the_agent_did_not_take_or_was_not_sent() -> None:
    bench = sent()
    bench.do(PromptReceived(3, steers=True), Committed(3), SteerAnswered(2, Steered.NOT_TAKEN))
    bench.do(SteerAnswered(3, Steered.NOT_TAKEN))
    given: list[Effect] = [GiveBack(2), GiveBack(3), cancelled(2), cancelled(3)]
    assert bench.do(Cancel()) == [SendCancel(1, 1), *given]


@pytest.mark.hazard("Q15")
def test_words_that_were_to_join_the_turn_of_an_agent_that_died_are_not_sent() -> None:
    bench = Bench(steers=True)
    bench.prompt(1)
    bench.do(PromptReceived(2, steers=True), Committed(2))
    bench.do(PromptReceived(3, steers=True, lapses=True), Committed(3))
    bench.prompt(4)
    unsent = [failed(3, Failure.NO_TURN), failed(2, Failure.NOT_JOINED)]
    assert bench.do(AgentExited(1)) == [*unsent, Kill(1)]
    assert bench.now.waiting == (4,)


@pytest.mark.hazard("Q15")
def test_a_close_cancels_words_when_it_ends_the_turn_that_they_joined_or_at_once() -> None:
    runs, over = sent(), sent()
    assert runs.do(Close()) == [SendCancel(1, 1)]
    over.answer()
    assert over.do(Close()) == [GiveBack(2), cancelled(2), CloseAgent(1)]


@pytest.mark.hazard("Q6", "Q15")
def test_at_the_end_of_the_bridge_words_are_interrupted_with_their_turn_or_perhaps_unread() -> None:
    runs, over = sent(), sent()
    ends: list[Effect] = [CloseCards(), Interrupted(1), Interrupted(2), CloseAgent(1)]
    assert runs.do(Shutdown()) == ends
    over.answer()
    assert over.do(Shutdown()) == [failed(2, Failure.PERHAPS_UNREAD), CloseAgent(1)]
