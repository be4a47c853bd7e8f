"""The open permissions: which one is shown, and which keys answer it from when on. No I/O.

Invariants:
- A key answers a question only after `_SETTLED` seconds in which the question was shown and no key
  was pressed: typing meant for something else is no answer.
- Only an offered option is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from acp_bridge.commands.terminal.reminder import reminder
from acp_bridge.protocol import QUESTION, Json, as_object, objects, own_meta
from acp_bridge.view.block_text import one_line

#: seconds without a key press after which a key may answer the question.
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
    #: one line on what a long question is about, shown beside the options; "" for a short one.
    about: str
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


class Questions:
    """The open questions in order; the first one is shown."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._open: list[Question] = []
        self._quiet_since = 0.0

    @property
    def shown(self) -> Question | None:
        """The question on the screen, if any."""
        return self._open[0] if self._open else None

    @property
    def settled(self) -> bool:
        """True if a plain key may answer: none was pressed for `_SETTLED` s while one was shown."""
        return bool(self._open) and self._clock() - self._quiet_since >= _SETTLED

    def add(self, asked: Question) -> None:
        """Add a question after the open ones."""
        if not self._open:
            self.on_key()
        self._open.append(asked)

    def on_key(self) -> None:
        """Restart the time of quiet: a key was pressed, or another question is shown."""
        self._quiet_since = self._clock()

    def choose(self, key: str) -> tuple[Question, Option] | None:
        """Remove and return the shown question with the option for a key.

        None if the key has none.
        """
        if (asked := self.shown) is None:
            return None
        chosen = next((option for option in asked.options if key in option.keys), None)
        if chosen is None:
            return None
        self._open.pop(0)
        self.on_key()
        return asked, chosen

    def withdraw(self, request: object) -> Question | None:
        """Remove and return the question of a request; None if it is not open."""
        for asked in self._open:
            if asked.request is request:
                if asked is self.shown:
                    self.on_key()
                self._open.remove(asked)
                return asked
        return None

    def remove_all(self) -> list[Question]:
        """Remove and return all questions."""
        taken, self._open = self._open, []
        return taken
