"""What the bridge says in sessions of clients that have come from elsewhere. SANS-IO."""

from __future__ import annotations

from acp_bridge.core.updates.wording import code, duration


def servers_left_out(names: list[str], machine: str) -> str:
    """Return the notice of MCP servers that a remote client has named and that are not started."""
    told = ", ".join(f"`{code(name)}`" for name in names)
    return (
        f"[acp-bridge] MCP servers that would be started as commands on {machine} are left out:"
        f" {told}. `--client-mcp` of `acp-bridge serve` lets clients from elsewhere start them."
    )


def unattended(seconds: float) -> str:
    """Return the notice that work ends as nobody had its session open for `seconds` seconds."""
    return (
        f"[acp-bridge] Nobody has had this session open for {duration(seconds)}: what runs is"
        " cancelled, and what waits is left over."
    )
