"""Updates on their way out of a session: first into the journal, then to the clients.

- What is shown was recorded before (invariants T2, K1): one row and one write for each batch.
- The journal keeps what the agent said; each client's view converts what that client can't take.
- Of an output that grows the clients that keep up are shown each update. The journal has the last
  one within half a second, and before anything else that is recorded; a client that is behind is
  sent the last one.
- A journal that can't be written keeps what it could not take, and the session says once that it is
  not recorded. The turn goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

import anyio

from acp_bridge.core import errors
from acp_bridge.core.clients.abilities import has_unknown, is_converted, is_unknown
from acp_bridge.core.clients.client import Client
from acp_bridge.core.journal.connection import WAL_LIMIT_BYTES
from acp_bridge.core.journal.errors import JournalError
from acp_bridge.core.journal.merge import Row, chunk_of, with_text
from acp_bridge.core.journal.session import SessionJournal
from acp_bridge.core.journal.turns import ASKING
from acp_bridge.core.protocol import (
    COMMANDS_UPDATE,
    QUOTA_UPDATE,
    SAID_UPDATE,
    SESSION_UPDATE,
    STATES,
    TOOL_CALL_UPDATE,
    Json,
)
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.transcript.client_view import ClientView, Quiet
from acp_bridge.core.session.transcript.growing import Growing
from acp_bridge.core.session.transcript.places import Noted, Places
from acp_bridge.core.updates import notices
from acp_bridge.core.updates.children import Children, is_of_subagents, outward
from acp_bridge.core.updates.folded import Folded
from acp_bridge.core.updates.updates import Updates
from acp_bridge.core.wire.jsonrpc import Answer, Err, RpcError, encode, notification
from acp_bridge.core.wire.runs import around_texts

CARDS: Final = "cards"
"""The key under which the journal has the notes about cards (`updates.open_cards.Note`)."""
#: the journal's key of a flag that is set until the agent has replayed all of the session.
IMPORTING: Final = "importing"


class TranscriptOut:
    """Records and shows the updates of one session."""

    def __init__(
        self,
        session_id: str,
        journal: SessionJournal,
        updates: Updates,
        spawn: Callable[..., None] | None = None,
        lags_from: int = 1 << 18,
    ) -> None:
        """Nobody sees the session before `attach`.

        `updates` has the client-side ids and the notes about cards that the journal lacks yet.
        `spawn` starts a task of the session. `lags_from`: bytes that wait for a client which does
        not keep up.
        """
        self._session_id = session_id
        self._journal = journal
        self._updates = updates
        updates.command.take_up(journal.get(f"state:{COMMANDS_UPDATE}"))
        #: what the children do, for clients that can't show subagents.
        self._folded = Folded(updates.children)
        line = encode({"method": SESSION_UPDATE, "params": {"sessionId": session_id}})
        self._head = b'{"jsonrpc":"2.0",' + line[1:-3] + b","
        #: the views of all clients that have the session.
        self.views: tuple[ClientView, ...] = ()
        self._view_of: dict[Client, ClientView] = {}
        #: an update may have to be sent in different forms.
        self._converts = False
        #: the places of what is recorded, and whether a client wants their cursors.
        self.places = Places(session_id, journal, spawn)
        self._placed = False
        self._row = Row()
        self._lines: list[bytes] = []
        #: the same updates with the numbers of their rows, if they are shown with cursors.
        self._shown: list[tuple[int, Json]] = []
        #: bytes that wait for a client that does not keep up.
        self.lags_from = lags_from
        self._growing = Growing(journal, self.places, lags_from)
        #: an output was recorded just now; the scope of the task that waits for the next time.
        self._paced, self._pause = False, anyio.CancelScope()
        self._spawn = spawn
        #: the clients were told that what they see is not in the journal's file yet.
        self._told_behind = False
        #: the journal's number of the prompt whose turn runs, 0 outside of a turn.
        self.seq = 0
        journal.on_late = self._hold_back

    # --- the clients that have the session -----------------------------------------------------

    def asked(self) -> Client | None:
        """Return the client that agents ask for files and terminals, if it has the session.

        That is the one which is not on a socket: the others have joined later.
        """
        return next((v.client for v in self.views if not v.client.on_socket), None)

    def attach(self, client: Client) -> ClientView:
        """Return the client's view, by which it is shown the session from now on.

        A client that has the session keeps the view that it has.
        """
        self.flush()
        view = self.view_of(client)
        if view is None:
            view = ClientView(client, self._session_id, self._head)
            view.missed_some = bool(self.seq)
            if client.gone:  # while what it had asked for could not be cancelled
                view.over = True
                return view
            self._note_views((*self.views, view))
            if self._journal.in_flight:
                self._journal.then(_after(client.hold(self._session_id)))
        return view

    def detach(self, client: Client) -> bool:
        """Show the session to a client no more; returns False if the client did not have it."""
        self.flush()
        view = self.view_of(client)
        if view:
            self._note_views(tuple(each for each in self.views if each is not view))
            view.end()
        return view is not None

    def _note_views(self, views: tuple[ClientView, ...]) -> None:
        self.views, self._view_of = views, {view.client: view for view in views}
        self._converts = len(views) > 1 or any(view.client.on_socket for view in views)
        placed, self._placed = self._placed, any(view.takes_cursors for view in views)
        if self._placed:
            self.places.start()
        elif placed:
            self.places.stop()

    def _hold_back(self) -> None:
        """Tell clients nothing of the session before the journal's last write is made (T2).

        If it is kept instead, they are told that, at once.
        """
        self._journal.then(lambda error: self._say_if_behind())
        for view in self.views:
            self._journal.then(_after(view.client.hold(self._session_id)))

    def has_others(self, client: Client) -> bool:
        """Return True when another client has the session."""
        return any(view.client is not client for view in self.views)

    def seen(self) -> dict[Client, int]:
        """Return the clients that were shown all until now, each with the number of its replays."""
        return {view.client: view.replays for view in self.views if not view.lag}

    def view_of(self, client: Client) -> ClientView | None:
        """Return the view of a client, or None if it does not have the session."""
        return self._view_of.get(client)

    def full(self, limit: int) -> bool:
        """Return True if at least `limit` bytes wait for one of the clients."""
        return any(view.full(limit) for view in self.views)

    def then(self, client: Client, action: Callable[[], None], *, sets_state: bool = False) -> None:
        """Call `action` when all that was shown to the client before is on its way.

        `sets_state`: the action sends a state. Queued behind a replay it would overwrite newer
        state, so it is not queued.
        A client that is gone is told nothing: it was not shown what the answer is about.
        """
        if client.gone:
            return
        self.flush()
        self._say_if_behind()
        if (view := self.view_of(client)) and not sets_state:
            view.then(action)
        else:
            action()

    def end_quiet(self, client: Client) -> None:
        """Note that the client speaks, which ends its quiet."""
        if view := self.view_of(client):
            view.then(view.end_quiet)  # behind a quiet that waits for the end of a replay

    def begin_turn(self, seq: int) -> None:
        """Count updates from now on to the turn of the prompt `seq`, and end all clients' quiet."""
        self.flush()
        self._growing.forget()
        self.seq = seq
        for view in self.views:
            view.then(view.begin_turn)

    def end_quiet_of_all(self) -> None:
        """End the quiet of all clients: one has asked for work, or ends the session (C23, C24)."""
        self.flush()
        for view in self.views:
            view.then(view.end_quiet)

    def hush(self, client: Client) -> None:
        """Show the client nothing more until it speaks, or a turn or work begins (invariant C23).

        Does nothing while a turn runs: that goes on, and a prompt that waited was cancelled.
        """
        self.flush()
        if not self.seq and (view := self.view_of(client)):
            view.then(partial(view.hush, Quiet.ALL))

    # --- updates -------------------------------------------------------------------------------

    def show(self, params: Json, *, again: bool = False) -> None:
        """Record and show one update: `params` of `session/update` without the session's id.

        `again`: the agent says it because it was given the session again, so a client that was
        shown the same state before is not shown it. Of an unknown kind it is recorded only if the
        agent tells it in its own replay of a session that is new here.
        """
        if "_meta" in params:
            params = self.named(params)
        line, update = encode(params), params["update"]
        kind = update.get("sessionUpdate")
        if kind == TOOL_CALL_UPDATE and self._grew(params, line):
            return
        if self._growing.waits:
            self.flush()
        unknown = has_unknown(update)
        if unknown and is_unknown(kind) and not self._journal.get(IMPORTING):
            self.show_only(params)
        elif self._updates.children and is_of_subagents(params):
            self._row.append(line)
            self._show(params, self.flush(), recorded=True)
        elif kind in STATES:
            self._keep_state(params)
            self.show_only(params, again=again)
        elif kind == QUOTA_UPDATE:
            self.show_only(params)
        elif unknown or (self._converts and is_converted(update)) or kind == SAID_UPDATE:
            self._row.append(line)
            self._show(params, self.flush())
        else:
            self._row.append(line)
            self._send_soon(params, line)

    def show_words(self, update: Json) -> None:
        """Do as `show` does with plain words, an update that looks the same to each client."""
        if self._growing.waits:
            self.flush()
        params = {"update": update}
        line = encode(params)
        if self._placed:  # each has a place of its own
            self._row.append(line)
        else:
            self._row.append_words(params, line)
        self._send_soon(params, line)

    def show_more_words(self, update: Json, texts: Iterable[str]) -> None:
        """Record and show more texts of a message. Most words of a long answer come this way.

        `update`: the last update of the message. Each text takes the place of its text.
        """
        params = {"update": update}
        key, _ = chunk_of(params)
        line = self._as_sent(encode(params))
        around = next(around_texts(line, "text"))
        for text in texts:
            if self._row.append_text(key, text):
                self._lines.append(around.line(text))
            else:
                self.show_words(with_text(update, text))

    def _as_sent(self, line: bytes) -> bytes:
        """Return the line that clients are sent for an update's params."""
        return self._head + line[1:-1] + b"}\n"

    def _send_soon(self, params: Json, line: bytes) -> None:
        """Have the next flush send an update that was just added to the row."""
        self._lines.append(self._as_sent(line))
        if self._placed:
            self._shown.append((self._row.count - 1, params))

    def named(self, params: Json) -> Json:
        """Return a notice with the name of the bridge's command as it is offered now."""
        return self._updates.command.in_notice(params)

    def answered(self, answer: Answer) -> Answer:
        """Return an answer with that name in an error of ours; any other answer as it is."""
        match answer:
            case Err(RpcError(message=said, data={"details": details})) if details == said:
                named = self._updates.command.named(said)
                return answer if named == said else Err(RpcError(answer.error.code, named))
        return answer

    def show_replayed(self, view: ClientView, params: Json, *, has_all: bool) -> None:
        """Record and show one update with which the replay of a client ends.

        `has_all`: nothing that was recorded before waits behind the replay. Else a client that
        takes cursors is shown the update, with its cursor, behind what waits.
        """
        self.record_only(params)
        noted = self.flush()
        for each, shown in self._for_views(params):
            if each is not view:
                each.pass_on(shown, noted)
            elif has_all or not noted or not each.takes_cursors:
                each.replay(shown, noted.mark if noted else None)
                if each.lag:
                    each.lag.hide()
            else:
                folded = shown is not params and not each.client.abilities.shows_subagents
                each.show(shown, recorded=True, noted=noted, folded=folded)

    def show_only(self, params: Json, *, again: bool = False) -> None:
        """Show one update in its order, without recording it."""
        self.flush()
        self._show(self.named(params), None, again=again)

    def _show(
        self, params: Json, noted: Noted | None, *, again: bool = False, recorded: bool = False
    ) -> None:
        """Show one update; `noted`: as it was noted, if it is recorded and its place is known."""
        for view, shown in self._for_views(params):
            folded = shown is not params and not view.client.abilities.shows_subagents
            view.show(shown, again=again, recorded=recorded, noted=noted, folded=folded)

    def show_to(self, client: Client, params: Json) -> None:
        """Show one update to one client, in its order, without recording it."""
        self.flush()
        for view, shown in self._for_views(self.named(params)):
            if view.client is client:
                view.show(shown)

    def _for_views(self, params: Json) -> Iterator[tuple[ClientView, Json]]:
        """Yield each view with the update that its client is shown for `params`, if it is any."""
        if not self._updates.children or not is_of_subagents(params):
            yield from ((view, params) for view in self.views)
            return
        told, folded = outward(params, self._session_id), self._folded.fold(params)
        for view in self.views:
            for shown in [told] if view.client.abilities.shows_subagents else folded:
                yield view, shown

    def for_replay(self, client: Client, *, whole: bool = True) -> Callable[[Json], list[Json]]:
        """Return a function from a recorded update to the updates that a replay shows the client.

        `whole`: the replay is of all that is recorded.
        """
        if not self._updates.children:
            return lambda params: [params]
        if not client.abilities.shows_subagents:
            folded = Folded(Children(), replays=True) if whole else self._folded
            return folded.fold
        names = is_of_subagents
        return lambda params: [outward(params, self._session_id) if names(params) else params]

    def as_recorded(self, view: ClientView, params: Json) -> list[Json]:
        """Return what a client is shown for a recorded update that it lacks.

        Nothing for an update of a subagent if it can't show those: that waits in another form
        (`ClientView.show`).
        """
        if not self._updates.children or not is_of_subagents(params):
            return [params]
        shows = view.client.abilities.shows_subagents
        return [outward(params, self._session_id)] if shows else []

    def children_for(self, client: Client) -> list[Json]:
        """Return the updates that tell a client, which was replayed nothing, of the subagents.

        A client that can't show subagents is told only of those at work.
        """
        shows, folded = client.abilities.shows_subagents, self._folded
        return [
            outward(child.announcement(), self._session_id) if shows else folded.card(child)
            for child in self._updates.children
            if child.announced and (shows or child.at_work)
        ]

    def show_to_others(self, client: Client | None, params: Json) -> None:
        """Show an update about this client to all other clients, without recording it.

        It ends the quiet after a load, but not that after `cancelled` (invariant C23).
        """
        self.show_to_all_but([client] if client else [], params)

    def show_to_all_but(
        self, known: Collection[Client], params: Json, noted: Noted | None = None
    ) -> None:
        """Show an update to all clients but those that know it by themselves, or by an answer.

        `noted`: as it was noted, if it was recorded.
        """
        self.flush()
        params = self.named(params)
        for view in self.views:
            if view.client not in known:
                view.then(view.end_quiet_of_load)
                as_read = noted.params if noted and view.takes_cursors else None
                view.show(as_read or params, noted=noted)
            elif noted and view.lag:
                view.lag.hide()

    def record_said(self, client: Client, params: Json) -> None:
        """Record the user's own words, and show them to all clients but the one that sent them.

        For those they end the quiet, as a turn does: what the words cause comes behind them.
        """
        self.flush()  # so that this has a row of its own
        self.record_only(params)
        if self.has_others(client):
            noted = self.flush()
            for view in self.views:
                if view.client is not client:
                    view.then(view.end_quiet)
                    view.show(params, noted=noted)
                elif view.lag:
                    view.lag.hide()

    def tell_others(self, client: Client, params: Json) -> None:
        """Record a state that a client has set, and show it to all but that one."""
        self._keep_state(params)
        self.flush()
        for view in self.views:
            if view.client is client:
                view.note_set(params)
            else:
                view.tell(params)

    def show_now(self, params: Json) -> None:
        """Show one update to each client that can be sent it at once; the others miss it."""
        self.flush()
        for view in self.views:
            if view.listens:
                view.show(params)

    def notify(self, method: str, params: object) -> None:
        """Pass on to all clients a notification of the agent that is no update, in its order."""
        self.flush()
        line = encode(notification(method, params))
        for view in self.views:
            view.send(line)

    def record_only(self, params: Json) -> None:
        """Record one update without showing it; the next `flush` writes it to the journal."""
        if self._growing.waits:
            self.flush()
        self._row.append(encode(params))

    def record_at_once(self, params: Json) -> None:
        """Record, at once, a card that clients make themselves of the question that follows."""
        self.record_only(params)
        self.flush()

    def notice(self, text: str) -> None:
        """Record and show a notice, a text of the bridge's own."""
        said = self.named(notices.notice(text))
        self.record_only(said)
        self._show(said, self.flush())

    def end_turn(self, seq: int) -> None:
        """Record the updates until now in the turn of this prompt; later ones belong to no turn."""
        if seq == self.seq:
            self.flush()
            self._growing.forget()
            self.seq = 0

    def flush(self) -> Noted | None:
        """Commit the collected updates to the journal, then send them.

        Returns the last recorded update as it was noted, or None if no client wants cursors.
        """
        return self._flush(due=True, whole=True)

    def end_read(self) -> None:
        """Do as `flush` at the end of a read of the agent's pipe; what grows may wait."""
        self._flush(due=not self._paced, whole=False)

    def _flush(self, *, due: bool, whole: bool) -> Noted | None:
        """Do as `flush`. `due`: the outputs that grow are recorded; `whole`: all are sent."""
        noted: list[Noted] = []
        if self._updates.new_ids:
            self._attempt(self._journal.add_ids, self._updates.take_new_ids())
        if self._updates.notes_changed:
            self._attempt(self._journal.set, CARDS, self._updates.take_notes())
        if self._updates.asking.changed:
            self._attempt(self._journal.set, ASKING, self._updates.asking.take())
        if self._updates.children.changed:
            for key, value in self._updates.children.take_changed().items():
                self._attempt(self._journal.set, key, value)
        if self._row.count:
            rows = self._row.take()
            self._attempt(self._journal.record, self.seq, rows, self._growing.take_superseded())
            noted = self.take_noted()
        if due and self._growing.waits:
            self._record_grown()
        if self._lines:
            lines = b"".join(self._lines)
            shown = [(params, noted[at] if noted else None) for at, params in self._shown]
            self._lines.clear()
            self._shown.clear()
            for view in self.views:
                if view.takes_cursors:
                    view.send_noted(shown)
                else:
                    view.send(lines, recorded=True)
            self._say_if_behind()
        if self._growing.waits:
            self._growing.send(self.views, placed=self._placed, whole=whole)
            self._say_if_behind()
        return noted[-1] if noted else None

    # --- outputs that grow ---------------------------------------------------------------------

    def _grew(self, params: Json, line: bytes) -> bool:
        """Show an update of an output that grows, and record it soon; False for any other."""
        if not self._growing.concerns(params["update"]):
            return False
        if self._growing.take(params, line, self._head):
            return True
        if self._growing.waits:
            self.flush()
        return self._growing.note(params, line, self._head)

    def _record_grown(self) -> None:
        record = partial(self._attempt, self._journal.record, self.seq)
        if self._growing.record(record) and self._spawn and not self._paced:
            self._paced = True
            self._spawn(self._pace)

    async def _pace(self) -> None:
        """Record and send, from time to time, the outputs that have grown, until none has."""
        with self._pause:
            goes_on = True
            while goes_on:
                if self._growing.recorded > WAL_LIMIT_BYTES:
                    self._growing.recorded = 0
                    with suppress(JournalError):
                        await self._journal.checkpoint()
                await anyio.sleep(waits.GROWING)
                if goes_on := self._growing.waits:
                    self._flush(due=True, whole=False)
        self._paced, self._pause = False, anyio.CancelScope()

    def end(self) -> None:
        """Record and send all, since the session ends."""
        self.flush()
        self._pause.cancel()

    def take_noted(self) -> list[Noted]:
        """Return the updates of the row that was recorded last, if their places are wanted."""
        return self.places.take() if self._placed else []

    def _say_if_behind(self) -> None:
        """Tell clients, once, that the journal can't be written and the session is not recorded."""
        behind, told = self._journal.behind, self._told_behind
        self._told_behind = behind
        if behind and not told:
            self._say(notices.unrecorded(self._journal.why))

    def say_away(self, seconds: float) -> None:
        """Say that the journal's database is away, and that in `seconds` the turn ends for that."""
        self._say(notices.away(seconds))

    def say_lost(self, why: str) -> None:
        """Say that the journal takes nothing of this session any more, and why."""
        self._say(notices.lost(why))

    def _say(self, text: str) -> None:
        """Show all clients a notice, without recording it."""
        said = encode(notices.notice(text))
        for view in self.views:
            view.send(self._head + said[1:-1] + b"}\n")

    def _keep_state(self, params: Json) -> None:
        kind = params["update"]["sessionUpdate"]
        self._attempt(self._journal.set, f"state:{kind}", params)

    def _attempt(self, write: Callable[..., None], *args: object) -> None:
        try:
            write(*args)
        except JournalError as exc:
            event("journal.failed", session=self._session_id, what=exc)
        except Exception as exc:  # the answers that wait behind it are not lost (invariant Q9)
            errors.internal(exc, "the transcript could not be recorded")


def _after(let_go: Callable[[], None]) -> Callable[[JournalError | None], None]:
    """Return a callback for the end of a write that calls `let_go`, even if the write failed."""
    return lambda error: let_go()
