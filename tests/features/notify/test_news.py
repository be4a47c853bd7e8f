"""What the user is told, and when, without a clock or a task."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.core.records import replace
from acp_bridge.features.notify.news import News, Notes, Stand, Times, Told

REST = Stand("api")
#: A turn of the prompt 1 that runs.
RUNS = Stand("api", running=1, unanswered=(1,))
ASKS = replace(RUNS, oldest="rm -rf build", asked=1)
TIMES = Times()


class Person:
    """Is told by `Notes` as by its shell: at once when something is due."""

    def __init__(self) -> None:
        self.notes = Notes(TIMES)
        self.told: list[tuple[float, str]] = []
        self.now = 0.0

    def see(self, stand: Stand | None, session: str = "a", after: float = 0.0) -> None:
        """Let so much time pass, then a session be in this state."""
        self.passes(after)
        self.notes.note(session, stand, self.now)
        self.passes(0)

    def dies(self, session: str = "a", name: str = "api") -> None:
        self.notes.note_death(session, name, self.now)
        self.passes(0)

    def passes(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.notes.due) is not None and due <= end:
            self.now = max(self.now, due)
            told = self.notes.take(self.now)
            assert told is not None, "it is due, and nothing is told"
            self.told.append((self.now, told.text(words=False)))
        self.now = end

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.told]


@pytest.fixture
def person() -> Person:
    return Person()


# --- a question ---------------------------------------------------------------------------------


def test_a_question_that_nobody_answers_for_ten_seconds_is_told_of_once(person: Person) -> None:
    person.see(ASKS)
    person.passes(9.9)
    assert person.texts == []
    person.passes(10_000)
    assert person.told == [(10.0, "api: waits for you")]


def test_a_question_that_is_answered_in_time_is_told_to_nobody(person: Person) -> None:
    person.see(ASKS)
    person.see(RUNS, after=9)
    person.passes(1000)
    assert person.texts == []


def test_who_answers_one_of_several_questions_is_there_and_has_ten_seconds_for_the_next(
    person: Person,
) -> None:
    two = replace(RUNS, oldest="one", asked=2)
    person.see(two)
    person.see(replace(two, oldest="two", asked=1), after=9)
    person.passes(9)
    assert person.texts == []
    person.passes(1)
    assert person.told == [(19.0, "api: waits for you")]


def test_two_equal_questions_of_which_one_is_answered_are_two(person: Person) -> None:
    person.see(replace(RUNS, oldest="same", asked=2))
    person.see(replace(RUNS, oldest="same", asked=1), after=9)
    person.passes(10)
    assert person.told == [(19.0, "api: waits for you")]


def test_a_further_question_does_not_begin_the_wait_anew_and_is_not_told_by_itself(
    person: Person,
) -> None:
    person.see(ASKS)
    person.see(replace(RUNS, oldest="rm -rf build", asked=2), after=5)
    person.passes(1000)
    assert person.told == [(10.0, "api: waits for you")]


def test_a_question_behind_one_that_was_told_of_and_answered_is_told_of_again(
    person: Person,
) -> None:
    person.see(ASKS)
    person.see(RUNS, after=100)
    person.see(ASKS, after=100)
    person.passes(100)
    assert [at for at, _ in person.told] == [10.0, 210.0]


# --- a turn -------------------------------------------------------------------------------------


def test_the_end_of_a_turn_of_a_minute_is_told_of_and_that_of_a_shorter_one_is_not(
    person: Person,
) -> None:
    person.see(RUNS)
    person.see(REST, after=59.9)
    assert person.texts == []
    person.see(RUNS)
    person.see(REST, after=60)
    assert person.texts == ["api: a turn has ended"]


def test_a_turn_that_somebody_has_stopped_is_told_to_nobody(person: Person) -> None:
    person.see(RUNS)
    person.see(replace(RUNS, stopped=True), after=100)
    person.see(REST, after=2)
    person.passes(1000)
    assert person.texts == []


def test_hooks_and_their_feedback_are_of_the_turn_whose_prompt_is_open(person: Person) -> None:
    person.see(RUNS)
    person.see(replace(RUNS, running=None), after=30)
    person.see(replace(RUNS, running=2), after=10)
    person.see(replace(RUNS, running=2), after=50)
    assert person.texts == []
    person.see(REST, after=1)
    assert person.told == [(91.0, "api: a turn has ended")]


def test_each_of_two_long_turns_in_a_row_is_told_of(person: Person) -> None:
    person.see(replace(RUNS, unanswered=(1, 2)))
    person.see(Stand("api", running=2, unanswered=(2,)), after=70)
    person.see(REST, after=70)
    assert [at for at, _ in person.told] == [70.0, 140.0]


def test_a_stop_of_one_turn_does_not_count_for_the_next(person: Person) -> None:
    person.see(replace(RUNS, stopped=True, unanswered=(1, 2)))
    person.see(Stand("api", running=2, unanswered=(2,)), after=1)
    person.see(REST, after=60)
    assert person.texts == ["api: a turn has ended"]


def test_the_end_of_a_turn_that_was_kept_back_is_not_told_of_if_the_next_has_begun(
    person: Person,
) -> None:
    person.see(RUNS)
    person.passes(70)
    person.dies("b", "web")
    person.see(REST, after=1)
    person.see(Stand("api", running=2, unanswered=(2,)), after=1)
    person.passes(1000)
    assert person.told == [(70.0, "web: the agent has died")]


def test_the_end_of_a_turn_that_was_kept_back_is_told_of_when_the_minute_is_over(
    person: Person,
) -> None:
    person.see(RUNS)
    person.passes(70)
    person.dies("b", "web")
    person.see(REST, after=1)
    person.passes(1000)
    assert person.told[1:] == [(130.0, "api: a turn has ended")]


# --- death and hold -----------------------------------------------------------------------------


def test_a_death_is_told_of_at_once_and_not_as_the_end_of_its_turn(person: Person) -> None:
    person.see(RUNS)
    person.passes(100)
    person.notes.note_death("a", "api", person.now)
    person.see(REST)
    person.passes(1000)
    assert person.told == [(100.0, "api: the agent has died")]


def test_a_death_of_which_no_state_was_known_is_told_of(person: Person) -> None:
    person.dies()
    assert person.texts == ["api: the agent has died"]


def test_a_death_that_was_kept_back_is_not_told_of_once_the_agent_works_again(
    person: Person,
) -> None:
    person.dies("b", "web")
    person.see(RUNS)
    person.dies()
    person.see(REST, after=1)
    person.see(Stand("api", running=2, unanswered=(2,)), after=1)
    person.see(REST, after=1)
    person.passes(1000)
    assert person.texts == ["web: the agent has died"]


def test_a_hold_is_told_of_once_and_again_when_it_comes_again(person: Person) -> None:
    held = replace(REST, held=True)
    person.see(held)
    person.see(replace(held, unanswered=(3,)), after=5)
    person.see(REST, after=100)
    person.see(held, after=100)
    person.passes(1000)
    assert person.told == [(0.0, "api: the queue is held"), (205.0, "api: the queue is held")]


# --- one a minute -------------------------------------------------------------------------------


def test_what_comes_within_a_minute_is_told_when_that_is_over_if_it_still_holds(
    person: Person,
) -> None:
    person.dies()
    person.see(ASKS, "b", after=1)
    person.see(replace(REST, name="web", held=True), "c", after=1)
    person.see(replace(REST, name="web"), "c", after=20)
    person.passes(37.9)
    assert len(person.told) == 1
    person.passes(0.1)
    assert person.told[1:] == [(60.0, "api: waits for you")]
    person.passes(1000)
    assert len(person.told) == 2


def test_what_is_told_together_is_summed(person: Person) -> None:
    person.dies("z", "old")
    for number, name in enumerate(("api", "web", "docs")):
        person.see(replace(ASKS, name=name), f"w{number}", after=1)
    person.see(replace(REST, name="ops", held=True), "h", after=1)
    person.passes(100)
    assert person.texts[1:] == [
        "3 sessions wait for you: api, web, docs\nops: the queue is held",
    ]


def test_of_one_session_the_most_urgent_is_told_and_the_rest_never(person: Person) -> None:
    person.dies("z", "old")
    person.dies()
    person.see(replace(ASKS, held=True), after=1)
    person.passes(1000)
    assert person.texts == ["old: the agent has died", "api: waits for you"]


def test_a_question_that_is_not_old_enough_when_something_is_told_is_told_later(
    person: Person,
) -> None:
    person.see(ASKS)
    person.dies("b", "web")
    person.passes(1000)
    assert person.told == [(0.0, "web: the agent has died"), (60.0, "api: waits for you")]


def test_nothing_is_told_of_a_session_that_has_ended(person: Person) -> None:
    person.dies("z", "old")
    person.see(replace(ASKS, held=True))
    person.dies()
    person.see(None, after=20)
    person.passes(1000)
    assert person.texts == ["old: the agent has died"]
    assert person.notes.due is None


def test_nothing_is_due_where_nothing_happens(person: Person) -> None:
    assert person.notes.due is None
    person.see(REST)
    assert person.notes.due is None
    assert person.notes.take(5) is None


# --- the text -----------------------------------------------------------------------------------


def told(*rows: tuple[News, str, str]) -> Told:
    return Told(rows)


def test_words_are_told_when_the_user_wants_them_and_one_session_alone_asks() -> None:
    one = told((News.WAITS, "api", "rm -rf build"))
    assert one.text(words=False) == "api: waits for you"
    assert one.text(words=True) == "api: waits for you: rm -rf build"
    two = told((News.WAITS, "api", "rm -rf build"), (News.WAITS, "web", "make"))
    assert two.text(words=True) == "2 sessions wait for you: api, web"


def test_of_many_folders_five_are_named() -> None:
    many = told(*((News.ENDED, f"f{number}", "") for number in range(7)))
    said = "a turn has ended in 7 sessions: f0, f1, f2, f3, f4 and 2 more"
    assert many.text(words=True) == said


def test_names_and_words_are_one_short_line_without_what_can_t_be_seen() -> None:
    notes = Notes(TIMES)
    bad = replace(
        ASKS, name="a\nb\x1b[31m\ud800\u202e" + "x" * 100, oldest="rm\r\n-rf " + "y" * 500
    )
    notes.note("a", bad, 0)
    found = notes.take(10)
    assert found is not None
    text = found.text(words=True)
    assert text.startswith("a b [31m x")
    assert ": waits for you: rm -rf yy" in text
    assert text.isprintable()
    assert len(text) < 300
    text.encode()


@pytest.mark.hazard("K5")
def test_what_looks_like_a_key_is_masked_before_the_words_are_cut() -> None:
    for before in range(150, 200):
        notes = Notes(TIMES)
        asks = f"{'x' * before} https://me:hunter2secret@example.org/"
        notes.note("a", replace(ASKS, oldest=asks), 0)
        found = notes.take(10)
        assert found is not None
        assert "hunt" not in found.text(words=True)


# --- whatever happens ---------------------------------------------------------------------------

_STANDS = st.builds(
    Stand,
    name=st.just("api"),
    oldest=st.sampled_from(["one", "two"]),
    asked=st.integers(0, 2),
    running=st.none() | st.integers(1, 3),
    unanswered=st.lists(st.integers(1, 3), max_size=2).map(tuple),
    stopped=st.booleans(),
    held=st.booleans(),
)
_STEPS = st.lists(
    st.tuples(st.floats(0, 90), st.sampled_from("abc"), _STANDS | st.just("dies") | st.none()),
    max_size=30,
)


@given(_STEPS)
def test_at_most_one_a_minute_is_told_and_no_question_is_left_untold(
    steps: list[tuple[float, str, Stand | str | None]],
) -> None:
    person = Person()
    for after, session, what in steps:
        person.passes(after)
        if isinstance(what, str):
            person.dies(session)
        else:
            person.see(what, session)
    moments = [at for at, _ in person.told]
    assert all(later - at >= TIMES.between - 1e-6 for at, later in pairwise(moments))
    person.passes(200)
    before = len(person.told)
    person.passes(10_000)
    assert len(person.told) == before, "the same is told again"
    person.see(None, "a")
    person.see(None, "b")
    person.see(None, "c")
    person.see(REST, "d")
    person.see(ASKS, "d")
    person.passes(10)
    assert person.texts[before:] == ["api: waits for you"]
