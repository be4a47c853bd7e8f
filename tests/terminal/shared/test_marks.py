"""Keys mark an answer to a permission and Enter takes it: what decides that, without a terminal."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.terminal.chat.questions import (
    Held,
    Mark,
    Question,
    Questions,
    Taken,
    question,
)

OPTIONS = [
    {"optionId": "once", "name": "Allow", "kind": "allow_once"},
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]


class Place:
    """Open questions, a clock that a test moves, and an input line as the chat has it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.open = Questions(lambda: self.now)
        self.line = ""
        #: what Enter has sent, and what it has answered: the request and the option.
        self.sent: list[str] = []
        self.answered: list[tuple[object, str]] = []

    def ask(self, name: str = "one", *, drawn: bool = True) -> Question:
        asked = question(name, {"toolCall": {"title": name}, "options": OPTIONS})
        self.open.add(asked)
        if drawn:
            self.open.drawn()
        return asked

    def type(self, text: str) -> None:
        for key in text:
            before, self.line = self.line, self.line + key
            self.open.unmark()
            self.open.press(key, before)

    def paste(self, text: str) -> None:
        self.line += text
        self.open.unmark()

    def backspace(self) -> None:
        self.line = self.line[:-1]
        self.open.unmark()

    def enter(self) -> Taken | Held | None:
        found = self.open.enter()
        match found:
            case Taken(asked, option, typed):
                self.answered.append((asked.request, option.id))
                self.line = "" if typed else self.line
            case None if self.line:
                self.sent.append(self.line)
                self.line = ""
                self.open.unmark()
        return found

    @property
    def marked(self) -> str | None:
        return self.open.mark.option.id if self.open.mark else None


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.mark.parametrize(
    ("key", "option"), [("y", "once"), ("1", "once"), ("a", "always"), ("2", "always"), ("n", "no")]
)
def test_a_key_marks_its_option_and_enter_takes_it(place: Place, key: str, option: str) -> None:
    place.ask()
    place.type(key)
    assert (place.marked, place.line, place.answered) == (option, key, [])
    place.now += 0.625
    place.enter()
    assert place.answered == [("one", option)]
    assert (place.line, place.sent, place.open.shown) == ("", [], None)


def test_a_key_alone_answers_nothing_however_long_it_stands(place: Place) -> None:
    place.ask()
    place.now += 1000
    place.type("a")
    place.now += 1000
    assert place.answered == []
    assert place.open.shown is not None


def test_a_second_letter_makes_all_of_it_text(place: Place) -> None:
    place.ask()
    place.now += 1
    place.type("and then do")
    assert (place.marked, place.line) == (None, "and then do")
    place.enter()
    assert (place.sent, place.answered) == (["and then do"], [])


@pytest.mark.parametrize("key", ["x", "Y", "4", "0", " ", "ä", "я", "\uff11", "\n", "yy", ""])
def test_what_is_no_key_of_an_option_is_text(place: Place, key: str) -> None:
    place.ask()
    place.now += 1
    assert not place.open.press(key, "")
    assert place.marked is None


def test_a_paste_is_text_even_if_it_is_one_key(place: Place) -> None:
    place.ask()
    place.now += 1
    place.paste("y")
    place.enter()
    assert (place.sent, place.answered) == (["y"], [])
    place.type("y")
    place.paste("es")
    place.enter()
    assert (place.sent, place.answered) == (["y", "yes"], [])


def test_text_that_was_there_before_the_question_stays_text(place: Place) -> None:
    place.type("y")
    place.ask()
    place.now += 1
    assert place.marked is None
    place.enter()
    assert (place.sent, place.answered) == (["y"], [])


def test_text_that_shrinks_to_one_key_stays_text_and_an_empty_line_marks_again(
    place: Place,
) -> None:
    place.ask()
    place.now += 1
    place.type("yn")
    place.backspace()
    assert (place.line, place.marked) == ("y", None)
    place.backspace()
    place.type("n")
    assert place.marked == "no"
    place.backspace()
    assert place.marked is None
    assert place.enter() is None
    assert place.answered == []


def test_nothing_is_taken_in_the_first_moments_and_the_mark_stays(place: Place) -> None:
    place.ask()
    for _ in range(3):
        place.now += 0.125
        place.type("y" if not place.line else "")
        assert place.enter() is Held.TOO_SOON
        assert (place.marked, place.line, place.answered) == ("once", "y", [])
    place.now += 0.325
    place.enter()
    assert place.answered == [("one", "once")]


def test_the_moments_count_from_when_the_question_is_on_the_screen(place: Place) -> None:
    place.ask(drawn=False)
    place.now += 10  # the terminal was busy
    place.type("y")
    assert place.enter() is Held.TOO_SOON
    place.open.drawn()
    place.now += 0.5
    place.open.drawn()  # again, as each second
    assert place.enter() is Held.TOO_SOON
    place.now += 0.125
    place.enter()
    assert place.answered == [("one", "once")]


def test_text_is_sent_at_any_time(place: Place) -> None:
    place.ask()
    place.type("yes, go on")
    place.enter()
    assert (place.sent, place.answered) == (["yes, go on"], [])


def test_a_mark_is_not_carried_over_to_the_question_behind(place: Place) -> None:
    place.ask("one")
    place.ask("two")
    place.now += 1
    place.type("y")
    place.open.withdraw("one")
    place.open.drawn()
    assert (place.marked, place.line) == (None, "y")
    assert place.enter() is Held.TOO_SOON
    place.now += 10
    assert place.enter() is Held.GONE
    assert (place.answered, place.sent, place.line) == ([], [], "y")
    place.backspace()
    place.type("y")
    place.enter()
    assert place.answered == [("two", "once")]


def test_what_goes_on_behind_the_key_of_a_question_that_has_gone_is_text(place: Place) -> None:
    place.ask()
    place.type("y")
    place.open.withdraw("one")
    place.type("es")
    place.enter()
    assert place.sent == ["yes"]


def test_a_mark_stays_while_a_question_behind_comes_and_goes(place: Place) -> None:
    place.ask("one")
    place.now += 1
    place.type("n")
    place.ask("two")
    place.open.withdraw("two")
    assert place.marked == "no"
    place.enter()
    assert place.answered == [("one", "no")]


def test_after_an_answer_the_next_question_has_its_own_moments(place: Place) -> None:
    place.ask("one")
    place.ask("two")
    place.now += 1
    place.type("y")
    place.enter()
    assert place.enter() is None  # twice pressed
    place.open.drawn()
    place.type("y")
    assert place.enter() is Held.TOO_SOON
    assert place.answered == [("one", "once")]


@pytest.mark.parametrize("ends", ["withdraw", "remove_all"])
def test_enter_for_a_question_that_has_ended_sends_nothing_at_once(place: Place, ends: str) -> None:
    place.ask()
    place.now += 1
    place.type("y")
    if ends == "withdraw":
        place.open.withdraw("one")
    else:
        place.open.remove_all()
    assert place.enter() is Held.TOO_SOON
    place.now += 0.625
    assert place.enter() is Held.GONE
    assert (place.sent, place.answered, place.line) == ([], [], "y")
    place.enter()  # now it is known what that sends
    assert place.sent == ["y"]


def test_alt_marks_beside_the_text_in_the_line_and_enter_leaves_the_text(place: Place) -> None:
    place.ask()
    place.now += 1
    place.type("half a sentence")
    assert place.open.press_alt("n")
    assert place.marked == "no"
    place.enter()
    assert (place.answered, place.sent) == ([("one", "no")], [])
    assert place.line == "half a sentence"


def test_alt_answers_nothing_too_soon_and_typing_on_takes_its_mark_away(place: Place) -> None:
    place.ask()
    place.open.press_alt("y")
    assert place.enter() is Held.TOO_SOON
    place.now += 1
    place.type("no")
    assert place.marked is None
    place.enter()
    assert (place.sent, place.answered) == (["no"], [])
    assert not place.open.press_alt("x")


def test_without_a_question_every_key_is_text(place: Place) -> None:
    place.type("y")
    assert place.marked is None
    assert not place.open.press_alt("y")
    place.enter()
    assert place.sent == ["y"]


_STEPS = st.one_of(
    st.sampled_from("yand123x ä").map(lambda key: ("type", key)),
    st.sampled_from("ynx").map(lambda key: ("alt", key)),
    st.sampled_from(["y", "more"]).map(lambda text: ("paste", text)),
    st.sampled_from([0.1, 0.3, 0.625, 5.0]).map(lambda seconds: ("wait", seconds)),
    st.sampled_from(["enter", "back", "ask", "answered elsewhere", "draw", "stop"]).map(
        lambda name: (name, None)
    ),
)


class Walk:
    """A person and a bridge that do anything, and what has to hold after each step."""

    def __init__(self) -> None:
        self.place = Place()
        self._asked = 0
        #: since when each question is on the screen, and the one for which a key was pressed last.
        self._seen: dict[object, float] = {}
        self._marked_for: object = None

    def step(self, name: str, value: Any) -> None:
        place, shown = self.place, self.place.open.shown
        line, answered = place.line, len(place.answered)
        match name:
            case "type":
                place.type(value)
                assert place.line == line + value
                self._marked_for = shown and shown.request
            case "alt" if place.open.press_alt(value):
                self._marked_for = shown and shown.request
            case "paste":
                place.paste(value)
                assert place.open.mark is None
            case "back":
                place.backspace()
            case "wait":
                place.now += value
            case "enter":
                self._enter(shown, line)
                return
            case _:
                self._of_the_bridge(name, shown)
        assert len(place.answered) == answered

    def _of_the_bridge(self, name: str, shown: Question | None) -> None:
        match name:
            case "ask":
                self._asked += 1
                self.place.ask(str(self._asked), drawn=False)
            case "draw":
                self.place.open.drawn()
                if shown:
                    self._seen.setdefault(shown.request, self.place.now)
            case "answered elsewhere" if shown:
                self.place.open.withdraw(shown.request)
            case "stop":
                self.place.open.remove_all()

    def _enter(self, shown: Question | None, line: str) -> None:
        place, mark, sent = self.place, self.place.open.mark, len(self.place.sent)
        match place.enter():
            case Taken(asked, option, typed):
                assert (shown, mark) == (asked, Mark(option, typed))
                assert self._marked_for == asked.request
                assert place.now - self._seen[asked.request] >= 0.6
                assert place.line == ("" if typed else line)
                assert not typed or line in option.keys
            case None:
                assert place.sent[sent:] == ([line] if line else [])
            case _:
                assert (place.line, place.sent[sent:]) == (line, [])

    def check(self) -> None:
        shown, mark = self.place.open.shown, self.place.open.mark
        assert mark is None or (shown is not None and mark.option in shown.options)
        assert mark is None or not mark.typed or self.place.line in mark.option.keys


@pytest.mark.hazard("V9")
@given(st.lists(_STEPS, max_size=40))
def test_whatever_is_done_only_a_mark_on_what_was_seen_answers_and_no_text_is_lost(
    steps: list[tuple[str, Any]],
) -> None:
    walk = Walk()
    for name, value in steps:
        walk.step(name, value)
        walk.check()
