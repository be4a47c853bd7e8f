"""What a session's clients are told to run in the background, from what its agent lists."""

from typing import Any

import pytest

from acp_bridge.core.agents.activity import Activity, Piece
from acp_bridge.core.machine.states import Phase
from acp_bridge.core.session.process.work import Background
from acp_bridge.core.updates.notices import ended_in_background
from acp_bridge.core.updates.updates import Updates
from tests.core.session.played_core import PlayedCore

CALL = Piece("tool_call", "c", "C", True)
TOLD = {"type": "tool_call", "toolCallId": "c~2", "cancel": True}


class Said:
    """A transcript that keeps its notices."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)


class Here:
    """A session whose agent has shown no card."""

    def __init__(self) -> None:
        self.core, self.said = PlayedCore(), Said()
        self.updates = Updates({"c"})
        transcript: Any = self.said
        self.background = Background(self.core, self.updates, transcript, 1)

    def lists(self, *pieces: Piece, epoch: int = 1) -> Any:
        """The agent lists this; what clients are told then."""
        self.background.note(Activity(runs=False, background=pieces), epoch)
        return self.background.listed

    def shows(self, status: str) -> None:
        kind = "tool_call" if status == "pending" else "tool_call_update"
        update = {"sessionUpdate": kind, "toolCallId": "c", "title": "C", "status": status}
        self.updates.incoming(update, Phase.LIVE)


def test_a_tool_call_is_listed_from_its_first_update_until_its_end() -> None:
    here = Here()
    assert here.lists(CALL) == ()
    here.shows("pending")
    assert here.lists(CALL) == (TOLD,)
    assert here.background.is_listed("c~2")
    here.shows("completed")
    assert here.lists(CALL) == ()
    assert here.background.titles


@pytest.mark.hazard("C16")
def test_the_agent_works_on_a_listed_call_that_it_has_not_said_to_have_begun() -> None:
    here = Here()
    here.shows("pending")
    assert here.updates.worked_on(turn_runs=False) == set()
    here.lists(Piece("tool_call", "c", "C", False, ("c",)))
    assert here.updates.worked_on(turn_runs=False) == {"c~2"}


def test_of_a_type_that_is_not_known_the_type_alone_is_told() -> None:
    found = Here().lists(Piece("_x", "", "_x", False), Piece("subagent", "", "subagent", True))
    assert found == ({"type": "_x"}, {"type": "_subagent"})


def test_nothing_is_known_of_an_agent_that_has_listed_nothing_yet() -> None:
    here = Here()
    here.background.note(Activity(runs=True, background=None), 1)
    here.background.end(1)
    assert here.background.listed is None
    assert not here.background.titles


@pytest.mark.parametrize("named", [False, True])
def test_what_ends_with_the_process_is_named_once(named: bool) -> None:
    here = Here()
    here.lists(CALL)
    here.background.end(2)
    assert here.background.titles
    if named:
        assert here.background.take_titles() == ["C"]
    here.background.end(1)
    assert (here.background.listed, here.background.titles) == ((), [])
    assert here.said.notices == ([] if named else [ended_in_background(["C"])])
    here.background.end(1)
    assert len(here.said.notices) == (not named)


@pytest.mark.hazard("C25.13")
def test_what_ends_with_the_next_process_is_named_too() -> None:
    here = Here()
    here.lists(CALL)
    here.background.take_titles()
    here.background.end(1)
    here.lists(CALL, epoch=2)
    here.background.end(2)
    assert here.said.notices == [ended_in_background(["C"])]
