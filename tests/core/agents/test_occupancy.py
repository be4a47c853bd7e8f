"""Which sessions share a process, which of them work, and for whom the process is occupied."""

from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.core.agents.occupancy import Occupancy


def of(*sessions: str, works: str = "") -> Occupancy[str]:
    """Return a process with these sessions, of which those in `works` work."""
    process: Occupancy[str] = Occupancy()
    for session in sessions:
        process.join(session)
    for session in works:
        process.note(session, works=True)
    return process


def test_a_process_is_occupied_for_the_others_while_one_session_works() -> None:
    process = of("a", "b", "c")
    assert process.note("a", works=True) == ("b", "c")
    assert [process.occupied(each) for each in "abc"] == [False, True, True]
    assert process.note("a", works=True) == ()
    assert process.note("a", works=False) == ("b", "c")
    assert not any(process.occupied(each) for each in "abc")


def test_a_session_that_works_already_is_not_asked_to_leave_and_is_told_when_it_rests() -> None:
    process = of("a", "b", works="a")
    assert process.note("b", works=True) == ("b",)
    assert not process.occupied("b")
    assert process.note("b", works=False) == ("b",)
    assert process.occupied("b")


def test_who_leaves_frees_the_process_for_the_others_and_is_told_nothing() -> None:
    process = of("a", "b", works="a")
    assert process.leave("a") == ("b",)
    assert (list(process), process.works) == (["b"], False)
    assert process.leave("never there") == ()


def test_only_a_session_that_works_or_that_nobody_works_beside_takes_its_process_with_it() -> None:
    assert of("a").dies_with("a", opened=True)
    assert of("a", "b").dies_with("a", opened=True)
    assert of("a", "b", works="a").dies_with("a", opened=True)
    assert not of("a", "b", works="b").dies_with("a", opened=True)
    assert of("a", "b", works="ab").dies_with("a", opened=True)
    assert not of("a", "b").dies_with("a", opened=True, another_opens=True)
    assert of("a", "b", works="a").dies_with("a", opened=True, another_opens=True)


def test_a_doomed_process_is_occupied_for_all_at_rest_and_dies_whoever_is_told_so_again() -> None:
    process = of("a", "b", works="a")
    assert process.doom() == ()
    assert process.note("a", works=False) == ("a",)
    assert process.spoiled
    assert process.occupied("b")
    assert process.dies_with("a", opened=True)
    assert of("a", "b").doom() == ("a", "b")
    assert of("a").doom() == ()


def test_a_session_that_has_come_to_nothing_leaves_a_process_that_others_have() -> None:
    assert not of("a", "b").dies_with("b", opened=False)
    assert of("b").dies_with("b", opened=False)


def test_the_process_waits_for_the_clients_of_those_who_work_or_of_all_if_none_does() -> None:
    assert of("a", "b").paced == ("a", "b")
    assert of("a", "b", works="b").paced == ("b",)


def test_the_only_one_that_works_is_known_while_it_is_the_only_one() -> None:
    assert of("a", "b").only_working is None
    assert of("a", "b", works="b").only_working == "b"
    assert of("a", "b", works="ab").only_working is None


_STEPS = ("join", "leave", "on", "off", "doom")


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(_STEPS))))
def test_who_follows_what_it_is_told_always_knows_for_whom_the_process_is_occupied(
    steps: list[tuple[str, str]],
) -> None:
    process, told = of(), dict[str, bool]()
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
