"""What an agent shows in a session, made fit for the client. SANS-IO.

- Ids of tool calls and messages are unique in a session on the client's side, whatever process
  or turn they come from (HAZARDS P13).
- Every tool card that was opened gets exactly one end, and nothing opens it again (C16).
- What belongs to a turn that was cancelled is a leak: it reaches nobody (C6).
- Anything not named here passes unchanged (T3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from acp_bridge.replays import LateReplay

Json = dict[str, Any]

#: kinds that tell the conversation: recorded in order, replayed by a load.
TRANSCRIPT = frozenset(
    {
        "user_message_chunk",
        "agent_message_chunk",
        "agent_thought_chunk",
        "tool_call",
        "tool_call_update",
        "plan",
        "plan_update",
        "plan_removed",
    }
)
#: kinds of which only the last one counts: kept by kind, sent once after a replay.
STATE = (
    "available_commands_update",
    "current_mode_update",
    "config_option_update",
    "usage_update",
    "session_info_update",
)
_STATE = frozenset(STATE)
_ENDED = ("completed", "failed")

QUEUE_COMMAND: Json = {
    "name": "queue",
    "description": "Show the prompts that wait; run or drop those held since a restart",
    "input": {"hint": "run | drop [number]"},
}


class Phase(Enum):
    """How what the agent says now is to be taken."""

    #: it belongs to the running turn, or to none.
    LIVE = auto()
    #: it may be a replay of what is known: the conversation is swallowed.
    REPLAY = auto()
    #: the last turn was cancelled and has ended: more of the conversation is a leak.
    TAINTED = auto()


class Leak(Exception):
    """The agent went on with a turn that it had ended."""


@dataclass(slots=True)
class _Card:
    client_id: str
    turn: int
    open: bool = True
    dead: bool = False


@dataclass(slots=True)
class _Message:
    client_id: str
    turn: int
    dead: bool = False


class Updates:
    """The ids and cards of one session; `taken` holds every client-side id used before."""

    def __init__(self, taken: set[str], *, booleans: bool = True) -> None:
        self._taken = taken
        self._booleans = booleans
        self._cards: dict[str, _Card] = {}
        self._messages: dict[str, _Message] = {}
        self._turn = 0
        self._reuses = False
        #: open cards whose id the agent has given to another: it can't end them any more.
        self._orphans: list[str] = []
        self._new_ids: list[str] = []
        self._late_until = 0
        #: set for the first turn of a process that was given the session with `session/load`.
        self.late: LateReplay | None = None
        #: the agent has a command `queue` of its own: ours stands back.
        self.own_queue = False

    def new_process(self) -> None:
        """Ids of the process before mean nothing to the next."""
        self._cards.clear()
        self._messages.clear()
        self._reuses = False
        self.late = None

    def new_turn(self, prompt: Sequence[Any] = ()) -> None:
        """A prompt (its content blocks) is sent to the agent."""
        self._turn += 1
        if self.late and self._turn > self._late_until:
            self.late = None
        if self.late:
            self.late.add_prompt(prompt)

    def expect_late_replay(self, late: LateReplay) -> None:
        """The process may repeat the conversation during its first turn."""
        self.late, self._late_until = late, self._turn + 1

    def take_new_ids(self) -> list[str]:
        """Client-side ids given out since the last call, for the journal."""
        new, self._new_ids = self._new_ids, []
        return new

    # --- from the agent to the client ----------------------------------------------------------

    def incoming(self, update: Json, phase: Phase) -> Json | None:
        """The update as the client gets it, or None; raises `Leak`."""
        kind = update.get("sessionUpdate")
        if kind in TRANSCRIPT:
            if phase is Phase.REPLAY:
                return None
            if phase is Phase.TAINTED:
                raise Leak(str(kind))
            if self.late and self.late.covers(update):
                return None
            if kind in ("tool_call", "tool_call_update"):
                return self.card(update, creates=kind == "tool_call")
            if isinstance(update.get("messageId"), str):
                return self._message(update)
        elif kind == "available_commands_update":
            return self._with_queue(update)
        elif kind == "config_option_update":
            return self.settings(update)
        return update

    def card(self, call: Json, *, creates: bool = False) -> Json:
        """A tool call, or what is said of one: in an update or in a request to the client."""
        agent_id = call.get("toolCallId")
        if not isinstance(agent_id, str):
            return call
        card = self._cards.get(agent_id)
        if card and card.turn != self._turn and (creates or not card.open):
            if card.dead and not creates:
                raise Leak("tool_call_update")
            if creates:
                if card.open:
                    self._orphans.append(card.client_id)
                card = None
        if card is None:
            card = self._cards[agent_id] = _Card(self._unique(agent_id), self._turn)
        changed = dict(call)
        changed["toolCallId"] = card.client_id
        if not card.open:
            changed.pop("status", None)
        elif call.get("status") in _ENDED:
            card.open = False
        return changed

    def client_card_id(self, agent_id: str) -> str:
        """The id under which the client knows a tool call."""
        card = self._cards.get(agent_id)
        return card.client_id if card else agent_id

    def _message(self, update: Json) -> Json:
        agent_id = update["messageId"]
        message = self._messages.get(agent_id)
        if message and message.turn != self._turn:
            if message.dead and not self._reuses:
                raise Leak("message")
            # An id used again by a later turn names another message.
            self._reuses = True
            message = None
        if message is None:
            message = _Message(self._unique(agent_id), self._turn)
            self._messages[agent_id] = message
        if message.client_id == agent_id:
            return update
        return {**update, "messageId": message.client_id}

    def _unique(self, agent_id: str) -> str:
        client_id, n = agent_id, 1
        while client_id in self._taken:
            n += 1
            client_id = f"{agent_id}~{n}"
        self._taken.add(client_id)
        self._new_ids.append(client_id)
        return client_id

    # --- the end of a turn ---------------------------------------------------------------------

    def close_cards(self) -> list[Json]:
        """The turn ended badly: the updates that end its open cards; what follows is a leak."""
        closing = [closing_update(card_id) for card_id in self._orphans]
        self._orphans.clear()
        for card in self._cards.values():
            if card.open:
                closing.append(closing_update(card.client_id))
            card.open, card.dead = False, True
        for message in self._messages.values():
            message.dead = True
        return closing

    # --- settings and commands -----------------------------------------------------------------

    def settings(self, holder: Json) -> Json:
        """A result or an update with `configOptions`: without the boolean ones, unless the
        client said that it knows them (spec: session config options)."""
        options = holder.get("configOptions")
        if self._booleans or not isinstance(options, list):
            return holder
        shown = [o for o in options if not (isinstance(o, dict) and o.get("type") == "boolean")]
        return {**holder, "configOptions": shown}

    def _with_queue(self, update: Json) -> Json:
        commands = update.get("availableCommands")
        if not isinstance(commands, list):
            return update
        names = [command.get("name") for command in commands if isinstance(command, dict)]
        self.own_queue = "queue" in names
        if self.own_queue:
            return update
        return {**update, "availableCommands": [*commands, QUEUE_COMMAND]}


def closing_update(client_id: str) -> Json:
    """The update that ends a card whose turn is over."""
    return {"sessionUpdate": "tool_call_update", "toolCallId": client_id, "status": "failed"}


def is_state(update: Json) -> bool:
    """True when only the last update of this kind counts."""
    return update.get("sessionUpdate") in _STATE


def user_chunk(block: object) -> Json:
    """A content block of a prompt, as said by the user."""
    return {"sessionUpdate": "user_message_chunk", "content": block}


def text_chunk(kind: str, text: str, message_id: str | None = None) -> Json:
    """A message chunk with a text."""
    chunk: Json = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
    return {**chunk, "messageId": message_id} if message_id else chunk


def for_replay(params: Json) -> Json:
    """A recorded update as a replay shows it: no live terminal is named (R7)."""
    update = params.get("update")
    content = update.get("content") if isinstance(update, dict) else None
    if not isinstance(content, list) or not any(_is_terminal(item) for item in content):
        return params
    kept = [item for item in content if not _is_terminal(item)]
    return {**params, "update": {**params["update"], "content": kept}}


def _is_terminal(item: object) -> bool:
    return isinstance(item, dict) and item.get("type") == "terminal"


def open_cards(updates: Iterable[Json]) -> Iterator[str]:
    """The ids of the cards that a recorded conversation leaves open, in order."""
    cards: dict[str, bool] = {}
    for update in updates:
        if update.get("sessionUpdate") not in ("tool_call", "tool_call_update"):
            continue
        card = update.get("toolCallId")
        if isinstance(card, str):
            cards[card] = cards.get(card, True) and update.get("status") not in _ENDED
    return (card for card, is_open in cards.items() if is_open)
