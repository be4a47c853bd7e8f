"""The waiting prompts of the session, as its bridge tells them, and the chosen one. No I/O.

Invariant: a prompt of this terminal stands in the list from when it is known to be on disk until
its turn begins or it is taken back, whatever the bridge has told last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from acp_bridge.core.protocol import Json
from acp_bridge.terminal.chat.own_prompts import OwnPrompts
from acp_bridge.terminal.view.queue_rows import Row, moved, rows


@dataclass(frozen=True, slots=True)
class Edit:
    """A prompt whose words stand in the input line, and the blocks that can't stand there."""

    row: Row
    before: tuple[Json, ...] = ()
    after: tuple[Json, ...] = ()


class QueueShown:
    """The list of waiting prompts, of which the user may choose one; `own`: this terminal's.

    Nothing is known until the bridge has told the list; one of an older version never does.
    """

    def __init__(self, own: OwnPrompts) -> None:
        self._own = own
        self._told: tuple[Row, ...] | None = None
        self._chosen: object = None
        #: the index of the chosen row when it was in the list last.
        self._at = 0
        #: the prompt whose words stand in the input line, to be edited.
        self.editing: Edit | None = None

    def note(self, params: Json) -> bool:
        """Take the params of `_acp_bridge/queue`.

        Return True if a prompt of this terminal has other words than before.
        """
        before, self._told = self._told or (), rows(params)
        known: Mapping[object, str] = {row.prompt_id: row.text for row in before}
        self.settle()
        return any(
            row.mine and known.get(row.prompt_id, row.text) != row.text for row in self._told
        )

    @property
    def order(self) -> list[object] | None:
        """The ids of all prompts in the order in which they run; None if it is not known."""
        return None if self._told is None else [row.prompt_id for row in self._told]

    @property
    def rows(self) -> list[Row]:
        """The rows of the list, without prompts of this terminal that wait no longer."""
        own = {prompt.prompt_id for prompt in self._own.waiting}
        return [row for row in self._told or () if not row.mine or row.prompt_id in own]

    @property
    def chosen(self) -> Row | None:
        """The chosen row; None while the user is not in the list."""
        return next((row for row in self.rows if row.prompt_id == self._chosen), None)

    def enter(self) -> None:
        """Go into the list, to its first row, if it has one."""
        self._at, listed = 0, self.rows
        self._chosen = listed[0].prompt_id if listed else None

    def leave(self) -> None:
        """Leave the list."""
        self._chosen = None

    def step(self, by: int) -> None:
        """Choose the row that is `by` rows further down, or as far as there are rows."""
        listed = self.rows
        if (chosen := self.chosen) is not None:
            at = listed.index(chosen) + by
            self._chosen = listed[max(0, min(at, len(listed) - 1))].prompt_id
            self.settle()

    def settle(self) -> None:
        """Choose the row that took the place of the chosen one, if that has gone."""
        if self._chosen is None:
            return
        listed = self.rows
        if (chosen := self.chosen) is not None:
            self._at = listed.index(chosen)
        else:
            at = min(self._at, len(listed) - 1)
            self._chosen = listed[at].prompt_id if listed else None

    def moved(self, prompt_id: object, by: int) -> Json | None:
        """Return the params of `_acp_bridge/queue/move`, without `sessionId`, that move a prompt.

        It moves one place down (`by` 1) or up (-1). None if it is not in the list any more, or has
        no place to go to.
        """
        return moved(self.rows, prompt_id, by)
