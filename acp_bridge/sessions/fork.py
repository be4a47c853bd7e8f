"""`session/fork`: a second session that begins with what the first one has.

The agent that has the session forks it, and lets go of the fork; what was shown is copied from one
journal into the other; the fork gets a process of its own as any session does that is loaded.
"""

from __future__ import annotations

import anyio

from acp_bridge.clients.client import ClientRequest
from acp_bridge.protocol import Json

#: what is said in the listing of a fork, after the title of what it was made of.
_TITLE = "{} (fork)"


class _Kept(ClientRequest):
    """A client's request whose answer is looked at before the client gets one of ours."""

    def __init__(self, request: ClientRequest, params: Json) -> None:
        super().__init__(request.client, request.call)
        object.__setattr__(self, "given", params)
        object.__setattr__(self, "answers", [])
        object.__setattr__(self, "answered", anyio.Event())
