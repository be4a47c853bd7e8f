"""Which process a session gets, which it leaves, and for whom a process is occupied.

`TABLE` is written down, not computed: a row that is missing fails.
"""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.core.agents.process_pool import (
    Begin,
    End,
    Need,
    PooledProcess,
    ProcessPool,
    Reason,
    Share,
    Sharing,
    State,
    Take,
    Wait,
    Warmth,
)


class Place:
    """A session's place."""

    def __init__(self, name: str, *, opening: bool = False) -> None:
        self.agent_session_id: str | None = name or None
        self.opening = opening

    def is_about(self, session_id: object) -> bool:
        return session_id is not None and session_id == self.agent_session_id

    def __repr__(self) -> str:
        return self.agent_session_id or "unnamed"


A, B, C, D = (Place(name) for name in "abcd")
BY_NAME = dict(zip("abcd", (A, B, C, D), strict=True))
Process = PooledProcess[Place]
#: a session of which nothing is asked here but that a process is started for it
NEEDED: Need[Place] = Need(shares=Sharing.NEVER)


def of(sessions: str, works: str = "") -> Process:
    """Return a process with these sessions, of which those in `works` work."""
    process: Process = PooledProcess()
    process.note_initialized()
    for session in sessions:
        process.join(BY_NAME[session])
    for session in works:
        process.note(BY_NAME[session], works=True)
    return process


# --- one process -------------------------------------------------------------------------------


def test_a_process_is_occupied_for_the_others_while_one_session_works() -> None:
    process = of("abc")
    assert process.note(A, works=True) == (B, C)
    assert [process.occupied(each) for each in (A, B, C)] == [False, True, True]
    assert process.note(A, works=True) == ()
    assert process.note(A, works=False) == (B, C)
    assert not any(process.occupied(each) for each in (A, B, C))


def test_a_session_that_works_already_is_not_asked_to_leave_and_is_told_when_it_rests() -> None:
    process = of("ab", works="a")
    assert process.note(B, works=True) == (B,)
    assert not process.occupied(B)
    assert process.note(B, works=False) == (B,)
    assert process.occupied(B)


def test_who_leaves_frees_the_process_for_the_others_and_is_told_nothing() -> None:
    process = of("ab", works="a")
    assert process.leave(A) == (B,)
    assert (list(process), process.works) == ([B], False)
    assert process.leave(D) == ()
    assert of("ab", works="ab").leave(A) == ()


def test_only_a_session_that_works_or_that_nobody_works_beside_takes_its_process_with_it() -> None:
    assert of("a").dies_with(A)
    assert of("ab").dies_with(A)
    assert of("ab", works="a").dies_with(A)
    assert not of("ab", works="b").dies_with(A)
    assert of("ab", works="ab").dies_with(A)


def test_a_process_in_which_another_session_is_being_opened_dies_only_with_one_that_works() -> None:
    opening = Place("", opening=True)
    process = of("a")
    process.join(opening)
    assert not process.dies_with(A)
    assert process.dies_with(opening)
    process.note(A, works=True)
    assert process.dies_with(A)


def test_a_doomed_process_is_occupied_for_all_at_rest_and_dies_whoever_is_told_so_again() -> None:
    process = of("ab", works="a")
    assert process.doom() == ()
    assert process.note(A, works=False) == (A,)
    assert process.spoiled
    assert process.occupied(B)
    assert process.dies_with(A)
    assert of("ab").doom() == (A, B)
    assert of("a").doom() == ()


def test_a_session_that_has_come_to_nothing_leaves_a_process_that_others_have() -> None:
    unopened = Place("")
    process = of("a")
    process.join(unopened)
    assert not process.dies_with(unopened)
    alone: Process = PooledProcess()
    alone.join(unopened)
    assert alone.dies_with(unopened)


def test_the_process_waits_for_the_clients_of_those_who_work_or_of_all_if_none_does() -> None:
    assert of("ab").paced == (A, B)
    assert of("ab", works="b").paced == (B,)


def test_the_only_one_that_works_is_known_while_it_is_the_only_one() -> None:
    assert of("ab").only_working is None
    assert of("ab", works="b").only_working is B
    assert of("ab", works="ab").only_working is None
    assert [of("ab", works="b").working(each) for each in (A, B)] == [False, True]


_TOLD = ("join", "leave", "on", "off", "doom")


@given(st.lists(st.tuples(st.sampled_from((A, B, C, D)), st.sampled_from(_TOLD))))
def test_who_follows_what_it_is_told_always_knows_for_whom_the_process_is_occupied(
    steps: list[tuple[Place, str]],
) -> None:
    process, told = of(""), dict[Place, bool]()
    for session, step in steps:
        if step == "join":
            process.join(session)
            told.setdefault(session, process.occupied(session))
            continue
        if step == "leave":
            changed = process.leave(session)
            told.pop(session, None)
        elif step == "doom":
            changed = process.doom()
        else:
            changed = process.note(session, works=step == "on")
        for each in changed:
            told[each] = not told[each]
        assert told == {each: process.occupied(each) for each in process}


# --- the states --------------------------------------------------------------------------------

Pool = ProcessPool[Place]
_EVENTS: dict[str, Callable[[Pool, Process], object]] = {
    "initialized": lambda _, process: process.note_initialized(),
    "kept": lambda pool, process: pool.keep(process),
    "withdrawn": lambda pool, process: pool.withdraw(process),
    "b joins": lambda _, process: process.join(B),
    "a works": lambda _, process: process.note(A, works=True),
    "a rests": lambda _, process: process.note(A, works=False),
    "a leaves": lambda _, process: process.leave(A),
    "spoiled": lambda _, process: setattr(process, "spoiled", True),
    "doomed": lambda _, process: process.doom(),
    "gone": lambda pool, process: pool.remove(process),
}
_COLUMNS = tuple(_EVENTS)
#: the state after each event of `_COLUMNS`; "." is the same state.
TABLE = {
    "starting": "resting . . . . . . . . gone",
    "waiting": ". . resting . . . . spoiled spoiled gone",
    "resting": ". waiting . . working . . spoiled spoiled gone",
    "working": ". . . . . resting resting spoiled spoiled gone",
    "spoiled": ". . . . . . . . . gone",
    "doomed": ". . . . . . . . . gone",
    "gone": ". . . . . . . . . .",
}


def in_state(state: State) -> tuple[Pool, Process]:
    """Return a pool and a process of it that is in this state, with session `a`."""
    pool: Pool = ProcessPool()
    process: Process = PooledProcess()
    pool.add(process)
    process.join(A)
    if state is State.STARTING:
        return pool, process
    process.note_initialized()
    match state:
        case State.WAITING:
            pool.keep(process)
        case State.WORKING:
            process.note(A, works=True)
        case State.SPOILED:
            process.doom()
        case State.DOOMED:
            process.join(B)
            process.doom()
        case State.GONE:
            pool.remove(process)
        case _:
            pass
    assert process.state is state
    return pool, process


@pytest.mark.hazard("P18")
def test_every_state_of_a_process_and_every_event_lead_to_the_state_of_the_table() -> None:
    assert set(TABLE) == set(State)
    for state in State:
        nexts = TABLE[state].split()
        for event, then in zip(_COLUMNS, nexts, strict=True):
            pool, process = in_state(state)
            _EVENTS[event](pool, process)
            assert process.state == (state if then == "." else then), (state, event)


def test_one_process_waits_at_most_and_none_that_a_session_has() -> None:
    pool: Pool = ProcessPool()
    pool.add(shared := of("ab"))
    pool.add(first := of("c"))
    pool.add(second := of("d"))
    assert not pool.keep(shared)
    assert pool.keep(first)
    assert not pool.keep(second)
    assert pool.keep(first)
    pool.remove(first)
    assert pool.waiting is None
    assert pool.keep(second)


def test_a_process_is_wanted_for_the_next_session_if_none_waits_or_comes_and_the_pool_is_open() -> (
    None
):
    pool: Pool = ProcessPool()
    assert pool.wants_one
    start = pool.begin()
    assert not pool.wants_one
    pool.end(start)
    pool.begin(NEEDED)
    assert pool.wants_one
    pool.add(waits := of("a"))
    pool.keep(waits)
    assert not pool.wants_one
    assert pool.ready == [waits]
    pool.remove(waits)
    assert (pool.ready, pool.wants_one) == ([], True)
    pool.close()
    assert not pool.wants_one


# --- what a session gets -----------------------------------------------------------------------


def test_a_session_shares_a_process_or_gets_the_one_that_waits_or_that_is_started() -> None:
    pool: Pool = ProcessPool()
    need: Need[Place] = Need(shares=Sharing.RESTING)
    assert isinstance(pool.step(need), Begin)
    own = pool.begin(NEEDED)
    assert pool.step(need) == Wait(own, claimed=False)
    coming = pool.begin()
    assert pool.step(need) == Wait(coming, claimed=True)
    coming.claimed = True
    assert pool.step(need) == Wait(own, claimed=False)
    pool.add(waits := of("a"))
    pool.keep(waits)
    assert pool.step(need) == Take(waits)
    pool.add(shared := of("b"))
    assert pool.step(need) == Share(shared)


@pytest.mark.hazard("P11.1")
def test_a_session_that_shares_no_process_never_waits_for_one_that_another_needs() -> None:
    pool: Pool = ProcessPool()
    need: Need[Place] = Need(shares=Sharing.NEVER)
    pool.add(of("b"))
    pool.begin(NEEDED)
    assert isinstance(pool.step(need), Begin)
    coming = pool.begin()
    assert pool.step(need) == Wait(coming, claimed=True)
    coming.claimed = True
    assert isinstance(pool.step(need), Begin)


def asking(*, prompted: bool = False) -> Need[Place]:
    """Return the need of a session that shares a process at rest."""
    return Need(shares=Sharing.RESTING, prompted=lambda: prompted)


@pytest.mark.hazard("P11.1")
def test_a_session_waits_for_one_start_of_others_whatever_becomes_of_it() -> None:
    pool: Pool = ProcessPool()
    need, first, second = asking(), pool.begin(NEEDED), pool.begin(NEEDED)
    for _ in range(2):
        assert pool.step(need) == Wait(first, claimed=False)
        pool.begin_wait(need, first)
    assert pool.step(asking()) == Wait(first, claimed=False)
    pool.end(first)
    assert not pool.under_way(first)
    assert pool.step(need) == Begin()
    assert pool.step(asking()) == Wait(second, claimed=False)
    pool.add(comes := of("a"))
    assert pool.step(need) == Share(comes)


@pytest.mark.hazard("P18.11")
def test_with_a_prompt_a_session_waits_for_no_start_that_an_earlier_prompt_needs() -> None:
    pool: Pool = ProcessPool()
    start = pool.begin(asking())
    rests, prompted, later = asking(), asking(prompted=True), asking(prompted=True)
    for need in (rests, prompted):
        assert pool.step(need) == Wait(start, claimed=False)
        pool.begin_wait(need, start)
    assert pool.step(later) == Begin()
    assert pool.step(prompted) == Wait(start, claimed=False)
    other = pool.begin(asking())
    assert pool.step(later) == Wait(other, claimed=False)
    pool.end(other)
    pool.begin_wait(later, start)
    pool.end_wait(prompted)
    assert pool.step(later) == Wait(start, claimed=False)
    rests.prompted = lambda: True
    assert pool.step(later) == Begin()
    assert pool.step(rests) == Wait(start, claimed=False)


def test_a_session_that_claims_another_start_waits_for_the_first_no_more() -> None:
    pool: Pool = ProcessPool()
    need, first = asking(prompted=True), pool.begin(NEEDED)
    pool.begin_wait(need, first)
    coming = pool.begin()
    assert pool.step(need) == Wait(coming, claimed=True)
    pool.begin_wait(need, coming)
    assert (first.needs, coming.needs) == ([NEEDED], [need])


def test_a_light_process_that_waits_is_ended_if_a_complete_one_can_be_forked() -> None:
    pool: Pool = ProcessPool()
    pool.add(waits := of("a"))
    pool.keep(waits)
    step = pool.step(Need(shares=Sharing.NEVER), light=True)
    assert step == End(waits, Reason.LIGHT)


def test_a_session_is_shared_where_it_is_asked_for_or_else_in_the_oldest_process() -> None:
    pool: Pool = ProcessPool()
    pool.add(oldest := of("a"))
    pool.add(newest := of("b"))
    assert pool.shared(Need(shares=Sharing.RESTING)) is oldest
    assert pool.shared(Need(shares=Sharing.RESTING, first=newest)) is newest
    newest.note(B, works=True)
    assert pool.shared(Need(shares=Sharing.RESTING, first=newest)) is oldest


def test_a_session_never_comes_to_a_process_in_which_another_has_its_id() -> None:
    pool: Pool = ProcessPool()
    pool.add(of("a"))
    pool.add(other := of("b"))
    assert pool.shared(Need(shares=Sharing.RESTING, agent_session_id="a")) is other
    assert pool.shared(Need(shares=Sharing.RESTING, agent_session_id="c")) is not other


def prompted(sessions: str) -> Process:
    """Return a process with these sessions, which had prompts."""
    process = of(sessions)
    for session in sessions:
        process.note_prompted(BY_NAME[session])
    return process


@pytest.mark.hazard("P18.1")
def test_what_an_agent_that_holds_on_has_closed_goes_back_and_only_fresh_sessions_share() -> None:
    pool: Pool = ProcessPool()
    pool.add(prompted("a"))
    pool.add(left := prompted("b"))
    need: Need[Place] = Need(shares=Sharing.RESTING, agent_session_id="c")
    pool.holds_on = True
    own = pool.begin(NEEDED)
    assert isinstance(pool.step(need), Begin)
    pool.end(own)
    need.back = left
    assert pool.step(need) == Share(left)
    pool.holds_on = False
    assert pool.step(need) == Share(left)
    left.note(B, works=True)
    assert pool.step(need) != Share(left)


@pytest.mark.hazard("P18.9")
def test_a_fresh_session_shares_a_process_for_one_and_leaves_it_to_who_had_a_prompt() -> None:
    pool: Pool = ProcessPool()
    pool.add(process := prompted("a"))
    fresh: Need[Place] = Need(shares=Sharing.FRESH, fresh=True)
    assert pool.step(fresh) == Share(process, for_one=True)
    process.for_one = True
    process.join(B)
    assert (process.occupied(A), process.occupied(B)) == (False, True)
    assert process.note(B, works=True) == (B,), "what is done for B, without a prompt, moves A not"
    assert process.note(B, works=False) == (B,)
    assert isinstance(pool.step(Need(shares=Sharing.FRESH)), Begin)
    process.join(C)
    assert process.leave(A) == (B, C)
    assert process.note_prompted(B) == (C,)
    assert process.note(B, works=True) == ()
    assert process.note(B, works=False) == ()
    assert (process.occupied(B), process.occupied(C)) == (False, True)


@pytest.mark.hazard("P18.9")
def test_a_session_that_had_a_prompt_shares_only_with_fresh_ones_and_they_are_told() -> None:
    pool: Pool = ProcessPool()
    pool.add(process := of("ab"))
    process.for_one = True
    assert pool.step(Need(shares=Sharing.FRESH)) == Share(process, for_one=True)
    process.join(C)
    assert process.note_prompted(C) == (A, B)
    assert isinstance(pool.step(Need(shares=Sharing.FRESH)), Begin)


def test_who_needs_a_fresh_session_waits_for_a_start_and_who_had_prompts_does_not() -> None:
    pool: Pool = ProcessPool()
    start = pool.begin(NEEDED)
    fresh: Need[Place] = Need(shares=Sharing.FRESH, fresh=True)
    assert pool.step(fresh) == Wait(start, claimed=False)
    assert isinstance(pool.step(Need(shares=Sharing.FRESH)), Begin)


# --- kept warm ---------------------------------------------------------------------------------


def test_the_next_process_is_started_when_one_was_taken_and_only_once() -> None:
    warmth: Warmth[Place] = Warmth()
    assert warmth.note_taken()
    assert not warmth.note_taken()
    assert not warmth.note_taken()
    warmth.kept = False
    assert warmth.note_taken()


def test_three_starts_in_a_row_that_no_session_took_are_enough_until_one_does() -> None:
    warmth: Warmth[Place] = Warmth()
    for _ in range(3):
        assert warmth.goes_on
        warmth.note_start()
    assert not warmth.goes_on
    warmth.note_taken()
    assert (warmth.goes_on, warmth.tries) == (True, 0)


def test_a_process_is_outdated_if_something_was_set_while_it_started() -> None:
    warmth: Warmth[Place] = Warmth()
    for changes in (0, 1, 2):
        warmth.note_start()
        for _ in range(changes):
            warmth.note_change(of("b"))
        assert warmth.note_come(of("a")) == (changes > 0)


def test_a_change_outdates_the_warm_process_unless_that_one_was_told_of_it() -> None:
    warmth: Warmth[Place] = Warmth()
    other, warm = of("a"), of("b")
    assert not warmth.note_come(warm)
    assert warmth.note_change(other) is warm
    assert warmth.note_change(warm) is None
    never: Warmth[Place] = Warmth()
    assert never.note_change(other) is None


def test_a_process_knows_its_session_if_there_is_exactly_one() -> None:
    process: Process = PooledProcess()
    assert process.only is None
    process.join(A)
    assert process.only is A
    process.join(B)
    assert process.only is None
    process.leave(A)
    assert process.only is B


def test_sessions_that_had_prompts_and_rest_do_not_occupy_a_process_unless_it_is_for_one() -> None:
    process: Process = PooledProcess()
    process.join(A)
    process.join(B)
    assert process.fresh(A)
    process.note_prompted(A)
    process.note_prompted(B)
    assert not process.fresh(A)
    assert not process.occupied(A)
    process.for_one = True
    assert process.occupied(A)
