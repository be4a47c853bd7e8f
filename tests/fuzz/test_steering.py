"""What judges words that steer: they may be sent and shown again if they were perhaps not read."""

import json
from pathlib import Path

import pytest

from tests.crash.told import Lost
from tests.fuzz.ledger import Ledger
from tests.fuzz.prompts import UNREAD, Guest, Prompt
from tests.fuzz.test_fuzz import Json, recorded, result, said, sent
from tests.fuzz.test_newer import COME, RUNS, heard
from tests.fuzz.test_newer import said as said_to_v2
from tests.fuzz.test_several import user
from tests.support.fixture_agents import FixtureLog
from tests.support.recording import Message

TEXT, WORD = "say p0.0.", "p0.0."
LEFT_OVER: Message = {"id": 1, "error": {"code": -32603, "message": UNREAD}}


def steers(*, steers: bool = True, answer: Message | None = None) -> Prompt:
    return Prompt(0, "session", 0, TEXT, [WORD], urgent=steers, steers=steers, answer=answer)


def judge(*lines: Json, prompt: Prompt, own: bool) -> None:
    """A client that sees the turns of the prompt, which is its own or another one's."""
    ledger = Ledger(prompts=[prompt], several=True)
    asked = {"1": prompt} if own else {}
    opened = [sent("session/load", 0), result(0)]
    guest = Guest(1, 0)
    ledger.judge_life(recorded(*opened, *lines), "", asked, quiet=True, guest=guest, company=True)


@pytest.mark.parametrize("own", [True, False])
def test_their_words_may_come_once_more_when_they_are_shown_again(own: bool) -> None:
    first = [sent("session/prompt", 1), said(WORD), LEFT_OVER] if own else [user(TEXT), said(WORD)]
    judge(*first, user(TEXT), said(WORD), prompt=steers(), own=own)
    with pytest.raises(Lost, match="shown before"):
        judge(*first, said(WORD), prompt=steers(), own=own)
    with pytest.raises(Lost, match="shown before"):
        judge(*first, user(TEXT), said(WORD), said(WORD), prompt=steers(), own=own)
    with pytest.raises(Lost, match="shown before"):
        judge(*first, user(TEXT), said(WORD), prompt=steers(steers=False), own=own)


@pytest.mark.parametrize("times", [1, 2])
def test_a_client_of_version_2_may_be_told_twice_what_is_there_twice(times: int) -> None:
    resume = sent("session/resume", 7, cwd="/w")
    lines = [*COME, RUNS, said_to_v2(WORD), resume, RUNS, result(7), said_to_v2(WORD)]
    told = heard(Ledger(), *lines)
    if times == 2:
        told.judge_whole("session", [said(WORD)["params"]["update"]] * 2)
        return
    with pytest.raises(Lost, match="shown before"):
        told.judge_whole("session", [said(WORD)["params"]["update"]])


def log(folder: Path, *prompts: str) -> FixtureLog:
    """What an agent has got: the words into a turn, then prompts."""
    events: list[Json] = [{"event": "steered", "prompt": TEXT}]
    for text in prompts:
        message = {"method": "session/prompt", "params": {"prompt": [{"text": text}]}}
        events.append({"event": "received", "pid": 1, "message": message})
    path = folder / "agent.log"
    path.write_text("\n".join(map(json.dumps, events)))
    return FixtureLog(path)


@pytest.mark.parametrize("answer", [LEFT_OVER, None], ids=["told", "its client has ended"])
def test_an_agent_may_get_them_once_more(tmp_path: Path, answer: Message | None) -> None:
    ledger = Ledger(prompts=[steers(answer=answer)])
    ledger.judge_agents(log(tmp_path, TEXT))
    with pytest.raises(Lost, match="twice"):
        ledger.judge_agents(log(tmp_path, TEXT, TEXT))


def test_an_agent_that_gets_again_what_has_joined_a_turn_is_found(tmp_path: Path) -> None:
    ended = steers(answer=result(1, stopReason="end_turn"))
    with pytest.raises(Lost, match="twice"):
        Ledger(prompts=[ended]).judge_agents(log(tmp_path, TEXT))
