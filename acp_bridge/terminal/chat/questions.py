"""The open permissions: which one is shown, which answer is marked, and what Enter does. No I/O.

A key marks an answer, and Enter takes it. The key also stands in the input line as any other
letter, so nothing is lost if more follows: then all of it is text.

Invariants:
- No key but Enter answers, and Enter takes only the answer that is marked.
- A mark is for the question that was on the screen when the key was pressed, and for no other.
- Nothing is taken in the first `_SETTLED` seconds in which a question is on the screen: typing
  ahead is no answer.
- Only an offered option is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from acp_bridge.core.protocol import QUESTION, Json, as_object, objects, own_meta
from acp_bridge.terminal.shared.reminder import Reminder, reminder
from acp_bridge.terminal.view.block_text import one_line

#: seconds for which a question is on the screen before Enter may answer it.
_SETTLED: Final = 0.6
_LETTERS: Final = {
    "allow_once": "y",
    "allow_always": "a",
    "reject_once": "n",
    "reject_always": "d",
}
_DIGITS: Final = "123456789"
#: characters of an option's name, which says what it holds for: it may name a command or a folder.
_LONG_NAME: Final = 300


@dataclass(frozen=True, slots=True)
class Option:
    """An option of the question, and the keys that choose it."""

    id: str
    name: str
    kind: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A permission request with its options; `request` identifies it for whoever added it."""

    request: object
    call: Json
    options: tuple[Option, ...]
    #: what the question is about, shown beside the options if the call is not on the screen.
    about: Reminder
    #: the same each time that it is asked; None if the bridge does not tell.
    id: object = None


def question(request: object, params: Json) -> Question:
    """Return the question for the params of a `session/request_permission`."""
    call = as_object(params.get("toolCall"))
    options = tuple(_options(objects(params.get("options"))))
    return Question(request, call, options, reminder(call), own_meta(params).get(QUESTION))


def _options(offered: list[Json]) -> list[Option]:
    found: list[Option] = []
    free = dict(_LETTERS)
    for number, option in enumerate(offered[: len(_DIGITS)]):
        kind = str(option.get("kind"))
        letter = free.pop(kind, None)
        keys = (_DIGITS[number], *([letter] if letter else []))
        option_id = str(option.get("optionId"))
        name = one_line(option.get("name"), _LONG_NAME) or one_line(option_id, _LONG_NAME)
        found.append(Option(option_id, name, kind, keys))
    return found


@dataclass(frozen=True, slots=True)
class Mark:
    """The answer that Enter takes."""

    option: Option
    #: its key is all that stands in the input line; False: the key was pressed with Alt.
    typed: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """Enter has answered a question; `typed` as in `Mark`."""

    asked: Question
    option: Option
    typed: bool


class Held(Enum):
    """Enter has done nothing, and everything stays as it is."""

    #: the question is on the screen for less than `_SETTLED` seconds.
    TOO_SOON = "too soon"
    #: the question whose answer was marked is no longer asked; the next Enter sends the line.
    GONE = "gone"


class Questions:
    """The open questions in order; the first one is shown."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._open: list[Question] = []
        #: the answer that Enter takes, if one is marked.
        self.mark: Mark | None = None
        #: when the shown question was drawn first, or the last one ended; None: not drawn yet.
        self._since: float | None = None
        #: the marked question has ended, and nothing was typed since then.
        self._gone = False

    @property
    def shown(self) -> Question | None:
        """The question on the screen, if any."""
        return self._open[0] if self._open else None

    def add(self, asked: Question) -> None:
        """Add a question after the open ones."""
        self._open.append(asked)
        if self.shown is asked:
            self._shown_changed()

    def drawn(self) -> None:
        """Note that the shown question is on the screen."""
        if self._since is None:
            self._since = self._clock()

    def press(self, key: str, line: str) -> bool:
        """Mark the option of a key that was typed; return False if the key is text.

        `line`: what stood in the input line before. The key was added to it.
        """
        return not line and self._mark(key, typed=True)

    def press_alt(self, key: str) -> bool:
        """Mark the option of a key that was pressed with Alt; return False if it has none."""
        return self._mark(key, typed=False)

    def unmark(self) -> None:
        """Remove the mark: the input line was changed, or the user takes the mark away."""
        self.mark, self._gone = None, False

    def enter(self) -> Taken | Held | None:
        """Return what Enter does: it takes the mark, or nothing; None: it sends the line.

        A question that is taken is no longer open.
        """
        if self.mark is None and not self._gone:
            return None
        if self._since is None or self._clock() - self._since < _SETTLED:
            return Held.TOO_SOON
        if self.mark is None:
            self._gone = False
            return Held.GONE
        taken = Taken(self._open.pop(0), self.mark.option, self.mark.typed)
        self.mark = None
        self._shown_changed()
        return taken

    def withdraw(self, request: object) -> Question | None:
        """Remove and return the question of a request; None if it is not open."""
        for asked in self._open:
            if asked.request is request:
                was_shown = asked is self.shown
                self._open.remove(asked)
                if was_shown:
                    self._shown_changed()
                return asked
        return None

    def remove_all(self) -> list[Question]:
        """Remove and return all questions."""
        taken, self._open = self._open, []
        if taken:
            self._shown_changed()
        return taken

    def _mark(self, key: str, *, typed: bool) -> bool:
        options = self.shown.options if self.shown else ()
        found = next((option for option in options if key in option.keys), None)
        if found is not None:
            self.mark, self._gone = Mark(found, typed), False
        return found is not None

    def _shown_changed(self) -> None:
        """Begin with another question, or with none: a mark was for the one before."""
        self._gone = self._gone or self.mark is not None
        self.mark = None
        self._since = None if self._open else self._clock()
