"""The tools of the model; each is one small class behind `Tool`.

Invariants
- A call is prepared, then allowed or not, then run; `prepare` changes nothing.
- A text is cut with `Secrets.mask_part`, so that no half of a secret is left at a limit.
- A tool ends when it is cancelled, and leaves nothing running (invariant C10).
- The text of a ToolError is for the model and the user. Any other exception is a bug: it is logged,
  and the model is told only that the tool failed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from msgspec import Struct, field
from pydantic import BaseModel

from agent.client import Client
from agent.model import ToolSpec
from agent.secrets import Secrets

ArgsT = TypeVar("ArgsT", bound=BaseModel)

#: what a call may do: nothing outside of the session, read files, change files, or anything
Access = Literal["none", "read", "edit", "execute"]

#: called with new content for the call's card while it runs (ACP tool call content)
Show = Callable[[Sequence[dict[str, Any]]], Awaitable[None]]


class ToolError(Exception):
    """The tool could not do its work; the text tells the model and the user why."""


class ToolResult(Struct, frozen=True):
    #: the text that the model reads
    text: str
    #: the card's raw output for the client (JSON)
    raw: Any = None
    #: ACP tool call content for the card; None: the card shows the text
    content: tuple[dict[str, Any], ...] | None = None
    #: `data:` URLs of images for the model
    images: tuple[str, ...] = ()


class Grant(Struct, frozen=True):
    """What an "always" answer to a permission holds for in this session."""

    #: calls with equal keys share the answer: ("edit", "/project/src"), ("shell", "git", "status")
    key: tuple[str, ...]
    #: the end of the option's name after "Always allow": "edits in src", "`git status`"
    name: str
    #: what the calls must also have in common if their key does not say where they work: the folder
    #: that a command runs in, or the server of a tool
    within: str = ""
    #: a wider key than `key`; an "always reject" of it refuses this call, too
    rejected_by: tuple[str, ...] = ()


class Action(Struct, frozen=True):
    """A prepared call: says what it will do, and does nothing before `run`."""

    #: raises ToolError
    run: Callable[[Show], Awaitable[ToolResult]]
    grant: Grant
    #: True if it reaches outside of the session's folders, or changes files that other programs act
    #: on; the user is asked in every mode
    outside: bool = False
    #: ACP tool call content that the card shows before the call runs, such as a diff
    content: tuple[dict[str, Any], ...] = ()
    #: True if the user is asked whatever the mode, the rules and earlier answers say
    only_person: bool = False
    #: True if it shows the file of keys; the user is asked in every mode but auto
    shows_keys: bool = False


class ToolContext(Struct, frozen=True):
    """What the tools of one session work with: its folders, its client and its state."""

    #: absolute
    cwd: Path
    client: Client
    #: `additionalDirectories`, absolute
    extra_roots: tuple[Path, ...] = ()
    #: the digest of each file that the model has read, by its real path (see agent.tools.files)
    seen: dict[str, str] = field(default_factory=dict)
    #: the environment of processes that tools start: the user's, without the keys of models
    environment: Mapping[str, str] = field(default_factory=dict)
    #: the folders in which sessions are recorded, with the user's "always" answers
    records: tuple[Path, ...] = ()
    #: masks secrets where a tool cuts a text; whole texts are masked by the turn
    secrets: Secrets = field(default_factory=Secrets)


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
        """Checks a call without changing anything and returns its action. Raises ToolError."""
        ...


AnyTool = Tool[Any]


class Toolbox:
    """The tools of a session, and their specs for a model.

    `servers` returns the tools of MCP servers, which may change at any time.
    """

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

    def missing(self, names: Iterable[str]) -> list[str]:
        """Returns, sorted, the names that no tool has now."""
        return sorted(name for name in names if self.get(name) is None)

    @property
    def specs(self) -> list[ToolSpec]:
        return [self._spec(tool) for tool in (*self._own.values(), *self._servers())]

    def _spec(self, tool: AnyTool) -> ToolSpec:
        known = self._specs.get(tool.name)
        if known is None or known[0] is not tool:
            known = self._specs[tool.name] = (tool, _spec(tool))
        return known[1]


def _spec(tool: AnyTool) -> ToolSpec:
    arguments: type[BaseModel] = tool.Args
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": schema(arguments),
    }
    return {"type": "function", "function": function}


@lru_cache(maxsize=64)  # bounded, since MCP servers may bring new argument models for ever
def schema(arguments: type[BaseModel]) -> dict[str, Any]:
    """Returns the JSON schema of a pydantic model, cached: it takes milliseconds and a megabyte.

    All sessions of a process, and the agents forked from it, share the result: don't change it.
    """
    return arguments.model_json_schema()
