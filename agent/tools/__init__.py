"""What the model can do besides talking: each tool is one small class behind `Tool`.

Invariants
- A tool ends when it is cancelled, and leaves nothing running (HAZARDS C10).
- What it raises as ToolError is for the model and the user to read; anything else is a bug,
  logged, and told as a bare failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel

from agent.client import Client
from agent.model import ToolSpec

ArgsT = TypeVar("ArgsT", bound=BaseModel)


class ToolError(Exception):
    """The tool could not do it, and why, in words for the model and the user."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    #: what the model reads
    text: str
    #: what the client gets as the card's raw output
    raw: Any = None


@dataclass(frozen=True, slots=True)
class ToolContext:
    #: absolute
    cwd: Path
    client: Client


class Tool(Protocol[ArgsT]):
    name: str
    description: str
    #: one of ACP's tool kinds
    kind: str
    Args: type[ArgsT]
    #: whether the user is asked first, in mode `ask`
    needs_permission: bool

    def title(self, args: ArgsT) -> str: ...

    def locations(self, args: ArgsT, cwd: Path) -> list[dict[str, Any]]: ...

    async def run(self, args: ArgsT, context: ToolContext) -> ToolResult:
        """Raises ToolError."""
        ...


AnyTool = Tool[Any]


class Toolbox:
    """The tools of a session, and what a model is told of them."""

    def __init__(self, tools: Sequence[AnyTool]) -> None:
        self._by_name = {tool.name: tool for tool in tools}

    def get(self, name: str) -> AnyTool | None:
        return self._by_name.get(name)

    @cached_property  # a schema takes pydantic milliseconds
    def specs(self) -> list[ToolSpec]:
        return [_spec(tool) for tool in self._by_name.values()]


def standard_tools() -> Toolbox:
    from agent.tools.read_file import ReadFile
    from agent.tools.shell import Shell

    return Toolbox([ReadFile(), Shell()])


def _spec(tool: AnyTool) -> ToolSpec:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.Args.model_json_schema(),
    }
    return {"type": "function", "function": function}
