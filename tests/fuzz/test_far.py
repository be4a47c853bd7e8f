"""An editor from elsewhere in `make fuzz`, and what is different in its judging."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.told import Lost
from tests.fuzz import script
from tests.fuzz.ledger import Ledger
from tests.fuzz.prompts import Guest, Prompt
from tests.fuzz.run import Run
from tests.fuzz.sights import part_of
from tests.fuzz.test_fuzz import ENDED, LOAD, LOADED, OPENED, PROMPT, Json, S, recorded, said
from tests.fuzz.test_several import user


@pytest.fixture
def far() -> Iterator[None]:
    script.with_editors_from_elsewhere(wanted=True)
    yield
    script.with_editors_from_elsewhere(wanted=False)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.usefixtures("far")
async def test_behind_connect_over_a_wire_that_drops_all_is_answered_once_and_shown_as_recorded(
    tmp_path: Path,
) -> None:
    assert script.is_far(10)
    counts = await Run(10, tmp_path).play(30)
    assert counts["operations"] == 30
    assert any(name.startswith("wire: ") for name in counts)


def test_no_seed_has_such_an_editor_where_it_is_not_asked_for() -> None:
    assert not any(script.is_far(seed) for seed in range(1, 51))


@pytest.mark.usefixtures("far")
def test_one_seed_in_ten_has_such_an_editor_where_it_is_asked_for() -> None:
    assert [seed for seed in range(1, 51) if script.is_far(seed)] == [10, 20, 30, 40, 50]


def judge(*lines: Json, drops: tuple[float, ...]) -> None:
    ledger = Ledger(several=True)
    ledger.prompts = [Prompt(0, S, 0, "say p0.0.", ["p0.0."], urgent=False, by=1)]
    prompts, guest = {"1": ledger.prompts[0]}, Guest(1, 0)
    recording = recorded(*OPENED, *lines)
    ledger.judge_life(recording, "", prompts, quiet=True, guest=guest, company=True, drops=drops)


ALL = [PROMPT, said("p0.0."), ENDED, LOAD]


def test_only_a_load_that_was_open_when_the_line_dropped_may_lack_what_was_shown() -> None:
    judge(*ALL, LOADED, drops=(5.5,))
    judge(*ALL, said("p0.0."), LOADED, drops=())
    for drops in ((), (3.5,), (7.5,)):
        with pytest.raises(Lost, match="a load shows something else"):
            judge(*ALL, LOADED, drops=drops)


def test_words_that_come_twice_are_found_also_where_the_line_has_dropped() -> None:
    with pytest.raises(Lost, match="shown before"):
        judge(PROMPT, said("p0.0."), said("p0.0."), ENDED, drops=(3.5,))


def test_words_that_are_marked_with_their_prompt_are_a_part_of_the_whole() -> None:
    marked = user("one")["params"] | {"_meta": {"acp_bridge": {"promptId": "x"}}}
    assert part_of(marked) == user("one")["params"]["update"]
