"""What judges clients of version 2 that act: each rule is seen to be broken once."""

from typing import Any

import pytest

from tests.crash.told import Lost
from tests.fuzz import script
from tests.fuzz.heard import Heard
from tests.fuzz.ledger import Ledger
from tests.fuzz.prompts import NEWER, Guest, Prompt
from tests.fuzz.test_fuzz import Json, S, recorded
from tests.fuzz.transcripts import Updates

ONE, TWO = f"p{NEWER}.0.", f"p{NEWER + 1}.0."


def sent(method: str, request_id: Any = None, **params: Any) -> Json:
    about = {"method": method, "params": {"sessionId": S, **params}}
    return {"out": True, **about, **({} if request_id is None else {"id": request_id})}


def update(kind: str, **members: Any) -> Json:
    told = {"sessionUpdate": kind, **members}
    return {"method": "session/update", "params": {"sessionId": S, "update": told}}


def said(text: str) -> Json:
    content = {"type": "text", "text": text}
    return update("agent_message_chunk", messageId="m", content=content)


def prompt(request_id: int, text: str = ONE) -> Json:
    return sent("session/prompt", request_id, prompt=[{"type": "text", "text": f"say {text}"}])


def begun(request_id: int) -> Json:
    return {"id": request_id, "result": {"messageId": f"u{request_id}"}}


def refused(request_id: int, code: int = -32800) -> Json:
    return {"id": request_id, "error": {"code": code, "message": "no"}}


def state(word: str, **members: Any) -> Json:
    return update("state_update", state=word, **members)


def accepted(request_id: int, **more: Any) -> Json:
    params = {"sessionId": S, "requestId": request_id, "promptId": "x", **more}
    return {"method": "_acp_bridge/accepted", "params": params}


RUNS, IDLE = state("running"), state("idle")
ENDED, CANCELLED = state("idle", stopReason="end_turn"), state("idle", stopReason="cancelled")
RESUME = sent("session/resume", 0, cwd="/w")
REPLAY = sent("session/resume", 9, cwd="/w", replayFrom={"type": "start"})
WHOLE, RESUMED, REPLAYED = (
    update("replay_complete"),
    {"id": 0, "result": {}},
    {"id": 9, "result": {}},
)
CLOSE, CLOSED = sent("session/close", 5), {"id": 5, "result": {}}
STOP = sent("session/cancel")
GIVE_UP = {"out": True, "method": "$/cancel_request", "params": {"requestId": 1}}
COME = [RESUME, IDLE, RESUMED]
TURN = [RUNS, begun(1), said(ONE), ENDED]


def heard(ledger: Ledger, *lines: Json) -> Heard:
    """What a client was told, judged; its prompts are of the ids 1 and 2."""
    told = Heard(ledger, Guest(1, 0), recorded(*lines))
    told.prompts = {str(number): prompt for number, prompt in enumerate(ledger.newer.values(), 1)}
    told.judge()
    return told


def judge(*lines: Json, stopped: bool = False, whole: str = ONE) -> Ledger:
    """A client that has come, with two prompts, of the ids 1 and 2; `whole`: what was said."""
    ledger = Ledger()
    for number, text in ((NEWER, ONE), (NEWER + 1, TWO)):
        ledger.newer[number] = Prompt(number, S, 0, f"say {text}", [text], False, by=1)
    if stopped:
        ledger.stop(0, S, 1)
    told = heard(ledger, *COME, *lines)
    content = {"type": "text", "text": whole}
    updates: Updates = [{"sessionUpdate": "agent_message_chunk", "content": content}]
    told.judge_whole(S, updates)
    return ledger


@pytest.mark.parametrize(
    ("lines", "how"),
    [
        ([prompt(1), *TURN], {}),
        ([prompt(1), *TURN, REPLAY, said(ONE), WHOLE, IDLE, REPLAYED], {}),
        # What was on its way comes before the replay, and in it.
        ([prompt(1), RUNS, begun(1), REPLAY, said(ONE), said(ONE), WHOLE, RUNS, REPLAYED], {}),
        # Of two replays at a time it is not known which is which.
        ([REPLAY, {**REPLAY, "id": 8}, said(ONE), WHOLE, IDLE, REPLAYED], {}),
        # It leaves in the middle of a turn, which ends before it has left.
        ([prompt(1), RUNS, begun(1), CLOSE, ENDED, CLOSED], {}),
        # Its connection has ended before the replay was whole.
        ([prompt(1), *TURN, REPLAY], {}),
        ([prompt(1), RUNS, begun(1), STOP, CANCELLED], {"stopped": True}),
        ([prompt(1), GIVE_UP, refused(1)], {}),
        # A turn begins as its prompt is given up, and ends with that.
        ([prompt(1), GIVE_UP, RUNS, begun(1), CANCELLED], {}),
        # It was sent before, and has ended then.
        ([prompt(1), accepted(1, ended=True, begun=True), begun(1)], {}),
        # Both attempts at one prompt have its turn.
        ([prompt(1), prompt(3), RUNS, begun(1), {**begun(1), "id": 3}, said(ONE), ENDED], {}),
        # A turn that begins before the Stop is read is the one that the Stop ends.
        ([prompt(1), STOP, RUNS, begun(1), CANCELLED], {"stopped": True}),
    ],
)
def test_what_may_be_is_good(lines: list[Json], how: dict[str, Any]) -> None:
    judge(*lines, **how)


@pytest.mark.parametrize(
    ("lines", "how"),
    [
        pytest.param([prompt(1), RUNS, begun(1), ENDED], {}, id="its words are not shown"),
        pytest.param([prompt(1), *TURN, ENDED], {}, id="the turn ends twice"),
        pytest.param([prompt(1), begun(1)], {}, id="it begins at rest"),
        pytest.param([prompt(1), RUNS, begun(1), IDLE], {}, id="its end has no reason"),
        pytest.param(
            [prompt(1), prompt(2), RUNS, begun(1), begun(2)], {}, id="two prompts in one turn"
        ),
        pytest.param([prompt(1), RUNS, begun(1), CANCELLED], {}, id="cancelled without a Stop"),
        pytest.param([prompt(1), refused(1)], {}, id="withdrawn without a word"),
        pytest.param([prompt(1), RUNS, begun(1), GIVE_UP, CANCELLED], {}, id="given up too late"),
        pytest.param(
            [prompt(1), RUNS, begun(1), CANCELLED, said(ONE)], {"stopped": True}, id="goes on"
        ),
        pytest.param(
            [prompt(1), STOP, prompt(2), refused(2, -32603), RUNS, begun(1)],
            {"stopped": True},
            id="the Stop did not withdraw it",
        ),
        pytest.param([prompt(1), RUNS, said(ONE), begun(1), ENDED], {}, id="answered too late"),
        pytest.param([prompt(1), *TURN, said(ONE)], {}, id="said twice"),
        pytest.param([said(TWO)], {}, id="said, and not there in the end"),
        pytest.param([prompt(1), *TURN, REPLAY, WHOLE, IDLE, REPLAYED], {}, id="a replay loses it"),
        pytest.param(
            [REPLAY, said(TWO), WHOLE, IDLE, REPLAYED], {"whole": ONE + TWO}, id="no beginning"
        ),
        pytest.param([REPLAY, said(ONE), IDLE, REPLAYED], {}, id="a replay without its mark"),
        pytest.param([REPLAY, WHOLE, REPLAYED], {}, id="a replay without the state"),
        pytest.param(
            [prompt(1), RUNS, begun(1), CLOSE, CLOSED],
            {},
            id="closed without its end",
        ),
        pytest.param([update("plan", entries=[])], {}, id="a word of version 1"),
    ],
)
def test_what_must_not_be_is_found(lines: list[Json], how: dict[str, Any]) -> None:
    with pytest.raises(Lost):
        judge(*lines, **how)


def test_a_prompt_that_was_refused_may_be_taken_when_it_is_sent_again() -> None:
    second = [prompt(2, TWO), accepted(2), RUNS, begun(2), said(TWO), ENDED]
    lost, taken = judge(prompt(1), refused(1, -32600), *second, whole=TWO).newer.values()
    assert (lost.answer or {})["error"]["code"] == -32600
    lost.send_again()
    taken.send_again()
    assert lost.answer is None
    assert taken.stopped == "end_turn"


def test_they_act_in_some_seeds_by_decisions_of_their_own() -> None:
    acted = [seed for seed in range(200) if script.is_acted(seed)]
    assert 40 < len(acted) < 100
