"""Makes room when a conversation no longer fits the model's window.

First the results of tools are left out, oldest first. Then a summary takes the place of the middle
of the conversation. The system prompt, the prompt being answered with the words that joined its
turn, and the last entries stay.

Invariants
- Compaction only adds records to the transcript, and they change only what the model is given. A
  reload gives the model the same, and the user's view stays whole.
- Nothing is recorded before a summary is complete: a cancellation leaves the transcript unchanged.
- A part that can't be summarised is left out, and the user is told; but not after an error that
  would end the turn anyway and may be gone the next time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence

from agent.conversation.entries import Answer, Call, Record
from agent.conversation.summary import shortened, summarise
from agent.conversation.token_estimate import USUAL_RATE, TokenEstimate
from agent.conversation.transcript import Transcript
from agent.model import Model, ModelError, ToolSpec, Usage

logger = logging.getLogger(__name__)

#: the share of the window above which room is made, and the share that is used afterwards
_FULL = 0.85
_ROOMY = 0.7
#: how many of the last entries stay as they are, with results, while anything else can go
_RECENT = 2
#: how many of the last entries stay if they take no more than half of the room
_MORE_RECENT = 4
#: the share of the room below which a middle is not worth a summary
_LEAST = 0.1
#: the share of the room that a summary may take, and the characters that it may take in a small
#: room if they are free there
_SUMMARY_SHARE = 0.25
_SUMMARY_CHARS = 8_000
#: the characters that every summary may have
_SHORTEST_SUMMARY = 1_000

#: tokens of an input that no model refuses as too long, and how often in a row room is made in vain
#: after refusals that don't say why
_SHORT, _DOUBTS = 1_000, 3

#: kinds of errors that have nothing to do with the text to summarise
_PASSING = frozenset({"auth", "missing_key", "rate_limit", "unreachable", "unknown_model"})
_LEFT_OUT = "[An older part of the conversation was left out here: it could not be summarised.]"


class Compactor:
    """Makes room in one session's conversation.

    `summariser` opens a model for summaries and may raise ModelError; if it is None, the session's
    own model is asked. `notify` shows the user a sentence.
    """

    def __init__(
        self,
        transcript: Transcript,
        summariser: Callable[[], Model] | None,
        notify: Callable[[str], Awaitable[None]],
    ) -> None:
        self._transcript = transcript
        self._history = transcript.history
        self._summariser = summariser
        self._notify = notify
        self._rate = USUAL_RATE
        #: the estimated tokens of an input that a model has refused, by the model's id
        self._refused: dict[str, int] = {}
        #: the estimated tokens of an input that may have been refused as too long, and how often in
        #: a row room was made for that, by the model's id
        self._doubts: dict[str, tuple[int, int]] = {}

    async def fit(self, model: Model, specs: Sequence[ToolSpec]) -> bool:
        """Makes room before a model call if little is left; returns True if it did.

        Raises ModelError if the model can't be asked now.
        """
        window = await self._window(model)
        if window is None:
            return False
        estimate = await self._estimate(model, specs)
        before = estimate.tokens()
        if before <= window * _FULL:
            return False
        await self._make_room(model, estimate, int(window * _ROOMY), _RECENT)
        return estimate.tokens() < before

    async def shrink(self, model: Model, specs: Sequence[ToolSpec]) -> bool:
        """Halves the input, or makes it smaller, after the provider refused it as too long.

        Returns False if nothing more can go. Raises ModelError as `fit` does.
        """
        estimate = await self._estimate(model, specs)
        self._refused[model.id] = estimate.tokens()
        return await self._halve(model, estimate)

    async def shrink_in_doubt(self, model: Model, specs: Sequence[ToolSpec]) -> bool:
        """Halves the input after a refusal that may have been for its length.

        Does nothing and returns False for a short one, and if that was in vain several times.
        """
        estimate = await self._estimate(model, specs)
        before, tries = estimate.tokens(), self._doubts.get(model.id, (0, 0))[1]
        if before < _SHORT or tries >= _DOUBTS:
            return False
        self._doubts[model.id] = before, tries + 1
        return await self._halve(model, estimate)

    def room_helped(self, model: Model) -> None:
        """Notes that the model took the input after `shrink_in_doubt`: it was too long."""
        if found := self._doubts.pop(model.id, None):
            self._refused[model.id] = found[0]

    async def _halve(self, model: Model, estimate: TokenEstimate) -> bool:
        before = estimate.tokens()
        window = await self._window(model)  # takes into account what the refusal said
        target = before // 2 if window is None else min(before // 2, int(window * _ROOMY))
        for recent in range(_RECENT, -1, -1):
            await self._make_room(model, estimate, target, recent)
        return estimate.tokens() < before

    async def compact(self, model: Model) -> str:
        """Summarises the whole conversation now; returns a sentence for the user."""
        if all(entry.refused for entry in self._history.entries[self._summarised :]):
            return "There is nothing to summarise yet."
        estimate = await self._estimate(model, None)
        before = estimate.tokens()
        try:
            text = await self._summary(model, estimate, len(self._history.entries), before)
        except ModelError as error:
            return f"The conversation could not be summarised. {error}"
        self._replace(text, len(self._history.entries))
        after = estimate.tokens()
        return f"The conversation was summarised: about {before:,} tokens are {after:,} now."

    async def _window(self, model: Model) -> int | None:
        known = (await model.info()).window
        refused = self._refused.get(model.id)
        return min((size for size in (known, refused) if size is not None), default=None)

    async def _estimate(self, model: Model, specs: Sequence[ToolSpec] | None) -> TokenEstimate:
        images = (await model.info()).takes_images
        estimate = TokenEstimate(self._history, specs, images=images, rate=self._rate)
        self._rate = estimate.rate
        return estimate

    async def _make_room(
        self, model: Model, estimate: TokenEstimate, target: int, recent: int
    ) -> None:
        """Leaves results out, and summarises if that won't do, until the input has `target` tokens.

        `recent`: how many of the last entries stay as they are.
        """
        excess = estimate.tokens() - target
        trimmable = sum(estimate.of_result(call) for call in self._trimmable(recent))
        cut = self._cut(estimate, target, recent) if trimmable < excess else 0
        if cut:
            await self._summarise(model, estimate, cut, target)
        await self._trim(estimate, target, recent)

    # results

    def _trimmable(self, recent: int) -> Iterator[Call]:
        """Yields the calls whose results can be left out, oldest first."""
        entries = self._history.entries[self._summarised :]
        answers = [e for e in entries if isinstance(e, Answer) and not e.refused]
        for answer in answers[: max(0, len(answers) - recent)]:
            yield from answer.calls

    async def _trim(self, estimate: TokenEstimate, target: int, recent: int) -> None:
        excess = estimate.tokens() - target
        cards: list[str] = []
        for call in self._trimmable(recent):
            if excess > 0 and (saved := estimate.of_result(call)) > 0:
                excess -= saved
                cards.append(call.card["toolCallId"])
        if cards:
            self._record({"t": "trim", "cards": cards})
            what = "result was" if len(cards) == 1 else "results were"
            await self._say(f"{len(cards)} old tool {what} left out for the model, to make room.")

    # the middle

    @property
    def _summarised(self) -> int:
        """How many entries the current summary replaces."""
        summary = self._history.summary
        return 0 if summary is None else summary.entries

    def _cut(self, estimate: TokenEstimate, target: int, recent: int) -> int:
        """Returns how many entries a summary should replace; 0 if a summary is not worth it."""
        entries = self._history.entries
        cut = max(0, len(entries) - max(recent, 1))
        used = estimate.of_entries(entries[cut:])
        while len(entries) - cut < _MORE_RECENT and cut > 0:
            used += estimate.of_entries(entries[cut - 1 : cut])
            if used > target // 2:
                break
            cut -= 1
        stay = set(map(id, self._history.said_again(cut)))
        middle = [e for e in entries[self._summarised : cut] if id(e) not in stay]
        return cut if middle and estimate.of_entries(middle) >= target * _LEAST else 0

    async def _summarise(
        self, model: Model, estimate: TokenEstimate, cut: int, target: int
    ) -> None:
        await self._say("The conversation is long: its older part is being summarised.")
        try:
            text = await self._summary(model, estimate, cut, target)
        except ModelError as error:
            if error.kind in _PASSING:
                raise
            logger.warning("no summary: %s", error, exc_info=error)
            await self._say(f"It could not be summarised and was left out instead. {error}")
            earlier = self._history.summary
            text = _LEFT_OUT if earlier is None else f"{earlier.text}\n\n{_LEFT_OUT}"
        self._replace(text, cut)

    async def _summary(self, model: Model, estimate: TokenEstimate, cut: int, target: int) -> str:
        """Returns a summary of the first `cut` entries. Raises ModelError."""
        try:
            if self._summariser is not None:
                return await self._ask(self._summariser(), estimate, cut, target)
        except ModelError as error:
            logger.warning("the summariser failed, the session's model is asked: %s", error)
        return await self._ask(model, estimate, cut, target)

    async def _ask(self, summariser: Model, estimate: TokenEstimate, cut: int, target: int) -> str:
        history = self._history
        entries = history.entries[self._summarised : cut]
        room = self._room_for_summary(estimate, cut, target)
        window = await self._window(summariser)
        completion = await summarise(
            summariser, entries, history.summary, window=window, rate=estimate.rate
        )
        if completion.usage is not None:
            self._record(spent_on(summariser, completion.usage))
        text = completion.text.strip()
        if not text or completion.stop == "refusal":
            raise ModelError("The model gave no summary.")
        return shortened(text, room)

    def _room_for_summary(self, estimate: TokenEstimate, cut: int, target: int) -> int:
        """Returns how many characters a summary of the first `cut` entries may have."""
        history = self._history
        earlier = 0 if history.summary is None else len(history.summary.text)
        middle = estimate.of_entries(history.entries[self._summarised : cut])
        left = int((target - estimate.tokens() + middle) / estimate.rate) + earlier
        usual = max(_SUMMARY_CHARS, int(target * _SUMMARY_SHARE / estimate.rate))
        return max(_SHORTEST_SUMMARY, min(usual, left))

    def _replace(self, text: str, cut: int) -> None:
        self._record({"t": "summary", "text": text, "entries": cut})

    def _record(self, record: Record) -> None:
        try:
            self._transcript.append(record)
        except OSError:  # the history has the record; the turn tells the user that the disk fails
            logger.exception("the transcript can't be written")

    async def _say(self, text: str) -> None:
        try:
            await self._notify(text)
        except Exception:
            logger.exception("a notice could not be shown: %s", text)


def spent_on(model: Model, usage: Usage) -> Record:
    """Returns the record of the tokens and cost of a call of the summary model."""
    counts = {"input": usage.input, "output": usage.output, "cached": usage.cached}
    return {"t": "usage", "model": model.id, **counts, "cost": usage.cost, "for": "summary"}
