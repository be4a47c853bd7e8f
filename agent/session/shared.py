"""What a session is opened with: what the client gives for it, and what all of them share."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from acp import RequestError
from acp.schema import ClientCapabilities
from pydantic import BaseModel

from agent.client import SendNotification, SendRequest, SessionClient
from agent.model import Models
from agent.secrets import Secrets, emptied_keys
from agent.settings import Settings
from agent.tools import AnyTool


@dataclass(frozen=True, slots=True)
class Given:
    """What a client gives with `session/new`, `load` or `resume`; what it gave the time before no
    longer counts (HAZARDS R5, R8)."""

    cwd: Path
    extra_roots: tuple[Path, ...] = ()
    #: wire form
    mcp_servers: tuple[dict[str, Any], ...] = ()

    @classmethod
    def checked(
        cls, cwd: str, extra_roots: Sequence[str] | None, mcp_servers: Sequence[BaseModel] | None
    ) -> Given:
        """Raises RequestError."""
        return cls(
            _absolute(cwd, "cwd"),
            tuple(_absolute(root, "additionalDirectories") for root in extra_roots or ()),
            tuple(map(wire, mcp_servers or ())),
        )

    def add_secrets(self, secrets: Secrets) -> None:
        """What only the servers are to know."""
        for server in self.mcp_servers:
            for pair in (*server.get("env", ()), *server.get("headers", ())):
                secrets.add_named(pair["name"], pair["value"])
            url = server.get("url", "")
            secrets.add_named("", url)  # a password in it
            for name, value in parse_qsl(url.partition("?")[2]):
                secrets.add_named(name, value)


@dataclass(slots=True)
class Setup:
    """What the sessions of one connection share."""

    models: Models
    settings: Settings
    tools: Sequence[AnyTool]
    secrets: Secrets
    #: of processes that tools start
    environment: Mapping[str, str]
    request: SendRequest
    notify: SendNotification
    #: the client's, once it has said them
    capabilities: ClientCapabilities = field(default_factory=ClientCapabilities)

    def client(self, session_id: str) -> SessionClient:
        fs = self.capabilities.fs
        return SessionClient(
            session_id,
            request=self.request,
            notify=self.notify,
            reads_files=bool(fs and fs.read_text_file),
            writes_files=bool(fs and fs.write_text_file),
            has_terminals=bool(self.capabilities.terminal),
            terminal_environment=emptied_keys(os.environ),
        )


def wire(model: BaseModel) -> dict[str, Any]:
    """As it is sent."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _absolute(path: str, name: str) -> Path:
    if not Path(path).is_absolute():
        raise RequestError(-32602, f"Invalid params: {name} is not absolute")
    return Path(path)
