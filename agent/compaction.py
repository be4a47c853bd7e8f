"""Makes room when a conversation no longer fits the model's window."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from agent.model import Model, ToolSpec
from agent.transcript import Transcript


class Compactor:
    def __init__(
        self,
        transcript: Transcript,
        summariser: Callable[[], Model] | None,
        notify: Callable[[str], Awaitable[None]],
    ) -> None:
        self._transcript = transcript
        self._summariser = summariser
        self._notify = notify

    async def fit(self, model: Model, specs: Sequence[ToolSpec]) -> None:
        """Before a model call."""

    async def shrink(self, model: Model, specs: Sequence[ToolSpec]) -> bool:
        """After the provider refused: whether there is room now."""
        return False

    async def compact(self, model: Model) -> str:
        """Summarise now. Returns a sentence for the user."""
        return "There is nothing to summarise."
