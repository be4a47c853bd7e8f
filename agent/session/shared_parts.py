"""The parts that all sessions of one connection share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from acp.schema import ClientCapabilities
from msgspec import Struct, field

from agent.model import Model, Models
from agent.secrets import Secrets, emptied_keys
from agent.session.session_client import SendNotification, SendRequest, SessionClient
from agent.settings import Settings
from agent.tools import AnyTool


class SharedParts(Struct):
    models: Models
    settings: Settings
    tools: Sequence[AnyTool]
    secrets: Secrets
    #: the environment of processes that tools start
    environment: Mapping[str, str]
    request: SendRequest
    notify: SendNotification
    #: a light process: another one replaces it before a prompt comes
    light: bool = False
    #: what the client announced in `initialize`
    capabilities: ClientCapabilities = field(default_factory=ClientCapabilities)

    def summariser(self) -> Callable[[], Model] | None:
        """Returns a function that opens the model for summaries; None if the user named none."""
        name = self.settings.summary_model
        return partial(self.models.open, name) if name else None

    def client(self, session_id: str) -> SessionClient:
        """Returns the client for a session, with the abilities that it announced."""
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
