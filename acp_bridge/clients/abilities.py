"""What a client said in `initialize` that it can do, and what it is spared because of that."""

from __future__ import annotations

from acp_bridge import protocol
from acp_bridge.protocol import Json, has


class ClientAbilities:
    """The client's capabilities; an object that is missing or odd means none."""

    def __init__(self, capabilities: object = None) -> None:
        self._capabilities = capabilities

    def has(self, *path: str) -> bool:
        """Return True when the client declared this capability."""
        return has(self._capabilities, *path)

    def allows(self, method: str, params: object) -> bool:
        """Return True when the client takes such a request (spec: client capabilities)."""
        match method:
            case protocol.READ_TEXT_FILE:
                return self.has("fs", "readTextFile")
            case protocol.WRITE_TEXT_FILE:
                return self.has("fs", "writeTextFile")
            case protocol.CREATE_ELICITATION:
                mode = params.get("mode") if isinstance(params, dict) else None
                return isinstance(mode, str) and self.has("elicitation", mode)
            case _:
                return not method.startswith("terminal/") or self.has("terminal")

    def fit(self, holder: Json) -> Json:
        """Return a result or an update with `configOptions` as this client can take it.

        Boolean options are left out unless the client declared them (spec: session config
        options). Journal and session keep what the agent said.
        """
        options = holder.get("configOptions")
        if not isinstance(options, list) or self.has("session", "configOptions", "boolean"):
            return holder
        shown = [o for o in options if not (isinstance(o, dict) and o.get("type") == "boolean")]
        return {**holder, "configOptions": shown}
