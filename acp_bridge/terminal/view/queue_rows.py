"""The prompts that wait in a session, as its bridge tells them. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from acp_bridge.core.protocol import Json, objects
from acp_bridge.terminal.view.block_text import one_line

#: how a row of the bridge's list says that its prompt was left over.
_HELD: Final = "held"


@dataclass(frozen=True, slots=True)
class Row:
    """A prompt that waits or is left over."""

    prompt_id: object
    #: its number in the session, which it keeps.
    number: int
    #: its words as one line.
    text: str
    #: it was entered at this terminal.
    mine: bool = False
    #: it was left over: it runs on the user's word alone.
    held: bool = False

    @property
    def line(self) -> str:
        """The row as a person is shown it, such as "3 waits: TEXT"."""
        whose = "" if self.mine else ", another's"
        return f"{self.number} {'left over' if self.held else f'waits{whose}'}: {self.text}"


def rows(params: Json) -> tuple[Row, ...]:
    """Return the rows in a `_acp_bridge/queue`, or in the answer to `_acp_bridge/queue/list`."""
    found = objects(params.get("prompts"))
    return tuple(_row(each) for each in found if isinstance(each.get("promptId"), str))


def _row(told: Json) -> Row:
    number = told.get("number")
    return Row(
        told.get("promptId"),
        number if isinstance(number, int) else 0,
        one_line(told.get("text")),
        told.get("mine") is True,
        told.get("state") == _HELD,
    )


def moved(listed: Sequence[Row], prompt_id: object, by: int) -> Json | None:
    """Return the params of `_acp_bridge/queue/move`, without `sessionId`, that move a prompt.

    It moves one place down (`by` 1) or up (-1). None if it is not `listed`, or has no place to go
    to: prompts that wait and prompts that are left over are two lists, the second behind the first.
    """
    row = next((each for each in listed if each.prompt_id == prompt_id), None)
    same = [each for each in listed if row is not None and each.held == row.held]
    if row is None or not 0 <= (to := same.index(row) + by) < len(same):
        return None
    follows = same[to + 1 :] if by > 0 else same[to:]
    return {"promptId": prompt_id, "before": follows[0].prompt_id if follows else None}
