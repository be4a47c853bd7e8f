"""Sessions that follow what the pool decides, in any order of events: the promises of P18."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from acp_bridge.core.agents.process_pool import (
    Need,
    PooledProcess,
    ProcessPool,
    Share,
    Sharing,
    Start,
    State,
    Take,
    Wait,
)
from tests.core.agents.test_process_pool import Place, Pool, Process


class Session:
    """A session that follows what is decided; it waits for a start, or has a process."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.process: Process | None = None
        self.waits_for: Start[Place] | None = None
        self.claimed = False
        self.fresh = True
        #: a prompt came while it had no process.
        self.prompted = False
        self.need: Need[Place] = Need(Sharing.NEVER)


class Sessions(RuleBasedStateMachine):
    """Sessions that come, work, move, end and die, on an agent that may share its processes."""

    def __init__(self) -> None:
        super().__init__()
        self.pool: Pool = ProcessPool()
        self.sessions: list[Session] = []
        self.starts: list[Start[Place]] = []
        #: who a start was begun for; None: for the next session.
        self.begun: dict[int, Session | None] = {}
        #: what each session was told last: whether its process is occupied for it.
        self.told: dict[Place, bool] = {}
        self.count = 0

    @initialize(shares=st.sampled_from(Sharing))
    def begin(self, shares: Sharing) -> None:
        self.shares = shares

    # --- what sessions want ----------------------------------------------------------------------

    @rule(again=st.booleans())
    def comes(self, again: bool) -> None:
        """A session comes; `again`: with an id that another has, as agents give them by process."""
        self.count += 1
        known = self.sessions[0].place.agent_session_id if again and self.sessions else None
        self.sessions.append(session := Session(Place(known or f"s{self.count}")))
        self.finds(session)

    @rule(n=st.integers(0, 9))
    def prompts(self, n: int) -> None:
        """A session at rest is prompted: it works where it is, or moves."""
        if session := self.one(n):
            assert session.process
            if self.told[session.place]:
                self.leaves(session)
                self.finds(session)
            if session.process and not self.told[session.place]:
                told = session.process.note(session.place, works=True)
                self.tell(session.process, told)
                session.fresh = False

    @rule(n=st.integers(0, 9))
    def is_prompted_meanwhile(self, n: int) -> None:
        """A session gets a prompt while it waits for a start: all who wait look again."""
        if waiting := [each for each in self.sessions if each.waits_for]:
            waiting[n % len(waiting)].prompted = True
            for session in waiting:
                if session not in self.begun.values() and not session.claimed:
                    session.waits_for = None
                    self.looks(session)

    @rule(n=st.integers(0, 9))
    def gives_up(self, n: int) -> None:
        """A session ends while it waits for a start of another one."""
        waiting = [each for each in self.sessions if each.waits_for and not each.claimed]
        waiting = [each for each in waiting if each not in self.begun.values()]
        if waiting:
            self.pool.end_wait(waiting[n % len(waiting)].need)
            self.sessions.remove(waiting[n % len(waiting)])

    @rule(n=st.integers(0, 9))
    def rests(self, n: int) -> None:
        if session := self.one(n):
            assert session.process
            self.tell(session.process, session.process.note(session.place, works=False))

    @rule(n=st.integers(0, 9))
    def ends(self, n: int) -> None:
        if session := self.one(n):
            self.leaves(session)
            self.sessions.remove(session)

    @rule(n=st.integers(0, 9))
    def is_refused(self, n: int) -> None:
        """The agent refuses a session, and its process may wait for the next one."""
        if (session := self.one(n)) and session.process and not session.process.works:
            process = session.process
            if process.several:
                self.tell(process, process.leave(session.place))
            elif not self.pool.keep(process):
                self.pool.remove(process)
            self.sessions.remove(session)

    @rule(n=st.integers(0, 9))
    def is_killed(self, n: int) -> None:
        """A session's process is killed if that harms no other one; else the session leaves it."""
        if session := self.one(n):
            assert session.process
            if session.process.dies_with(session.place):
                self.tell(session.process, session.process.doom())
            self.leaves(session)
            self.finds(session)

    # --- what processes do -----------------------------------------------------------------------

    @rule()
    def is_warmed(self) -> None:
        if self.pool.wants_one:
            self.starts.append(start := self.pool.begin())
            self.begun[id(start)] = None

    @rule(n=st.integers(0, 9), well=st.booleans())
    def start_ends(self, n: int, well: bool) -> None:
        if not self.starts:
            return
        start = self.starts.pop(n % len(self.starts))
        if well:
            process: Process = PooledProcess()
            start.process = process
            self.pool.add(process)
            process.note_initialized()
        mine = self.begun.pop(id(start))
        waiting = [each for each in self.sessions if each.waits_for is start]
        assert sum(each.claimed for each in waiting) == start.claimed
        if start.process and start.waits:
            start.process.join(Place(""))
            if not self.pool.keep(start.process):
                self.pool.remove(start.process)
        self.pool.end(start)
        for session in waiting:
            claimed, session.waits_for, session.claimed = session.claimed, None, False
            if start.process and (claimed or session is mine):
                self.gets(session, start.process)
            elif session is mine:  # it is told that its process did not start
                self.sessions.remove(session)
            else:
                self.looks(session)

    @rule(n=st.integers(0, 9))
    def dies(self, n: int) -> None:
        if ready := self.pool.ready:
            process = ready[n % len(ready)]
            self.pool.remove(process)
            for session in list(self.sessions):
                if session.process is process:
                    session.process = None
                    self.finds(session)

    # --- what the shell does ---------------------------------------------------------------------

    def one(self, n: int) -> Session | None:
        settled = [session for session in self.sessions if session.process]
        return settled[n % len(settled)] if settled else None

    def leaves(self, session: Session) -> None:
        process, session.process = session.process, None
        assert process
        if process.several:
            self.tell(process, process.leave(session.place))
        else:
            self.pool.remove(process)
        if process.state is State.DOOMED:
            self.pool.remove(process)
            for other in list(self.sessions):
                if other.process is process:
                    other.process = None
                    self.finds(other)

    def finds(self, session: Session) -> None:
        session.need = Need(self.shares, session.fresh, session.place.agent_session_id)
        session.need.prompted = lambda: session.prompted
        self.looks(session)

    def looks(self, session: Session) -> None:
        waited = session.need.start
        match step := self.pool.step(session.need):
            case Wait(start, claimed):
                assert start in self.starts
                assert claimed or waited in (None, start), "it waits for one of others"
                assert not (claimed and start.claimed)
                self.pool.begin_wait(session.need, start)
                start.claimed |= claimed
                session.claimed = claimed
                session.waits_for = start
                return
        self.pool.end_wait(session.need)
        match step:
            case Share(process, for_one):
                assert self.shares is not Sharing.NEVER
                process.for_one = for_one
                assert not process.works
                assert not process.has_session(session.place.agent_session_id)
                self.gets(session, process)
            case Take(process):
                assert self.pool.withdraw(process)
                assert len(process) == 1
                for nobody in tuple(process):
                    process.join(session.place)
                    process.leave(nobody)
                self.is_there(session, process)
            case _:
                assert self.pool.waiting is None
                self.starts.append(start := self.pool.begin(session.need))
                self.begun[id(start)] = session
                session.waits_for = start

    def gets(self, session: Session, process: Process) -> None:
        assert process.state is State.RESTING
        process.join(session.place)
        self.is_there(session, process)

    def is_there(self, session: Session, process: Process) -> None:
        """Note what the shell notes of a session that has come to a process."""
        session.process, session.prompted = process, False
        told = () if session.fresh else process.note_prompted(session.place)
        self.tell(process, told)
        self.told[session.place] = process.occupied(session.place)

    def tell(self, process: Process, told: tuple[Place, ...]) -> None:
        """Note what sessions are told of their process."""
        for place in told:
            self.told[place] = process.occupied(place)

    # --- what always holds -----------------------------------------------------------------------

    @invariant()
    def no_process_works_for_two(self) -> None:
        for process in self.pool.ready:
            assert not process.works or len(process.paced) == 1
            assert self.shares is not Sharing.NEVER or not process.several
            assert self.shares is not Sharing.FRESH or process.prompted <= 1

    @invariant()
    def everybody_knows_if_the_process_is_occupied(self) -> None:
        for session in self.sessions:
            if session.process:
                assert self.told[session.place] == session.process.occupied(session.place)

    @invariant()
    def no_prompt_waits_for_a_start_that_another_prompt_needs(self) -> None:
        for start in self.starts:
            assert sum(need.prompted() for need in start.needs) <= 1
            waiting = [session.need for session in self.sessions if session.waits_for is start]
            assert sorted(map(id, start.needs)) == sorted(map(id, waiting))

    @invariant()
    def every_session_has_a_process_or_waits_for_a_start(self) -> None:
        for session in self.sessions:
            assert (session.process is None) != (session.waits_for is None)
            assert session.waits_for is None or session.waits_for in self.starts
            assert session.process is None or session.process.state is not State.GONE


SessionsTest = Sessions.TestCase
SessionsTest.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
SessionsTest = pytest.mark.hazard("P18", "P18.2", "P18.3", "P18.11")(SessionsTest)
