"""The unanswered prompts entered at this terminal: the running one and the waiting ones. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from acp_bridge.core.wire.jsonrpc import RequestId
from acp_bridge.terminal.chat.prompts import Prompt
from acp_bridge.terminal.view.standing import Standing


class OwnPrompts:
    """The unanswered prompts, in the order of entering."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` returns seconds."""
        self.unanswered: list[Prompt] = []
        #: the prompt whose turn runs.
        self.begun: Prompt | None = None
        self._clock = clock
        #: when the running turn began, whichever client asked for it.
        self._turn_since = 0.0

    @property
    def waiting(self) -> list[Prompt]:
        """The prompts whose turn has not begun."""
        return [each for each in self.unanswered if each.waits and each is not self.begun]

    def queued(
        self, standing: Standing | None, order: Sequence[object] | None = None
    ) -> list[Prompt]:
        """Return the waiting prompts without those whose words have joined the turn that runs.

        `order`: the ids of all prompts in the queue, if the bridge has told them. Some bridges tell
        only their number (`standing.waiting`): as many steering prompts as exceed it have joined.
        """
        waiting = self.waiting
        if order is not None:
            known = {each.prompt_id: each for each in waiting if each.prompt_id is not None}
            new = [each for each in waiting if each.prompt_id is None]
            return [known[each] for each in order if each in known] + new
        joined = len(waiting) - standing.waiting if standing is not None else 0
        out = [each for each in waiting if each.steers][: max(0, joined)]
        return [each for each in waiting if each not in out]

    def with_id(self, prompt_id: object) -> Prompt | None:
        """Return the unanswered prompt that has this id at the bridge, or None."""
        found = (each for each in self.unanswered if each.prompt_id == prompt_id)
        return next(found, None) if prompt_id is not None else None

    def unnamed(self, block: object) -> Prompt | None:
        """Return a prompt that was sent, has this content block, and no known id; else None."""
        sent = (each for each in self.unanswered if each.was_sent and each.prompt_id is None)
        return next((each for each in sent if block in each.blocks), None)

    @property
    def seconds(self) -> float:
        """For how many seconds the turn has been running."""
        return self._clock() - self._turn_since

    def note_accepted(self, request_id: RequestId, prompt_id: object) -> None:
        """Note the bridge's id for the prompt that a request has sent, and that is on disk now."""
        for prompt in self.unanswered:
            if prompt.sent is not None and prompt.sent.id == request_id:
                prompt.prompt_id = prompt_id

    def note_turn(self, seconds: float) -> None:
        """Note that a turn runs that began `seconds` ago."""
        self._turn_since = self._clock() - seconds

    def note_turn_of(self, prompt_id: object) -> None:
        """Note that the turn of this prompt runs: it is too late to take it back."""
        for prompt in self.unanswered:
            if prompt_id is not None and prompt.prompt_id == prompt_id:
                prompt.taken_back = False

    def begin_next(self, standing: Standing | None, *, at_once: bool = False) -> Prompt | None:
        """Note the waiting prompt whose turn has begun, and return it; None if none has.

        `standing`: the state that the bridge told, None if it tells none: then prompts run in the
        order of entering. `at_once`: nothing runs or waits before the first prompt, so it begins
        when it is sent.
        """
        waiting = self.waiting if self.begun is None else []
        if standing is not None and not at_once:
            told = standing.prompt_id
            waiting = [each for each in waiting if told is not None and each.prompt_id == told]
        if not waiting or waiting[0].sent is None:
            return None
        self.begun = waiting[0]
        self.note_turn(0)
        return self.begun

    def remove(self, prompt: Prompt) -> bool:
        """Remove a prompt that was answered; returns True if its turn was the running one."""
        self.unanswered.remove(prompt)
        if prompt is not self.begun:
            return False
        self.begun = None
        return True
