"""The plan tool: what the model means to do, shown whole each time."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import ValidationError

from agent.tools import ToolContext, ToolResult
from agent.tools.plan import Plan, PlanArgs
from tests.agent.support import MemoryClient

STEPS = [
    {"content": "Look", "priority": "high", "status": "completed"},
    {"content": "Mend", "status": "in_progress"},
    {"content": "Test"},
]
ENTRIES = [
    {"content": "Look", "priority": "high", "status": "completed"},
    {"content": "Mend", "priority": "medium", "status": "in_progress"},
    {"content": "Test", "priority": "medium", "status": "pending"},
]


async def plan(client: MemoryClient, entries: list[dict[str, Any]]) -> ToolResult:
    async def show(content: object) -> None:
        raise AssertionError("a plan is no card's content")

    args = PlanArgs.model_validate({"entries": entries})
    with anyio.fail_after(5):
        action = await Plan().prepare(args, ToolContext(Path("/project"), client))
        assert client.updates == []
        return await action.run(show)


async def test_the_client_gets_the_whole_plan_and_the_transcript_too() -> None:
    client = MemoryClient()
    result = await plan(client, STEPS)
    assert client.updates == [{"sessionUpdate": "plan", "entries": ENTRIES}]
    assert result.raw == {"entries": ENTRIES}
    assert result.text == "The user sees the plan: 1 of 3 done."


async def test_an_empty_plan_takes_it_away() -> None:
    client = MemoryClient()
    await plan(client, [])
    assert client.updates == [{"sessionUpdate": "plan", "entries": []}]


def test_it_needs_no_permission_and_says_how_far_it_is() -> None:
    assert (Plan.access, Plan.kind) == ("none", "think")
    args = PlanArgs.model_validate({"entries": STEPS})
    assert Plan().title(args) == "Plan: 1 of 3 done"
    assert Plan().locations(args, Path("/")) == []


@pytest.mark.parametrize(
    "entry",
    [{}, {"content": ""}, {"content": "x", "status": "doing"}, {"content": "x", "priority": 1}],
)
def test_what_no_client_could_show_is_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PlanArgs.model_validate({"entries": [entry]})
