"""What the tests of turns share: a model and a compactor of the test's, and short spellings."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from agent.model import Completion, Message, ModelInfo, OnToken, Stop, Token, ToolSpec
from tests.agent.support import NOTES, Bench, MemoryClient


class Saying:
    """A model that tells just these tokens, then does `ends`."""

    id = "saying"

    def __init__(
        self, *tokens: Token, completion: Completion | None = None, stop: Stop = "end_turn"
    ) -> None:
        self.tokens = tokens
        self.completion = completion or Completion(stop=stop)
        self.given: list[list[Message]] = []
        self.takes_images = False
        #: what the calls do instead, one after the other
        self.instead: list[Exception] = []

    async def info(self) -> ModelInfo:
        return ModelInfo(window=1000, takes_images=self.takes_images)

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], on_token: OnToken
    ) -> Completion:
        self.given.append(list(messages))
        if self.instead:
            raise self.instead.pop(0)
        for token in self.tokens:
            await on_token(token)
        return self.completion


class Room:
    """A compactor that does what the test says."""

    def __init__(self, *room: bool) -> None:
        #: what each `shrink` answers
        self.room = list(room)
        #: what each `fit` answers
        self.needed = False
        self.fitted = 0
        self.work: Callable[[], Awaitable[None]] | None = None

    async def fit(self, model: object, specs: Sequence[ToolSpec]) -> bool:
        self.fitted += 1
        if self.work:
            await self.work()
        return self.needed

    async def shrink(self, model: object, specs: Sequence[ToolSpec]) -> bool:
        return self.room.pop(0)


def with_room(bench: Bench, *room: bool) -> Room:
    made = Room(*room)
    bench.compactor = made  # type: ignore[assignment]
    return made


def states(*pairs: str) -> list[tuple[str, str]]:
    """`states("1 pending", ...)`"""
    return [(f"call-{p.split()[0]}", p.split()[1]) for p in pairs]


def calls(*notes: str) -> str:
    """A dialogue with these calls in one answer."""
    lines = [f'call: note {{"text": "{note}"}}' for note in notes]
    return "\n".join(["when: note", *lines, "---", "text: Kept."])


def allowing(folder: Path, dialogue: str = NOTES) -> Bench:
    return Bench(folder, dialogue, MemoryClient("allow_once"))
