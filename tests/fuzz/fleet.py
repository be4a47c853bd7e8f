"""The bridges of a run: who starts, ends, joins and outlives its client, and what follows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.fuzz import script
from tests.fuzz.caller import Caller
from tests.fuzz.far import FarLife, far_editor
from tests.fuzz.life import Life
from tests.fuzz.operations import Operations
from tests.fuzz.place import Place
from tests.fuzz.prompts import Guest

#: How a client that joins comes to the sessions, or not to one of them.
_HISTORIES = (None, "full", "full", "pending", "none")
_WAYS = (*["session/load"] * 4, *["_acp_bridge/attach"] * 3, "session/resume", "")
#: How a bridge ends, and how the client of one that is kept does; `BRIDGE`: that is killed itself.
_ENDS = ("EOF", "EOF", "SIGTERM", "SIGHUP", "SIGKILL", "SIGKILL", "SIGKILL")
_PARTS = ("EOF", "EOF", "SIGTERM", "SIGHUP", "SIGKILL", "GROUP", "GROUP", "BRIDGE")
#: Bridges without the client that has started them; the oldest ends when there are more.
_MOST_KEPT: Final = 2


@dataclass
class Fleet:
    """Starts and ends the bridges of one run."""

    place: Place
    operations: Operations
    #: the one that was started last, and the one beside it, if there is one.
    first: Life = field(init=False)
    other: Life | None = None
    #: the one that serves an editor from elsewhere.
    far: FarLife | None = None
    #: those whose client has ended, the oldest first.
    kept: list[Life] = field(default_factory=list)
    _guests: int = 0

    @property
    def all(self) -> list[Life]:
        """Those that live, the one with the run's first client first."""
        return [self.first, *filter(None, [self.other, self.far]), *self.kept]

    @property
    def callers(self) -> list[Caller]:
        """All clients; the one that has started the newest bridge comes first."""
        return [caller for life in self.all for caller in life.here]

    def next_guest(self) -> int:
        """A number for one client more."""
        self._guests += 1
        return self._guests

    # --- beginnings ----------------------------------------------------------------------------

    async def start(self) -> None:
        """The bridge whose client is the run's first, from one to the next."""
        self.first = await self.place.start()
        await self._begin(self.first)

    async def start_far(self) -> None:
        """An editor from elsewhere comes, for all of the run."""
        self.far = await far_editor(self.place, self.next_guest())
        await self._begin(self.far)

    async def _begin(self, life: Life) -> None:
        await life.begin()
        if "needs-auth" in self.place.behaviours:
            self.operations.authenticate(life.first)

    async def start_again(self, rng: random.Random) -> None:
        """The next client has the sessions, most of them, and perhaps another one joins."""
        await self.start()
        await self._open(self.first.first, rng)
        if rng.random() < 0.4:
            await self.join(rng)

    async def _open(self, caller: Caller, rng: random.Random) -> None:
        """Come to the sessions with an ordinary request, and perhaps wait until that is done."""
        caller.permit(rng.choice(["allow", "reject", "cancel", "never"]))
        for session_id in self.operations.known:
            if (way := rng.choice(["load", "load", "load", "resume", ""])) == "load":
                self.operations.load(caller, session_id)
            elif way:
                resume = self.operations.workspace(sessionId=session_id)
                caller.ask("session/resume", resume)
        if caller.ids and rng.random() < 0.6:
            await caller.answered(caller.ids[-1], within=2)

    async def join(self, rng: random.Random) -> None:
        """One client more, at any of the bridges, in the place of one that is there."""
        number = self.next_guest()
        life = rng.choice(self.all)
        if not await life.join(number, rng.choice(script.DECLARED)):
            return
        self.place.ledger.counts["client: joined"] += 1
        caller = life.here[-1]
        caller.permit(rng.choice(["allow", "reject", "cancel", "never"]))
        for session_id in self.operations.known:
            way = rng.choice(_WAYS)
            asks = rng.choice(_HISTORIES) if way == "_acp_bridge/attach" else None
            history = {"history": asks} if asks else {}
            if way:
                caller.ask(way, self.operations.workspace(sessionId=session_id, **history))
        if caller.ids and rng.random() < 0.6:
            await caller.answered(caller.ids[-1], within=2)

    # --- ends ----------------------------------------------------------------------------------

    async def restart(self, rng: random.Random) -> None:
        """The client that has started the newest bridge ends, and the next one comes."""
        await self._end_first(rng)
        self.operations.note_new_sessions()
        self.operations.opening.clear()
        await self.start_again(rng)

    async def _end_first(self, rng: random.Random) -> None:
        life = self.first
        if life.keeps:
            await self._part(life, rng.choice(_PARTS), rng)
            return
        how = rng.choice(_ENDS)
        if rng.random() < 0.3 and len(self.all) == 1:
            await self.settle()
        await life.end(how, rng)
        await self._leave(life, how)

    async def _part(self, life: Life, how: str, rng: random.Random) -> None:
        if how == "BRIDGE" or life.pid() is None:
            if await life.end_behind_waiter(rng):
                await self._leave(life, "kept, SIGKILL")
                return
            how = "SIGKILL"
        if rng.random() < 0.7:
            await self.operations.leave_work(life.first, rng)
        await life.part(how)
        self.place.ledger.counts[f"waiter: {how}"] += 1
        self.place.judge(life, life.first)
        self.kept.append(life)
        if len(self.kept) > _MOST_KEPT:
            await self.end_kept(rng, life=self.kept[0])

    async def end_kept(self, rng: random.Random, life: Life | None = None) -> None:
        """A bridge that has outlived its client ends, by a signal."""
        if not self.kept:
            return
        chosen = life or rng.choice(self.kept)
        how = rng.choice(["SIGTERM", "SIGKILL", "SIGKILL"])
        await chosen.end_kept(how, rng)
        self.kept.remove(chosen)
        await self._leave(chosen, f"kept, {how}")

    async def change_other(self, rng: random.Random) -> None:
        """The second bridge comes, or goes."""
        life = self.other
        if life is None:
            self.other = life = await self.place.start(Guest(self.next_guest(), 0))
            await self._begin(life)
            await self._open(life.first, rng)
            self.place.ledger.counts["bridge: a second one"] += 1
            return
        self.other = None
        if life.keeps:
            await self._part(life, rng.choice(_PARTS), rng)
        else:
            how = rng.choice(_ENDS)
            await life.end(how, rng)
            await self._leave(life, how)

    async def _leave(self, life: Life, how: str) -> None:
        self.operations.note_new_sessions()
        self.place.ledger.counts[f"bridge: {how}"] += 1
        await self.place.leave(life)

    # --- rest ----------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Until all that was asked of all bridges is answered, and those that are kept rest."""
        for life in self.all:
            life.let_all_go_on(self._named())
        if self.place.keeps:  # what a client has closed may wait for the next one's answer
            for session_id in self._named():
                self.operations.load(self.first.first, session_id)
        for life in self.all:
            await life.all_answered()

    def _named(self) -> Sequence[str]:
        asked = {p.session_id for caller in self.callers for p in caller.prompts.values()}
        asked |= {prompt.session_id for prompt in self.place.ledger.newer.values()}
        return sorted(asked | set(self.place.ledger.transcripts))

    async def end_all(self, rng: random.Random) -> None:
        """All has come to rest, and every client has loaded every session, before all ends."""
        await self.settle()
        await self._load_all()
        await self.settle()
        if self.kept:  # one may pass sessions through to another, which has what it accepted
            for life in self.place.living:
                await life.at_rest()
        self._note_kept()
        if self.kept:  # what has been said since is shown, too
            await self._load_all()
            await self.settle()
        for life in [*self.kept, *filter(None, [self.other, self.far])]:
            if life.is_kept:
                await life.end_kept("SIGTERM", rng)
            else:
                await life.end_at_once(rng)
            await self._leave(life, "at rest")
        self.kept, self.other, self.far = [], None, None
        await self.first.end_at_once(rng)
        await self._leave(self.first, "EOF")

    async def _load_all(self) -> None:
        for caller in self.callers:
            for session_id in self.operations.known:
                self.operations.load(caller, session_id)

    def _note_kept(self) -> None:
        """What bridges without their client have accepted has run by now.

        One that has ended since may have had it from them, and what waited there is held.
        """
        numbers, ledger = {life.number for life in self.kept}, self.place.ledger
        for prompt in ledger.everybodys:
            still = not ledger.several or prompt.era == len(ledger.turns)
            prompt.kept = prompt.life in numbers and still
