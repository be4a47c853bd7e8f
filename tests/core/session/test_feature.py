"""The seam of features: what a session tells the features that are on, and what it owes them."""

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.agents.link import Link
from acp_bridge.core.machine.effects import Outcome
from acp_bridge.core.protocol import SESSION_PROMPT, TITLE, USAGE_UPDATE
from acp_bridge.core.session.feature import Feature
from acp_bridge.core.wire.jsonrpc import Answer, Ok, RpcError
from tests.core.session.living import DONE, Living, first, living
from tests.core.session.memory import Json
from tests.core.session.played_agent import PlayedAgent


class Noting(Feature):
    """Notes each moment of which it is told."""

    states = frozenset({USAGE_UPDATE})

    def __init__(self) -> None:
        self.told: list[str] = []

    def take_words(self) -> None:
        self.told.append("words")

    def begin_turn(self, link: Link, seq: int) -> None:
        self.told.append(f"begin {seq}")

    def note_progress(self) -> None:
        self.told.append("progress")

    def note_state(self, link: Link, update: Json, *, announced: bool) -> Json:
        self.told.append(f"state {update['used']} {announced}")
        return update

    def take_answer(self, link: Link, key: int, answer: Answer) -> Answer:
        self.told.append("answer")
        return answer

    def end_turn(self, outcome: Outcome) -> None:
        self.told.append("end")


class Broken(Noting):
    """Raises at each moment but `take_words`."""

    def raises(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("broken on purpose")

    begin_turn = note_progress = note_state = take_answer = end_turn = follow = raises


class Refusing(Noting):
    """Raises before the session takes words."""

    def take_words(self) -> None:
        raise RuntimeError("broken on purpose")


class Stamping(Feature):
    """Changes the agent's answers."""

    def __init__(self, stamp: str) -> None:
        self.stamp = stamp

    def take_answer(self, link: Link, key: int, answer: Answer) -> Answer:
        assert isinstance(answer, Ok)
        return Ok({**answer.result, "usage": answer.result.get("usage", "") + self.stamp})


async def played(here: Living, agent: PlayedAgent) -> Json:
    """Play a turn in which the agent says something and tells a state; returns its answer."""
    asked = here.prompt()
    turn = await agent.asked(SESSION_PROMPT)
    agent.update(sessionUpdate=USAGE_UPDATE, used=1, size=2)
    agent.says_text("text")
    agent.answer(turn, DONE)
    answer: Json = await here.answered(asked)
    return answer


async def test_a_feature_is_told_the_moments_of_a_turn_in_their_order(tmp_path: Path) -> None:
    noting = Noting()
    async with living(tmp_path, first=(agent := first()), features=[lambda *_: [noting]]) as here:
        await played(here, agent)
    assert noting.told == ["words", "begin 1", "state 1 True", "progress", "answer", "end"]


@pytest.mark.hazard("P6", "Q9.1")
async def test_a_feature_that_raises_at_each_moment_of_a_turn_hinders_neither_it_nor_the_next_one(
    tmp_path: Path,
) -> None:
    noting = Noting()
    features = [lambda *_: [Broken(), noting]]
    async with living(tmp_path, first=(agent := first()), features=features) as here:
        assert await played(here, agent) == DONE
    assert noting.told == ["words", "begin 1", "state 1 True", "progress", "answer", "end"]


async def test_words_are_refused_if_a_feature_that_may_refuse_them_raises(tmp_path: Path) -> None:
    features = [lambda *_: [Refusing()]]
    async with living(tmp_path, first=first(), features=features) as here:
        with pytest.raises(RuntimeError):
            here.prompt()
        assert not here.session.now.unanswered


async def test_each_feature_gets_the_answer_as_the_one_before_it_left_it(tmp_path: Path) -> None:
    features = [lambda *_: [Stamping("a")], lambda *_: [], lambda *_: [Stamping("b")]]
    async with living(tmp_path, first=(agent := first()), features=features) as here:
        assert (await played(here, agent))["usage"] == "ab"


async def test_words_for_the_running_turn_wait_for_a_turn_where_nothing_steers(
    tmp_path: Path, no_errors: None
) -> None:
    async with living(tmp_path, first=(agent := first()), steers=True) as here:
        runs, joins = (
            here.prompt("one"),
            here.prompt("two", _meta={"acp_bridge": {"delivery": "steer"}}),
        )
        for request in (runs, joins):
            agent.answer(await agent.asked(SESSION_PROMPT), DONE)
            assert await here.answered(request) == DONE


async def test_a_request_that_is_a_features_is_of_no_method_where_the_feature_is_missing(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        with pytest.raises(RpcError, match="method not found"):
            here.takes(TITLE, title="mine")
