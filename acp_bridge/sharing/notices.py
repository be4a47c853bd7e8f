"""What the bridge says in sessions of clients that have come from elsewhere. SANS-IO."""

from __future__ import annotations

from acp_bridge.core.updates.wording import code


def servers_left_out(names: list[str], machine: str) -> str:
    """Return the notice of MCP servers that a remote client has named and that are not started."""
    told = ", ".join(f"`{code(name)}`" for name in names)
    return (
        f"[acp-bridge] MCP servers that would be started as commands on {machine} are left out:"
        f" {told}. `--client-mcp` of `acp-bridge serve` lets clients from elsewhere start them."
    )
