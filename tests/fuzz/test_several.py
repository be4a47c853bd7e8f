"""What judges several clients: each rule is seen to be broken once."""

import json
from typing import Any

import anyio
import pytest

from acp_bridge.core.updates.notices import CLOSED_BY_OTHER
from tests.crash.told import Lost
from tests.fuzz import script
from tests.fuzz.ledger import Ledger
from tests.fuzz.owned import Owned
from tests.fuzz.prompts import ClosedForAll, Guest, Prompt
from tests.fuzz.questions import Person, judge_answers_heard, judge_who_was_asked, named
from tests.fuzz.sights import Sight, flat
from tests.fuzz.test_fuzz import Json, asks, card, recorded, result, said, sent
from tests.support.joined import joined
from tests.support.recording import Recording

Q = script._question("q0.0")
ASKING = Prompt(0, "session", 0, f"say p0.0.; {Q}; say p0.1.", ["p0.0.", "p0.1."], urgent=False)


def user(text: str) -> Json:
    chunk = {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": text}}
    return {"method": "session/update", "params": {"sessionId": "session", "update": chunk}}


def parts(*lines: Json) -> list[Any]:
    return [line["params"]["update"] for line in lines]


#: two turns, one of each client.
WHOLE = [user("one"), said("a "), said("b"), card("t"), user("two"), said("c", messageId="m")]


def seen(*steps: Any, own: str = "one") -> Sight:
    """What a client was shown: `load`, `loaded`, `close`, `end` of another bridge, or a line."""
    sight = Sight("session", "it", {own})
    for step in steps:
        match step:
            case "load":
                sight.asked_to_open()
            case "loaded" | "resumed":
                sight.opened(replays=step == "loaded", well=True)
            case "new":
                sight.began()
            case "close":
                sight.lost_sight()
            case "closed":
                sight.left()
            case "end":
                sight.bridge_ended()
            case _:
                sight.shown(step["params"])
    return sight


ONE, A, B, CARD, TWO, C = WHOLE


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(["new", A, B, CARD, TWO, C], id="all of it, without its own prompt"),
        pytest.param(["load", ONE, A, "loaded", B, CARD, TWO, C], id="a load, then what follows"),
        pytest.param(["load", "resumed", B, CARD, TWO, C], id="from the middle of a message"),
        pytest.param(["new", A, "load", B, ONE, A, B, "loaded", CARD], id="a load during a turn"),
        pytest.param(["new", A, "close", "load", ONE, A, B, CARD, "loaded", TWO], id="it was away"),
        pytest.param(["load", ONE, A, "loaded", "end", CARD, TWO], id="a bridge took some with it"),
        pytest.param(["new", A, said("b"), CARD, TWO, C], id="cut into other chunks"),
    ],
)
def test_a_part_of_the_whole_in_its_order_is_good(steps: list[Any]) -> None:
    assert seen(*steps).compare(parts(*WHOLE))


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(["new", A, B, TWO, C], id="an update is missing"),
        pytest.param(["new", A, B, CARD, CARD, TWO, C], id="one comes twice"),
        pytest.param(["new", A, CARD, B, TWO, C], id="two are in another order"),
        pytest.param(["new", A, B, CARD, C], id="the words of another client are missing"),
        pytest.param(["load", "resumed", B, CARD, C], id="missing behind a resume"),
        pytest.param(["load", ONE, A, "loaded", CARD, TWO], id="missing between replay and live"),
        pytest.param(["load", ONE, B, "loaded", CARD, TWO], id="missing in a replay"),
        pytest.param(["new", A, "load", ONE, A, B, "loaded"], id="missing before a load"),
        pytest.param(["load", "resumed", A, "load", ONE, A, B, "loaded"], id="missing, resumed"),
        pytest.param(["load", ONE, A, "loaded", "end", TWO, CARD], id="another order, with a gap"),
        pytest.param(["new", A, said("x"), CARD], id="something that is not there in the end"),
    ],
)
def test_what_is_no_part_of_the_whole_is_found(steps: list[Any]) -> None:
    with pytest.raises(Lost):
        seen(*steps).compare(parts(*WHOLE))


def test_who_has_left_is_shown_nothing_any_more() -> None:
    with pytest.raises(Lost):
        seen("new", A, "close", "closed", B)
    seen("new", A, "close", B, "closed", "load", A)


def test_a_text_is_the_same_however_it_is_cut() -> None:
    assert flat(parts(A, B)) == flat(parts(said("a b")))
    assert flat(parts(A, TWO, B)) != flat(parts(A, B, TWO))


def judged(*lines: Json, ledger: Ledger | None = None) -> Ledger:
    """A client with the prompt `say p0.0.` of the id 1."""
    ledger = ledger or Ledger(turns=[0])
    prompt = Prompt(0, "session", 0, "say p0.0.", ["p0.0."], urgent=False, by=1)
    ledger.prompts = [prompt]
    opened = [sent("session/load", 0), result(0)]
    recording = recorded(*opened, *lines)
    ledger.judge_life(recording, "", {"1": prompt}, quiet=True, guest=Guest(1, 0), company=True)
    return ledger


def told(method: str, **params: Any) -> Json:
    return {"method": method, "params": {"sessionId": "session", **params}}


def state(word: str, **turn: Any) -> Json:
    named = {"turn": {"promptId": "p", "text": "say p0.0.", **turn}} if turn else {}
    return told("_acp_bridge/state", state=word, seconds=0, waiting=0, clients=2, **named)


OWN = sent("session/prompt", 1)
ACCEPTED = told("_acp_bridge/accepted", requestId=1, promptId="p")
ENDED = result(1, stopReason="end_turn")


def test_a_prompt_of_its_own_is_accepted_once_and_not_echoed() -> None:
    judged(OWN, ACCEPTED, state("running", mine=True), said("p0.0."), ENDED, state("idle"))


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([OWN, ACCEPTED, ACCEPTED, said("p0.0."), ENDED], id="accepted twice"),
        pytest.param([OWN, user("say p0.0."), said("p0.0."), ENDED], id="echoed"),
        pytest.param([state("idle", mine=True)], id="a turn at rest"),
        pytest.param([state("nowhere")], id="a state that does not exist"),
        pytest.param([told("$/cancel_request", requestId=5)], id="what was never asked, given up"),
        pytest.param([asks("t"), asks("u")], id="two requests of one id"),
    ],
)
def test_what_one_of_several_clients_must_not_be_told_is_found(lines: list[Json]) -> None:
    with pytest.raises(Lost):
        judged(*lines)


def test_the_turn_of_another_is_not_called_its_own() -> None:
    ledger = Ledger(turns=[0])
    other = Prompt(0, "session", 0, "say p0.0.", ["p0.0."], urgent=False, by=2)
    ledger.prompts = [other]
    recording = recorded(state("running", mine=True))
    with pytest.raises(Lost):
        ledger.judge_life(recording, "", {}, quiet=True, guest=Guest(1, 0), company=True)


# --- questions -----------------------------------------------------------------------------------


def question(request_id: int = 0) -> Json:
    return {**asks("q0.0"), "id": request_id}


def answer(option: str, request_id: int = 0) -> Json:
    outcome = {"outcome": "selected", "optionId": option}
    return {"out": True, "id": request_id, "result": {"outcome": outcome}}


GIVEN_UP = {"method": "$/cancel_request", "params": {"requestId": 0}}


def person(number: int, *lines: Json, observes: bool = False, own: bool = False) -> Person:
    found = Person(number, observes, own)
    found.read(Recording(recorded(*lines)), [ASKING])
    return found


def heard(option: str) -> dict[int, str]:
    outcome = json.dumps({"outcome": {"outcome": "selected", "optionId": option}})
    return {0: f"p0.0.[session/request_permission {outcome}]p0.1."}


def test_the_question_of_a_prompt_has_a_name() -> None:
    assert named(ASKING) == ["q0.0"]


def test_the_first_answer_counts_and_the_others_are_called_back() -> None:
    people = [
        person(1, question(), answer("allow")),
        person(2, question(), answer("reject"), GIVEN_UP),
        person(3, question(), GIVEN_UP),
    ]
    assert judge_answers_heard([ASKING], people, heard("allow"))["permission: judged"] == 1


@pytest.mark.parametrize(
    "people",
    [
        pytest.param([person(1, question(), answer("reject"))], id="allowed by nobody"),
        pytest.param(
            [
                person(1, question(), answer("allow"), GIVEN_UP),
                person(2, question(), answer("reject"), said("p0.1.")),
            ],
            id="by one who was called back",
        ),
    ],
)
def test_an_answer_that_nobody_who_counts_has_given_is_found(people: list[Person]) -> None:
    with pytest.raises(Lost):
        judge_answers_heard([ASKING], people, heard("allow"))


def test_an_answer_of_one_who_has_left_with_it_may_not_have_been_read() -> None:
    people = [person(1, question(), answer("allow")), person(2, said("p0.1."))]
    assert judge_answers_heard([ASKING], people, heard("reject"))["permission: judged"] == 1


def test_one_who_left_with_its_answer_may_have_been_quicker_than_one_who_stayed() -> None:
    people = [
        person(1, question(), answer("allow")),
        person(2, question(), answer("reject"), said("p0.1.")),
    ]
    assert judge_answers_heard([ASKING], people, heard("allow"))["permission: judged"] == 1


def test_who_may_answer_and_was_not_asked_is_found() -> None:
    asked, left_out = person(1, question()), person(2)
    with pytest.raises(Lost):
        judge_who_was_asked(ASKING, left_out, [asked, left_out], "p0.0.p0.1.")
    judge_who_was_asked(ASKING, left_out, [asked, left_out], "p0.1.")
    judge_who_was_asked(ASKING, person(2, observes=True), [asked], "p0.0.p0.1.")
    judge_who_was_asked(ASKING, person(2, own=True), [asked], "p0.0.p0.1.")


def test_who_was_asked_twice_is_found() -> None:
    twice = person(1, question(), question(1))
    with pytest.raises(Lost):
        judge_who_was_asked(ASKING, twice, [twice], "p0.0.p0.1.")


def test_an_observer_that_is_asked_is_found() -> None:
    with pytest.raises(Lost):
        person(1, question(), observes=True)


def test_a_question_that_is_still_asked_when_the_turn_goes_on_is_found() -> None:
    person(1, said("p0.0."), question(), GIVEN_UP, said("p0.1."))
    with pytest.raises(Lost):
        person(1, said("p0.0."), question(), said("p0.1."))


# --- a run ---------------------------------------------------------------------------------------


def test_each_kind_of_run_comes_and_every_client_has_its_turn() -> None:
    kinds = {(script.keeps(seed), script.has_two(seed)) for seed in range(1, 40)}
    assert len(kinds) == 4
    places = [script.place(n / 1000, 3) for n in range(1000)]
    assert {places.count(0), places.count(1), places.count(2)} == {500, 250}
    assert script.place(0.99, 1) == 0


async def test_contexts_end_in_any_order_and_tell_what_failed() -> None:
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            with pytest.raises(FileNotFoundError):
                await Owned.open(tasks, joined("/nowhere"))
            scopes = [await Owned.open(tasks, anyio.create_task_group()) for _ in range(2)]
            for scope in scopes:
                await scope.close()


def test_a_replay_that_somebodys_close_breaks_off_is_not_taken_for_what_came_live() -> None:
    load, replayed = sent("session/load", 5), [user("one"), said("a ")]
    notice = said(CLOSED_BY_OTHER)
    notice["params"]["_meta"] = {"acp_bridge": {"notice": True}}
    broken_off = {"id": 5, "error": {"code": -32002, "message": "unknown session"}}
    again = [sent("session/load", 6), *replayed, result(6)]
    judged(said("a "), load, *replayed, notice, broken_off, *again)


def test_a_client_that_was_not_told_of_a_close_for_all_may_miss_what_follows() -> None:
    load, again = sent("session/load", 5), sent("session/load", 6)
    missed = [load, said("a "), result(5), said("b"), again, said("a "), said("c"), result(6)]
    judged(*missed, ledger=Ledger(turns=[0], closings=[ClosedForAll(4, "session", by=0)]))
    for closings in ([], [ClosedForAll(4, "another", by=0)], [ClosedForAll(4, "session", by=1)]):
        with pytest.raises(Lost):
            judged(*missed, ledger=Ledger(turns=[0], closings=closings))
