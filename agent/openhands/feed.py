"""The feed of a conversation: turns the server's events into updates for the client (sans-IO).

Events come twice, from the stored log (a sync) and from the live feed, and in any mixture.

Invariants
- An event is shown once, by its id, whichever way it came first.
- The state is the last snapshot of the live feed with the fields that came after it. A sync tells
  the past, so it changes no state.
- The user's own message is not shown again; another client's is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from acp_bridge.core.protocol import USAGE_UPDATE, USER_MESSAGE
from agent.client import Update
from agent.openhands.cards import Cards, image_blocks
from agent.openhands.events import (
    Action,
    AgentMessage,
    Delta,
    Event,
    InnerCall,
    Json,
    Part,
    Result,
    Snapshot,
    StateField,
    Status,
    Stopped,
    UserMessage,
)
from agent.openhands.texts import Texts

#: the fields that are kept of a snapshot, which may hold hundreds of kilobytes
_KEPT = (
    "execution_status",
    "last_user_message_id",
    "confirmation_policy",
    "stats",
    "agent",
    "agent_state",
)


@dataclass(frozen=True, slots=True)
class Taken:
    """What follows from an event: updates for the client, and the event for the turn.

    `event`: None if it was known and says nothing new. `ours`: the event is the expected message.
    """

    updates: tuple[Update, ...] = ()
    event: Event | None = None
    ours: bool = False


class Feed:
    """The events of one conversation.

    `expect` announces the message that this agent sends, so that it is recognised.
    """

    def __init__(self) -> None:
        self.state: Json = {}
        self._seen: set[str] = set()
        self._cards = Cards()
        self._texts = Texts()
        self._expected: list[tuple[Part, ...]] = []
        self._usage: Update | None = None
        #: the id of the last event that ends a message and came from the log first
        self._last_stored = ""

    @property
    def status(self) -> Status | None:
        return StateField("", "execution_status", self.state.get("execution_status")).status

    @property
    def waiting(self) -> tuple[Action, ...]:
        """The actions without a result, in order."""
        return self._cards.waiting

    def expect(self, parts: tuple[Part, ...]) -> None:
        """Announces the message that is being sent, so that it is recognised when it comes back."""
        self._expected = [parts]

    def expect_nothing(self) -> None:
        """Forgets the announced message: an equal one is another client's."""
        self._expected = []

    def successor(self) -> Feed:
        """Returns a new feed with this one's state, for showing the whole log again."""
        other = Feed()
        other.state, other._expected = self.state, self._expected
        return other

    def cut(self) -> None:
        """Notes that the live feed begins or was cut: deltas may be missing."""
        self._texts.gap()

    def stored(self, event: Event, *, replay: bool = False) -> Taken:
        """Adds an event of the stored log. `replay`: the user's own messages are shown too."""
        if event.id in self._seen or isinstance(event, Snapshot | Delta):
            return Taken()
        taken = self._first(event, replay)
        if isinstance(event, AgentMessage | Action):
            # Its deltas may still come in the live feed.
            self._texts.gap()
        if _is_boundary(event):
            self._last_stored = event.id
        return taken

    def live(self, event: Event) -> Taken:
        """Adds an event of the live feed; it may change the state."""
        match event:
            case Snapshot():
                self.state = {key: event.values.get(key) for key in _KEPT}
                return Taken(tuple(self._usage_changed()), event)
            case Delta():
                return Taken(tuple(self._texts.delta(event.text, event.thought, event.id)), event)
            case StateField():
                if event.key in _KEPT:
                    self.state[event.key] = event.value
        known = event.id in self._seen
        taken = Taken() if known else self._first(event, replay=False)
        # An event that the log told first may be older than the last message in it.
        if _is_boundary(event) and (not known or event.id == self._last_stored):
            self._texts.boundary()
        return taken

    def _first(self, event: Event, replay: bool) -> Taken:
        self._seen.add(event.id)
        ours = isinstance(event, UserMessage) and self._is_ours(event)
        shown = () if ours and not replay else self._shown(event)
        return Taken(tuple(shown), event, ours)

    def _is_ours(self, message: UserMessage) -> bool:
        for parts in self._expected:
            if parts == message.parts:
                self._expected.remove(parts)
                return True
        return False

    def _shown(self, event: Event) -> Iterable[Update]:
        match event:
            case UserMessage():
                return _user_message(event)
            case AgentMessage():
                return self._texts.whole((event.text,), event.thought, event.id)
            case Action():
                said, thought = _words(event)
                texts = self._texts.whole(said, thought, event.id)
                return [*texts, *self._cards.start(event)]
            case Result():
                return self._cards.end(event)
            case InnerCall():
                self._texts.split()
                return self._cards.inner(event)
            case StateField():
                if _between_calls(event):
                    self._texts.clear()
                return self._usage_changed() if event.key == "stats" else ()
            case Stopped():
                self._texts.clear()
        return ()

    def _usage_changed(self) -> list[Update]:
        update = usage_update(self.state.get("stats"))
        if update is None or update == self._usage:
            return []
        self._usage = update
        return [update]


def usage_update(stats: object) -> Update | None:
    """Returns the update with the window's use in tokens and the conversation's cost in USD.

    Returns None if the size of the window is not known: ACP can't tell the cost alone.
    """
    by_usage = stats.get("usage_to_metrics") if isinstance(stats, dict) else None
    metrics = [each for each in (by_usage or {}).values() if isinstance(each, dict)]
    cost = sum(_number(each.get("accumulated_cost")) for each in metrics)
    for each in metrics:
        tokens = each.get("accumulated_token_usage")
        if isinstance(tokens, dict) and (size := int(_number(tokens.get("context_window")))) > 0:
            used = int(_number(tokens.get("per_turn_token")))
            update: Update = {"sessionUpdate": USAGE_UPDATE, "used": used, "size": size}
            return update | ({"cost": {"amount": cost, "currency": "USD"}} if cost else {})
    return None


def _number(value: object) -> float:
    return value if isinstance(value, int | float) and value >= 0 else 0


def _is_boundary(event: Event) -> bool:
    """Returns True for an event after which no message is being written."""
    return isinstance(event, AgentMessage | Action | Result) or _between_calls(event)


def _between_calls(event: Event) -> bool:
    """Returns True for a change of the status, except to `paused`.

    Such a change comes while no model call runs; a pause may come during one.
    """
    return isinstance(event, StateField) and event.status not in (None, Status.PAUSED)


def _words(action: Action) -> tuple[tuple[str, ...], str]:
    """Returns the texts for the user that come with a tool call, and the model's thought."""
    match action.kind:
        case "FinishAction":
            return (action.said, str(action.values.get("message") or "")), action.thought
        case "ThinkAction":
            return (action.said,), str(action.values.get("thought") or "") or action.thought
    return (action.said,), action.thought


def _user_message(message: UserMessage) -> list[Update]:
    blocks: list[Json] = []
    for part in message.parts:
        blocks += image_blocks(part.image) if part.image else [{"type": "text", "text": part.text}]
    return [
        {"sessionUpdate": USER_MESSAGE, "content": block, "messageId": message.id}
        for block in blocks
    ]
