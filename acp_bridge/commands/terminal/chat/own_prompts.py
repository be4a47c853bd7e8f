"""The prompts that were entered at this terminal: which one's turn runs, which wait. No I/O."""

from __future__ import annotations

from collections.abc import Callable

from acp_bridge.commands.terminal.chat.prompts import Prompt
from acp_bridge.commands.terminal.chat.standing import Standing
from acp_bridge.wire.jsonrpc import RequestId


class OwnPrompts:
    """Holds the prompts that are not answered, in the order in which they were entered."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds."""
        self.unanswered: list[Prompt] = []
        #: the one whose turn runs.
        self.begun: Prompt | None = None
        self._clock = clock
        #: when the turn that runs began, whoever asked for it.
        self._turn_since = 0.0

    @property
    def waiting(self) -> list[Prompt]:
        """The prompts whose turn has not begun."""
        return [each for each in self.unanswered if each is not self.begun and not each.has_no_turn]

    @property
    def seconds(self) -> float:
        """How long the turn runs."""
        return self._clock() - self._turn_since

    def note_accepted(self, request_id: RequestId, prompt_id: object) -> None:
        """Note the id that the bridge has given a prompt which is on disk."""
        for prompt in self.unanswered:
            if prompt.sent is not None and prompt.sent.id == request_id:
                prompt.prompt_id = prompt_id

    def note_turn(self, seconds: float) -> None:
        """Note that another turn runs, since so many seconds."""
        self._turn_since = self._clock() - seconds

    def begin_next(self, standing: Standing | None, *, at_once: bool = False) -> Prompt | None:
        """Return the first prompt that waits if its turn begins, which counts from now on.

        `standing`: what the bridge tells, None where it tells nothing. `at_once`: nothing stands
        before the prompt.
        """
        first = self.waiting[0] if self.begun is None and self.waiting else None
        if first is None or first.sent is None:
            return None
        told = standing.prompt_id if standing else None
        if not at_once and standing is not None and (told is None or told != first.prompt_id):
            return None
        self.begun = first
        self.note_turn(0)
        return first

    def take(self, prompt: Prompt) -> bool:
        """Take off a prompt that was answered; returns True if it was the one whose turn ran."""
        self.unanswered.remove(prompt)
        if prompt is not self.begun:
            return False
        self.begun = None
        return True
