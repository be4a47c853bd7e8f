"""The history of a session, folded from the records of its transcript. No I/O.

A record is a JSON object; `t` is its kind. The kinds and their other members:
- `system` text: the system prompt; the last one holds
- `user` blocks (ACP content blocks), mode (the session's), gone? (names of tools that were used and
  are not there any more)
- `steer` blocks (ACP content blocks): words of the user that joined the turn of the last prompt
- `text` | `reasoning` d: a token that was shown
- `provider` d: `Completion.provider` of the answer, after its tokens and before its calls
- `call` id, name, arguments, card: a tool call and the card that was opened for it (`toolCallId`,
  `title`, ...; `hidden`: the client was not shown it); all calls of an answer come before the
  first result of any
- `shown` card (its id), content (ACP tool call content): what a card shows before its call runs
- `result` card (its id), status, text, raw?, content? (ACP tool call content), images? (data URLs),
  ran? (false: nothing of the call was run)
- `announced`: the answer ended for a tool call, as the provider says, and has none
- `plan` entries: ACP plan entries
- `note` text: what the agent itself tells the model in a turn; the user is not shown it
- `usage` model, input, output, cached, cost (USD or null), for ("turn" or "summary")
- `title` text: the session's title, made by a model
- `refused`: the model refused the last prompt; no model is given its turn any more
- `trim` cards: the model is no longer given the results of the calls with these cards
- `summary` text, entries: the model is given this text in place of the first `entries` entries
- `chosen` option, value: the option of the session has this value since
- `always` key (strings and booleans), allow: what the user answered with "always"

Invariants
- The live history and a reloaded one are the same, because both come from `fold` alone.
- Whatever the records are, in whatever order, the messages to the model are well formed
  (invariants C17, K2), and a replay ends every card that it opens (invariant C16).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acp_bridge.core.records import replace
from agent.client import Update
from agent.content.blocks import text_of
from agent.conversation.decisions import Decisions
from agent.conversation.entries import (
    NO_TOOL,
    Answer,
    Call,
    Entry,
    Note,
    Outcome,
    Prompt,
    Record,
    Run,
    Spent,
    Summary,
)
from agent.conversation.messages import messages_of, sendable
from agent.conversation.replay import message_id, replay_of
from agent.model import Message, SpokenKind, ToolCall

_TITLE_LENGTH = 60


class History:
    def __init__(self) -> None:
        self._system: str | None = None
        self._entries: list[Entry] = []
        #: the calls by the ids of their cards
        self._calls: dict[str, Call] = {}
        self._call_ids: set[str] = set()
        self.decisions = Decisions()
        #: the highest number of a card so far
        self._cards = 0
        self._summary: Summary | None = None
        #: the mode at the last prompt, and the tools that were missing
        self._mode = ""
        #: the title that a model made
        self.made_title: str | None = None
        self._gone: tuple[str, ...] = ()
        self._spent = Spent()
        #: the ids of the models that have answered the user
        self._models: set[str] = set()
        #: the tokens to which the last record belongs; None if it was no token
        self._run: Run | None = None
        #: the input tokens of the last call that answered the user, and the number of entries in
        #: that input; None if a trim or a summary came after it
        self.measured: tuple[int, int] | None = None

    @property
    def title(self) -> str | None:
        """The title that a model made, else the first prompt's first line; None without either."""
        if self.made_title is not None:
            return self.made_title
        first = next((e for e in self._entries if isinstance(e, Prompt)), None)
        return None if first is None else title_of(text_of(first.blocks))

    @property
    def message_id(self) -> str:
        """The id of the last message; it follows from its place, so that a replay has the same."""
        return message_id(len(self._entries) - 1)

    @property
    def next_card(self) -> str:
        """A new id for a card."""
        return f"call-{self._cards + 1}"

    @property
    def tool_names(self) -> frozenset[str]:
        """The names of the tools that were called; calls of unknown tools don't count."""
        return frozenset(call.call.name for call in self._calls.values() if not _is_unknown(call))

    @property
    def models(self) -> frozenset[str]:
        """The ids of the models that have answered the user."""
        return frozenset(self._models)

    @property
    def spent(self) -> Spent:
        return self._spent

    @property
    def system(self) -> str | None:
        """The system prompt; None before the first turn."""
        return self._system

    @property
    def entries(self) -> Sequence[Entry]:
        return self._entries

    @property
    def summary(self) -> Summary | None:
        return self._summary

    def messages(self, *, images: bool = True, upto: int | None = None) -> list[Message]:
        """Returns the messages for a model.

        `images`: the model takes images; otherwise each becomes a note. `upto`: how many entries
        they cover; None: all.
        """
        entries = self._entries[:upto]
        return list(messages_of(self._system, entries, self._summary, images=images))

    def said_again(self, count: int) -> Sequence[Prompt]:
        """Returns what must stay if a summary replaces the first `count` entries.

        It is the prompt that the next entry answers, and the words that joined its turn before;
        nothing if the next entry begins a turn itself.
        """
        if count == len(self._entries) or _begins_turn(self._entries[count]):
            return ()
        begins = [n for n, entry in enumerate(self._entries[:count]) if _begins_turn(entry)]
        turn = self._entries[begins[-1] if begins else 0 : count]
        return [entry for entry in turn if isinstance(entry, Prompt)]

    def replay(self, *, running: bool = False) -> list[Update]:
        """Returns the session updates that show the whole history as it is now.

        `running`: a turn is running and will itself end its open cards.
        """
        return list(replay_of(self._entries, running=running))

    def fold(self, record: Record) -> None:
        """Applies a record; an unknown or malformed one changes nothing."""
        kind = record.get("t")
        # By far the most frequent records, so before the slower match.
        if kind == "text" or kind == "reasoning":
            if isinstance(token := record.get("d"), str):
                self._say(kind, token)
            return
        self._run = None
        match record:
            case {"t": "user" | "steer" as kind, "blocks": [*blocks], **rest}:
                self._prompt(kind, _objects(blocks), rest)
            case {
                "t": "call",
                "id": str(call_id),
                "name": str(name),
                "arguments": str(arguments),
                "card": {"toolCallId": str(card_id), "title": str()} as card,
            }:
                self._call(ToolCall(call_id, name, arguments), card_id, card)
            case {"t": "shown", "card": str(card_id), "content": [*content]}:
                if card_id in self._calls:
                    self._calls[card_id].card["content"] = content
            case {"t": "result", "card": str(card_id), "status": str(status), "text": str(text)}:
                self._count(card_id)
                if card_id in self._calls:
                    self._calls[card_id].outcome = _outcome(status, text, record)
            case {"t": "provider", "d": dict(provider)}:
                self._answer().provider = provider
            case {"t": "announced"}:
                self._answer().announced = True
            case {"t": "note", "text": str(text)}:
                self._entries.append(Note(text))
            case {"t": "plan", "entries": [*plan]}:
                self._answer(open_to_calls=True, with_results=True).plan = plan
            case {"t": "system", "text": str(text)}:
                self._system = text
            case {"t": "chosen" | "always"}:
                self.decisions.fold(record)
            case _:
                self._account(record)

    def _prompt(self, kind: str, blocks: list[dict[str, Any]], rest: Record) -> None:
        if kind == "steer":
            self._entries.append(Prompt(blocks, joined=True))
            return
        mode, gone = str(rest.get("mode", "")), _names(rest.get("gone"))
        self._entries.append(Prompt(blocks, mode, self._mode, gone, self._gone))
        self._mode, self._gone = mode, gone

    def _account(self, record: Record) -> None:
        """Applies a record that changes only the messages for the model, or the counts."""
        match record:
            case {"t": "usage", "input": int(given), "output": int(got), **rest}:
                self._spend(given, got, rest)
            case {"t": "trim", "cards": [*cards]}:
                self.measured = None
                for card_id in cards:
                    call = self._calls.get(card_id) if isinstance(card_id, str) else None
                    if call is not None and call.outcome is not None:
                        call.trimmed = True
            case {"t": "title", "text": str(text)}:
                self.made_title = text
            case {"t": "refused"}:
                self.measured = None
                self._refuse()
            case {"t": "summary", "text": str(text), "entries": int(count)}:
                self.measured = None
                count = max(0, min(count, len(self._entries)))
                self._summary = Summary(text, count, self.said_again(count))

    def _spend(self, given: int, got: int, rest: Record) -> None:
        cost, context = self._spent.cost, self._spent.context
        if isinstance(more := rest.get("cost"), int | float):
            cost = (cost or 0) + more
        if rest.get("for") != "summary":
            context = given + got
            self._models.add(str(rest.get("model")))
            last = self._entries[-1] if self._entries else None
            answering = isinstance(last, Answer) and not last.has_results
            self.measured = (given, len(self._entries) - answering)
        before, cached = self._spent, rest.get("cached")
        self._spent = Spent(
            cost,
            context,
            before.input + given,
            before.output + got,
            before.cached + (cached if isinstance(cached, int) else 0),
        )

    def _refuse(self) -> None:
        for entry in reversed(self._entries):
            entry.refused = True
            if _begins_turn(entry):
                return

    def _call(self, call: ToolCall, card_id: str, card: dict[str, Any]) -> None:
        call = sendable(call)
        # Some providers' ids begin at 0 in each answer.
        if not call.id or call.id in self._call_ids:
            call = replace(call, id=f"{card_id}-{len(self._call_ids)}")
        self._call_ids.add(call.id)
        self._count(card_id)
        self._calls[card_id] = entry = Call(call, dict(card))
        self._answer(open_to_calls=True).calls.append(entry)

    def _count(self, card_id: str) -> None:
        number = card_id.removeprefix("call-")
        if number.isdecimal() and len(number) < 10:
            self._cards = max(self._cards, int(number))

    def _say(self, kind: SpokenKind, token: str) -> None:
        if self._run is None or self._run.kind != kind:
            self._run = self._answer().run(kind)
        self._run.tokens.append(token)

    def _answer(self, *, open_to_calls: bool = False, with_results: bool = False) -> Answer:
        """Returns the answer to which the next record belongs: the last entry, or a new answer.

        A token never belongs to an answer with calls. `open_to_calls`: the record may follow calls
        without results. `with_results`: it may follow results too.
        """
        summarised = self._summary.entries if self._summary else 0
        last = self._entries[-1] if len(self._entries) > summarised else None
        if isinstance(last, Answer) and (
            not last.calls or (open_to_calls and (with_results or not last.has_results))
        ):
            return last
        answer = Answer()
        self._entries.append(answer)
        return answer


def title_of(text: str) -> str:
    """Returns the first line of a prompt's text, cut to the length of a title."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _TITLE_LENGTH else line[: _TITLE_LENGTH - 1] + "…"


def _begins_turn(entry: Entry) -> bool:
    return isinstance(entry, Prompt) and not entry.joined


def _objects(told: list[Any]) -> list[dict[str, Any]]:
    return [each for each in told if isinstance(each, dict)]


def _is_unknown(call: Call) -> bool:
    return call.outcome is not None and call.outcome.text.startswith(NO_TOOL)


def _names(told: Any) -> tuple[str, ...]:
    return tuple(name for name in told if isinstance(name, str)) if isinstance(told, list) else ()


def _outcome(status: str, text: str, record: Record) -> Outcome:
    content, images = record.get("content"), record.get("images")
    return Outcome(
        status,
        text,
        record.get("raw"),
        content if isinstance(content, list) else None,
        [i for i in images if isinstance(i, str)] if isinstance(images, list) else [],
        ran=record.get("ran") is not False,
    )
