"""Compares what a client saw of a session with what a load shows of it (invariants R1, T2, K1).

Judged afterwards, from the lines alone. What a client sees between its request and the answer to it
begins with what the bridge was about to send before it read the request; nothing on the wire marks
where the replay begins, so a place is looked for where it can.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from acp_bridge.core.protocol import (
    AGENT_MESSAGE,
    AGENT_THOUGHT,
    ASSUMED,
    STATE,
    TOOL_CALL,
    USER_MESSAGE,
    own_meta,
)
from acp_bridge.core.updates.open_cards import for_replay
from tests.crash.told import Lost
from tests.support.recording import Message

Updates = list[Message]
_TEXT = (AGENT_MESSAGE, AGENT_THOUGHT)


def kept(params: Message) -> Message | None:
    """What of an update must come again in a load: what the agent said, but for live terminals.

    Who is asked about a new card has it from the question, and a load has it only if work followed
    or it was denied: tests/core/bridge/test_cards.py.
    """
    update, own = params["update"], own_meta(params)
    # What was decided about a card comes again with that card.
    said_by_us = not own.keys().isdisjoint(("notice", "decided", ASSUMED))
    if update["sessionUpdate"] in (*STATE, USER_MESSAGE) or said_by_us:
        return None
    if update["sessionUpdate"] == TOOL_CALL and update.get("status") == "pending":
        return None
    fit: Message = for_replay({"update": update})["update"]
    return fit


def joined(updates: Updates) -> Updates:
    """Neighbouring chunks of one message as one."""
    whole: Updates = []
    texts: list[str] = []
    for update in updates:
        last = whole[-1] if whole else {}
        if _is_text(update) and _label(last) == _label(update):
            texts.append(update["content"]["text"])
            continue
        _put(whole, texts)
        whole.append(update)
        texts = [update["content"]["text"]] if _is_text(update) else []
    _put(whole, texts)
    return whole


def _put(whole: Updates, texts: list[str]) -> None:
    if len(texts) > 1:
        content = {**whole[-1]["content"], "text": "".join(texts)}
        whole[-1] = {**whole[-1], "content": content}


def _is_text(update: Message) -> bool:
    return update.get("sessionUpdate") in _TEXT and update["content"].get("type") == "text"


def _label(update: Message) -> object:
    return (update["sessionUpdate"], update.get("messageId")) if _is_text(update) else update


def begins_with(whole: Updates, head: Updates) -> bool:
    """Both joined; the last message of the head may go on."""
    if len(head) > len(whole) or not head:
        return not head
    *before, last = head
    if whole[: len(before)] != before:
        return False
    at = whole[len(before)]
    if at == last:
        return True
    same = _is_text(at) and _is_text(last) and _label(at) == _label(last)
    return same and at["content"]["text"].startswith(last["content"]["text"])


def ends_with(whole: Updates, tail: Updates) -> bool:
    """Both joined; the first message of the tail may have begun before."""
    if len(tail) > len(whole) or not tail:
        return not tail
    first, *after = tail
    if after and whole[-len(after) :] != after:
        return False
    at = whole[-len(tail)]
    if at == first:
        return True
    same = _is_text(at) and _is_text(first) and _label(at) == _label(first)
    return same and at["content"]["text"].endswith(first["content"]["text"])


@dataclass(slots=True)
class Transcript:
    """One session, as its client knows it."""

    session_id: str
    #: what the journal had at some moment: all of it, or what it begins with.
    base: Updates = field(default_factory=list)
    whole: bool = True
    #: what was shown since.
    live: Updates = field(default_factory=list)
    #: a load failed in its middle, or the session is not ours: nothing is known of it.
    unknown: bool = False
    #: the client has the session from this bridge.
    attached: bool = False
    #: `len(live)` when each load was sent whose answer isn't there yet.
    _marks: dict[str, int] = field(default_factory=dict)
    #: closes that are not answered: what is shown until then is not followed by all the rest.
    leaving: int = 0
    #: it may have been cut off: what is shown until the next load is not, either.
    closed: bool = False
    #: the loads that were sent behind a close without an answer: what waited for them may be
    #: shown by the replay alone.
    _left_in: set[str] = field(default_factory=set)
    #: the loads that were open then: it may have been closed behind them.
    _closed_in: set[str] = field(default_factory=set)
    #: the loads that were open when the line dropped: what their replays lack is not known.
    _dropped_in: set[str] = field(default_factory=set)
    #: what a load that is compared shows need not be what was shown.
    _is_left: bool = False
    #: the client has read `cancelled` and said nothing since: what the agent does outside of a
    #: prompt may be kept from it until a load, whose replay has it.
    quiet: bool = False
    #: loads that were compared.
    compared: int = 0
    #: what others were shown of it: a later load begins with each of these.
    others: list[Updates] = field(default_factory=list)

    def shown(self, params: Message) -> None:
        """Take the parameters of the next `session/update`."""
        update = kept(params)
        if update is None:
            return
        self.live.append(update)

    def load_sent(self, request: str) -> None:
        """`request` names it until its answer is there."""
        self._marks[request] = len(self.live)
        if self.leaving or self.quiet:
            self._left_in.add(request)
        self.quiet = False

    def load_failed(self, request: str) -> None:
        """What it replayed before it failed can't be told from what was said meanwhile."""
        if self._marks.pop(request) < len(self.live):
            self.unknown = self.attached = True

    def loaded(self, request: str) -> None:
        """Raises Lost if the replay is not what was shown."""
        mark = self._marks.pop(request)
        before, window = self.live[:mark], self.live[mark:]
        self._is_left = self.leaving > 0 or self.closed or request in self._left_in
        self._left_in.discard(request)
        if request in self._dropped_in:
            self._dropped_in.remove(request)
            self._settle([])
            self.whole = False
        elif not self.unknown:
            cut = self._replay_begins(before, window)
            if self._is_left:  # where the replay begins is not known, so no more is said of it
                self._settle([])
                self.whole = False
            else:
                self._check_others(joined(window[cut:]))
                self._settle(window[cut:])
                self.compared += 1
        elif not self.attached:
            self._settle(window)
        self.attached = True
        if request in self._closed_in:
            self._closed_in.remove(request)
            self.missed()
            self.closed = True

    def line_dropped(self) -> None:
        """The line to the bridge dropped: a load that is open goes on over another one."""
        self._dropped_in |= self._marks.keys()

    def cut_off(self) -> None:
        """What is shown until the next load need not be followed by all the rest.

        Another client has closed the session for all, or the bridge that had it has ended: what was
        on its way is shown, then something may be missing, and the session may go on.
        """
        self.missed()
        self.closed = True
        self._closed_in |= self._marks.keys()

    def missed(self) -> None:
        """From now on, until the next load, the session may go on without this client."""
        # What an open load has shown of its replay is no part of what came live.
        known = min(self._marks.values(), default=len(self.live))
        if self.whole:
            self.base, self.whole = self.base + self.live[:known], False
        self.live = self.live[known:]
        self._marks = {request: mark - known for request, mark in self._marks.items()}

    def compare_with(self, other: Transcript) -> bool:
        """Take what another client was shown, when the bridge of both has ended.

        Returns True if it could be seen to be the same. Raises Lost.
        """
        if other.unknown:
            return False
        self.others.append(other.base)
        both = self.whole and other.whole and not self.unknown
        if both and joined(self.base) != joined(other.base):
            raise Lost(f"two clients: {self._difference(joined(self.base), joined(other.base))}")
        return both

    def ended(self, *, quiet: bool) -> None:
        """The bridge is gone. `quiet`: nothing was on its way, all that it had was shown."""
        if self.whole and not self.unknown:
            # Behind a load without an answer nobody knows where the replay began.
            known = min(self._marks.values(), default=len(self.live))
            self.base = self.base + self.live[:known]
            self.whole = quiet and not self._marks
        self.live, self.attached, self.leaving = [], False, 0
        self._marks.clear()

    def _replay_begins(self, before: Updates, window: Updates) -> int:
        known, size = self.base + before, sum(map(_size, window))
        short = sum(map(_size, known))
        # Of one that went on unseen the replay may begin with what was never shown.
        first = (self.base or ((known or window) if self.whole else []) or [{}])[0]
        fitting = []
        for cut in range(len(window) + 1):
            # Both are cheap to look at, and the rest is not.
            possible = short == size if self.whole else short <= size
            possible |= self._is_left
            if possible and (not first or cut == len(window) or _begins(window[cut], first)):
                fitting.append(cut)
            if cut < len(window):
                short += _size(window[cut])
                size -= _size(window[cut])
        # The words that came live and those of their replay may join to one text, which is as good
        # as any where more may have happened than was shown: the latest place is the right one.
        for cut in fitting if self.whole else reversed(fitting):
            if self._is_replay(joined(window[cut:]), before + window[:cut]):
                return cut
        raise Lost(self._difference(joined(known), joined(window)))

    def _is_replay(self, replay: Updates, since: Updates) -> bool:
        if self.whole and not self._is_left:
            return replay == joined(self.base + since)
        ends = self._is_left or ends_with(replay, joined(since))
        return ends and begins_with(replay, joined(self.base))

    def _check_others(self, replay: Updates) -> None:
        for shown in map(joined, self.others):
            if not begins_with(replay, shown):
                raise Lost(f"another client: {self._difference(shown, replay)}")
        self.others.clear()

    def _settle(self, replay: Updates) -> None:
        self.base, self.whole, self.live, self.unknown = list(replay), True, [], False
        self.closed = False
        self._marks = dict.fromkeys(self._marks, 0)

    def _difference(self, shown: Updates, replayed: Updates) -> str:
        pairs = enumerate(zip(shown, replayed, strict=False))
        short = min(len(shown), len(replayed))
        at = next((number for number, (one, other) in pairs if one != other), short)
        parts = (json.dumps(part[at : at + 2])[:600] for part in (shown, replayed))
        return (
            f"session {self.session_id}: a load shows something else than was shown, from update"
            f" {at} of {len(shown)} and {len(replayed)} on: shown {next(parts)},"
            f" then replayed {next(parts)}"
        )


def _size(update: Message) -> int:
    return len(update["content"]["text"]) if _is_text(update) else len(json.dumps(update))


def _begins(update: Message, first: Message) -> bool:
    """A message of the replay may be joined from several of those that were shown."""
    if _is_text(update) and _is_text(first):
        one, other = update["content"]["text"], first["content"]["text"]
        return _label(update) == _label(first) and one[: len(other)] == other[: len(one)]
    return update == first
