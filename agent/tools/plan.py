"""Shows the model's plan to the user; each call replaces the whole plan.

ACP: docs/protocol/v1/agent-plan. The call has no card: the plan is what the user sees of it. The
result's raw output has the plan, for the transcript.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from agent.tools import Access, Action, Grant, Show, ToolContext, ToolResult


class PlanEntry(BaseModel):
    content: str = Field(min_length=1, description="What is to be done, in a few words.")
    priority: Literal["high", "medium", "low"] = "medium"
    status: Literal["pending", "in_progress", "completed"] = "pending"


class PlanArgs(BaseModel):
    entries: list[PlanEntry] = Field(description="All steps of the plan, also those done.")

    @property
    def progress(self) -> str:
        done = sum(entry.status == "completed" for entry in self.entries)
        return f"{done} of {len(self.entries)} done"


class Plan:
    name = "plan"
    description = (
        "Show the user your plan for work of several steps, and again, whole, whenever the status "
        "of a step changes. At most one step is in_progress at a time."
    )
    kind = "think"
    Args = PlanArgs
    access: Access = "none"

    def title(self, args: PlanArgs) -> str:
        return f"Plan: {args.progress}"

    def locations(self, args: PlanArgs, cwd: Path) -> list[dict[str, Any]]:
        return []

    async def prepare(self, args: PlanArgs, context: ToolContext) -> Action:
        return Action(partial(_run, args, context), Grant(("plan",), "plans"))


async def _run(args: PlanArgs, context: ToolContext, show: Show) -> ToolResult:
    entries = [entry.model_dump() for entry in args.entries]
    await context.client.update({"sessionUpdate": "plan", "entries": entries})
    return ToolResult(f"The user sees the plan: {args.progress}.", {"entries": entries})
