"""One client's view of one session: updates to it in order, and those that wait for a replay.

- From the moment a load is read until its replay has ended, what happens in the session waits
  behind it. Hold, backlog and the cut between replay and live belong to the one client.
- A state that changed during the replay is shown once, as it is at the replay's end: it never
  goes back (invariant V1).
- After the answer `cancelled` nothing at all is shown until the client speaks again, or a turn
  or other work begins (invariant C23); after a load, nothing but the conversation.
- What this client can't take is converted here, where it leaves for it.
- What a client has not been sent that reads more slowly than the agent speaks is in the journal:
  its rows are read on from where the client is. What is in no row, an answer say, waits for the row
  behind which it comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from functools import partial

import anyio
from msgspec import Struct

from acp_bridge.core.clients.abilities import has_unknown, is_converted
from acp_bridge.core.clients.client import Client
from acp_bridge.core.journal.errors import JournalError
from acp_bridge.core.journal.place import Place
from acp_bridge.core.protocol import (
    AGENT_MESSAGE,
    AGENT_THOUGHT,
    COMMANDS_UPDATE,
    OF_VERSION_1,
    PROMPT_ID,
    QUOTA_UPDATE,
    SESSION_UPDATE,
    STATE,
    Json,
    as_object,
    is_state,
    kind_of,
    own_meta,
    with_cursor,
    without_prompt_id,
)
from acp_bridge.core.session.transcript.places import Mark, Noted
from acp_bridge.core.wire.jsonrpc import encode, notification

#: the bytes that are counted for a waiting action whose size is not given.
_ACTION = 512


def _is_state(params: Json) -> bool:
    """Return True for an update that tells a state of the session, not of a subagent's session."""
    return is_state(params["update"]) and "sessionId" not in params


def _mark(noted: Noted | None) -> Mark | None:
    return noted.mark if noted else None


def _is_plain_state(params: Json) -> bool:
    """Return True for a state of the session that the agent told: the journal keeps that."""
    return _is_state(params) and not own_meta(params)


def _is_aside(params: Json) -> bool:
    return _is_state(params) or kind_of(params) == QUOTA_UPDATE or _is_bridges_own(params)


class Quiet(Enum):
    """Which updates are kept from a client until it speaks, or a turn begins."""

    #: nothing.
    NONE = auto()
    #: all but the agent's conversation: states and the bridge's notices. After a load.
    ASIDES = auto()
    #: everything: after the answer `cancelled`.
    ALL = auto()


class _Kind(Enum):
    """The kinds of things that wait behind a replay."""

    #: lines that are all sent.
    LINES = auto()
    #: lines of a state: they are dropped if the present states are shown in their place.
    STATE = auto()
    #: another action that must keep its order, an answer to a request, say.
    ACTION = auto()
    #: the place where a replay was asked for: what stands behind it waits for the replay's end.
    REPLAY = auto()


class _Waiting(Struct, frozen=True, eq=False):
    kind: _Kind
    action: Callable[[], None]


class _Kept(Struct, frozen=True):
    """A line that is kept from a client in the quiet."""

    #: the kind of the state that it tells.
    state: object
    line: bytes
    recorded: bool = False


class _Late(Struct, frozen=True):
    row: int
    size: int
    action: Callable[[], None]


class Lag:
    """How far behind one client is in one session."""

    def __init__(self, last_row: Callable[[], int]) -> None:
        """The client has all that is recorded.

        `last_row` returns the number of the row that was recorded last.
        """
        #: the place in the transcript up to which the client has it, if that is known.
        self.place: Place | None = None
        self.row = last_row()
        #: an action that has waited is being run.
        self.does = False
        #: the row that is read now is not shown to the client.
        self.hides = False
        self.over = anyio.Event()
        self.waiting_bytes = 0
        self._last_row = last_row
        self._waiting: deque[_Late] = deque()

    def wait(self, action: Callable[[], None], size: int = _ACTION) -> None:
        """Call `action` once the client has all that is recorded by now; `size`: its bytes."""
        self._wait(self._now(), size, action)

    def hide(self) -> None:
        """Leave out, for this client, the row that was recorded last: it shows that by itself."""
        row = self._now()
        self._wait(row - 1, _ACTION, lambda: self._hide(True))
        self._wait(row, _ACTION, lambda: self._hide(False))

    def _hide(self, hides: bool) -> None:
        self.hides = hides

    def _now(self) -> int:
        """Return the last recorded row's number, or the last known if the journal can't say."""
        try:
            return self._last_row()
        except JournalError:
            return max([self.row, *(each.row for each in self._waiting)])

    def _wait(self, row: int, size: int, action: Callable[[], None]) -> None:
        self.waiting_bytes += size
        self._waiting.append(_Late(row, size, action))

    @property
    def until(self) -> int:
        """The row up to which to read the journal next: where something waits, else the last."""
        return self._waiting[0].row if self._waiting else self._last_row()

    def go_on(self) -> bool:
        """Run the actions that wait for rows which the client has; False if there are none."""
        done = False
        while self._waiting and self._waiting[0].row <= self.row:
            waiting = self._waiting.popleft()
            self.waiting_bytes -= waiting.size
            self.does = done = True
            try:
                waiting.action()
            finally:
                self.does = False
        return done

    def give_up(self) -> None:
        """Run all actions that wait, without the rows before them, and set `over`."""
        while self._waiting:
            self.row = max(self.row, self._waiting[0].row)
            self.go_on()
        self.over.set()


class ClientView:
    """Sends one client the updates of one session in their order: now, behind a replay, after the
    quiet, or from the journal."""

    def __init__(self, client: Client, session_id: str, head: bytes) -> None:
        """`head`: the beginning of every line, before the parameters of the update."""
        self.client = client
        self._session_id = session_id
        #: how often the client was shown the session from its beginning.
        self.replays = 0
        #: the client came while a turn ran, and was not shown what had been said in it by then.
        self.missed_some = False
        #: the client does not have the session any more: nothing of it is sent.
        self.over = False
        #: the client is told the cursor behind each recorded update.
        self.takes_cursors = client.abilities.takes_cursors
        self._head = head
        #: each replay that was asked for, and what is to be done behind it; None if there is none.
        self._backlog: list[_Waiting] | None = None
        self._waiting_bytes = 0
        #: by replay whose load has been read and that has not begun, how the session stood then.
        self._ahead: dict[object, Json] = {}
        self._caught_up = anyio.Event()
        self._quiet = Quiet.NONE
        #: lines that wait for the end of the quiet, with the kind of the state that they tell.
        self._kept: list[_Kept] = []
        #: by kind, the state of the session that the client was shown last.
        self._states: dict[object, Json] = {}
        self._prompted = False
        self._pacing: anyio.CancelScope | None = None
        #: what the client lacks because it reads too slowly; None if nothing.
        self.lag: Lag | None = None

    def send(self, lines: bytes, *, recorded: bool = False) -> None:
        """Send whole lines, in their order; `recorded`: a replay that begins later shows them."""
        self._send(lines, _Kind.LINES, recorded=recorded)

    def _send(self, lines: bytes, kind: _Kind, *, recorded: bool = False) -> None:
        if self.over:
            return
        if self._lags:
            if not recorded and kind is not _Kind.STATE:
                self._lags.wait(lambda: self._send(lines, kind), len(lines))
        elif self._quiet is Quiet.ALL:
            self._keep(_Kept(None, lines, recorded))
        elif self._backlog is None or self.lag:
            self._write(lines)
        else:
            self._waiting_bytes += len(lines)
            self._backlog.append(_Waiting(kind, partial(self._write, lines)))

    def _write(self, lines: bytes) -> None:
        self.client.write(lines, self._session_id)

    def send_noted(self, updates: Iterable[tuple[Json, Noted | None]]) -> None:
        """Send recorded updates with their cursors, in their order.

        An update that waits gets its cursor when it is sent: its place may be known only then.
        """
        if self._lags:
            return
        if self._backlog is None or self.lag or self._quiet is Quiet.ALL:
            lines = [self._line(params, _mark(noted)) for params, noted in updates]
            self.send(b"".join(lines), recorded=True)
            return
        for params, noted in updates:
            self._waiting_bytes += len(self._line(params, _mark(noted)))
            send = partial(self._send_now, params, noted)
            self._backlog.append(_Waiting(_Kind.LINES, send))

    def _send_now(self, params: Json, noted: Noted | None) -> None:
        self._write(self._line(params, _mark(noted)))

    def show(
        self,
        params: Json,
        *,
        again: bool = False,
        recorded: bool = False,
        noted: Noted | None = None,
        folded: bool = False,
    ) -> None:
        """Send one update, in its order; a list of commands that was shown is not shown again.

        `again`: the agent repeats itself, so a state of any kind that was shown is not shown again.
        `recorded`: as in `send`. `noted`: the update as it was noted in the transcript. `folded`:
        `params` was made of that for a client that can't show subagents.
        """
        if self._lags:
            if _is_plain_state(params):  # the present ones are shown at the end
                self._known(params)
            elif folded or not noted:
                later = partial(self.show, params, recorded=recorded, noted=noted, folded=folded)
                self._lags.wait(later, len(self._line(params)))
            return
        if noted and self.takes_cursors and self._quiet is Quiet.NONE:
            self.send_noted([(params, noted)])
            return
        if self._known(params) and (again or kind_of(params) == COMMANDS_UPDATE):
            return
        line, is_a_state = self._line(params, _mark(noted)), _is_state(params)
        if self._quiet is Quiet.ALL or (self._quiet is Quiet.ASIDES and _is_aside(params)):
            state = kind_of(params) if is_a_state and not own_meta(params) else None
            self._keep(_Kept(state, line, recorded))
        else:
            self._send(line, _Kind.STATE if is_a_state else _Kind.LINES, recorded=recorded)

    def pass_on(self, params: Json, noted: Noted | None = None) -> None:
        """Send one recorded update in its order, even a state that the client was shown before."""
        if noted and self.takes_cursors:
            self.send_noted([(params, noted)])
        else:
            self.send(self._line(params), recorded=True)

    def tell(self, params: Json) -> None:
        """Show a state that another client has set, also in the quiet.

        An older state of its kind that waits for the quiet's end is dropped: a state never goes
        back.
        """
        if self._known(params):
            return
        self._kept = [each for each in self._kept if each.state != kind_of(params)]
        quiet, self._quiet = self._quiet, Quiet.NONE
        self._send(self._line(params), _Kind.STATE)
        self._quiet = quiet

    def note_set(self, params: Json) -> None:
        """Note a state that this client has set: the answer to its request tells it."""
        self._known(params)
        self._kept = [each for each in self._kept if each.state != kind_of(params)]

    @property
    def listens(self) -> bool:
        """True if nothing is kept from the client now, and no replay runs."""
        return self._quiet is Quiet.NONE and not self.replaying

    @property
    def replaying(self) -> bool:
        """True while the client is being shown the session; what happens meanwhile waits."""
        return self._backlog is not None

    def then(self, action: Callable[[], None]) -> None:
        """Call `action`, which answers a request, say, once all that came before it is shown.

        That is at once if no replay runs and the client does not lag.
        """
        if self._lags:
            self._lags.wait(action)
        elif self._backlog is None or self.lag:
            action()
        else:
            self._backlog.append(_Waiting(_Kind.ACTION, action))

    def end(self) -> None:
        """Send no more updates; requests whose answers wait behind a replay are answered.

        A client that is gone gets no answers: it was not shown what they are about.
        """
        self.over = True
        self._kept = []
        self.hurry()
        if self.lag:
            self.end_lag(self.lag)
        while self._backlog is not None:
            self.end_replay()

    def _known(self, params: Json) -> bool:
        kind = kind_of(params)
        if kind not in STATE or (own_meta(params) and kind != COMMANDS_UPDATE):
            return False
        if "sessionId" in params:
            return False
        known, self._states[kind] = self._states.get(kind) == params, params
        return known

    # --- the quiet -----------------------------------------------------------------------------

    def hush(self, quiet: Quiet) -> None:
        """Keep the updates that `quiet` names from the client from now on, until `end_quiet`."""
        self._quiet = quiet

    def end_quiet(self) -> None:
        """End the quiet, and send the updates that were kept back in it."""
        self._quiet = Quiet.NONE
        if self._kept:
            kept, self._kept, self._waiting_bytes = self._kept, [], 0
            self.send(b"".join(each.line for each in kept))
            self._caught_up.set()

    def end_quiet_of_load(self) -> None:
        """End the quiet after a load, since another client does something in the session."""
        if self._quiet is Quiet.ASIDES:
            self.end_quiet()

    def begin_turn(self) -> None:
        """End the quiet, since a turn begins; in the first one the commands are shown once more.

        There are clients that take no update of a session before they have read the answer that
        named it.
        """
        self.end_quiet()
        self.missed_some = False
        if not self._prompted:
            self._prompted = True
            if (commands := self._states.get(COMMANDS_UPDATE)) is not None:
                self.send(self._line(commands))

    def _keep(self, kept: _Kept) -> None:
        if not kept.line:  # the client can't take it
            return
        if not self._kept:
            self._caught_up = anyio.Event()
        self._kept.append(kept)
        self._waiting_bytes += len(kept.line)

    # --- a replay ------------------------------------------------------------------------------

    def begin_replay(self, *, whole: bool = True, ahead: Json | None = None) -> object:
        """Let updates wait from now on for the end of a replay; returns a token for `end_replay`.

        `whole`: all that is recorded by now is replayed, so it is not to be shown beside that.
        `ahead`: the replay begins later, with `begins`, and this is how the session stands now.
        """
        if whole:
            self._kept = [each for each in self._kept if not each.recorded]
            if self.lag:
                self.end_lag(self.lag)
        self.end_quiet()
        replay = _Waiting(_Kind.REPLAY, lambda: None)
        if self._backlog is None:
            self._backlog = []
            self._caught_up = anyio.Event()
        self._backlog.append(replay)
        if ahead is not None:
            self._ahead[replay] = ahead
        return replay

    @property
    def is_ahead(self) -> bool:
        """True if a load was read and its replay has not begun."""
        return bool(self._ahead)

    @property
    def stood(self) -> Json | None:
        """How the session stood up to where the client is shown it, if a load was read since."""
        return next(iter(self._ahead.values()), None)

    def begins(self, replay: object) -> bool:
        """Begin a replay that was ahead; False if what waited for it has been sent meanwhile."""
        return self._ahead.pop(replay, None) is not None

    def let_pass(self) -> None:
        """Send what waits for replays that have not begun: their loads may wait for the agent.

        The replays then show the same updates once more.
        """
        for replay in list(self._ahead):
            self.end_replay(replay)

    def replay(self, params: Json, mark: Mark | None = None) -> None:
        """Send a recorded update of the replay, ahead of the updates that wait for its end."""
        self._known(params)
        if not self.over:
            self._write(self._line(params, mark))

    def drop_waiting_states(self) -> None:
        """Forget the states that wait behind a replay: the present ones are shown instead."""
        if self._backlog is not None:
            self._backlog = [each for each in self._backlog if each.kind is not _Kind.STATE]

    def end_replay(self, replay: object = None) -> None:
        """End a replay, by its token (without one, the first replay), and send what waited for it.

        What came after another replay was asked for waits for that one; while an earlier replay has
        not ended, nothing is sent. Does nothing for a replay that has ended.
        """
        self._ahead.pop(replay, None)
        backlog = self._backlog or []
        at = next((at for at, each in enumerate(backlog) if replay in (None, each)), None)
        if at is None:
            return
        del backlog[at]
        if at:
            return
        kinds = [each.kind for each in backlog]
        until = kinds.index(_Kind.REPLAY) if _Kind.REPLAY in kinds else len(kinds)
        self._backlog = backlog[until:] or None
        self._waiting_bytes = 0 if self._backlog is None else self._waiting_bytes
        for each in backlog[:until]:
            if not (self.client.gone if each.kind is _Kind.ACTION else self.over):
                each.action()
        if self._backlog is None:
            self._caught_up.set()

    # --- a client that falls behind ------------------------------------------------------------

    @property
    def _lags(self) -> Lag | None:
        """The client's lag; None if it has none, or while something that waited in it is sent."""
        return self.lag if self.lag and not self.lag.does else None

    @property
    def may_lag(self) -> bool:
        """True if the client may read from the journal what it is too slow to be sent at once."""
        able = self.takes_cursors and self.client.on_socket
        return able and self._backlog is None and self._quiet is Quiet.NONE and not self.over

    def begin_lag(self, lag: Lag) -> Lag:
        """Send no recorded update from now on: the client is to read them from the journal.

        What else is to be sent waits for its place among those. Returns `lag`.
        """
        self.lag, self._backlog = lag, []
        self._caught_up = anyio.Event()
        return lag

    def catch_up(self, params: Json, mark: Mark | None) -> None:
        """Send a recorded update that the client lacks, whatever kind it is of."""
        if self.lag:
            noted = Noted(params)
            noted.mark = mark
            self.lag.does = True
            self.pass_on(params, noted)
            self.lag.does = False

    def end_lag(self, lag: Lag) -> None:
        """End a lag, if it is the client's: send what waits in it, then updates as they happen.

        For a client that is gone nothing is sent.
        """
        if self.lag is lag:
            if self.client.gone:
                lag.over.set()
            else:
                lag.give_up()
            self.lag, self._backlog = None, None
            self._caught_up.set()

    # --- a client that doesn't read ------------------------------------------------------------

    def full(self, limit: int) -> bool:
        """Return True when at least `limit` bytes wait for the client."""
        if self.lag:
            return self.lag.waiting_bytes >= limit
        return self.client.outgoing.pending + self._waiting_bytes >= limit

    async def room(self, limit: int) -> None:
        """Wait until less than `limit` bytes may be waiting; the caller looks again."""
        if self._waiting_bytes or self.lag:
            await self._caught_up.wait()
        else:
            await self.client.outgoing.drain_below(limit)

    async def pace(self, limit: int) -> None:
        """Wait until less than `limit` bytes wait for the client, or `hurry` is called."""
        with anyio.CancelScope() as self._pacing:
            await self.client.outgoing.drain_below(limit)
        self._pacing = None

    def hurry(self) -> None:
        """End the replay's wait in `pace`, so that it looks again whether to go on."""
        if self._pacing:
            self._pacing.cancel()

    def _line(self, params: Json, mark: Mark | None = None) -> bytes:
        """Return an update as a line for this client, or nothing if it can't take it."""
        params = self._named(params)
        if mark and self.takes_cursors:
            params = self._marked(params, mark)
        update = params.get("update")
        if isinstance(update, dict) and (is_converted(update) or has_unknown(update)):
            has_terminals = not self.client.on_socket  # an agent makes its terminals at that one
            fit = self.client.abilities.fit_update(update, has_terminals=has_terminals)
            if fit is None:
                return b""
            params = {**params, "update": fit}
        if "sessionId" in params:  # of a subagent
            return encode(notification(SESSION_UPDATE, params))
        return self._head + encode(params)[1:-1] + b"}\n"

    def _named(self, params: Json) -> Json:
        """Return an update with the id of the user's prompt as this client knows it.

        In version 1 it is the id of the message, which agents give in their own replays.
        """
        prompt, abilities = own_meta(params).get(PROMPT_ID), self.client.abilities
        if prompt is None or abilities.shows_said:
            return params
        update = as_object(params.get("update"))
        if update.get("messageId") is None:
            params = {**params, "update": {**update, "messageId": prompt}}
        return params if self.takes_cursors else without_prompt_id(params)

    def _marked(self, params: Json, mark: Mark) -> Json:
        """Return a recorded update with its cursor.

        For a client of version 2 an agent's message without an id gets one, the same in each
        connection.
        """
        update = params["update"]
        agents = kind_of(params) in (AGENT_MESSAGE, AGENT_THOUGHT)
        if agents and self.client.abilities.shows_said and update.get("messageId") is None:
            params = {**params, "update": {**update, "messageId": mark.message}}
        return with_cursor(params, mark.cursor)


def _is_bridges_own(params: Json) -> bool:
    """Return True for an update that is the bridge's own, and not the agent's."""
    own = own_meta(params)
    return bool(own) and OF_VERSION_1 not in own
