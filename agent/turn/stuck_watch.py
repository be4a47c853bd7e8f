"""Stops a turn whose model goes round in circles: the model is told first, then the turn ends.

Invariants
- A model that was told gets to answer before it is judged again.
- What the model is told is recorded, so that a reload gives it the same.
"""

from __future__ import annotations

import logging

from agent.conversation.entries import Answer
from agent.turn.recorder import Recorder
from agent.turn.stuck import Circle, circle

logger = logging.getLogger(__name__)

#: what the model is advised to do instead, by its way of going round in circles
_ADVICE = {
    Circle.EQUAL: "The same call will give the same result. If you wait for something, wait for it"
    " in one long call; otherwise try another way, or say what is in the way.",
    Circle.FAILING: "The same call will fail again. Find out why, try another way, or say what is"
    " in the way.",
    Circle.ALTERNATING: "Neither call gives anything new. Try another way, or say what is in the"
    " way.",
    Circle.ANNOUNCING: "Make the call now, as a tool call and not as text, or answer the user"
    " without announcing anything.",
    Circle.COMPACTING: "What you have found out so far stands in the conversation. Go on from"
    " there, with smaller results, or say what is in the way.",
}


class StuckWatch:
    """The watch of one turn. `enabled`: False if the user has switched it off."""

    def __init__(self, recorder: Recorder, *, enabled: bool) -> None:
        self._recorder = recorder
        self._enabled = enabled
        #: the numbers of entries each time that room was made
        self._compactions: list[int] = []
        #: the number of entries when the model was told; None if it was not
        self._told: int | None = None

    async def room_was_made(self) -> bool:
        """Notes that room was made for an answer; returns True if the turn must end."""
        self._compactions.append(len(self._recorder.history.entries))
        return await self.ends_turn()

    async def ends_turn(self) -> bool:
        """Returns True if the turn must end: the model goes round in circles, and was told before.

        A model that was not told yet is told now, by a note. The user is told why the turn ends.
        """
        entries = self._recorder.history.entries
        if not self._enabled or not self._has_answered():
            return False
        if (found := circle(entries, self._compactions)) is None:
            return False
        if self._told is not None:
            await self._recorder.notice(
                f"The turn was ended: the model goes round in circles, and being told so did not"
                f" help. It {found.value}. Say how it is to go on."
            )
            return True
        text = f"You are going round in circles: you {found.value}. {_ADVICE[found]}"
        self._told = len(entries)
        logger.info("the model is told that it goes round in circles: it %s", found.value)
        await self._recorder.record({"t": "note", "text": text})
        return False

    @property
    def was_told(self) -> bool:
        """True if the model was told that it goes in circles and has not answered since."""
        return self._told is not None and not self._has_answered()

    def _has_answered(self) -> bool:
        entries = self._recorder.history.entries
        return any(isinstance(entry, Answer) for entry in entries[self._told or 0 :])
