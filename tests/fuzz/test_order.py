"""What judges the order in which agents get a session's prompts."""

import json
from pathlib import Path

import pytest

from tests.crash.told import Lost
from tests.fuzz.ledger import Ledger
from tests.fuzz.prompts import KEPT, ClosedForAll, Prompt
from tests.fuzz.test_fuzz import result
from tests.support.fixture_agents import FixtureLog
from tests.support.recording import Message

DONE = result(1, stopReason="end_turn")
LEFT_OVER: Message = {"id": 1, "error": {"code": -32603, "message": f"closed{KEPT} later"}}


def judge(folder: Path, *ran: int, first: Message | None = DONE, closed: str = "") -> None:
    """Three prompts of one client; `ran`: their numbers as they ran, `first`: of 0 the answer.

    `closed`: a session that somebody has closed for all.
    """
    prompts = [
        Prompt(n, "session", 0, f"say p{n}.0.", [f"p{n}.0."], urgent=False) for n in range(3)
    ]
    for prompt in prompts:
        prompt.answer = DONE if prompt.number else first
    ledger = Ledger(prompts=prompts, several=True, closings=[ClosedForAll(1, closed, by=1)])
    turns = [json.dumps({"event": "turn", "prompt": prompts[number].text}) for number in ran]
    (folder / "agent.log").write_text("\n".join(turns))
    ledger.judge_agents(FixtureLog(folder / "agent.log"))


def test_a_prompt_that_overtakes_another_is_found(tmp_path: Path) -> None:
    judge(tmp_path, 0, 1, 2)
    with pytest.raises(Lost, match="ran after"):
        judge(tmp_path, 1, 0, 2)


@pytest.mark.parametrize("first", [LEFT_OVER, None], ids=["told", "its client has ended"])
def test_what_was_left_over_by_a_close_for_all_runs_when_the_user_says_so(
    tmp_path: Path, first: Message | None
) -> None:
    judge(tmp_path, 1, 0, 2, first=first, closed="session")
    with pytest.raises(Lost, match="ran after"):
        judge(tmp_path, 2, 0, 1, first=first, closed="session")


def test_a_prompt_without_an_answer_keeps_its_place_where_nobody_closed_the_session(
    tmp_path: Path,
) -> None:
    with pytest.raises(Lost, match="ran after"):
        judge(tmp_path, 1, 0, 2, first=None, closed="another")
