"""The parameters of `session/new`, `session/load` and `session/resume`, checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from msgspec import Struct
from pydantic import BaseModel

from agent.errors import invalid_params
from agent.secrets import Secrets
from agent.session.system_prompt import GivenPrompt
from agent.wire_form import wire_form


class SessionParams(Struct, frozen=True):
    """The folders and the MCP servers of a session.

    The last request that opens the session sets them; earlier ones no longer count (invariants R5,
    R8).
    """

    #: absolute
    cwd: Path
    #: `additionalDirectories`, absolute
    extra_roots: tuple[Path, ...] = ()
    #: `mcpServers`, in wire form
    mcp_servers: tuple[dict[str, Any], ...] = ()
    #: `systemPrompt`; None if the request has none: what the session has stays then
    system_prompt: GivenPrompt | None = None

    @classmethod
    def checked(
        cls,
        cwd: str,
        extra_roots: Sequence[str] | None,
        mcp_servers: Sequence[BaseModel] | None,
        system_prompt: object = None,
    ) -> SessionParams:
        """Returns the parameters of a request. Raises RequestError if a path is not absolute, or a
        system prompt is not of a mode and of blocks that this agent can take.
        """
        return cls(
            _absolute(cwd, "cwd"),
            tuple(_absolute(root, "additionalDirectories") for root in extra_roots or ()),
            tuple(map(wire_form, mcp_servers or ())),
            None if system_prompt is None else _given_prompt(system_prompt),
        )

    def add_secrets(self, secrets: Secrets) -> None:
        """Adds secrets of the MCP servers: in variables, headers and URLs."""
        for server in self.mcp_servers:
            for pair in (*server.get("env", ()), *server.get("headers", ())):
                secrets.add_named(pair["name"], pair["value"])
            url = server.get("url", "")
            secrets.add_named("", url)
            for name, value in parse_qsl(url.partition("?")[2]):
                secrets.add_named(name, value)


def _given_prompt(given: object) -> GivenPrompt:
    match given:
        case {"mode": "append" | "override" as mode, "content": [_, *_] as blocks}:
            texts = [_text(block) for block in blocks]
            return GivenPrompt("\n\n".join(texts), overrides=mode == "override")
        case {"mode": "append" | "override"}:
            raise invalid_params("systemPrompt.content must be a list of text blocks, not empty")
    raise invalid_params("systemPrompt.mode must be append or override")


def _text(block: object) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
    raise invalid_params("systemPrompt.content must have text blocks alone")


def _absolute(path: str, name: str) -> Path:
    if not Path(path).is_absolute():
        raise invalid_params(f"{name} is not absolute")
    return Path(path)
