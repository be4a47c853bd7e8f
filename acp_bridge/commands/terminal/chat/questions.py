"""Permissions that are asked: which is shown, which keys answer it, and when a key may. No I/O.

Invariants:
- A key answers only the question that was on the screen for `_SETTLED` seconds without a key
  pressed: what was typed for something else is no answer.
- Only an option that was offered is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from acp_bridge.commands.terminal.reminder import reminder
from acp_bridge.commands.terminal.view.block_text import one_line
from acp_bridge.protocol import Json
from acp_bridge.wire.json_values import as_object, objects

#: seconds without a key after which a question may be answered by one.
_SETTLED: Final = 0.6
_LETTERS: Final = {
    "allow_once": "y",
    "allow_always": "a",
    "reject_once": "n",
    "reject_always": "d",
}
_DIGITS: Final = "123456789"


@dataclass(frozen=True, slots=True)
class Option:
    """An offered answer, and the keys that choose it."""

    id: str
    name: str
    kind: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A permission that is asked; `request` is whatever stands for it where it came from."""

    request: object
    call: Json
    options: tuple[Option, ...]
    #: what it is about, for beside the answers; empty if it is short.
    about: str


def question(request: object, params: Json) -> Question:
    """Return the question of a `session/request_permission`."""
    call = as_object(params.get("toolCall"))
    options = tuple(_options(objects(params.get("options"))))
    return Question(request, call, options, reminder(call))


def _options(offered: list[Json]) -> list[Option]:
    found: list[Option] = []
    free = dict(_LETTERS)
    for number, option in enumerate(offered[: len(_DIGITS)]):
        kind = str(option.get("kind"))
        letter = free.pop(kind, None)
        keys = (_DIGITS[number], *([letter] if letter else []))
        option_id = str(option.get("optionId"))
        name = one_line(option.get("name"), 60) or one_line(option_id, 60)
        found.append(Option(option_id, name, kind, keys))
    return found


class Questions:
    """The questions that are open; the first one is shown."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds."""
        self._clock = clock
        self._open: list[Question] = []
        self._quiet_since = 0.0

    @property
    def shown(self) -> Question | None:
        """The question that is on the screen."""
        return self._open[0] if self._open else None

    @property
    def settled(self) -> bool:
        """A plain key may answer: the question was there long enough, and nobody types."""
        return bool(self._open) and self._clock() - self._quiet_since >= _SETTLED

    def add(self, asked: Question) -> None:
        """Show a question, after those that wait."""
        if not self._open:
            self.on_key()
        self._open.append(asked)

    def on_key(self) -> None:
        """Note that a key was pressed that answers nothing, or that a question appears."""
        self._quiet_since = self._clock()

    def choose(self, key: str) -> tuple[Question, Option] | None:
        """Return the shown question with the option that a key chooses, and take it off."""
        if (asked := self.shown) is None:
            return None
        chosen = next((option for option in asked.options if key in option.keys), None)
        if chosen is None:
            return None
        self._open.pop(0)
        self.on_key()
        return asked, chosen

    def withdraw(self, request: object) -> Question | None:
        """Take off the question of a request that is not asked any more."""
        for asked in self._open:
            if asked.request is request:
                if asked is self.shown:
                    self.on_key()
                self._open.remove(asked)
                return asked
        return None

    def take_all(self) -> list[Question]:
        """Take off every question."""
        taken, self._open = self._open, []
        return taken
