"""Makes an agent's updates fit to be recorded and shown. SANS-IO.

- Ids of tool calls and messages are unique in a session on the client's side, whatever process
  or turn they come from (invariant P13).
- Every tool card that was opened gets exactly one end, and nothing opens it again (invariant C16).
- What belongs to a turn that was cancelled is a leak: it reaches nobody (invariant C6).
- Anything not named here passes unchanged (invariant T3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from acp_bridge.core import protocol
from acp_bridge.core.machine.states import Phase
from acp_bridge.core.protocol import (
    CALLS,
    ENDED,
    OF_VERSION_1,
    SAID,
    SAID_UPDATE,
    TOOL_CALL,
    TOOL_CALL_UPDATE,
    USER_MESSAGE,
    Json,
    as_object,
    own_meta,
    with_own_meta,
    without_own_meta,
)
from acp_bridge.core.updates import odd_updates, tool_calls
from acp_bridge.core.updates.asking import Asking
from acp_bridge.core.updates.children import Children, child_of, placed
from acp_bridge.core.updates.late_replay import Early, Echo, LateReplay
from acp_bridge.core.updates.messages import Ended, Messages
from acp_bridge.core.updates.open_cards import (
    Note,
    Terminals,
    assumed_end,
    closing_update,
    opening_update,
)
from acp_bridge.core.updates.own_command import OwnCommand

#: the most ended calls whose descriptions are kept.
_MOST_ENDED = 100


class Leak(Exception):
    """The agent went on with a turn that it had ended."""


class _Card(Struct):
    client_id: str
    #: the key of the prompt in whose turn it was made; of a child's, the child's.
    turn: int | str
    open: bool = True
    dead: bool = False
    #: what the agent has said of the call in updates; forgotten some time after its end, as
    #: `requested` is.
    told: Json = field(default_factory=dict)
    #: each kind that its agent has ever said of it.
    kinds: set[str] = field(default_factory=set)
    #: what the last request for a permission has said of the call.
    requested: Json = field(default_factory=dict)


class Updates:
    """Maps a session's ids of the agent to those of clients, and keeps track of its tool cards."""

    #: the agent has shown something in the turn that runs, or ran last.
    spoke = False

    def __init__(
        self,
        taken: set[str],
        queue_command: Json | None = None,
        notes: dict[str, Note] | None = None,
        children: Children | None = None,
        asking: Asking | None = None,
    ) -> None:
        """`taken`: every client-side id that the session used before; `queue_command`: `/queue`, to
        be listed with the agent's commands; `notes`: what is noted of cards, by client-side id."""
        self.children, self.asking = children or Children(), asking or Asking()
        self._taken, self.command = taken, OwnCommand(queue_command)
        #: True if the notes are not in the journal as they are now.
        self.notes, self.notes_changed, self.terminals = notes or {}, False, Terminals()
        #: the client-side ids of the cards that have got their end since the session was opened.
        self._ended_ids: set[str] = set()
        #: the client-side ids of the open cards on which the agent has begun to work.
        self._begun_ids: set[str] = set()
        #: the number of the process whose cards these are.
        self.epoch = 1
        self._cards: dict[str, _Card] = {}
        self._ended: deque[_Card] = deque()
        self._messages = Messages(self._unique)
        #: the key of the prompt that runs, or ran last.
        self._turn = 0
        #: how often work was asked for outside of a turn, and how many cards were made.
        self._works = self.made = 0
        #: the client-side ids that were given out and are not in the journal yet.
        self.new_ids: list[str] = []
        #: set for the first turn of a process that was given the session with `session/load`.
        self.late: LateReplay | None = None
        self._expected: LateReplay | None = None
        self._awaited: LateReplay | None = None  # until `take_doubt` asks whether it was repeated
        #: what the process has replayed of the session while it was given it.
        self._early = Early()
        #: the prompt that the agent was just given, as long as it may repeat it.
        self._given: Sequence[Any] = ()
        self._echo: Echo | None = None
        #: the conversation as a load has just read it, for the first process's replay.
        self.just_read: LateReplay | None = None

    def new_process(self, epoch: int) -> None:
        """Forget the ids that the process before used; the cards from now on are of `epoch`."""
        self.epoch = epoch
        self._cards.clear()
        self._begun_ids.clear()
        self._ended.clear()
        self._messages.forget()
        self._early = Early()
        self.late = self._expected = self._awaited = None

    def new_turn(self, key: int, prompt: Sequence[Any] = ()) -> None:
        """Begin the turn of the prompt `key`, whose content blocks `prompt` go to the agent."""
        self._turn, self._given, self._echo, self.spoke = key, prompt, None, False
        self.late, self._expected = self._expected, None
        if self.late:
            self.late.add_prompt(prompt)

    def join_turn(self, words: Sequence[Any]) -> None:
        """Let the user's words, content blocks that the agent is given, join the turn that runs."""
        self._given, self._echo = words, None
        if self.late:
            self.late.add_prompt(words)

    def new_work(self, prompt: Sequence[Any] = ()) -> None:
        """Begin work that the client asks for outside of a turn, with these content blocks."""
        self._works += 1
        self.new_turn(-self._works, prompt)

    def expect_late_replay(self, late: LateReplay, *, doubt: bool = False) -> None:
        """Expect a late replay, or the rest of one, until the end of the process's first turn.

        `doubt`: the process may have lost the session if it repeats nothing of it.
        """
        if not self._early.some:
            self._awaited = late if doubt else None
        self._early.take_into(late)
        if not late.over:
            self.late = self._expected = late

    def take_doubt(self) -> bool | None:
        """Return True, once, if the process has loaded the session and repeated nothing of it.

        False: it has repeated something; None: there is nothing new to know.
        """
        awaited, self._awaited = self._awaited, None
        if self._early.some or (awaited is not None and awaited.repeated):
            return False
        return None if awaited is None else True

    def take_new_ids(self) -> list[str]:
        """Return the client-side ids given out since the last call, for the journal."""
        new, self.new_ids = self.new_ids, []
        return new

    def take_notes(self) -> dict[str, Note]:
        """Return the notes about cards, for the journal."""
        self.notes_changed = False
        return self.notes

    # --- from the agent to the client ----------------------------------------------------------

    def incoming(self, update: Json, phase: Phase, *, excused: bool = False) -> Json | None:
        """Return the update in the form that is recorded, None for one to drop; raises `Leak`.

        `excused`: the agent speaks after a cancelled turn because the client asked it something.
        """
        kind = update.get("sessionUpdate")
        if kind in protocol.TRANSCRIPT:
            if phase is Phase.LIVE:
                return self.said(update)
            if phase is Phase.REPLAY:
                self._early.note(update, self.late)
            elif phase is Phase.LEAK:
                return self._after_cancel(update, excused=excused)
            return None
        if kind == protocol.COMMANDS_UPDATE:
            return self.command.added(update)
        self.spoke |= phase is Phase.LIVE and kind not in protocol.ASIDE
        return update

    def said(self, update: Json) -> Json | None:
        """Do as `incoming` with what the agent says in a turn, of a kind of the conversation."""
        kind = update["sessionUpdate"]
        if self._given and self._repeats_prompt(update):
            return None
        if self.late and self.late.covers(update):
            return None
        self.spoke = self.spoke or not (kind == USER_MESSAGE or odd_updates.is_blank(update))
        if kind in CALLS:
            return self.card(update, creates=kind == TOOL_CALL)
        if isinstance(update.get("messageId"), str):
            return self._message(update)
        if kind == SAID_UPDATE:
            self.terminals.note(update)
            return self._as_said(update.get(SAID))
        return update

    def _repeats_prompt(self, update: Json) -> bool:
        """Return True while the agent repeats, in order, the prompt that it was just given."""
        if update["sessionUpdate"] == USER_MESSAGE:
            self._echo = self._echo or Echo(self._given)
            if self._echo.covers(update):
                return True
        self._given = ()
        return False

    def parted(self, told: Json) -> list[Json]:
        """Return the params to be recorded for an update that was translated from version 2.

        They are those of the update, and those of what the agent has said if version 1 can't say
        as much.
        """
        own = own_meta(told)
        if SAID not in own:
            return [told]
        rest = without_own_meta(told)
        of_version_1 = with_own_meta(rest, {OF_VERSION_1: True})
        if own[SAID] is None:
            return [of_version_1]
        said = self._as_said(own[SAID])
        if "toolCallId" in told["update"] and "status" not in told["update"]:
            said[SAID].pop("status", None)  # the card has got its end
        return [of_version_1, {**rest, "update": said}]

    def _as_said(self, said: Any) -> Json:
        """Return the update of what an agent of version 2 has said, with the ids of clients."""
        told = dict(as_object(said))
        if isinstance(card := told.get("toolCallId"), str):
            told["toolCallId"] = self.client_card_id(card)
        if isinstance(agent_id := told.get("messageId"), str):
            told["messageId"] = self._messages.client_id(agent_id) or agent_id
        return {"sessionUpdate": SAID_UPDATE, SAID: told}

    def question_named(self, params: Json) -> Json:
        """Return a question's params with client-side ids in its agent's own words (version 2)."""
        own = own_meta(params)
        if not isinstance(subject := as_object(own.get(SAID)).get("subject"), dict):
            return params
        named = dict(subject)
        if isinstance(call := subject.get("toolCall"), dict):
            named["toolCall"] = {**call, "toolCallId": self.client_card_id(call["toolCallId"])}
        if isinstance(card := subject.get("toolCallId"), str):
            named["toolCallId"] = self.client_card_id(card)
        return with_own_meta(params, {**own, SAID: {**own[SAID], "subject": named}})

    def of_child(self, update: Json, *, ended: bool) -> Json | None:
        """Return a child's update in the form that is recorded, None to drop it; raises `Leak`.

        Its ids have the child's key in front. `ended`: a cancel has ended the child's work. Only a
        new tool call is a leak then: the child ends by itself, at its own time.
        """
        kind = update["sessionUpdate"]
        if ended:
            if kind == TOOL_CALL and update.get("status") not in ENDED:
                raise Leak(TOOL_CALL)
            return None
        if kind in CALLS:
            return self.card(update, creates=kind == TOOL_CALL)
        return self._message(update) if isinstance(update.get("messageId"), str) else update

    def _turn_of(self, agent_id: str) -> int | str:
        """Return the owner of a new card or message: the child that its id names, else the turn."""
        return (self.children and child_of(agent_id)) or self._turn

    def _after_cancel(self, update: Json, *, excused: bool) -> Json | None:
        """Return an update between a cancelled turn and the next, or None to drop it.

        Raises `Leak` for an update of that turn, and for work that nobody asked for. Other text
        is dropped.
        """
        card, message = update.get("toolCallId"), update.get("messageId")
        known = self._cards.get(card) if isinstance(card, str) else None
        of_message = isinstance(message, str) and not isinstance(card, str)
        if (known and known.dead) or (of_message and self._messages.is_dead(str(message))):
            raise Leak(str(update["sessionUpdate"]))
        if excused or (isinstance(card, str) and known) or self._is_of_what_goes_on(update):
            return self.said(update)
        if isinstance(card, str):
            raise Leak(str(update["sessionUpdate"]))
        return None

    def _is_of_what_goes_on(self, update: Json) -> bool:
        """Return True for what an agent of version 2 says of a card or terminal that is open."""
        said = as_object(update.get(SAID)) if update.get("sessionUpdate") == SAID_UPDATE else {}
        card = self._cards.get(str(said.get("toolCallId")))
        return said.get("terminalId") in self.terminals.running or (card is not None and card.open)

    def card(self, call: Json, *, creates: bool = False, asks: bool = False) -> Json:
        """Note an agent's description of a tool call; returns it with the client-side id.

        `creates`: it is a `tool_call`; `asks`: a request for a permission, which does not count as
        the card's own word: some agents have one id for all requests. Raises `Leak`.
        """
        agent_id = call.get("toolCallId")
        if not isinstance(agent_id, str):
            return call
        self.spoke = True
        card, turn = self._cards.get(agent_id), self._turn_of(agent_id)
        if card and (card.turn != turn or card.dead) and (creates or not card.open):
            if card.dead and not creates:
                raise Leak(TOOL_CALL_UPDATE)
            if creates:
                card = None
        elif card and creates and not card.open:
            creates = tool_calls.is_another(card.told, call)
            card = None if creates else card
        changed = dict(call)
        if card is None:
            card = self._cards[agent_id] = _Card(self._unique(agent_id), turn)
            self.made += 1
            if not (asks or (creates and isinstance(changed.get("title"), str))):
                changed = opening_update(changed)
        elif not (asks or creates or card.open):
            changed["sessionUpdate"] = TOOL_CALL_UPDATE
        changed["toolCallId"] = card.client_id
        if not asks and self.notes.get(card.client_id) == "asked":
            self.forget_notes([card.client_id])
        if isinstance(kind := call.get("kind"), str):
            card.kinds.add(kind)
        if card.open and asks:
            card.requested = call
        elif card.open:
            card.told = tool_calls.updated(card.told, call)
            if call.get("status") == "in_progress":
                self._begin(card)
        else:
            changed.pop("status", None)
        if card.open and call.get("status") in ENDED:
            self._end(card)
            self._forget_one_day(card)
        return changed

    def _begin(self, card: _Card) -> None:
        """Note that the agent works on an open card."""
        self._begun_ids.add(card.client_id)

    @property
    def _working(self) -> set[str]:
        """The client-side ids of the open cards on which the agent has begun to work, and that were
        not denied nor broken off."""
        return self._begun_ids - self.notes.keys()

    @property
    def works_on_a_call(self) -> bool:
        """True while the agent works on a tool call, also on one that a turn has left open."""
        return bool(self._working)

    def _end(self, card: _Card) -> None:
        """Note that a card has got its one end."""
        card.open = False
        self._begun_ids.discard(card.client_id)
        self._ended_ids.add(card.client_id)

    def _forget_one_day(self, card: _Card) -> None:
        """Keep the description of an ended call for a while, without its output."""
        card.told.pop("content", None)
        self._ended.append(card)
        if len(self._ended) > _MOST_ENDED:
            forgotten = self._ended.popleft()
            forgotten.told, forgotten.requested = {}, {}

    def _note(self, card: _Card, note: Note) -> None:
        self.notes[card.client_id], self.notes_changed = note, True

    def deny(self, call: Json) -> None:
        """Note that a tool call was denied: unless the agent ends its card, it has failed."""
        card = self._card_of(call)
        if card and card.open:
            self._note(card, "failed")

    def forget_notes(self, card_ids: Iterable[str]) -> None:
        """Forget what is noted of cards, by client-side id, that were shown or have an end."""
        for card in card_ids:
            self.notes_changed |= self.notes.pop(card, None) is not None

    def asked_about(self, call: Json) -> tuple[Json, Json, bool]:
        """Return a permission request's description of a tool call, with the client-side id.

        The second value is all that is known of the call by now, the request's word included;
        the third is True if nothing has shown this call before. A request of a running turn about a
        call that ended with an earlier one is about a new call: some agents have one id for all
        their requests.
        """
        card = self._card_of(call)
        known, before = (card.told, card.requested) if card else ({}, {})
        request = call if call.get("rawInput") else tool_calls.updated(before, call)
        changed = self.card(call, creates=card is None, asks=True)
        if card is None and (made := self._card_of(call)):
            self._note(made, "asked")
        self.note_asked(call)
        return changed, {**changed, **tool_calls.asked(known, request)}, card is None

    def note_asked(self, call: Json) -> None:
        """Note that a permission is asked for a call, if something has shown that before."""
        if card := self._card_of(call):
            self.asking.ask(card.client_id)

    def told_of(self, call: Json) -> Json:
        """Return a tool call as the agent has described it until now, in the agent's own ids."""
        card = self._card_of(call)
        told = tool_calls.updated(card.told if card else {}, call)
        return {**told, "toolCallId": call.get("toolCallId")}

    def card_told(self, call: Json) -> Json:
        """Return what the card of a call says of it, without what the request `call` adds."""
        card = self._card_of(call)
        return card.told if card else {}

    def kinds_of(self, call: Json) -> frozenset[str]:
        """Return each kind that the agent has ever said that a tool call is of."""
        card = self._card_of(call)
        return frozenset(card.kinds) if card else frozenset()

    def _card_of(self, call: Json) -> _Card | None:
        """Return the card of a call that a request is about; None if nothing has shown it yet."""
        agent_id = str(call.get("toolCallId"))
        card = self._cards.get(agent_id)
        ended = card is not None and card.turn != self._turn_of(agent_id) and not card.open
        return None if ended else card

    def client_card_id(self, agent_id: str) -> str:
        """Return the id under which clients know a tool call; `agent_id` itself if it has none."""
        card = self._cards.get(agent_id)
        return card.client_id if card else agent_id

    def open_card_id(self, agent_id: str) -> str | None:
        """Return the id under which the client knows a tool call; None if it has none open."""
        card = self._cards.get(agent_id)
        return card.client_id if card and card.open else None

    def note_begun(self, agent_ids: Iterable[str]) -> None:
        """Note that the agent works on these tool calls."""
        for card in filter(None, map(self._cards.get, agent_ids)):
            if card.open:
                self._begin(card)

    def agent_card_id(self, client_id: str) -> str | None:
        """Return the agent's id of the open tool call that clients know as `client_id`, or None."""
        cards = self._cards.items()
        found = (id_ for id_, card in cards if card.open and card.client_id == client_id)
        return next(found, None)

    def says_nothing(self, update: Json) -> bool:
        """Return True for an empty chunk of text that begins no message (invariant T2)."""
        agent_id = update.get("messageId")
        known = agent_id is None or self._messages.client_id(str(agent_id))
        return bool(known) and odd_updates.says_nothing(update)

    def turn_of(self, call: Json) -> int | str:
        """Return the turn, or the child, whose tool call this is; the current turn if unknown."""
        agent_id = str(odd_updates.id_of(call))
        card = self._cards.get(agent_id)
        return card.turn if card else self._turn_of(agent_id)

    def fail(self, call: Json) -> Json | None:
        """Return the params that end the open card of a tool call as failed; None without one."""
        card = self._cards.get(str(odd_updates.id_of(call)))
        if card is None or not card.open:
            return None
        self._end(card)
        self.forget_notes([card.client_id])
        return placed(closing_update(card.client_id))

    def _message(self, update: Json) -> Json:
        try:
            return self._messages.named(update, self._turn_of(update["messageId"]))
        except Ended:
            raise Leak("message") from None

    def _unique(self, agent_id: str) -> str:
        client_id, n = agent_id, 1
        while client_id in self._taken:
            n += 1
            client_id = f"{agent_id}~{n}"
        self._taken.add(client_id)
        self.new_ids.append(client_id)
        return client_id

    # --- the end of a turn ---------------------------------------------------------------------

    def close_cards(self, spared: frozenset[str] = frozenset()) -> list[Json]:
        """Return the params that end the turn's open cards; later updates of the turn are leaks.

        `spared`: the client-side ids of the cards that stay open, as their work goes on in the
        background. Cards and messages of earlier turns stay as they are (invariant C22). Children
        that were told to stop are ended too, with their cards.
        """
        return [*self._close_cards(self._turn, spared), *self.end_stopped()]

    def end_stopped(self) -> list[Json]:
        """Return the params that end the children that were told to stop, and their open cards."""
        closing: list[Json] = []
        for child in self.children:
            if child.stopping:
                closing += self._close_cards(child.key)
        return [*closing, *self.children.end(stopped=True)]

    def _close_cards(self, turn: int | str, spared: frozenset[str] = frozenset()) -> list[Json]:
        closing = []
        for card in self._cards.values():
            if card.turn == turn and not (card.open and card.client_id in spared):
                if card.open:
                    closing.append(placed(closing_update(card.client_id)))
                self._end(card)
                self.forget_notes([card.client_id])
                card.dead = True
                card.told, card.requested = {}, {}
        self._messages.end(turn)
        return closing

    def settle(self, card_id: str) -> bool:
        """Note that a recorded card gets its end now; returns False if it has got it already."""
        if card_id in self._ended_ids:
            return False
        self._ended_ids.add(card_id)
        self._begun_ids.discard(card_id)
        for card in self._cards.values():
            card.open &= card.client_id != card_id
        self.forget_notes([card_id])
        return True

    def end_process(
        self, *, turn_runs: bool, cut_off: frozenset[str] = frozenset()
    ) -> Iterator[tuple[Json, bool]]:
        """Give the params of updates that end the cards and children that a process has left open.

        If a turn runs, its cards are left to its own end. The second value is False for a card that
        stands in no replay. `cut_off`: the client-side ids of the cards whose work was cut off.
        """
        of_children = {child.key for child in self.children.at_work}
        for card in self._cards.values():
            if card.open and not (turn_runs and card.turn == self._turn):
                self._end(card)
                failed = card.turn in of_children or card.client_id in cut_off
                note = self.notes.get(card.client_id, "failed" if failed else None)
                if kept := note != "asked":
                    self.forget_notes([card.client_id])
                yield assumed_end(card.client_id, note), kept
        for ended in [*self.terminals.end(), *self.children.end()]:
            yield ended, True

    def break_off(self, turn: int | None = None) -> None:
        """Note as failed the cards that were left open by this turn, which ended with an error.

        None: all open cards, as the process has died.
        """
        for card in self._cards.values():
            if card.open and turn in (None, card.turn) and card.client_id not in self.notes:
                self._note(card, "failed")

    def worked_on(self, *, turn_runs: bool) -> set[str]:
        """Return the client-side ids of the open cards on which the agent may still work, and of
        the terminals that run.

        After the end of its turn, a card is not worked on if its work never began or was denied.
        """
        of_turn = {
            card.client_id
            for card in self._cards.values()
            if turn_runs and card.open and card.turn == self._turn
        }
        return self.terminals.running | self._working | of_turn

    @property
    def open_cards(self) -> frozenset[str]:
        """The client-side ids of the tool calls that are open, also those of earlier turns."""
        ids = set[str]()
        for card in self._cards.values():
            if card.open:
                ids.add(card.client_id)
        return frozenset(ids)
