"""A few runs of `make fuzz`, and what judges them: each rule is seen to be broken once."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.crash.told import Lost
from tests.fuzz import script
from tests.fuzz.__main__ import runs
from tests.fuzz.ledger import Ledger
from tests.fuzz.prompts import Guest, Prompt
from tests.fuzz.run import Run
from tests.support.fixture_agents import BEHAVIOURS
from tests.support.recording import Record, Recording

Json = dict[str, Any]
S = "session"


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 23])  # in the last one clients of version 2 act
async def test_whatever_a_client_does_all_is_answered_once_and_shown_as_recorded(
    seed: int, tmp_path: Path
) -> None:
    counts = await Run(seed, tmp_path).play(30)
    assert counts["operations"] == 30


def test_a_shorter_run_is_the_beginning_of_a_longer_one_and_every_behaviour_comes() -> None:
    def drawn(count: int) -> list[tuple[str, int, float]]:
        return [(o.kind, o.slot, o.rng.random()) for o in script.operations(7, count)]

    assert drawn(20) == drawn(60)[:20]
    assert runs(100, 5) == [(5, 40), (6, 40), (7, 20)]
    names = {name for seed in range(len(BEHAVIOURS) + 1) for name in script.behaviours(seed)}
    assert names == set(BEHAVIOURS)


def sent(method: str, request_id: Any, **params: Any) -> Json:
    return {"out": True, "id": request_id, "method": method, "params": {"sessionId": S, **params}}


def said(text: str, **update: Any) -> Json:
    chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return {"method": "session/update", "params": {"sessionId": S, "update": {**chunk, **update}}}


def card(name: str, **more: Any) -> Json:
    update = {"sessionUpdate": "tool_call", "toolCallId": name, **more}
    return {"method": "session/update", "params": {"sessionId": S, "update": update}}


def asks(name: str) -> Json:
    params = {"sessionId": S, "toolCall": {"toolCallId": name}, "options": []}
    return {"id": 0, "method": "session/request_permission", "params": params}


def result(request_id: Any, **value: Any) -> Json:
    return {"id": request_id, "result": value}


OPENED = [sent("session/new", 0), result(0, sessionId=S)]
ASKED = card("t", title="t", status="pending")
LOAD, LOADED = sent("session/load", 9), result(9)
PROMPT = sent("session/prompt", 1)
ENDED, CANCELLED = result(1, stopReason="end_turn"), result(1, stopReason="cancelled")


def judge(
    *lines: Json, stopped: bool = False, ledger: Ledger | None = None, log: str = ""
) -> Ledger:
    """A life with two prompts, of the ids 1 and 2, which say `p0.0.` and `p1.0.`."""
    ledger = ledger or Ledger()
    prompts = [Prompt(n, S, 0, f"say p{n}.0.", [f"p{n}.0."], urgent=False) for n in (0, 1)]
    ledger.prompts = prompts
    if stopped:
        ledger.stop(0, S)
    recording = recorded(*OPENED, *lines)
    ledger.judge_life(recording, log, {"1": prompts[0], "2": prompts[1]}, quiet=True)
    return ledger


def recorded(*lines: Json) -> Recording:
    recording = Recording()
    for number, line in enumerate(lines):
        message = {"jsonrpc": "2.0", **{k: v for k, v in line.items() if k != "out"}}
        raw = json.dumps(message).encode() + b"\n"
        recording.append(Record("out" if "out" in line else "in", number, message, raw))
    return recording


@pytest.mark.parametrize(
    "lines",
    [
        [PROMPT, said("p0.0."), ENDED, LOAD, said("p0.0."), LOADED],
        # What was on its way when the load was sent comes before the replay, and in it.
        [PROMPT, LOAD, said("p0"), said(".0."), said("p0.0."), LOADED, ENDED],
        # A card that the client has from a question alone is one of the transcript.
        [PROMPT, asks("t"), said("p0.0."), ENDED, LOAD, ASKED, said("p0.0."), LOADED],
        # A question about a card that was shown adds none.
        [
            PROMPT,
            card("t"),
            asks("t"),
            said("p0.0."),
            ENDED,
            LOAD,
            card("t"),
            said("p0.0."),
            LOADED,
        ],
        # Questions don't wait for the end of a load: before the replay, and behind its beginning.
        [PROMPT, said("p0.0."), LOAD, asks("t"), said("p0.0."), ASKED, LOADED, ENDED],
        [PROMPT, said("p0.0."), LOAD, said("p0.0."), asks("t"), LOADED, ENDED],
    ],
)
def test_a_load_that_shows_what_was_shown_is_compared_and_good(lines: list[Json]) -> None:
    assert judge(*lines).counts["load: compared"] == 1


def test_an_answer_ahead_of_that_to_a_load_tells_that_the_load_is_given_up() -> None:
    too_slow = {"id": 9, "error": {"code": -32603, "message": "too much was not read"}}
    judge(LOAD, PROMPT, ENDED, too_slow)
    with pytest.raises(Lost, match="not shown"):
        judge(LOAD, PROMPT, LOADED, ENDED)


def test_a_load_behind_cancelled_may_show_what_was_kept_from_the_client() -> None:
    work = said("[on]", messageId="work")
    kept = [said("p0", messageId="m"), CANCELLED]
    shown = [said("p0", messageId="m"), work]
    judge(PROMPT, *kept, LOAD, *shown, LOADED, stopped=True)
    with pytest.raises(Lost, match="something else"):
        judge(PROMPT, *kept, sent("session/prompt", 2), LOAD, *shown, LOADED, stopped=True)


def test_a_command_that_was_cancelled_keeps_what_follows_from_the_client_as_a_prompt_does() -> None:
    lines = [PROMPT, said("p0.0."), ENDED, sent("session/prompt", "command")]
    work = said("[on]", messageId="work")
    judge(*lines, result("command", stopReason="cancelled"), LOAD, said("p0.0."), work, LOADED)
    with pytest.raises(Lost, match="something else"):
        judge(*lines, result("command", stopReason="end_turn"), LOAD, said("p0.0."), work, LOADED)


def test_a_delete_that_is_given_up_has_closed_the_session_before_the_load_that_is_open() -> None:
    rest = said("and more", messageId="n")
    load = [LOAD, sent("session/delete", 5), CANCELLED, {"id": 5, "error": {"code": -32800}}]
    judge(PROMPT, said("p0"), *load, said("p0"), rest, LOADED, stopped=True)
    with pytest.raises(Lost, match="something else"):
        judge(PROMPT, said("p0.0."), ENDED, LOAD, said("p0.0."), rest, LOADED)


def test_a_turn_that_ends_as_its_client_closes_the_session_need_not_be_shown_to_the_end() -> None:
    closed = [PROMPT, sent("session/close", 5), ENDED, result(5)]
    judge(*closed)
    later = [sent("session/prompt", 2), result(2, stopReason="end_turn")]
    with pytest.raises(Lost, match="not shown"):
        judge(*closed, sent("session/resume", 9), result(9), *later)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([PROMPT, ENDED], id="its words are not shown"),
        pytest.param([PROMPT, ENDED, said("p0.0.")], id="its words come too late"),
        pytest.param([PROMPT, said("p0.0."), CANCELLED], id="cancelled without a cancel"),
        pytest.param([PROMPT, said("p0.0."), ENDED, ENDED], id="answered twice"),
        pytest.param([PROMPT, said("p0.0."), ENDED, said("p0.0.")], id="shown twice"),
        pytest.param([PROMPT, said("p0.0."), ENDED, LOAD, LOADED], id="a load loses it"),
        pytest.param(
            [PROMPT, said("p0.0."), ENDED, LOAD, said("p0.0."), said("x"), LOADED],
            id="a load shows more",
        ),
        pytest.param(
            [PROMPT, card("t"), asks("t"), said("p0.0."), ENDED, LOAD, said("p0.0."), LOADED],
            id="a load loses a card",
        ),
    ],
)
def test_what_must_not_be_is_found(lines: list[Json]) -> None:
    with pytest.raises(Lost):
        judge(*lines)


@pytest.mark.parametrize(
    "late", [said("p0.0."), said("other", messageId="m")], ids=["its words", "its message"]
)
def test_what_follows_cancelled_is_found(late: Json) -> None:
    begun = [PROMPT, said("p0.0.", messageId="m"), CANCELLED]
    judge(*begun, stopped=True)
    with pytest.raises(Lost):
        judge(*begun, late, stopped=True)


@pytest.mark.parametrize("reuses", [True, False])
@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("log", ["agent.unclean session=session agent=a", ""])
def test_an_answer_may_be_taken_for_a_leak_where_ids_are_used_again_after_a_cancel_only(
    reuses: bool, stopped: bool, log: str
) -> None:
    ledger = Ledger(reuses_ids=reuses)
    begun = [PROMPT, said("p0.0.", messageId="m"), CANCELLED if stopped else ENDED]
    lines = [*begun, sent("session/prompt", 2), result(2, stopReason="end_turn")]
    if reuses and stopped and log:
        judge(*lines, ledger=ledger, stopped=stopped, log=log)
        return
    with pytest.raises(Lost):
        judge(*lines, ledger=ledger, stopped=stopped, log=log)


def test_of_a_bridge_that_was_killed_a_load_may_show_more_and_not_less() -> None:
    def killed() -> Ledger:
        ledger = judge(PROMPT, said("p0.0."))
        ledger.transcripts[S].whole = False
        return ledger

    load = [sent("session/load", 9)]
    judge(*load, said("p0.0."), said(" and more"), LOADED, ledger=killed())
    with pytest.raises(Lost):
        judge(*load, said("p0"), LOADED, ledger=killed())


def judge_two(first: list[Json], second: list[Json], *, stops: int | None = None) -> Ledger:
    """A life with two clients, each with a prompt of the id 1; `stops`: who says Stop at its end.

    The prompts say `p0.0.` and `p1.0.`.
    """
    ledger = Ledger(turns=[0])
    ledger.prompts = [
        Prompt(n, S, 0, f"say p{n}.0.", [f"p{n}.0."], urgent=False, by=n) for n in (0, 1)
    ]
    if stops is not None:
        ledger.stop(0, S, stops)
    one, two = ({"1": prompt} for prompt in ledger.prompts)
    ledger.judge_life(recorded(*OPENED, *first), "", one, quiet=True, company=True)
    guest = Guest(1, 0)
    ledger.judge_life(recorded(*second), "", two, quiet=True, guest=guest, company=True)
    return ledger


SEEN = [PROMPT, said("p0.0."), ENDED]
CLOSE = [sent("session/close", 7), result(7)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (SEEN, [LOAD, said("p0.0."), LOADED]),
        # One joins, and prompts under an id that the other uses, too.
        ([*SEEN, said("p1.0.")], [LOAD, said("p0.0."), LOADED, PROMPT, said("p1.0."), ENDED]),
        # The session went on when the first one had closed it.
        (
            [*SEEN, *CLOSE, LOAD, said("p0.0."), said("p1.0."), LOADED],
            [LOAD, said("p0.0."), LOADED, PROMPT, said("p1.0."), ENDED],
        ),
    ],
)
def test_two_clients_that_are_shown_the_same_are_compared_and_good(
    first: list[Json], second: list[Json]
) -> None:
    assert judge_two(first, second).counts["clients: compared"] == 1


@pytest.mark.parametrize(
    "second",
    [
        pytest.param([LOAD, LOADED], id="less"),
        pytest.param([LOAD, said("p0.0."), said("x"), LOADED], id="more"),
        pytest.param([LOAD, said("p0.0."), LOADED, PROMPT, ENDED], id="its own turn not"),
        pytest.param([LOAD, said("p0.0."), LOADED, said("p0.0.")], id="twice"),
    ],
)
def test_a_second_client_that_is_shown_something_else_is_found(second: list[Json]) -> None:
    with pytest.raises(Lost):
        judge_two(SEEN, second)


def test_a_stop_of_another_client_that_ends_a_turn_is_found() -> None:
    first, second = [PROMPT, said("p0.0."), CANCELLED], [LOAD, said("p0.0."), LOADED]
    judge_two(first, second, stops=0)
    with pytest.raises(Lost):
        judge_two(first, second, stops=1)


@pytest.mark.parametrize("shown", [[said("p0.0."), said("p1.0.")], [said("p0.0.")]])
def test_a_later_load_without_what_another_client_was_shown_is_found(shown: list[Json]) -> None:
    ledger = judge_two([*SEEN, *CLOSE], [LOAD, said("p0.0."), LOADED, PROMPT, said("p1.0."), ENDED])
    later = recorded(sent("session/load", 9), *shown, LOADED)
    if len(shown) == 2:
        ledger.judge_life(later, "", {}, quiet=True)
        return
    with pytest.raises(Lost):
        ledger.judge_life(later, "", {}, quiet=True)
