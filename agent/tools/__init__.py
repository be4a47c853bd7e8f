"""What the model can do besides talking: each tool is one small class behind `Tool`.

Invariants
- A call is prepared, then perhaps allowed, then run: `prepare` changes nothing.
- A tool ends when it is cancelled, and leaves nothing running (HAZARDS C10).
- What it raises as ToolError is for the model and the user to read; anything else is a bug,
  logged, and told as a bare failure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from pydantic import BaseModel

from agent.client import Client
from agent.model import ToolSpec

ArgsT = TypeVar("ArgsT", bound=BaseModel)

#: what a call may touch: nothing, files to read, files to change, anything
Access = Literal["none", "read", "edit", "execute"]

#: replaces the content of the call's card while it runs (ACP tool call content: a terminal)
Show = Callable[[Sequence[dict[str, Any]]], Awaitable[None]]


class ToolError(Exception):
    """The tool could not do it, and why, in words for the model and the user."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    #: what the model reads
    text: str
    #: what the client gets as the card's raw output (JSON)
    raw: Any = None
    #: what the card shows (ACP tool call content); None: the text
    content: tuple[dict[str, Any], ...] | None = None
    #: images for the model: `data:` URLs
    images: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Grant:
    """What "always allow" would allow from then on in this session, and no more."""

    #: compared whole: ("edit", "/project/src"), ("shell", "git", "status")
    key: tuple[str, ...]
    #: for the option's name, after "Always allow": "edits in src", "`git status`"
    name: str


@dataclass(frozen=True, slots=True)
class Action:
    """A call that was looked at: what it is going to do, not done yet."""

    #: raises ToolError
    run: Callable[[Show], Awaitable[ToolResult]]
    grant: Grant
    #: it leads out of the session's folders, or into git's own: asked for in every mode
    outside: bool = False
    #: what the card shows before it runs (ACP tool call content: a diff)
    content: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What the tools of one session work with."""

    #: absolute
    cwd: Path
    client: Client
    #: `additionalDirectories`, absolute
    extra_roots: tuple[Path, ...] = ()
    #: what the model has seen of files: real path -> digest (see agent.tools.files)
    seen: dict[str, str] = field(default_factory=dict)
    #: for processes that tools start: the user's, without the keys of models
    environment: Mapping[str, str] = field(default_factory=dict)


class Tool(Protocol[ArgsT]):
    name: str
    description: str
    #: one of ACP's tool kinds
    kind: str
    Args: type[ArgsT]
    access: Access

    def title(self, args: ArgsT) -> str: ...

    def locations(self, args: ArgsT, cwd: Path) -> list[dict[str, Any]]: ...

    async def prepare(self, args: ArgsT, context: ToolContext) -> Action:
        """Look at it and change nothing. Raises ToolError."""
        ...


AnyTool = Tool[Any]


class Toolbox:
    """The tools of a session, and what a model is told of them. `servers`: those of MCP servers,
    which come and go."""

    def __init__(
        self,
        tools: Sequence[AnyTool],
        servers: Callable[[], Sequence[AnyTool]] = tuple,
    ) -> None:
        self._own = {tool.name: tool for tool in tools}
        self._servers = servers
        self._specs: dict[str, tuple[AnyTool, ToolSpec]] = {}

    def get(self, name: str) -> AnyTool | None:
        return self._own.get(name) or next((t for t in self._servers() if t.name == name), None)

    @property
    def specs(self) -> list[ToolSpec]:
        return [self._spec(tool) for tool in (*self._own.values(), *self._servers())]

    def _spec(self, tool: AnyTool) -> ToolSpec:
        known = self._specs.get(tool.name)
        if known is None or known[0] is not tool:  # a schema takes pydantic milliseconds
            known = self._specs[tool.name] = (tool, _spec(tool))
        return known[1]


def _spec(tool: AnyTool) -> ToolSpec:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.Args.model_json_schema(),
    }
    return {"type": "function", "function": function}
